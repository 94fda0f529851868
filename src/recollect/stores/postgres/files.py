"""What the store knows of the files it mirrors, and kept answers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, Database, plain, text
from recollect.stores.postgres.rows import SELECT, condition, from_row, meta, numbers
from recollect.stores.rows import micros
from recollect.types import GLOBAL, FileState, Filter, Record, Scope, now

MOST_NOTES = 10_000
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
    connection.execute("SELECT prune_notes(%s)", (MOST_NOTES,))


MOST_JOINS = 200_000
"""Ids kept of all sources and scopes; the oldest go first."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class PostgresJoins:
    """The map from outside ids to paths."""

    def __init__(self, database: Database, scope: Scope | None = None) -> None:
        self._database = database
        self._scope = scope

    def within(self, scope: Scope) -> PostgresJoins:
        """The same, which looks at records in the name of one scope where a filter names none."""
        return PostgresJoins(self._database, scope)

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        """Id → path of one source, as far as queries of this scope have learnt it, on any machine."""
        with self._database.read(scope) as connection:
            rows = connection.execute(
                "SELECT id, path FROM joins WHERE source = %s AND scope = %s", (text(source), text(scope.key))
            )
            return {plain(key): plain(path) for key, path in rows}

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        """Keep what is new, where that can be done now."""
        known = self.paths(source, scope)
        new = [
            (text(source), text(scope.key), text(key), text(path))
            for key, path in paths.items()
            if known.get(key) != path
        ]
        if new and not self._database.read_only:
            with contextlib.suppress(StoreError):
                self._database.write(lambda connection: _learn(connection, new), scope)

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        """The visible records of the file with that path; if there is none, of all whose paths end with it."""
        sql, values = condition(where)
        found: dict[str, list[Record]] = {}
        with self._database.read(self._whose(where)) as connection:
            for path in paths:
                for same, wanted in _forms(path):
                    rows = connection.execute(
                        f'{SELECT} WHERE {sql} AND {same} ORDER BY first_line NULLS FIRST, id COLLATE "C"',
                        [*values, *wanted],
                    )
                    if records := [from_row(row) for row in rows]:
                        found[path] = records
                        break
        return found

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        """The visible record of each text; of several, the newest."""
        sql, values = condition(where)
        select = SELECT.replace("SELECT ", "SELECT DISTINCT ON (fold) fold, ", 1)
        with self._database.read(self._whose(where)) as connection:
            rows = connection.execute(
                f'{select} WHERE {sql} AND fold = ANY(%s) ORDER BY fold, time DESC, id COLLATE "C"',
                [*values, list(folds)],
            )
            return {bytes(fold): from_row(row) for fold, *row in rows}

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        """Which ids and texts are stored, and how many records each path means; `within` looks at one scope only."""
        by_id, by_fold, by_path = _ANYBODYS if within is None else _SCOPES
        with self._database.read(within) as connection:
            only = {"scopes": [] if within is None else numbers(connection, within)}
            with connection.pipeline():
                keys = connection.execute(by_id, {**only, "ids": [text(key) for key in ids]})
                texts = connection.execute(by_fold, {**only, "folds": list(folds)})
                meant = {path: dict(zip(("same", "ending"), _meant(path), strict=True)) for path in paths}
                counts = {path: connection.execute(by_path, {**only, **forms}) for path, forms in meant.items()}
            return (
                {plain(key) for (key,) in keys},
                {bytes(fold) for (fold,) in texts},
                {path: int(count) for path, cursor in counts.items() for (count,) in cursor},
            )

    def _whose(self, where: Filter) -> Scope:
        return self._scope or where.scope if where.any_scope else where.scope


_ANYBODYS = (
    "SELECT taken_ids(%(ids)s)", "SELECT taken_folds(%(folds)s)", "SELECT taken_paths(%(same)s, %(ending)s)",
)  # fmt: skip
"""What is stored in any scope: functions that see all rows, also behind row-level security."""


_ALIVE = "FROM records WHERE scope = ANY(%(scopes)s) AND forgotten_at IS NULL"
_SCOPES = (
    "SELECT id FROM records WHERE scope = ANY(%(scopes)s) AND id = ANY(%(ids)s)",
    f"SELECT DISTINCT fold {_ALIVE} AND fold = ANY(%(folds)s)",
    (
        f"SELECT coalesce((SELECT nullif(count(*), 0) {_ALIVE} AND path = ANY(%(same)s)),"
        f" (SELECT count(*) {_ALIVE} AND right(path, length(%(ending)s::text)) = %(ending)s::text))"
    ),
)
"""The same of some scopes; their forgotten ids are there, too."""


def _learn(connection: Connection, new: list[tuple[str, str, str, str]]) -> None:
    with connection.cursor() as cursor:
        old = "DELETE FROM joins WHERE source = %s AND scope = %s AND id = %s"
        cursor.executemany(old, [row[:3] for row in new])
        cursor.executemany("INSERT INTO joins (source, scope, id, path) VALUES (%s, %s, %s, %s)", new)
        cursor.execute("SELECT prune_joins(%s)", (MOST_JOINS,))


def _forms(path: str) -> list[tuple[str, list[Any]]]:
    """What a path may mean, as SQL: the same path, or the end of one."""
    exact, end = _meant(path)
    forms: list[tuple[str, list[Any]]] = [("path = ANY(%s)", [exact])]
    return [*forms, ("right(path, length(%s)) = %s", [end, end])] if end else forms


def _meant(path: str) -> tuple[list[str], str | None]:
    """The same path in all its forms, and the end of longer ones."""
    name = _SCHEME.sub("", path).removeprefix("./")
    exact = dict.fromkeys((path, name, f"/{name}", os.path.expanduser(name)))  # noqa: PTH111  (no home: as it is)
    end = f"/{name.lstrip('/')}"
    return [text(form) for form in exact], text(end) if end != "/" else None
