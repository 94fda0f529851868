"""The PostgreSQL store: one schema with records, everything derived from them, and notifications of changes."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import Any

from psycopg import errors as pg

from recollect.errors import RecollectError, StoreError
from recollect.stores.health import Examination, Finding, NotExamined
from recollect.stores.kinds import StoreKind
from recollect.stores.postgres.contents import PostgresContents, has_store
from recollect.stores.postgres.database import Connection, PostgresDatabase
from recollect.stores.postgres.failures import CONNECTION_LOST, translated
from recollect.stores.postgres.files import PostgresFiles, PostgresJoins, PostgresNotes
from recollect.stores.postgres.keywords import IndexWriter, PostgresKeywords
from recollect.stores.postgres.records import CHANNEL, PostgresRecords
from recollect.stores.postgres.rows import Condition, matching, meta, visible_scopes
from recollect.stores.postgres.schema import migrate
from recollect.stores.postgres.vectors import PostgresSpaces
from recollect.types import EVERYTHING, Changes, Filter, Scope

MAX_FACETS = 500

MAX_REWRITE_BYTES = 64 * 1024 * 1024
"""Tables up to this size are rewritten to remove purged bytes, which takes about a second."""

REWRITE_WAIT = "1s"
"""How long to wait for readers of a table that is to be rewritten: everybody else waits, too."""

LATE_EVENTS = 500
"""An event may become visible after one with a number that is higher by up to this much: numbers are given before the
transactions commit."""

REPLAY_SECONDS = 2.0
"""How long to wait for a replica to have a change before it is announced."""

_FACETS = {
    "categories": (
        "category FROM records WHERE {} AND category IS NOT NULL"
        ' GROUP BY category ORDER BY count(*) DESC, category COLLATE "C"'
    ),
    "tags": 'tag FROM records, unnest(tags) AS tag WHERE {} GROUP BY tag ORDER BY count(*) DESC, tag COLLATE "C"',
    "scopes": (
        '"user", agent, session FROM records JOIN scopes USING (scope) WHERE {} GROUP BY "user", agent, session'
        ' ORDER BY count(*) DESC, "user" NULLS FIRST, agent NULLS FIRST, session NULLS FIRST'
    ),
}


class PostgresStore:
    """One schema of a PostgreSQL database: `postgresql://user@host/database?schema=recollect&read=postgresql://…`."""

    def __init__(self, url: str, *, language: str | None = None, read_only: bool = False) -> None:
        self._database = PostgresDatabase(url, read_only=read_only)
        try:
            migrate(self._database)
            self.keywords = PostgresKeywords(self._database, language)
        except BaseException:
            self.close()
            raise
        self.spaces = PostgresSpaces(self._database)
        self.files = PostgresFiles(self._database)
        self.notes = PostgresNotes(self._database)
        self.joins = PostgresJoins(self._database)
        self.changes = PostgresChanges(self._database)
        writer = IndexWriter(lambda: self.keywords.known_analyzer)
        self.records = PostgresRecords(self._database, writer, self.keywords.lock_language)
        self.contents = PostgresContents(self._database, self.keywords)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Let all reads inside the block share one snapshot."""
        return self._database.reading()

    def within(self, scope: Scope) -> PostgresStore:
        """The same store, whose transactions all name this scope to row-level security."""
        view = copy.copy(self)
        view.records = self.records.within(scope)
        view.spaces = self.spaces.within(scope)
        view.files = self.files.within(scope)
        view.joins = self.joins.within(scope)
        return view

    def status(self) -> dict[str, Any]:
        """What the store contains and how far its indexes are."""
        with self._database.read() as connection:
            server = connection.info.server_version
            size, forgotten, files, sequence = connection.execute(
                "SELECT (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
                " WHERE relnamespace = %s::regnamespace AND relkind = 'r'),"
                " (SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL), (SELECT count(*) FROM files),"
                " (SELECT coalesce(max(seq), 0) FROM history)",
                (self._database.schema,),
            ).fetchone() or (0, 0, 0, 0)
            return {
                "store": self._database.address,
                "engine": f"PostgreSQL {server // 10_000}.{server % 10_000}",
                "bytes": int(size),
                "records": {**_counts(connection, EVERYTHING), "forgotten": int(forgotten)},
                "files": int(files),
                "sequence": int(sequence),
                "language": meta(connection, "language"),
                "keyword_lag": self.keywords.lag(connection),
            }

    def count(self, where: Filter) -> dict[str, int]:
        """How many records pass the filter, by kind."""
        with self._database.read(where.scope) as connection:
            return _counts(connection, where)

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The categories, tags and scopes of the records that pass the filter."""
        condition, values = matching(where)
        with self._database.read(where.scope) as connection, connection.pipeline():
            cursors = {
                name: connection.execute(f"SELECT {sql.format(condition)} LIMIT {MAX_FACETS}", values)
                for name, sql in _FACETS.items()
            }
        parts = ("user", "agent", "session")
        scopes = [{part: name for part, name in zip(parts, row, strict=True) if name is not None}
                  for row in cursors["scopes"]]  # fmt: skip
        names: dict[str, list[Any]] = {facet: [name for (name,) in cursors[facet]] for facet in ("categories", "tags")}
        return {**names, "scopes": scopes}

    def scrub(self) -> str | None:
        """Remove the bytes of purged records from the tables; the server's log and backups are not ours.

        Small tables are rewritten, unless somebody reads them. Large ones are vacuumed, so that the space is reused.
        """
        left = set()
        with self._database.connect() as connection, translated(self._database.address):
            if self._database.row_security(connection):
                return "purged records are in no answer; their bytes stay until the owner of the tables vacuums them"
            connection.execute(f"SET lock_timeout TO '{REWRITE_WAIT}'")
            spaces = [f"vectors_{space}" for (space,) in connection.execute("SELECT space FROM spaces")]
            for name in ("records", "history", "postings", "embeddings", *spaces):
                if not _rewritten(connection, name):
                    left.add(name)
        return f"purged records are in no answer; bytes of them may stay in {', '.join(sorted(left))}" if left else None

    def check(self) -> None:
        """Raise if the store is closed, or was opened by another process."""
        self._database.check()

    def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        self._database.close()


class PostgresKind(StoreKind):
    """`postgresql://user@host/database?schema=recollect&read=postgresql://…`."""

    shared = True

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> PostgresStore:
        return PostgresStore(place, language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        return has_store(place)

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[PostgresStore]:
        """The store on the main server, opened read only."""
        from recollect.stores.postgres.health import inspecting, require_ready

        try:
            with inspecting(place) as server:
                require_ready(server)
                url = server.url
        except NotExamined:
            raise
        except RecollectError as error:
            raise NotExamined("the store cannot be read") from error
        with contextlib.closing(PostgresStore(url, read_only=True)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> list[Finding]:
        from recollect.stores.postgres import health

        return [] if check == "disk" else health.examine(check, examination)


def _rewritten(connection: Connection, table: str) -> bool:
    """Rewrite a table if it is small and not in use, else vacuum it; return whether it was rewritten."""
    row = connection.execute("SELECT pg_total_relation_size(%s)", (table,)).fetchone()
    if row is not None and row[0] <= MAX_REWRITE_BYTES:
        with contextlib.suppress(pg.LockNotAvailable):
            connection.execute(f"VACUUM (FULL) {table}")
            return True
    with contextlib.suppress(pg.LockNotAvailable):
        connection.execute(f"VACUUM {table}")
    return False


def _counts(connection: Connection, where: Filter) -> dict[str, int]:
    condition, values = matching(where)
    row = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
        f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {condition}",
        values,
    ).fetchone() or (0, 0, 0, 0)
    return dict(zip(("total", "facts", "chunks", "superseded"), map(int, row), strict=True))


class PostgresChanges(Changes):
    """The changes to one store, made on any machine."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        """An iterator of True for each possible change, and of False after each `quiet` seconds without one.

        A lost connection is made again and yields True, because changes may have been missed.
        """
        with contextlib.closing(_Listener(self._database, quiet)) as listener:
            yield listener

    def newest(self, scope: Scope | None = None) -> int:
        with self._database.read(scope) as connection:
            condition, values = _announced(connection, scope)
            return _number(connection, f"SELECT seq FROM history WHERE {condition} ORDER BY seq DESC LIMIT 1", values)

    def count(self, upto: int, scope: Scope) -> int:
        with self._database.read(scope) as connection:
            condition, values = _announced(connection, scope)
            return _number(connection, f"SELECT count(*) FROM history WHERE seq <= %s AND {condition}", [upto, *values])

    def since(self, seq: int, scope: Scope | None = None) -> tuple[list[int], int]:
        with self._database.read(scope) as connection:
            condition, values = _announced(connection, scope)
            rows = connection.execute(f"SELECT seq FROM history WHERE seq > %s AND {condition}", [seq, *values])
            events = [number for (number,) in rows]
            if self._database.row_security(connection):  # our newest event need not be the store's newest
                return events, max([0, *(number - LATE_EVENTS for number in events or [seq])])
            return events, max(0, _number(connection, "SELECT coalesce(max(seq), 0) FROM history") - LATE_EVENTS)


class _Listener:
    """A connection to the main server that listens for notifications."""

    def __init__(self, database: PostgresDatabase, quiet: float) -> None:
        self._database = database
        self._quiet = quiet
        self._connection: Connection | None = self._connect()

    def __iter__(self) -> _Listener:
        return self

    def __next__(self) -> bool:
        self._database.check()
        if self._connection is None:
            return self._reconnect()
        try:
            notices = list(self._connection.notifies(timeout=self._quiet, stop_after=1))
        except CONNECTION_LOST:
            self.close()
            return False
        changed = any(notice.payload == self._database.schema for notice in notices)
        if changed:
            self._await_replica()
        return changed

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        connection = self._database.connect()
        try:
            with translated(self._database.address):
                connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _reconnect(self) -> bool:
        try:
            self._connection = self._connect()
        except StoreError:
            time.sleep(self._quiet)
            return False
        return True

    def _await_replica(self) -> None:
        """Searches that follow the announcement use the replica, so it should have the change by then."""
        deadline = time.monotonic() + REPLAY_SECONDS
        with contextlib.suppress(StoreError):  # searches do not use a replica that fails
            (written,) = self._database.one("SELECT pg_current_wal_flush_lsn()::text")
            while not self._replayed(written) and time.monotonic() < deadline:
                time.sleep(0.02)

    def _replayed(self, written: str) -> bool:
        with self._database.read(replica=True) as connection:
            row = connection.execute(
                "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)
            ).fetchone()
        return bool(row and row[0])


_SUPERSEDES = """
    action = 'supersedes' OR action = 'undo' AND EXISTS (
        SELECT 1 FROM history AS undone WHERE undone.action = 'supersedes' AND undone.seq = CASE
            WHEN history.detail::json->>'undoes' ~ '^[0-9]{1,18}$' THEN (history.detail::json->>'undoes')::bigint END)
"""


def _announced(connection: Connection, scope: Scope | None) -> Condition:
    """The events that a scope is told about.

    That a record supersedes another is not among them: the superseded record has an event of its own, for those who
    can see that record.
    """
    if scope is None:
        return "true", []
    return f"scope = ANY(%s) AND NOT ({_SUPERSEDES})", [visible_scopes(connection, scope)]


def _number(connection: Connection, sql: str, values: list[Any] | None = None) -> int:
    row = connection.execute(sql, values).fetchone()
    return int(row[0]) if row else 0
