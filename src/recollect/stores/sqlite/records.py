"""What the file holds: records and their history, changed in short transactions; listening for changes; all parts."""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from recollect.errors import RecollectError, StoreError
from recollect.stores import contents, ledger
from recollect.stores.records import SqlChanges, SqlJoins, SqlRecords
from recollect.stores.rows import COLUMNS, Condition, from_row, micros, passage_hash, to_row, visible_to
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.index import raise_epoch
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.rows import DIALECT, Connection, sequence
from recollect.types import EVERYTHING, GLOBAL, Change, Progress, Put, Record, Scope, now
from recollect.types.protocols import Contents, Part

TRANSACTION_SECONDS = 0.1
"""A transaction that has taken this long is committed, and a new one goes on, so that other writers need not wait."""

POLL_SECONDS = 0.1

BATCH_CHANGES = 256  # changes that are looked up together

_COLUMNS = (*COLUMNS, '"user"', "agent", "session")
_INSERT = f"INSERT INTO records (row, {', '.join(_COLUMNS)}) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
_REPLACE = f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE row = ?"
_LOOK = f"{DIALECT.select.replace(' FROM', ', forgotten_at, passage FROM', 1)} WHERE id = ?"
_TWIN = (
    f"{DIALECT.select} WHERE fold = ? AND kind = ? AND user IS ? AND agent IS ? AND session IS ?"
    " AND forgotten_at IS NULL AND ifnull(superseded_at > ?6, true) AND ifnull(expires_at > ?6, true)"
)
_TAGS = COLUMNS.index("tags")
_EVENTS_OF = "row = (SELECT row FROM records WHERE id = ?)"
_KNOWN = "SELECT id, fold FROM records WHERE id = ? OR fold = ?"
_NOTE = "INSERT INTO history (row, id, action, at, detail) VALUES (?, ?, ?, ?, ?)"


class SqliteRecords(SqlRecords):
    """Reads and writes the records of one SQLite store."""

    events_of = _EVENTS_OF

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._write = database.write

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        waiting, stored, applied = iter(groups), list[Record](), 0
        batch = _batch(waiting)
        try:
            while batch:
                with self._write() as connection:
                    deadline, done, count = time.monotonic() + TRANSACTION_SECONDS, list[Record](), 0
                    while batch and time.monotonic() < deadline:
                        done += _Rows(connection).apply(batch)
                        count += len(batch)
                        batch = _batch(waiting)
                stored += done
                applied += count
        except RecollectError as error:
            error.applied = applied
            raise
        return stored


def _batch(waiting: Iterator[Sequence[Change]]) -> list[Sequence[Change]]:
    """The next groups, about as many as can be looked up together."""
    batch, size = list[Sequence[Change]](), 0
    for group in waiting:
        batch.append(group)
        size += len(group)
        if size >= BATCH_CHANGES:
            break
    return batch


