"""All that one file holds, read and written part by part, in bulk."""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.errors import StoreError
from recollect.stores import contents
from recollect.stores.rows import meta
from recollect.stores.sqlite.database import Database, name_of
from recollect.stores.sqlite.index import raise_epoch
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.records import EVENTS_OF, drop_orphan, insert_tags, next_row
from recollect.stores.sqlite.rows import DIALECT, Connection, sequence
from recollect.stores.sqlite.vectors import SqliteSpaces
from recollect.types import Progress
from recollect.types.parts import Contents, Part

_SELECTS = contents.selects(DIALECT, "spaces CROSS JOIN embeddings USING (space)")
_SAME_EVENT = f" AND {EVENTS_OF.replace('?', '?2')} AND action = ?3 AND at = ?4 ORDER BY seq = ?1 DESC, seq LIMIT 1"

_INSERT_VECTOR = (
    "INSERT OR IGNORE INTO embeddings (space, passage, vector)"
    " VALUES ((SELECT space FROM spaces WHERE fingerprint = ?), ?, ?)"
)
_PLACE = "SELECT id, row, passage FROM records WHERE id = ?"
_INSERT_EVENT = "INSERT OR IGNORE INTO history (seq, id, action, at, detail, row) VALUES (?, ?, ?, ?, ?, ?)"


class SqliteSnapshot(contents.SqlSnapshot):
    """Finds parts one by one: a query to a file is cheap."""

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        return [_stored(self.connection, part) for part in parts]

    def check(self) -> None:
        """Refuse texts that were changed outside Recollect: in a copy, nothing would show it any more."""
        from recollect.stores.health import altered
        from recollect.stores.sqlite.health import TEXTS

        failure, _ = altered(self.connection.execute(TEXTS), seconds=math.inf)
        if failure:
            raise StoreError(f"{failure.message}; nothing was copied", hint=failure.mend)


class SqliteContents(Contents):
    """Reads and writes all that one SQLite store holds."""

    def __init__(self, database: Database, keywords: SqliteKeywords, spaces: SqliteSpaces) -> None:
        self._database = database
        self._keywords = keywords
        self._spaces = spaces

    @property
    def identity(self) -> str:
        """The file itself, whatever its name."""
        state = self._database.path.stat()
        return f"sqlite {state.st_dev} {state.st_ino}"

    @property
    def name(self) -> str:
        """Its own id and its place: a copy of the file has the same id."""
        with self._database.read() as connection:
            return name_of(meta(connection, "id"), self._database.place)

    @property
    def file(self) -> Path | None:
        """The file that is the whole store."""
        return self._database.place

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        with self._database.read() as connection:
            yield SqliteSnapshot(connection, _SELECTS)

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        with self._database.read() as connection:
            return SqliteSnapshot(connection, _SELECTS).find(parts)

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        if not parts:
            return
        with self._database.write() as connection:
            match parts[0].kind:
                case "meta":
                    contents.load_meta(connection, parts, self._keywords)
                case "record":
                    _add_records(connection, parts)
                case "history":
                    _add_events(connection, parts, renumber=renumber)
                case "vector":
                    _add_vectors(connection, parts)
                case _:
                    contents.insert_rows(connection, parts)

    def follow(self, records: Sequence[Part], events: Sequence[Part], *, newest: int) -> None:
        with self._database.write() as connection:
            contents.refuse_newer_events(sequence(connection), newest)
            _update_records(connection, records)
            _add_events(connection, events, renumber=False)
            _empty_details(connection, events)

    def replace(self, parts: Sequence[Part], gone: Sequence[Part] = ()) -> None:
        with self._database.write() as connection:
            match (*parts, *gone)[0].kind:
                case "meta":
                    contents.update_meta(connection, parts, self._keywords)
                case "vector":
                    _delete_vectors(connection, gone)
                    _add_vectors(connection, parts)
                case _:
                    contents.update_rows(connection, parts, gone)

    def finish(self, progress: Progress | None = None) -> None:
        """Bring the index up to date."""
        self._keywords.catch_up(progress)
        if (active := self._spaces.active) is not None:
            self._spaces.open(active).coverage()


