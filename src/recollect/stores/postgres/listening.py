"""Learning of changes as they happen: PostgreSQL tells whoever listens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.failures import translated
from recollect.stores.postgres.pool import LOST
from recollect.stores.postgres.records import CHANNEL
from recollect.stores.postgres.visible import numbers
from recollect.types import Scope

LATE = 500
"""Numbers within which a line of history may come after one with a higher number: who was first to take one is not
always the first to commit."""

REPLAY_SECONDS = 2.0
"""How long a replica may take to have what was told, before it is told all the same."""


class PostgresChanges:
    """What has happened to one store, on whichever machine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        """Within it, True each time that something may have happened, False after each quiet while.

        A connection that is lost is made again, and then it is True: nobody knows what was missed.
        """
        with contextlib.closing(_Ear(self._database, quiet)) as ear:
            yield ear

    def newest(self, scope: Scope | None = None) -> int:
        """The number of the newest line of history that tells a scope anything."""
        with self._database.read(scope) as connection:
            told, values = _told(connection, scope)
            return _first(connection, f"SELECT seq FROM history WHERE {told} ORDER BY seq DESC LIMIT 1", values)

    def count(self, upto: int, scope: Scope) -> int:
        """How many such lines there are up to a number."""
        with self._database.read(scope) as connection:
            told, values = _told(connection, scope)
            return _first(connection, f"SELECT count(*) FROM history WHERE seq <= %s AND {told}", [upto, *values])

    def since(self, seq: int, scope: Scope | None = None) -> tuple[list[int], int]:
        """The numbers of such lines after a number, and the number to ask with next: some lines come late."""
        with self._database.read(scope) as connection:
            told, values = _told(connection, scope)
            found = connection.execute(f"SELECT seq FROM history WHERE seq > %s AND {told}", [seq, *values])
            lines = [number for (number,) in found]
            if self._database.walled(connection):  # then nobody's newest is not everybody's
                return lines, max([0, *(number - LATE for number in lines or [seq])])
            return lines, max(0, _first(connection, "SELECT coalesce(max(seq), 0) FROM history") - LATE)


class _Ear:
    """A connection that listens, on the main server."""

    def __init__(self, database: Database, quiet: float) -> None:
        self._database = database
        self._quiet = quiet
        self._connection: Connection | None = self._listening()

    def __iter__(self) -> _Ear:
        return self

    def __next__(self) -> bool:
        self._database.check()
        if self._connection is None:
            return self._again()
        try:
            heard = list(self._connection.notifies(timeout=self._quiet, stop_after=1))
        except LOST:
            self.close()
            return False
        told = any(notice.payload == self._database.schema for notice in heard)
        if told:
            self._await_replica()
        return told

    def close(self) -> None:
        """Listen no more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _listening(self) -> Connection:
        connection = self._database.alone()
        try:
            with translated(self._database.shown):
                connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _again(self) -> bool:
        try:
            self._connection = self._listening()
        except StoreError:
            time.sleep(self._quiet)
            return False
        return True

    def _await_replica(self) -> None:
        """Whoever is told asks next, and searches go to the replica: it should have what they are told of."""
        deadline = time.monotonic() + REPLAY_SECONDS
        with contextlib.suppress(StoreError):  # the replica is passed over then, here as there
            (written,) = self._database.glance("SELECT pg_current_wal_flush_lsn()::text")
            while not self._replayed(written) and time.monotonic() < deadline:
                time.sleep(0.02)

    def _replayed(self, written: str) -> bool:
        with self._database.read(replica=True) as connection:
            found = connection.execute(
                "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)
            ).fetchone()
        return bool(found and found[0])


_UNTOLD = """
    action = 'supersedes' OR action = 'undo' AND EXISTS (
        SELECT 1 FROM history AS undone WHERE undone.action = 'supersedes' AND undone.seq = CASE
            WHEN history.detail::json->>'undoes' ~ '^[0-9]{1,18}$' THEN (history.detail::json->>'undoes')::bigint END)
"""


def _told(connection: Connection, scope: Scope | None) -> tuple[str, list[Any]]:
    """What a scope is told of: not that a record took the place of another, or no longer does.

    The other record has a line of its own for that, which is told to those who see it.
    """
    if scope is None:
        return "true", []
    return f"scope = ANY(%s) AND NOT ({_UNTOLD})", [numbers(connection, scope)]


def _first(connection: Connection, sql: str, values: list[Any] | None = None) -> int:
    found = connection.execute(sql, values).fetchone()
    return int(found[0]) if found else 0
