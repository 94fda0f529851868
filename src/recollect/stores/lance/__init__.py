"""SQLite for the truth, LanceDB for its vectors: in a folder, or on object storage (the extra `lancedb`)."""

from recollect.stores.lance.store import LanceStore

__all__ = ["LanceStore"]
