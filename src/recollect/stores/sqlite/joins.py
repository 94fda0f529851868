"""Where outside systems' documents are among our records, and what was learnt of their ids."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import apsw

from recollect.errors import StoreError
from recollect.stores.sqlite.database import PATIENCE_MS, Database
from recollect.stores.sqlite.rows import SELECT, from_row
from recollect.stores.sqlite.visible import condition, scoped
from recollect.types import EVERYTHING, GLOBAL, Filter, Record, Scope

KEPT = 200_000
"""Ids kept of all sources and scopes; the oldest go first."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class SqliteJoins:
    """The map from outside ids to paths, read once and again when it changed on disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._paths: dict[tuple[str, str], dict[str, str]] = {}
        self._read_to = 0

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        """Id → path of one source, as far as queries of this scope have learnt it, in any process."""
        with self._database.read() as connection, self._lock:
            self._follow(connection)
            return MappingProxyType(self._paths.setdefault((source, scope.key), {}))

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        """Keep what is new; not in a store that may only be read or is busy, where it is learnt another time."""
        known = self.paths(source, scope)
        new = [(source, key, scope.key, path) for key, path in paths.items() if known.get(key) != path]
        if not new or self._database.read_only:
            return
        with contextlib.suppress(StoreError), self._database.write(PATIENCE_MS) as connection:
            connection.executemany("INSERT OR REPLACE INTO joins (source, id, scope, path) VALUES (?, ?, ?, ?)", new)
            connection.execute("DELETE FROM joins WHERE number <= (SELECT max(number) FROM joins) - ?", (KEPT,))

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        """The visible records of the file with that path; if there is none, of all whose paths end with it."""
        sql, values = condition(where)
        found: dict[str, list[Record]] = {}
        with self._database.read() as connection:
            for path in paths:
                for same, wanted in _forms(path):
                    rows = connection.execute(
                        f"{SELECT} WHERE {sql} AND {same} ORDER BY first_line, id", (*values, *wanted)
                    )
                    if records := [from_row(row) for row in rows]:
                        found[path] = records
                        break
        return found

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        """The visible record of each text; of several, the newest."""
        sql, values = condition(where)
        find = f"{SELECT} WHERE {sql} AND fold = ? ORDER BY time DESC, id LIMIT 1"
        found: dict[bytes, Record] = {}
        with self._database.read() as connection:
            for fold in folds:
                row: Any = connection.execute(find, (*values, fold)).fetchone()
                if row:
                    found[fold] = from_row(row)
        return found

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        """Which ids and texts are stored, and how many records each path means; `within` looks at one scope only."""
        where = replace(EVERYTHING, any_scope=within is None, scope=within or GLOBAL)
        sql, values = ("true", []) if within is None else scoped(within)
        with self._database.read() as connection:
            found: Any = connection.execute(
                f"SELECT id FROM records WHERE {sql} AND id IN (SELECT value FROM json_each(?))",
                (*values, json.dumps(list(ids))),
            )
            keys = {key for (key,) in found}
        counts = {path: len(records) for path, records in self.by_path(paths, where).items()}
        return keys, set(self.by_text(folds, where)), counts

    def _follow(self, connection: apsw.Connection) -> None:
        """Read what changed since the last time; the numbers only rise."""
        newest = int(connection.execute("SELECT ifnull(max(number), 0) FROM joins").get)
        if newest > self._read_to:
            rows: Any = connection.execute(
                "SELECT source, scope, id, path FROM joins WHERE number > ?", (self._read_to,)
            )
            for source, scope, key, path in rows:
                self._paths.setdefault((source, scope), {})[key] = path
            self._read_to = newest


def _forms(path: str) -> list[tuple[str, Sequence[Any]]]:
    """What a path may mean, as SQL: the same path, or the end of one."""
    name = _SCHEME.sub("", path).removeprefix("./")
    exact = dict.fromkeys((path, name, f"/{name}", os.path.expanduser(name)))  # noqa: PTH111  (no home: as it is)
    forms: list[tuple[str, Sequence[Any]]] = [("path IN (SELECT value FROM json_each(?))", (json.dumps(list(exact)),))]
    end = f"/{name.lstrip('/')}"
    if end != "/":
        only = "path IN (SELECT DISTINCT path FROM records WHERE path IS NOT NULL AND substr(path, -length(?1)) = ?1)"
        forms.append((only.replace("?1", "?"), (end, end)))
    return forms