class _Rows(ledger.Table):
    """The steps of a change: SQLite has one writer, so nothing else changes meanwhile."""

    dialect = DIALECT

    def apply(self, groups: Sequence[Sequence[Change]]) -> list[Record]:
        """Make all changes in their order. Returns the records that were put, as they are now stored.

        A record whose id and text are new needs no step of its own: such records are inserted together.
        """
        are_new, stored, waiting = self._are_new(groups), list[Record](), list[Record]()
        for group in groups:
            for change in group:
                if isinstance(change, Put) and next(are_new):
                    waiting.append(change.record)
                    stored.append(change.record)
                else:
                    self._add(waiting)
                    waiting.clear()
                    stored += ledger.apply(self, change)
        self._add(waiting)
        return stored

    def _are_new(self, groups: Sequence[Sequence[Change]]) -> Iterator[bool]:
        """For each Put whether its id (and its text, if it is to be merged) is new in the store and among the Puts."""
        puts = [change for group in groups for change in group if isinstance(change, Put)]
        keys = [(put.record.id, put.record.text_hash if put.merge else None) for put in puts]
        known: set[Any] = set().union(*self.connection.executemany(_KNOWN, keys))
        for put, key in zip(puts, keys, strict=True):
            yield known.isdisjoint(key)
            known |= {put.record.id, put.record.text_hash}

    def _add(self, records: Sequence[Record]) -> None:
        """Insert new records, and note that they were added."""
        if records:
            first, at = self._insert(records), micros(now())
            events = [(row, record.id, "add", at, "{}") for row, record in enumerate(records, first)]
            self.connection.executemany(_NOTE, events)

    def _insert(self, records: Sequence[Record]) -> int:
        """Insert new records in rising rows, and return the first row."""
        first = int(self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'").get or 0) + 1
        self.connection.executemany(_INSERT, [(row, *_values(record)) for row, record in enumerate(records, first)])
        self._tag((row, record) for row, record in enumerate(records, first) if record.tags)
        return first

    def insert(self, record: Record) -> None:
        self._insert([record])

    def look(self, key: str) -> ledger.RecordState | None:
        row = self.connection.execute(_LOOK, (key,)).fetchone()
        return None if row is None else ledger.RecordState(from_row(row[:-2]), row[-2] is not None, not row[-1])

    def twin(self, record: Record) -> Record | None:
        scope = record.scope
        key = (record.text_hash, record.kind, scope.user, scope.agent, scope.session, micros(now()))
        row = self.connection.execute(_TWIN, key).fetchone()
        return None if row is None else from_row(row)

    def replace(self, record: Record, before: Record) -> None:
        row = self.row(record.id)
        self.connection.execute(_REPLACE, (*_values(record), row))
        self.drop_orphan(passage_hash(before.passage))
        self.unindex(row)
        self._tag([(row, record)])

    def _tag(self, rows: Iterable[tuple[int, Record]]) -> None:
        tags = [(tag, row) for row, record in rows for tag in dict.fromkeys(record.tags)]
        self.connection.executemany("INSERT INTO tags VALUES (?, ?)", tags)

    def unindex(self, row: int) -> None:
        self.connection.execute("DELETE FROM tags WHERE row = ?", (row,))

    def last(self, key: str) -> int | None:
        last = self.connection.execute(f"SELECT max(seq) FROM history WHERE {_EVENTS_OF}", (key,)).get
        return None if last is None else int(last)

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        self.connection.execute(_NOTE, (self.row(key), key, action, micros(now()), ledger.encoded(detail)))

    def drop_orphan(self, passage: bytes) -> None:
        self.connection.execute(
            "DELETE FROM embeddings WHERE space IN (SELECT space FROM spaces) AND passage = ?1"
            " AND NOT EXISTS (SELECT 1 FROM records WHERE passage = ?1)",
            (passage,),
        )


def _values(record: Record) -> list[Any]:
    values = to_row(record)
    values[_TAGS] = json.dumps(values[_TAGS]) if record.tags else "[]"
    return [*values, record.scope.user, record.scope.agent, record.scope.session]


class SqliteChanges(SqlChanges):
    """The changes to one file, by any process. A file sends no notifications, so it is polled."""

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        yield self._poll(quiet, self.newest())

    def _poll(self, quiet: float, last: int) -> Iterator[bool]:
        while True:
            until = time.monotonic() + quiet
            while (newest := self.newest()) == last and (left := until - time.monotonic()) > 0:
                time.sleep(min(POLL_SECONDS, left))
            changed, last = newest != last, newest
            yield changed

    def _visible(self, connection: Connection, scope: Scope) -> Condition:  # noqa: ARG002
        """Events before a purge are left out where the id was used again, perhaps by another scope."""
        visible, values = visible_to(scope)
        events = f"""
            FROM history CROSS JOIN records ON records.row = history.row WHERE {visible}
            AND action <> 'supersedes' AND NOT (action = 'undo' AND EXISTS (
                SELECT 1 FROM history AS undone
                WHERE undone.seq = json_extract(history.detail, '$.undoes') AND undone.action = 'supersedes'))
            AND (passage = x'' OR seq > ifnull((
                SELECT max(seq) FROM history AS purge WHERE purge.row = history.row AND purge.action = 'purge'), 0))
        """
        return events, values

    def _next(self, connection: Connection, seq: int, events: list[int]) -> int:  # noqa: ARG002
        """There is one writer at a time, so no event comes late."""
        return max(seq, sequence(connection))


class SqliteJoins(SqlJoins):
    """The paths of ids of external systems, read again when they have changed on disk."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._lock = threading.Lock()
        self._paths: dict[tuple[str, str], dict[str, str]] = {}
        self._read_to = 0

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        with self._database.read() as connection, self._lock:
            newest = connection.execute("SELECT ifnull(max(number), 0) FROM joins").get  # the numbers only rise
            changed = connection.execute("SELECT source, scope, id, path FROM joins WHERE number > ?", (self._read_to,))
            for name, key, of, path in changed if newest > self._read_to else ():
                self._paths.setdefault((name, key), {})[of] = path
            self._read_to = max(self._read_to, newest)
            return MappingProxyType(self._paths.setdefault((source, scope.key), {}))

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        where = replace(EVERYTHING, any_scope=within is None, scope=within or GLOBAL)
        visible, values = ("true", []) if within is None else visible_to(within)
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT id FROM records WHERE {visible} AND id = ANY(%s)", [*values, list(ids)])
            keys = {key for (key,) in rows}
        counts = {path: len(records) for path, records in self.by_path(paths, where).items()}
        return keys, set(self.by_text(folds, where)), counts


_SELECTS = contents.selects(DIALECT, "spaces CROSS JOIN embeddings USING (space)")
_SAME_EVENT = f" AND {_EVENTS_OF.replace('?', '?2')} AND action = ?3 AND at = ?4 ORDER BY seq = ?1 DESC, seq LIMIT 1"

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
    def snapshot(self) -> Iterator[contents.SqlSnapshot]:
        with self._database.read() as connection:
            yield contents.SqlSnapshot(connection, _SELECTS)

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        with self._database.read() as connection:
            return [_stored(connection, part) for part in parts]

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        if not parts:
            return
        with self._database.write() as connection:
            match parts[0].kind:
                case "meta":
                    contents.load_meta(connection, parts, self._keywords)
                case "record":
                    for part in parts:
                        _add_record(connection, part)
                case "history":
                    _add_events(connection, parts, renumber)
                case "vector":
                    contents.check_dimensions(
                        parts, dict(connection.execute("SELECT fingerprint, dimension FROM spaces"))
                    )
                    connection.executemany(_INSERT_VECTOR, [part.values for part in parts])
                case _:
                    contents.insert_rows(connection, parts)

    def finish(self, progress: Progress | None = None) -> None:
        """Bring the index up to date."""
        self._keywords.catch_up(progress)


def _stored(connection: Connection, part: Part) -> Part | None:
    if part.kind == "history":
        find, values = _SELECTS["history"] + _SAME_EVENT, part.values[:4]
    else:
        find, values = _SELECTS[part.kind] + "".join(f" AND {key} = ?" for key in contents.KEYS[part.kind]), part.key
    row: Any = connection.execute(find, values).fetchone()
    return None if row is None else contents.part_of(part.kind, row)


def _add_record(connection: Connection, part: Part) -> None:
    columns = contents.columns_of(part)
    connection.execute(
        f"INSERT OR IGNORE INTO records ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})",
        tuple(columns.values()),
    )
    if connection.changes() and columns["forgotten_at"] is None:
        tags = [(tag, connection.last_insert_rowid()) for tag in dict.fromkeys(columns["tags"])]
        connection.executemany("INSERT INTO tags VALUES (?, ?)", tags)


def _add_events(connection: Connection, parts: Sequence[Part], renumber: bool) -> None:
    """Write events. One with a lower number than others comes late: then all texts are indexed again."""
    newest = sequence(connection)
    for part in parts:
        seq, key, action, at, detail = part.values
        encoded = json.dumps(detail, ensure_ascii=False)
        connection.execute(_INSERT_EVENT, (None if renumber else seq, key, action, at, encoded))
        if not connection.changes() and not connection.execute("SELECT 1 FROM records WHERE id = ?", (key,)).get:
            raise StoreError(f"event {seq} is of the record {key!r}, which does not exist")
    if not renumber and parts[0].values[0] <= newest:
        raise_epoch(connection)
