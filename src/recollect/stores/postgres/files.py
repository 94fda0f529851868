"""What the store knows of the files it mirrors, and kept answers."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.keywords import meta
from recollect.stores.postgres.rows import SELECT, from_row, plain, text
from recollect.stores.rows import micros
from recollect.types import FileState, Record, Scope, now

KEPT = 10_000
"""Answers; the oldest go first."""

_DIFFERING = """
    SELECT DISTINCT path FROM unnest(%s::text[]) AS asked (path) JOIN records USING (path) JOIN scopes USING (scope)
    WHERE kind = 'chunk' AND forgotten_at IS NULL
        AND (("user", agent, session) IS DISTINCT FROM (%s::text, %s::text, %s::text) OR NOT tags @> %s::text[])
"""

_STATE = "SELECT path, root, mtime_ns, size, digest FROM files"


class PostgresFiles:
    """Reads the files table and the chunks of a file; both are written as changes to the records."""

    def __init__(self, database: Database, scope: Scope | None = None) -> None:
        self._database = database
        self._scope = scope

    def within(self, scope: Scope) -> PostgresFiles:
        """The same files, always in the name of one scope."""
        return PostgresFiles(self._database, scope)

    def known(self, root: str) -> dict[str, FileState]:
        """The files below a root, by path."""
        return self._states(f"{_STATE} WHERE root = %s", text(root))

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        """What is known of these files."""
        return self._states(f"{_STATE} WHERE path = ANY(%s)", [text(path) for path in paths])

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        """The folders that are mirrored, and how each was told to be, where that is known."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT root, max(told) FROM"
                " (SELECT root, told FROM roots UNION ALL SELECT root, NULL FROM files) AS known"
                ' GROUP BY root ORDER BY root COLLATE "C"'
            )
            return {plain(root): json.loads(told) if told else None for root, told in rows}

    def ingested(self, digests: Sequence[str]) -> set[str]:
        """Those of the digests that have been read for facts."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT digest FROM ingested WHERE digest = ANY(%s)", (list(digests),))
            return {digest for (digest,) in rows}

    def chunks(self, path: str) -> list[Record]:
        """The chunks of one file."""
        with self._database.read(self._scope) as connection:
            only = "WHERE path = %s AND kind = 'chunk' AND forgotten_at IS NULL ORDER BY row"
            return [from_row(row) for row in connection.execute(f"{SELECT} {only}", (text(path),))]

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        """Those of the files that have a chunk of another scope, or one that lacks one of the tags."""
        parts = [text(part) for part in (scope.user, scope.agent, scope.session)]
        values = ([text(path) for path in paths], *parts, [text(tag) for tag in tags])
        with self._database.read(self._scope) as connection:
            return {str(plain(path)) for (path,) in connection.execute(_DIFFERING, values)}

    def chunk_key(self) -> bytes:
        """The store's key for the ids of chunks. Of two processes that make it at once, the first one's counts."""
        with self._database.read() as connection:
            key = meta(connection, "chunk_key")
        return bytes.fromhex(key if key is not None else self._database.write(_make_key))

    def _states(self, sql: str, value: object) -> dict[str, FileState]:
        with self._database.read(self._scope) as connection:
            rows = connection.execute(sql, (value,))
            return {plain(row[0]): FileState(plain(row[0]), plain(row[1]), *row[2:]) for row in rows}


def _make_key(connection: Connection) -> str:
    connection.execute(
        "INSERT INTO meta VALUES ('chunk_key', %s) ON CONFLICT (key) DO NOTHING", (secrets.token_hex(32),)
    )
    return meta(connection, "chunk_key") or ""


class PostgresNotes:
    """A small cache in the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """What was kept under a key."""
        with self._database.read() as connection:
            _name(connection, text(key))
            found = connection.execute("SELECT value FROM notes WHERE key = %s", (text(key),)).fetchone()
        return None if found is None else str(plain(found[0]))

    def put(self, key: str, value: str) -> None:
        """Keep an answer, unless that cannot be done now: then it is asked for again another time."""
        if not self._database.read_only:
            with contextlib.suppress(StoreError):
                self._database.write(lambda connection: _put(connection, text(key), text(value)))


def _name(connection: Connection, key: str) -> None:
    """Behind row-level security a note is seen by who knows its key."""
    connection.execute("SELECT set_config('recollect.note', %s, true)", (key,))


def _put(connection: Connection, key: str, value: str) -> None:
    _name(connection, key)
    connection.execute(
        "INSERT INTO notes VALUES (%s, %s, %s)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at",
        (key, value, micros(now())),
    )
    connection.execute("SELECT prune_notes(%s)", (KEPT,))
