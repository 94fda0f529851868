"""The embedded store: one SQLite file in WAL mode that holds records, history, vectors and both indexes."""

from recollect.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
