"""The store put together: one database, the truth in it, and what is derived from it in the same transactions."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from psycopg import errors as pg

from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.derived import Derived
from recollect.stores.postgres.failures import translated
from recollect.stores.postgres.files import PostgresFiles, PostgresNotes
from recollect.stores.postgres.joins import PostgresJoins
from recollect.stores.postgres.keywords import PostgresKeywords, meta
from recollect.stores.postgres.listening import PostgresChanges
from recollect.stores.postgres.moving import PostgresMoving
from recollect.stores.postgres.records import PostgresRecords
from recollect.stores.postgres.rows import plain
from recollect.stores.postgres.schema import migrate
from recollect.stores.postgres.vectors import PostgresSpaces
from recollect.stores.postgres.visible import condition
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
        self.moving = PostgresMoving(self._database, self.keywords)

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
