"""What the store knows of the files it mirrors."""

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
            SELECT 1 FROM json_each(?) AS wanted
            WHERE NOT EXISTS (SELECT 1 FROM tags WHERE tags.tag = wanted.value AND tags.row = records.row)))
"""


class SqliteFiles:
    """Reads the files table and the chunks of a file; both are written as changes to the records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def known(self, root: str) -> dict[str, FileState]:
        """The files below a root, by path."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT path, root, mtime_ns, size, digest FROM files WHERE root = ?", (root,))
            return {row[0]: FileState(*row) for row in rows}

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        """What is known of these files."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT path, root, mtime_ns, size, digest FROM files WHERE path IN (SELECT value FROM json_each(?))",
                (json.dumps(list(paths)),),
            )
            return {row[0]: FileState(*row) for row in rows}

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        """The folders that are mirrored, and how each was told to be, where that is known."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT root, max(told) FROM (SELECT root, told FROM roots UNION ALL SELECT root, NULL FROM files)"
                " GROUP BY root ORDER BY root"
            )
            return {root: json.loads(told) if told else None for root, told in rows}

    def ingested(self, digests: Sequence[str]) -> set[str]:
        """Those of the digests that have been read for facts."""
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
        """Those of the files that have a chunk of another scope, or one that lacks one of the tags."""
        values = (json.dumps(list(paths)), scope.user, scope.agent, scope.session, json.dumps(list(tags)))
        with self._database.read() as connection:
            rows: Any = connection.execute(_DIFFERING, values)
            return {path for (path,) in rows}

    def chunk_key(self) -> bytes:
        """The store's key for the ids of chunks. Of two processes that make it at once, the first one's counts."""
        with self._database.read() as connection:
            key = meta(connection, "chunk_key")
        if key is None:
            with self._database.write() as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('chunk_key', ?)", (secrets.token_hex(32),))
                key = meta(connection, "chunk_key")
        return bytes.fromhex(key or "")


MOST_IDS = 200_000
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
            connection.execute("DELETE FROM joins WHERE number <= (SELECT max(number) FROM joins) - ?", (MOST_IDS,))

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


MOST_NOTES = 10_000
"""Answers; the oldest go first."""


class SqliteNotes:
    """A small cache in the store's file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        """What was kept under a key."""
        with self._database.read() as connection:
            value = connection.execute("SELECT value FROM notes WHERE key = ?", (key,)).get
        return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Keep an answer, unless the store is read-only or busy: then it is asked for again another time."""
        if self._database.read_only:
            return
        with contextlib.suppress(StoreError), self._database.write(PATIENCE_MS) as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (key, value, micros(now())))
            connection.execute(
                "DELETE FROM notes WHERE key IN (SELECT key FROM notes ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (MOST_NOTES,),
            )
