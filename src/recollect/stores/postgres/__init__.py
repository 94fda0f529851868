"""The PostgreSQL store: one schema with records, everything derived from them, and notifications of changes."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import Any

from psycopg import errors as pg

from recollect.errors import StoreError
from recollect.stores import StoreKind
from recollect.stores.database import SqlStore
from recollect.stores.health import Examination, Finding
from recollect.stores.postgres.additions import CHANNEL
from recollect.stores.postgres.connections import CONNECTION_LOST, Connection, integer
from recollect.stores.postgres.contents import PostgresContents
from recollect.stores.postgres.database import PostgresDatabase, server_hosts, translated
from recollect.stores.postgres.keywords import PostgresKeywords
from recollect.stores.postgres.records import PostgresJoins, PostgresNotes, PostgresRecords
from recollect.stores.postgres.rows import visible_scopes
from recollect.stores.postgres.schema import migrate
from recollect.stores.postgres.vectors import PostgresSpaces, spaces_of
from recollect.stores.records import SqlChanges, SqlFiles
from recollect.stores.rows import Condition
from recollect.types import Scope

MAX_REWRITE_BYTES = 64 * 1024 * 1024
"""Tables up to this size are rewritten to remove purged bytes, which takes about a second."""

REWRITE_WAIT = "1s"  # how long to wait for readers of a table that is to be rewritten: everybody else waits, too

LATE_EVENTS = 500
"""An event may become visible after one with a number that is higher by up to this much: numbers are given before the
transactions commit."""

REPLAY_SECONDS = 2.0  # how long to wait for a replica to have a change before it is announced


class PostgresStore(SqlStore):
    """One schema of a PostgreSQL database: `postgresql://user@host/database?schema=recollect&read=postgresql://…`."""

    _database: PostgresDatabase

    def __init__(self, url: str, *, language: str | None = None, read_only: bool = False) -> None:
        self._database = PostgresDatabase(url, read_only=read_only)
        try:
            migrate(self._database)
            parts = PARTS
            if self._database.distributed:
                from recollect.stores.postgres.citus import CLUSTER_PARTS
                from recollect.stores.postgres.citus.database import ClusterDatabase

                self._database.close()
                self._database, parts = ClusterDatabase(url, read_only=read_only), CLUSTER_PARTS
            keywords, spaces, changes, records, contents = parts
            self.keywords = keywords(self._database, language)
            self.spaces = spaces(self._database)
            self.changes = changes(self._database)
            self.records = records(self._database, self.keywords)
            self.contents = contents(self._database, self.keywords)
        except BaseException:
            self.close()
            raise
        self.files = SqlFiles(self._database)
        self.notes = PostgresNotes(self._database)
        self.joins = PostgresJoins(self._database)

    def within(self, scope: Scope) -> PostgresStore:
        """A view of this store whose transactions all name this scope to row-level security."""
        view = copy.copy(self)
        view.records = self.records.within(scope)
        view.spaces = self.spaces.within(scope)
        view.files = self.files.within(scope)
        view.joins = self.joins.within(scope)
        return view

    def _place(self, connection: Connection) -> dict[str, Any]:
        server = connection.info.server_version
        size = integer(connection, self._database.SIZE, {"schema": self._database.schema})
        engine = f"PostgreSQL {server // 10_000}.{server % 10_000}"
        return {"store": self._database.address, "engine": engine, "bytes": size}

    def scrub(self) -> str | None:
        """Remove the bytes of purged records from the tables; the server's log and backups are not ours.

        Small tables are rewritten, unless somebody reads them. Large ones are vacuumed, so that the space is reused.
        """
        try:
            self.keywords.merge_all()  # removed records are in its blocks until then
        except StoreError as error:
            if not isinstance(error.__cause__, pg.LockNotAvailable):
                raise
            return "purged records are in no answer; words of them stay in blocks, which are being merged: purge again"
        with self._database.connect() as connection, translated(self._database.address):
            if self._database.row_security(connection):
                return "purged records are in no answer; their bytes stay until the owner of the tables vacuums them"
            connection.execute(f"SET lock_timeout TO '{REWRITE_WAIT}'")
            spaces = [f"vectors_{space}" for space in spaces_of(connection)]
            tables = ("records", "history", "documents", "blocks", "removals", "embeddings", *spaces)
            size = self._database.TABLE_SIZE
            left = sorted(table for table in tables if not _rewritten(connection, table, size))
        return f"purged records are in no answer; bytes of them may stay in {', '.join(left)}" if left else None


class PostgresKind(StoreKind):
    """`postgresql://user@host/database?schema=recollect&read=postgresql://…`."""

    shared = True

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> PostgresStore:
        return PostgresStore(place, language=language, read_only=read_only)

    def hosts(self, place: str) -> list[str]:
        return server_hosts(place)

    def exists(self, place: str) -> bool:
        with contextlib.closing(PostgresDatabase(place, read_only=True)) as database, database.read() as connection:
            cursor = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{database.schema}.migrations",))
            return cursor.fetchone() == (True,)

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[PostgresStore]:
        from recollect.stores.postgres.health import quick_url, require_ready

        require_ready(place)
        with contextlib.closing(PostgresStore(quick_url(place), read_only=True)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> list[Finding]:
        from recollect.stores.postgres import health

        return [] if check == "disk" else health.examine(check, examination)


def _rewritten(connection: Connection, table: str, size: str) -> bool:
    """Rewrite a table if it is small and not in use, else vacuum it; return whether it was rewritten."""
    if integer(connection, size, (table,)) <= MAX_REWRITE_BYTES:
        with contextlib.suppress(pg.LockNotAvailable):
            connection.execute(f"VACUUM (FULL) {table}")
            return True
    with contextlib.suppress(pg.LockNotAvailable):
        connection.execute(f"VACUUM {table}")
    return False


class PostgresChanges(SqlChanges):
    """The changes to one store, made on any machine."""

    _database: PostgresDatabase

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        """A lost connection is made again and yields True, because changes may have been missed."""
        with contextlib.ExitStack() as stack:
            yield self._notices(stack, self._connect(stack), quiet)

    def _connect(self, stack: contextlib.ExitStack) -> Connection:
        connection = stack.enter_context(contextlib.closing(self._database.connect()))
        with translated(self._database.address):
            connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _notices(self, stack: contextlib.ExitStack, connection: Connection, quiet: float) -> Iterator[bool]:
        while True:
            self._database.check()
            try:
                if connection.closed:
                    connection = self._connect(stack)
                    yield True
                notices = list(connection.notifies(timeout=quiet, stop_after=1))
            except (StoreError, *CONNECTION_LOST) as error:
                stack.close()
                if isinstance(error, StoreError):  # it cannot be made again yet
                    time.sleep(quiet)
                yield False
            else:
                changed = any(notice.payload == self._database.schema for notice in notices)
                if changed:
                    self._await_replica()
                yield changed

    def _await_replica(self) -> None:
        """Searches that follow the announcement use the replica, so it should have the change by then."""
        deadline = time.monotonic() + REPLAY_SECONDS
        replayed = "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn"
        with contextlib.suppress(StoreError):  # searches do not use a replica that fails
            written = self._database.one("SELECT pg_current_wal_insert_lsn()::text")
            while time.monotonic() < deadline:
                with self._database.read(replica=True) as connection:
                    if connection.execute(replayed, written).fetchone() == (True,):
                        return
                time.sleep(0.02)

    def _visible(self, connection: Connection, scope: Scope) -> Condition:
        return f"FROM history WHERE scope = ANY(%s) AND NOT ({_SUPERSEDES})", [visible_scopes(connection, scope)]

    def _next(self, connection: Connection, seq: int, events: list[int]) -> int:
        if self._database.row_security(connection):  # our newest event need not be the store's newest
            newest = max(events, default=seq)
        else:
            newest = integer(connection, "SELECT max(seq) FROM history")
        return max(0, newest - LATE_EVENTS)


_SUPERSEDES = """
    action = 'supersedes' OR action = 'undo' AND EXISTS (
        SELECT 1 FROM history AS undone WHERE undone.scope = history.scope AND undone.action = 'supersedes'
            AND undone.seq = CASE
            WHEN history.detail::json->>'undoes' ~ '^[0-9]{1,18}$' THEN (history.detail::json->>'undoes')::bigint END)
"""

PARTS: tuple[
    type[PostgresKeywords], type[PostgresSpaces], type[PostgresChanges], type[PostgresRecords], type[PostgresContents]
] = (PostgresKeywords, PostgresSpaces, PostgresChanges, PostgresRecords, PostgresContents)
"""The classes of a store's parts."""
