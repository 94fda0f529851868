"""A store on Citus: the same tables, distributed by the number of the scope (docs/decisions/069-citus.md).

Statements name the scopes that they are about as constants, so each goes to the shards of these scopes alone.
"""

from __future__ import annotations

from recollect.stores.postgres import LATE_EVENTS, PostgresChanges, PostgresStore
from recollect.stores.postgres.citus.contents import ClusterContents
from recollect.stores.postgres.citus.database import ClusterDatabase
from recollect.stores.postgres.citus.keywords import ClusterKeywords
from recollect.stores.postgres.citus.records import ClusterRecords
from recollect.stores.postgres.citus.vectors import ClusterSpaces
from recollect.stores.postgres.connections import Connection


class ClusterChanges(PostgresChanges):
    """The changes to a distributed store."""

    def _next(self, connection: Connection, seq: int, events: list[int]) -> int:
        if self._database.row_security(connection):
            return super()._next(connection, seq, events)
        newest = "SELECT pg_sequence_last_value(pg_get_serial_sequence('history', 'seq'))"
        row = connection.execute(newest).fetchone()
        return max(0, (row[0] or 0 if row else 0) - LATE_EVENTS)


def open_database(url: str, *, read_only: bool) -> ClusterDatabase:
    """The coordinator at a URL."""
    return ClusterDatabase(url, read_only=read_only)


def equip(store: PostgresStore, database: ClusterDatabase, language: str | None) -> None:
    """Give a store the parts that use a cluster."""
    keywords = ClusterKeywords(database, language)
    store.keywords = keywords
    store.spaces = ClusterSpaces(database)
    store.changes = ClusterChanges(database)
    store.records = ClusterRecords(database, keywords)
    store.contents = ClusterContents(database, keywords)