def _stored(connection: Connection, part: Part) -> Part | None:
    if part.kind == "history":
        find, values = _SELECTS["history"] + _SAME_EVENT, part.values[:4]
    else:
        find, values = _SELECTS[part.kind] + "".join(f" AND {key} = ?" for key in contents.KEYS[part.kind]), part.key
    row: Any = connection.execute(find, values).fetchone()
    return None if row is None else contents.part_of(part.kind, row)


def _add_records(connection: Connection, parts: Sequence[Part]) -> None:
    """Insert records; those whose ids exist stay as they are."""
    ids = [part.key for part in parts]
    known = {key for (key,) in connection.executemany("SELECT id FROM records WHERE id = ?", ids)}
    new = [contents.columns_of(part) for part in {part.key: part for part in reversed(parts)}.values()]
    rows, tags = list[tuple[Any, ...]](), list[tuple[int, Sequence[str]]]()
    for row, columns in enumerate((each for each in reversed(new) if each["id"] not in known), next_row(connection)):
        if columns["forgotten_at"] is None:
            tags.append((row, columns["tags"]))
        columns["tags"] = json.dumps(columns["tags"])
        rows.append((row, *columns.values()))
    if rows:
        names = ("row", *new[0])
        insert = f"INSERT INTO records ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        connection.executemany(insert, rows)
        insert_tags(connection, tags)


def _update_records(connection: Connection, parts: Sequence[Part]) -> None:
    """Store records in place of those with their ids. Their events, which follow, tell the index of the change."""
    ids = [part.key for part in parts]
    stored = {key: (row, passage) for key, row, passage in connection.executemany(_PLACE, ids)}
    _add_records(connection, parts)
    for part in parts:
        if part.values[0] in stored:
            row, columns = stored[part.values[0]][0], contents.columns_of(part)
            connection.execute("DELETE FROM tags WHERE row = ?", (row,))
            if columns["forgotten_at"] is None:
                insert_tags(connection, [(row, columns["tags"])])
            columns["tags"] = json.dumps(columns["tags"])
            places = ", ".join(f"{name} = ?" for name in columns)
            connection.execute(f"UPDATE records SET {places} WHERE row = ?", (*columns.values(), row))
    for _, passage in stored.values():
        drop_orphan(connection, passage)


def _add_events(connection: Connection, parts: Sequence[Part], *, renumber: bool) -> None:
    """Write events. One with a lower number than others comes late: then all texts are indexed again."""
    newest = sequence(connection)
    ids = [(part.values[1],) for part in parts]
    rows = dict(connection.executemany("SELECT id, row FROM records WHERE id = ?", ids))
    events = []
    for part in parts:
        seq, key, action, at, detail = part.values
        if key not in rows:
            raise StoreError(f"event {seq} is of the record {key!r}, which does not exist")
        encoded = json.dumps(detail, ensure_ascii=False) if detail else "{}"
        events.append((None if renumber else seq, key, action, at, encoded, rows[key]))
    connection.executemany(_INSERT_EVENT, events)
    if not renumber and parts[0].values[0] <= newest:
        raise_epoch(connection)


def _empty_details(connection: Connection, events: Sequence[Part]) -> None:
    """Empty the details before each event of a purge, as the purge has done."""
    purges = [(part.values[1], part.values[0]) for part in events if part.values[2] == "purge"]
    connection.executemany(f"UPDATE history SET detail = '{{}}' WHERE {EVENTS_OF} AND seq < ?", purges)


def _add_vectors(connection: Connection, parts: Sequence[Part]) -> None:
    contents.check_dimensions(parts, dict(connection.execute("SELECT fingerprint, dimension FROM spaces")))
    connection.executemany(_INSERT_VECTOR, [part.values for part in parts])


def _delete_vectors(connection: Connection, parts: Sequence[Part]) -> None:
    """Nothing in the history says that vectors were deleted, so every index is built again."""
    same = "space = (SELECT space FROM spaces WHERE fingerprint = ?) AND passage = ?"
    connection.executemany(f"DELETE FROM embeddings WHERE {same}", [part.key for part in parts])
    if parts:
        raise_epoch(connection)
