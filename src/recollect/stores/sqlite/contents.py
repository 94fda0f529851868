"""All that the file holds, read and written part by part."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from recollect.errors import StoreError
from recollect.stores.contents import KEYS, SqlSnapshot, check_dimensions, columns_of, insert_rows, part_of, selects
from recollect.stores.rows import meta, set_meta
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.rows import DIALECT
from recollect.types import Progress
from recollect.types.protocols import Contents, Part

_SELECTS = selects(DIALECT, "spaces CROSS JOIN embeddings USING (space)")
_SAME_EVENT = " AND id = ?2 AND action = ?3 AND at = ?4 ORDER BY seq = ?1 DESC, seq LIMIT 1"

_INSERT_VECTOR = (
    "INSERT OR IGNORE INTO embeddings (space, passage, vector)"
    " VALUES ((SELECT space FROM spaces WHERE fingerprint = ?), ?, ?)"
)
_INSERT_EVENT = (
    "INSERT OR IGNORE INTO history (seq, row, id, action, at, detail)"
    " SELECT ?1, row, ?2, ?3, ?4, ?5 FROM records WHERE id = ?2"
)


class SqliteContents(Contents):
    """Reads and writes all that one SQLite store holds."""

    def __init__(self, database: Database, keywords: SqliteKeywords) -> None:
        self._database = database
        self._keywords = keywords

    @property
    def identity(self) -> str:
        """The file itself, whatever its name."""
        state = self._database.path.stat()
        return f"sqlite {state.st_dev} {state.st_ino}"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqlSnapshot]:
        """The file as it is now."""
        with self._database.read() as connection:
            yield SqlSnapshot(connection, _SELECTS)

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        with self._database.read() as connection:
            return [_stored(connection, part) for part in parts]

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        if not parts:
            return
        with self._database.write() as connection:
            match parts[0].kind:
                case "meta":
                    _set_meta(connection, dict(part.values for part in parts))
                case "record":
                    for part in parts:
                        _add_record(connection, part)
                case "history":
                    _add_events(connection, parts, renumber)
                case "vector":
                    check_dimensions(parts, dict(connection.execute("SELECT fingerprint, dimension FROM spaces")))
                    connection.executemany(_INSERT_VECTOR, [part.values for part in parts])
                case _:
                    insert_rows(connection, parts)

    def finish(self, progress: Progress | None = None) -> None:
        """Bring the keyword index up to date, in short transactions."""
        total = left = self._lag()
        while left:
            with self._database.write() as connection:
                self._keywords.follow(connection)
            left = self._lag()
            if progress:
                progress(total - left, total)

    def _lag(self) -> int:
        with self._database.read() as connection:
            return self._keywords.lag(connection)


def _stored(connection: apsw.Connection, part: Part) -> Part | None:
    if part.kind == "history":
        find, values = _SELECTS["history"] + _SAME_EVENT, part.values[:4]
    else:
        find, values = _SELECTS[part.kind] + "".join(f" AND {key} = ?" for key in KEYS[part.kind]), part.key
    row: Any = connection.execute(find, values).fetchone()
    return None if row is None else part_of(part.kind, row)


def _set_meta(connection: apsw.Connection, fields: Mapping[str, str]) -> None:
    if "language" in fields and not connection.execute("SELECT EXISTS (SELECT 1 FROM records)").get:
        set_meta(connection, "language", fields["language"])
    if "space" in fields and meta(connection, "space") is None:
        set_meta(connection, "space", fields["space"])


def _add_record(connection: apsw.Connection, part: Part) -> None:
    columns = columns_of(part)
    connection.execute(
        f"INSERT OR IGNORE INTO records ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})",
        tuple(columns.values()),
    )
    if connection.changes() and columns["forgotten_at"] is None:
        tags = [(tag, connection.last_insert_rowid()) for tag in dict.fromkeys(columns["tags"])]
        connection.executemany("INSERT INTO tags VALUES (?, ?)", tags)


def _add_events(connection: apsw.Connection, parts: Sequence[Part], renumber: bool) -> None:
    """Write events. One with a lower number than others comes late: then all texts are indexed again."""
    newest = connection.execute("SELECT ifnull(max(seq), 0) FROM history").get
    for part in parts:
        seq, key, action, at, detail = part.values
        encoded = json.dumps(detail, ensure_ascii=False)
        connection.execute(_INSERT_EVENT, (None if renumber else seq, key, action, at, encoded))
        if not connection.changes() and not connection.execute("SELECT 1 FROM records WHERE id = ?", (key,)).get:
            raise StoreError(f"event {seq} is of the record {key!r}, which does not exist")
    if not renumber and parts[0].values[0] <= newest:
        connection.execute("DELETE FROM meta WHERE key = 'keywords'")
