"""Where outside systems' documents are among our records, and what was learnt of their ids."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.rows import SELECT, from_row, plain, text
from recollect.stores.postgres.visible import condition
from recollect.types import Filter, Record, Scope

KEPT = 200_000
"""Ids kept of all sources; the oldest go first."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class PostgresJoins:
    """The map from outside ids to paths."""

    def __init__(self, database: Database, scope: Scope | None = None) -> None:
        self._database = database
        self._scope = scope

    def within(self, scope: Scope) -> PostgresJoins:
        """The same, which looks at records in the name of one scope where a filter names none."""
        return PostgresJoins(self._database, scope)

    def paths(self, source: str) -> Mapping[str, str]:
        """Id → path of one source, as any machine knows it."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT id, path FROM joins WHERE source = %s", (text(source),))
            return {plain(key): plain(path) for key, path in rows}

    def learn(self, source: str, paths: Mapping[str, str]) -> None:
        """Keep what is new, where that can be done now."""
        known = self.paths(source)
        new = [(text(source), text(key), text(path)) for key, path in paths.items() if known.get(key) != path]
        if new and not self._database.read_only:
            with contextlib.suppress(StoreError):
                self._database.write(lambda connection: _learn(connection, new))

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
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str]
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        """Which ids and texts anybody has, and how many records each path means, also those that nobody sees here."""
        with self._database.read() as connection, connection.pipeline():
            keys = connection.execute("SELECT taken_ids(%s)", ([text(key) for key in ids],))
            texts = connection.execute("SELECT taken_folds(%s)", (list(folds),))
            counts = {path: connection.execute("SELECT taken_paths(%s, %s)", _meant(path)) for path in paths}
            return (
                {plain(key) for (key,) in keys},
                {bytes(fold) for (fold,) in texts},
                {path: int(count) for path, cursor in counts.items() for (count,) in cursor},
            )

    def _whose(self, where: Filter) -> Scope:
        return self._scope or where.scope if where.any_scope else where.scope


def _learn(connection: Connection, new: list[tuple[str, str, str]]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("DELETE FROM joins WHERE source = %s AND id = %s", [row[:2] for row in new])
        cursor.executemany("INSERT INTO joins (source, id, path) VALUES (%s, %s, %s)", new)
        cursor.execute("DELETE FROM joins WHERE number <= (SELECT max(number) FROM joins) - %s", (KEPT,))


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
