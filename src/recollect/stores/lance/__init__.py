"""A store whose records are in a SQLite file and whose vector index is LanceDB (extra `lancedb`).

The file keeps every vector. LanceDB holds an approximate index of them, in a folder or on object storage, which can be
rebuilt from the file at any time.
"""

from recollect.stores.lance.store import LanceStore

__all__ = ["LanceStore"]
