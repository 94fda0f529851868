"""What was asked of others and may be asked again: kept answers, by key."""

from __future__ import annotations

import contextlib

from recollect.errors import StoreError
from recollect.stores.rows import micros
from recollect.stores.sqlite.database import PATIENCE_MS, Database
from recollect.types import now

KEPT = 10_000
"""Answers; the oldest go first."""


class SqliteNotes:
    """A small cache in the store's file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """What was kept under a key."""
        with self._database.read() as connection:
            value = connection.execute("SELECT value FROM notes WHERE key = ?", (key,)).get
        return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Keep an answer, unless the store is read-only or busy: then it is asked for again another time."""
        if self._database.read_only:
            return
        with contextlib.suppress(StoreError), self._database.write(PATIENCE_MS) as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (key, value, micros(now())))
            connection.execute(
                "DELETE FROM notes WHERE key IN (SELECT key FROM notes ORDER BY at DESC LIMIT -1 OFFSET ?)", (KEPT,)
            )
