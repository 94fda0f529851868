"""The store put together: one database, the truth in it, and what is derived from it in the same transactions."""

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
from recollect.stores.postgres.database import Connection, Database, plain
from recollect.stores.postgres.failures import LOST, translated
from recollect.stores.postgres.files import PostgresFiles, PostgresJoins, PostgresNotes
from recollect.stores.postgres.keywords import Derived, PostgresKeywords
from recollect.stores.postgres.records import CHANNEL, PostgresRecords
from recollect.stores.postgres.rows import condition, meta, numbers
from recollect.stores.postgres.schema import migrate
from recollect.stores.postgres.vectors import PostgresSpaces
from recollect.types import EVERYTHING, Filter, Scope

MOST_NAMES = 500

WRITTEN_ANEW = 64 * 1024 * 1024
"""Bytes of a table that is written anew to be rid of what was purged: about a second."""

PATIENCE = "1s"
"""For whoever reads a table that is to be written anew: all others would wait behind us."""


class PostgresStore:
    """One schema of a PostgreSQL database: `postgresql://user@host/database?schema=recollect&read=postgresql://…`."""

    def __init__(self, url: str, *, language: str | None = None, read_only: bool = False) -> None:
        self._database = Database(url, read_only=read_only)
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
        self.records = PostgresRecords(self._database, Derived(lambda: self.keywords.chain), self.keywords.follow)
        self.contents = PostgresContents(self._database, self.keywords)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Nothing yet: each read is a transaction of its own."""
        return contextlib.nullcontext()

    def within(self, scope: Scope) -> PostgresStore:
        """The same store, whose every transaction names this scope to row-level security."""
        view = copy.copy(self)
        view.records = self.records.within(scope)
        view.spaces = self.spaces.within(scope)
        view.files = self.files.within(scope)
        view.joins = self.joins.within(scope)
        return view

    def status(self) -> dict[str, Any]:
        """What it holds and how far its indexes have read."""
        with self._database.read() as connection:
            server = connection.info.server_version
            numbers = connection.execute(
                "SELECT (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
                " WHERE relnamespace = %s::regnamespace AND relkind = 'r'),"
                " (SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL), (SELECT count(*) FROM files),"
                " (SELECT coalesce(max(seq), 0) FROM history)",
                (self._database.schema,),
            ).fetchone() or (0, 0, 0, 0)
            return {
                "store": self._database.shown,
                "engine": f"PostgreSQL {server // 10_000}.{server % 10_000}",
                "bytes": int(numbers[0]),
                "records": {**_counts(connection, EVERYTHING), "forgotten": int(numbers[1])},
                "files": int(numbers[2]),
                "sequence": int(numbers[3]),
                "language": meta(connection, "language"),
                "keyword_lag": self.keywords.lag(connection),
            }

    def count(self, where: Filter) -> dict[str, int]:
        """How many records the filter lets through, and of which kind."""
        with self._database.read(where.scope) as connection:
            return _counts(connection, where)

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The categories, tags and scopes of what the filter lets through."""
        with self._database.read(where.scope) as connection:
            return _facets(connection, where)

    def scrub(self) -> str | None:
        """Leave nothing of what was purged in the tables; the server's log and backups are the server's affair.

        Small tables are written anew, unless somebody reads them; large ones, which would be kept from everybody, give
        their space to others.
        """
        left = set()
        with self._database.alone() as connection, translated(self._database.shown):
            if self._database.walled(connection):
                return "what was purged is in no answer; its bytes stay until the owner of the tables vacuums them"
            connection.execute(f"SET lock_timeout TO '{PATIENCE}'")
            spaces = [f"vectors_{space}" for (space,) in connection.execute("SELECT space FROM spaces")]
            for name in ("records", "history", "postings", "embeddings", *spaces):
                if not _written_anew(connection, name):
                    left.add(name)
        return f"what was purged is in no answer; bytes of it may stay in {', '.join(sorted(left))}" if left else None

    def check(self) -> None:
        """Refuse use after closing."""
        self._database.check()

    def close(self) -> None:
        """Give the connections back; closing twice is harmless."""
        self._database.close()


class PostgresKind(StoreKind):
    """`postgresql://user@host/database?schema=recollect&read=postgresql://…`."""

    shared = True

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> PostgresStore:
        """Open the store, and make it where it does not exist."""
        return PostgresStore(place, language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        """Whether the schema is there."""
        return has_store(place)

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[PostgresStore]:
        """The main server's store, to be read only."""
        from recollect.stores.postgres.health import looking, require_ready

        try:
            with looking(place) as server:
                require_ready(server)
                url = server.url
        except NotExamined:
            raise
        except RecollectError as error:
            raise NotExamined("the store cannot be read") from error
        with contextlib.closing(PostgresStore(url, read_only=True)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> list[Finding]:
        """The findings of one check."""
        from recollect.stores.postgres import health

        return [] if check == "disk" else health.examine(check, examination)


def _written_anew(connection: Connection, name: str) -> bool:
    """Whether nothing of what was deleted from a table is left; what is not written anew is at least made free."""
    found = connection.execute("SELECT pg_total_relation_size(%s)", (name,)).fetchone()
    if found is not None and found[0] <= WRITTEN_ANEW:
        with contextlib.suppress(pg.LockNotAvailable):
            connection.execute(f"VACUUM (FULL) {name}")
            return True
    with contextlib.suppress(pg.LockNotAvailable):
        connection.execute(f"VACUUM {name}")
    return False


def _counts(connection: Connection, where: Filter) -> dict[str, int]:
    sql, values = condition(where)
    found = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
        f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {sql}",
        values,
    ).fetchone() or (0, 0, 0, 0)
    return dict(zip(("total", "facts", "chunks", "superseded"), map(int, found), strict=True))


def _facets(connection: Connection, where: Filter) -> dict[str, list[Any]]:
    sql, values = condition(where)
    categories = connection.execute(
        f"SELECT category FROM records WHERE {sql} AND category IS NOT NULL GROUP BY category"
        ' ORDER BY count(*) DESC, category COLLATE "C" LIMIT %s',
        [*values, MOST_NAMES],
    ).fetchall()
    tags = connection.execute(
        f"SELECT tag FROM records, unnest(tags) AS tag WHERE {sql} GROUP BY tag"
        ' ORDER BY count(*) DESC, tag COLLATE "C" LIMIT %s',
        [*values, MOST_NAMES],
    ).fetchall()
    scopes = connection.execute(
        f'SELECT "user", agent, session FROM records JOIN scopes USING (scope) WHERE {sql}'
        ' GROUP BY "user", agent, session ORDER BY count(*) DESC, "user" NULLS FIRST, agent NULLS FIRST,'
        " session NULLS FIRST LIMIT %s",
        [*values, MOST_NAMES],
    ).fetchall()
    parts = ("user", "agent", "session")
    return {
        "categories": [plain(name) for (name,) in categories],
        "tags": [plain(name) for (name,) in tags],
        "scopes": [
            {part: plain(name) for part, name in zip(parts, row, strict=True) if name is not None} for row in scopes
        ],
    }


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
