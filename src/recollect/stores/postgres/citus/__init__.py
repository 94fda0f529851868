"""A store on Citus: the same tables, distributed by the number of the scope (docs/decisions/069-citus.md).

Statements name the scopes that they are about as constants, so each goes to the shards of these scopes alone.
"""

from __future__ import annotations

from recollect.stores.postgres import LATE_EVENTS, PostgresChanges
from recollect.stores.postgres.citus.contents import ClusterContents
from recollect.stores.postgres.citus.keywords import ClusterKeywords
from recollect.stores.postgres.citus.records import ClusterRecords
from recollect.stores.postgres.citus.vectors import ClusterSpaces
from recollect.stores.postgres.connections import Connection, integer


class ClusterChanges(PostgresChanges):
    """The changes to a distributed store."""

    def _next(self, connection: Connection, seq: int, events: list[int]) -> int:
        if self._database.row_security(connection):
            return super()._next(connection, seq, events)
        newest = "SELECT pg_sequence_last_value(pg_get_serial_sequence('history', 'seq'))"
        return max(0, integer(connection, newest) - LATE_EVENTS)


CLUSTER_PARTS = (ClusterKeywords, ClusterSpaces, ClusterChanges, ClusterRecords, ClusterContents)
"""The classes of a store's parts."""
