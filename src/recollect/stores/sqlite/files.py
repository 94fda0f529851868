"""The state of indexed files, the ids of external systems, and cached answers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import apsw

from recollect.errors import StoreError
from recollect.stores.rows import micros
from recollect.stores.sqlite.database import PATIENCE_MS, Database
from recollect.stores.sqlite.rows import SELECT, condition, from_row, meta, scoped
from recollect.types import EVERYTHING, GLOBAL, FileState, Filter, Record, Scope, now

_DIFFERING = """
    SELECT DISTINCT path FROM records WHERE path IN (SELECT value FROM json_each(?)) AND kind = 'chunk'
        AND forgotten_at IS NULL AND (user IS NOT ? OR agent IS NOT ? OR session IS NOT ? OR EXISTS (
            SELECT 1 FROM json_each(?) AS expected
            WHERE NOT EXISTS (SELECT 1 FROM tags WHERE tags.tag = expected.value AND tags.row = records.row)))
"""


class SqliteFiles:
    """Reads the state and the chunks of files; both are written as changes to the records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def known(self, root: str) -> dict[str, FileState]:
        """The files below a root, by path."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT path, root, mtime_ns, size, digest FROM files WHERE root = ?", (root,))
            return {row[0]: FileState(*row) for row in rows}

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        """The states of these files."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT path, root, mtime_ns, size, digest FROM files WHERE path IN (SELECT value FROM json_each(?))",
                (json.dumps(list(paths)),),
            )
            return {row[0]: FileState(*row) for row in rows}

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        """The mirrored folders, each with its options where they are known."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT root, max(told) FROM (SELECT root, told FROM roots UNION ALL SELECT root, NULL FROM files)"
                " GROUP BY root ORDER BY root"
            )
            return {root: json.loads(options) if options else None for root, options in rows}

    def ingested(self, digests: Sequence[str]) -> set[str]:
        """The digests that have been read for facts."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT digest FROM ingested WHERE digest IN (SELECT value FROM json_each(?))",
                (json.dumps(list(digests)),),
            )
            return {digest for (digest,) in rows}

    def chunks(self, path: str) -> list[Record]:
        """The chunks of one file."""
        with self._database.read() as connection:
            rows = connection.execute(f"{SELECT} WHERE path = ? AND kind = 'chunk' AND forgotten_at IS NULL", (path,))
            return [from_row(row) for row in rows]

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        """The files that have a chunk of another scope, or a chunk without one of the tags."""
        values = (json.dumps(list(paths)), scope.user, scope.agent, scope.session, json.dumps(list(tags)))
        with self._database.read() as connection:
            rows: Any = connection.execute(_DIFFERING, values)
            return {path for (path,) in rows}

    def chunk_key(self) -> bytes:
        """The store's key for the ids of chunks. Of two processes that make it at once, the first one wins."""
        with self._database.read() as connection:
            key = meta(connection, "chunk_key")
        if key is None:
            with self._database.write() as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('chunk_key', ?)", (secrets.token_hex(32),))
                key = meta(connection, "chunk_key")
        return bytes.fromhex(key or "")


MOST_IDS = 200_000
"""Ids of external systems that are stored, of all sources and scopes; the oldest are deleted first."""

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class SqliteJoins:
    """The paths of ids of external systems, read again when they have changed on disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._paths: dict[tuple[str, str], dict[str, str]] = {}
        self._read_to = 0

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        """Id → path of one source, as queries of this scope have learnt it in any process."""
        with self._database.read() as connection, self._lock:
            self._follow(connection)
            return MappingProxyType(self._paths.setdefault((source, scope.key), {}))

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        """Store what is new. A store that is read-only or busy skips it; it is learnt another time."""
        known = self.paths(source, scope)
        new = [(source, key, scope.key, path) for key, path in paths.items() if known.get(key) != path]
        if not new or self._database.read_only:
            return
        with contextlib.suppress(StoreError), self._database.write(PATIENCE_MS) as connection:
            connection.executemany("INSERT OR REPLACE INTO joins (source, id, scope, path) VALUES (?, ?, ?, ?)", new)
            connection.execute("DELETE FROM joins WHERE number <= (SELECT max(number) FROM joins) - ?", (MOST_IDS,))

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        """The visible records of the file with that path; if there is none, of all files whose paths end with it."""
        sql, values = condition(where)
        by_path: dict[str, list[Record]] = {}
        with self._database.read() as connection:
            for path in paths:
                for same, parameters in _forms(path):
                    rows = connection.execute(
                        f"{SELECT} WHERE {sql} AND {same} ORDER BY first_line, id", (*values, *parameters)
                    )
                    if records := [from_row(row) for row in rows]:
                        by_path[path] = records
                        break
        return by_path

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        """The visible record of each text; of several, the newest."""
        sql, values = condition(where)
        find = f"{SELECT} WHERE {sql} AND fold = ? ORDER BY time DESC, id LIMIT 1"
        records: dict[bytes, Record] = {}
        with self._database.read() as connection:
            for fold in folds:
                row: Any = connection.execute(find, (*values, fold)).fetchone()
                if row:
                    records[fold] = from_row(row)
        return records

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        """Which ids and texts exist, and how many records each path has; `within` limits it to one scope."""
        where = replace(EVERYTHING, any_scope=within is None, scope=within or GLOBAL)
        sql, values = ("true", []) if within is None else scoped(within)
        with self._database.read() as connection:
            rows: Any = connection.execute(
                f"SELECT id FROM records WHERE {sql} AND id IN (SELECT value FROM json_each(?))",
                (*values, json.dumps(list(ids))),
            )
            keys = {key for (key,) in rows}
        counts = {path: len(records) for path, records in self.by_path(paths, where).items()}
        return keys, set(self.by_text(folds, where)), counts

    def _follow(self, connection: apsw.Connection) -> None:
        """Read what has changed; the numbers only rise."""
        newest = int(connection.execute("SELECT ifnull(max(number), 0) FROM joins").get)
        if newest > self._read_to:
            rows: Any = connection.execute(
                "SELECT source, scope, id, path FROM joins WHERE number > ?", (self._read_to,)
            )
            for source, scope, key, path in rows:
                self._paths.setdefault((source, scope), {})[key] = path
            self._read_to = newest


def _forms(path: str) -> list[tuple[str, Sequence[Any]]]:
    """The meanings of a path, as SQL: the same path, or the end of one."""
    name = _SCHEME.sub("", path).removeprefix("./")
    exact = dict.fromkeys((path, name, f"/{name}", os.path.expanduser(name)))  # noqa: PTH111  (no home: as it is)
    forms: list[tuple[str, Sequence[Any]]] = [("path IN (SELECT value FROM json_each(?))", (json.dumps(list(exact)),))]
    end = f"/{name.lstrip('/')}"
    if end != "/":
        only = "path IN (SELECT DISTINCT path FROM records WHERE path IS NOT NULL AND substr(path, -length(?1)) = ?1)"
        forms.append((only.replace("?1", "?"), (end, end)))
    return forms


MOST_NOTES = 10_000
"""Cached answers; the oldest are deleted first."""


class SqliteNotes:
    """A small cache of answers in the store's file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """The value of a key."""
        with self._database.read() as connection:
            value = connection.execute("SELECT value FROM notes WHERE key = ?", (key,)).get
        return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Store a value, unless the store is read-only or busy: it is only a cache."""
        if self._database.read_only:
            return
        with contextlib.suppress(StoreError), self._database.write(PATIENCE_MS) as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (key, value, micros(now())))
            connection.execute(
                "DELETE FROM notes WHERE key IN (SELECT key FROM notes ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (MOST_NOTES,),
            )
