"""Small tables beside the records: states of indexed files, ids of external sources, and cached answers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, PostgresDatabase
from recollect.stores.postgres.rows import SELECT, Condition, from_row, matching, meta, visible_scopes
from recollect.stores.rows import micros
from recollect.types import GLOBAL, Files, FileState, Filter, Joins, Notes, Record, Scope, now

MAX_NOTES = 10_000
MAX_JOINS = 200_000
"""Rows of the two caches; the oldest are deleted first."""

_STATE = "SELECT path, root, mtime_ns, size, digest FROM files"

_DIFFERING = """
    SELECT DISTINCT path FROM unnest(%s::text[]) AS asked (path) JOIN records USING (path) JOIN scopes USING (scope)
    WHERE kind = 'chunk' AND forgotten_at IS NULL
        AND (("user", agent, session) IS DISTINCT FROM (%s::text, %s::text, %s::text) OR NOT tags @> %s::text[])
"""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class PostgresFiles(Files):
    """Reads the states of files and their chunks. Both are written as changes to the records."""

    def __init__(self, database: PostgresDatabase, scope: Scope | None = None) -> None:
        self._database = database
        self._scope = scope

    def within(self, scope: Scope) -> PostgresFiles:
        """The same files, always read as one scope."""
        return PostgresFiles(self._database, scope)

    def known(self, root: str) -> dict[str, FileState]:
        return self._states(f"{_STATE} WHERE root = %s", root)

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        return self._states(f"{_STATE} WHERE path = ANY(%s)", list(paths))

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT root, max(told) FROM"
                " (SELECT root, told FROM roots UNION ALL SELECT root, NULL FROM files) AS known"
                ' GROUP BY root ORDER BY root COLLATE "C"'
            )
            return {root: json.loads(options) if options else None for root, options in rows}

    def ingested(self, digests: Sequence[str]) -> set[str]:
        with self._database.read() as connection:
            rows = connection.execute("SELECT digest FROM ingested WHERE digest = ANY(%s)", (list(digests),))
            return {digest for (digest,) in rows}

    def chunks(self, path: str) -> list[Record]:
        with self._database.read(self._scope) as connection:
            condition = "WHERE path = %s AND kind = 'chunk' AND forgotten_at IS NULL ORDER BY row"
            return [from_row(row) for row in connection.execute(f"{SELECT} {condition}", (path,))]

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        parts = (scope.user, scope.agent, scope.session)
        values = (list(paths), *parts, list(tags))
        with self._database.read(self._scope) as connection:
            return {path for (path,) in connection.execute(_DIFFERING, values)}

    def chunk_key(self) -> bytes:
        with self._database.read() as connection:
            key = meta(connection, "chunk_key")
        return bytes.fromhex(key if key is not None else self._database.write(_create_chunk_key))

    def _states(self, sql: str, value: object) -> dict[str, FileState]:
        with self._database.read(self._scope) as connection:
            rows = connection.execute(sql, (value,))
            return {row[0]: FileState(*row) for row in rows}


def _create_chunk_key(connection: Connection) -> str:
    """If two processes create it at once, that of the first is used."""
    connection.execute(
        "INSERT INTO meta VALUES ('chunk_key', %s) ON CONFLICT (key) DO NOTHING", (secrets.token_hex(32),)
    )
    return meta(connection, "chunk_key") or ""


class PostgresNotes(Notes):
    """A small cache in the store. With row-level security a note is visible to those who know its key."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        with self._database.read() as connection:
            _set_note_key(connection, key)
            row = connection.execute("SELECT value FROM notes WHERE key = %s", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        """Store a note, or skip it if that fails now: it is only a cache."""
        if not self._database.read_only:
            with contextlib.suppress(StoreError):
                self._database.write(lambda connection: _put_note(connection, key, value))


def _set_note_key(connection: Connection, key: str) -> None:
    connection.execute("SELECT set_config('recollect.note', %s, true)", (key,))


def _put_note(connection: Connection, key: str, value: str) -> None:
    _set_note_key(connection, key)
    connection.execute(
        "INSERT INTO notes VALUES (%s, %s, %s)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at",
        (key, value, micros(now())),
    )
    connection.execute("SELECT prune_notes(%s)", (MAX_NOTES,))


_ANY_SCOPE = (
    "SELECT taken_ids(%(ids)s)", "SELECT taken_folds(%(folds)s)", "SELECT taken_paths(%(same)s, %(ending)s)",
)  # fmt: skip
"""What is stored in any scope: functions that see all rows in spite of row-level security."""

_LIVE = "FROM records WHERE scope = ANY(%(scopes)s) AND forgotten_at IS NULL"
_SOME_SCOPES = (
    "SELECT id FROM records WHERE scope = ANY(%(scopes)s) AND id = ANY(%(ids)s)",
    f"SELECT DISTINCT fold {_LIVE} AND fold = ANY(%(folds)s)",
    (
        f"SELECT coalesce((SELECT nullif(count(*), 0) {_LIVE} AND path = ANY(%(same)s)),"
        f" (SELECT count(*) {_LIVE} AND right(path, length(%(ending)s::text)) = %(ending)s::text))"
    ),
)
"""The same for some scopes, with the ids of their forgotten records."""


class PostgresJoins(Joins):
    """Finds the records that results of external sources stand for, and remembers which path an id means."""

    def __init__(self, database: PostgresDatabase, scope: Scope | None = None) -> None:
        self._database = database
        self._scope = scope

    def within(self, scope: Scope) -> PostgresJoins:
        """The same, read as one scope where a filter names none."""
        return PostgresJoins(self._database, scope)

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        with self._database.read(scope) as connection:
            rows = connection.execute(
                "SELECT id, path FROM joins WHERE source = %s AND scope = %s", (source, scope.key)
            )
            return dict(rows)

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        """Store new paths, or skip them if that fails now: they are only a cache."""
        known = self.paths(source, scope)
        new = [(source, scope.key, key, path) for key, path in paths.items() if known.get(key) != path]
        if new and not self._database.read_only:
            with contextlib.suppress(StoreError):
                self._database.write(lambda connection: _learn(connection, new), scope)

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        condition, values = matching(where)
        records: dict[str, list[Record]] = {}
        with self._database.read(self._reader(where)) as connection:
            for path in paths:
                for same, forms in _path_conditions(path):
                    sql = f'{SELECT} WHERE {condition} AND {same} ORDER BY first_line NULLS FIRST, id COLLATE "C"'
                    if rows := [from_row(row) for row in connection.execute(sql, [*values, *forms])]:
                        records[path] = rows
                        break
        return records

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        condition, values = matching(where)
        select = SELECT.replace("SELECT ", "SELECT DISTINCT ON (fold) fold, ", 1)
        with self._database.read(self._reader(where)) as connection:
            sql = f'{select} WHERE {condition} AND fold = ANY(%s) ORDER BY fold, time DESC, id COLLATE "C"'
            return {bytes(fold): from_row(row) for fold, *row in connection.execute(sql, [*values, list(folds)])}

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        by_id, by_fold, by_path = _ANY_SCOPE if within is None else _SOME_SCOPES
        with self._database.read(within) as connection:
            scopes = {"scopes": [] if within is None else visible_scopes(connection, within)}
            with connection.pipeline():
                taken_ids = connection.execute(by_id, {**scopes, "ids": list(ids)})
                taken_folds = connection.execute(by_fold, {**scopes, "folds": list(folds)})
                forms = {path: dict(zip(("same", "ending"), _path_forms(path), strict=True)) for path in paths}
                counts = {path: connection.execute(by_path, {**scopes, **form}) for path, form in forms.items()}
            return (
                {key for (key,) in taken_ids},
                {bytes(fold) for (fold,) in taken_folds},
                {path: int(count) for path, cursor in counts.items() for (count,) in cursor},
            )

    def _reader(self, where: Filter) -> Scope:
        return self._scope or where.scope if where.any_scope else where.scope


def _learn(connection: Connection, rows: list[tuple[str, str, str, str]]) -> None:
    with connection.cursor() as cursor:
        delete = "DELETE FROM joins WHERE source = %s AND scope = %s AND id = %s"
        cursor.executemany(delete, [row[:3] for row in rows])
        cursor.executemany("INSERT INTO joins (source, scope, id, path) VALUES (%s, %s, %s, %s)", rows)
        cursor.execute("SELECT prune_joins(%s)", (MAX_JOINS,))


def _path_conditions(path: str) -> list[Condition]:
    """What a path may mean: the same path, else the end of a longer one."""
    same, ending = _path_forms(path)
    conditions: list[Condition] = [("path = ANY(%s)", [same])]
    return [*conditions, ("right(path, length(%s)) = %s", [ending, ending])] if ending else conditions


def _path_forms(path: str) -> tuple[list[str], str | None]:
    """All forms of the same path, and how longer paths that it is the end of must end."""
    name = _SCHEME.sub("", path).removeprefix("./")
    same = dict.fromkeys((path, name, f"/{name}", os.path.expanduser(name)))  # noqa: PTH111  (no error without a home)
    ending = f"/{name.lstrip('/')}"
    return list(same), ending if ending != "/" else None
