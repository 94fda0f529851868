"""Records and their history, changed in short transactions; listening for changes; ids of external systems."""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from recollect.errors import RecollectError
from recollect.stores import ledger
from recollect.stores.records import SqlChanges, SqlJoins, SqlRecords
from recollect.stores.rows import COLUMNS, Condition, from_row, micros, passage_hash, to_row, visible_to
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import DIALECT, Connection, sequence
from recollect.types import EVERYTHING, GLOBAL, Change, Put, Record, Scope, now
from recollect.types.records import SaveVectors

TRANSACTION_SECONDS = 0.1
"""A transaction that has taken this long is committed, and a new one goes on, so that other writers need not wait."""

POLL_SECONDS = 0.1

BATCH_CHANGES = 256  # changes that are looked up together

_COLUMNS = (*COLUMNS, '"user"', "agent", "session")
_INSERT = f"INSERT INTO records (row, {', '.join(_COLUMNS)}) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"
_REPLACE = f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE row = ?"
_LOOK = f"{DIALECT.select.replace(' FROM', ', forgotten_at, passage FROM', 1)} WHERE id = ?"
_TWIN = (
    f"{DIALECT.select} WHERE fold = ? AND kind = ? AND +user IS ? AND agent IS ? AND session IS ?"
    " AND forgotten_at IS NULL AND ifnull(superseded_at > ?6, true) AND ifnull(expires_at > ?6, true)"
)
_TAGS = COLUMNS.index("tags")
EVENTS_OF = "row = (SELECT row FROM records WHERE id = ?)"
_KNOWN = "SELECT id, fold FROM records WHERE id = ? OR fold = ?"
SAVE_VECTOR = (  # without the last parameter only if a record has the passage: it may have been purged meanwhile
    "INSERT INTO embeddings (space, passage, vector) SELECT ?1, ?2, ?3"
    " WHERE ?4 OR EXISTS (SELECT 1 FROM records WHERE passage = ?2 AND forgotten_at IS NULL)"
    " ON CONFLICT (space, passage) DO NOTHING"
)
_NOTE = "INSERT INTO history (row, id, action, at, detail) VALUES (?, ?, ?, ?, ?)"


class SqliteRecords(SqlRecords):
    """Reads and writes the records of one SQLite store."""

    events_of = "row = (SELECT row FROM records WHERE {})"

    _database: Database

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        waiting, stored, applied = iter(groups), list[Record](), 0
        batch = _batch(waiting)
        try:
            while batch:
                with self._database.write() as connection:
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
                    stored += self._step(change)
        self._add(waiting)
        return stored

    def _step(self, change: Change) -> list[Record]:
        if isinstance(change, SaveVectors):
            self.check_space(change.space)
            self.connection.executemany(SAVE_VECTOR, [(change.space, *pair, False) for pair in change.vectors])
            return []
        return ledger.apply(self, change)

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
        first = next_row(self.connection)
        self.connection.executemany(_INSERT, [(row, *_values(record)) for row, record in enumerate(records, first)])
        insert_tags(self.connection, ((row, record.tags) for row, record in enumerate(records, first)))
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
        self.drop_orphan(row, passage_hash(before.passage))
        self.unindex(row)
        insert_tags(self.connection, [(row, record.tags)])

    def unindex(self, row: int) -> None:
        self.connection.execute("DELETE FROM tags WHERE row = ?", (row,))

    def last(self, key: str) -> int | None:
        last = self.connection.execute(f"SELECT max(seq) FROM history WHERE {EVENTS_OF}", (key,)).get
        return None if last is None else int(last)

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        self.connection.execute(_NOTE, (self.row(key), key, action, micros(now()), ledger.encoded(detail)))

    def drop_orphan(self, row: int, passage: bytes) -> None:  # noqa: ARG002
        drop_orphan(self.connection, passage)


def insert_tags(connection: Connection, rows: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Insert the tags of rows into their index."""
    if tags := [(tag, row) for row, names in rows for tag in dict.fromkeys(names)]:
        connection.executemany("INSERT INTO tags VALUES (?, ?)", tags)


def drop_orphan(connection: Connection, passage: bytes) -> None:
    """Delete the vectors of a text that no record has any more."""
    connection.execute(
        "DELETE FROM embeddings WHERE space IN (SELECT space FROM spaces) AND passage = ?1"
        " AND NOT EXISTS (SELECT 1 FROM records WHERE passage = ?1)",
        (passage,),
    )


def next_row(connection: Connection) -> int:
    """The row of the next new record: no row is used twice."""
    return int(connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'").get or 0) + 1


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
