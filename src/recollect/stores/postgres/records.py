"""Records and their history, changed in short transactions together with everything that is derived from them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, groupby
from typing import Any

from psycopg import errors as pg

from recollect.analysis import Analyzer
from recollect.errors import RecollectError, UsageError
from recollect.stores import ledger
from recollect.stores.postgres.database import Connection, PostgresDatabase
from recollect.stores.postgres.keywords import IndexedRecord, IndexWriter
from recollect.stores.postgres.rows import COLUMNS, SELECT, find_scope, from_row, matching, scope_number, to_row
from recollect.stores.rows import EPOCH, micros, moment, passage_hash
from recollect.types import (
    GLOBAL,
    Change,
    Event,
    ExpectUnchanged,
    Filter,
    Forget,
    Put,
    Record,
    Records,
    Restore,
    Scope,
    SetFileState,
    SetFolderOptions,
    Supersede,
    now,
)

MAX_CHANGES = 200
MAX_CHARACTERS = 10_000_000
MAX_SECONDS = 0.1
"""Limits of one batch of changes. A batch is written when it is full or this old, so that nobody waits long."""

CHANNEL = "recollect"
"""The channel of NOTIFY; the payload is the schema."""

TEXT_LOCKS = 0x52434C57
SLOTS = 256
"""Advisory locks for adding the same text at once. They are few because the server's lock table is small."""

_INSERT = (
    f"INSERT INTO records ({', '.join(COLUMNS)}, scope, length)"
    f" VALUES ({', '.join(['%s'] * (len(COLUMNS) + 2))}) ON CONFLICT (id) DO NOTHING RETURNING row"
)
_REPLACE = (
    f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{column} = %s' for column in COLUMNS)},"
    " scope = %s, length = %s WHERE row = %s"
)
_NOTE = (
    "INSERT INTO history (row, scope, id, action, at, detail)"
    " SELECT row, scope, id, action, at, detail"
    " FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[]) WITH ORDINALITY AS note (id, action, at, detail, n)"
    " JOIN records USING (id) ORDER BY n"
)


@dataclass(slots=True)
class Rows(ledger.Table):
    """The steps of changes in one transaction. New records are buffered and inserted together with their history.

    `prepare` learns in one round trip which ids and texts are new; these are not looked up again. Rows that are read
    are locked.
    """

    connection: Connection
    writer: IndexWriter
    _new_ids: set[str] = field(default_factory=set)
    _new_texts: set[bytes] = field(default_factory=set)
    _scopes: dict[Scope, int] = field(default_factory=dict)
    _spaces: list[int] = field(default_factory=list)
    _buffer: dict[str, Record] = field(default_factory=dict)
    _buffered_texts: set[bytes] = field(default_factory=set)
    _events: list[tuple[str, str, int | None, str]] = field(default_factory=list)

    def prepare(self, changes: Sequence[Change]) -> None:
        """Lock the texts and records of some changes, and learn which of them are new."""
        puts = [change for change in changes if isinstance(change, Put)]
        ids = list(set(ids_of(changes)))
        texts = merged_texts(changes)
        with self.connection.pipeline():
            spaces = self.connection.execute("SELECT space FROM spaces ORDER BY space")
            lock_texts(self.connection, changes)
            known = self.connection.execute("SELECT DISTINCT fold FROM records WHERE fold = ANY(%s)", (list(texts),))
            stored = self.connection.execute("SELECT id FROM records WHERE id = ANY(%s)", (ids,))
            scopes = {put.record.scope: self.connection.execute(*find_scope(put.record.scope)) for put in puts}
        self._spaces = [space for (space,) in spaces]
        self._new_texts = texts - {bytes(fold) for (fold,) in known}
        stored_ids = [key for (key,) in stored]
        self._new_ids = set(ids) - set(stored_ids)
        if len(stored_ids) > 1:  # all transactions lock in the same order, which avoids deadlocks
            lock = "SELECT 1 FROM records WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
            self.connection.execute(lock, (stored_ids,))
        self._scopes = {scope: int(row[0]) for scope, cursor in scopes.items() if (row := cursor.fetchone())}

    def flush(self) -> None:
        """Insert buffered records, ordered by id, and buffered history, in the order of the changes."""
        stored = self._insert([self._buffer[key] for key in sorted(self._buffer)]) if self._buffer else []
        self._new_ids -= self._buffer.keys()
        self._new_texts -= self._buffered_texts
        with self.connection.pipeline():
            if stored:
                self.writer.add(self.connection, stored, self._spaces)
            if self._events:
                self.connection.execute(_NOTE, [list(column) for column in zip(*self._events, strict=True)])
        for buffer in (self._buffer, self._buffered_texts, self._events):
            buffer.clear()

    def look(self, key: str) -> ledger.RecordState | None:
        if key in self._buffer:
            self.flush()
        if key in self._new_ids:
            return None
        row = self.connection.execute(
            f"{SELECT.replace(' FROM', ', forgotten_at, passage FROM', 1)} WHERE id = %s FOR UPDATE OF records",
            (key,),
        ).fetchone()
        if row is None:
            return None
        *fields, forgotten, passage = row
        return ledger.RecordState(from_row(fields), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        fold = record.text_hash
        if fold in self._buffered_texts:
            self.flush()
        if fold in self._new_texts:
            return None
        condition, values = matching(Filter(scope=record.scope, kinds=(record.kind,)))
        sql = f"{SELECT} WHERE {condition} AND fold = %s FOR UPDATE OF records"
        same = map(from_row, self.connection.execute(sql, [*values, fold]))
        return next((other for other in same if other.scope == record.scope), None)

    def insert(self, record: Record) -> None:
        self._buffer[record.id] = record
        self._buffered_texts.add(record.text_hash)

    def replace(self, record: Record, before: Record) -> None:
        row, scope, terms = self._row(record.id), self._scope(record.scope), self.writer.terms(record)
        self._new_texts.discard(record.text_hash)
        with self.connection.pipeline():
            self.writer.remove(self.connection, row, self._spaces)
            self.connection.execute(_REPLACE, [*to_row(record), scope, terms.length, row])
            self._drop_unused_vector(passage_hash(before.passage))
            self.writer.add(self.connection, [IndexedRecord(row, scope, record, terms)], self._spaces)

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        self.flush()
        self.connection.execute(
            "UPDATE records SET superseded_by = %s, superseded_at = %s WHERE id = %s",
            (by, micros(at), key),
        )

    def hide(self, key: str, *, purge: bool) -> None:
        row = self._row(key)
        with self.connection.pipeline():
            self.writer.remove(self.connection, row, self._spaces)
            self.connection.execute("UPDATE records SET forgotten_at = %s WHERE row = %s", (micros(now()), row))
        if purge:
            self._erase(row)

    def show(self, record: Record) -> None:
        row, scope, terms = self._row(record.id), self._scope(record.scope), self.writer.terms(record)
        with self.connection.pipeline():
            self.connection.execute(
                "UPDATE records SET forgotten_at = NULL, length = %s WHERE row = %s", (terms.length, row)
            )
            self.writer.add(self.connection, [IndexedRecord(row, scope, record, terms)], self._spaces)

    def saw(self, change: SetFileState) -> None:
        self.connection.execute("DELETE FROM files WHERE path = %s", (change.path,))
        if (state := change.state) is not None:
            values = (state.path, state.root, state.mtime_ns, state.size, state.digest)
            self.connection.execute("INSERT INTO files VALUES (%s, %s, %s, %s, %s)", values)

    def mirrors(self, change: SetFolderOptions) -> None:
        self.connection.execute(
            "INSERT INTO roots VALUES (%s, %s) ON CONFLICT (root) DO UPDATE SET told = excluded.told",
            (change.root, json.dumps(change.options)),
        )

    def ingested(self, digest: str) -> None:
        self.connection.execute(
            "INSERT INTO ingested VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET at = excluded.at",
            (digest, micros(now())),
        )

    def last(self, key: str) -> int | None:
        self.flush()
        self.look(key)  # locks the record, so that no event is added
        row = self.connection.execute("SELECT max(seq) FROM history WHERE id = %s", (key,)).fetchone()
        return None if row is None else row[0]

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        self._events.append((key, action, micros(now()), json.dumps(detail, default=_as_text)))

    def _insert(self, records: Sequence[Record]) -> list[IndexedRecord]:
        scopes = [self._scope(record.scope) for record in records]
        terms = [self.writer.terms(record) for record in records]
        values = [
            [*to_row(record), scope, counts.length]
            for record, scope, counts in zip(records, scopes, terms, strict=True)
        ]
        with self.connection.cursor() as cursor:
            cursor.executemany(_INSERT, values, returning=True)
            rows = [result.fetchone() for result in cursor.results()]
        self._refuse_taken([record.id for record, row in zip(records, rows, strict=True) if row is None])
        return list(map(IndexedRecord, map(_number, rows), scopes, records, terms))

    def _refuse_taken(self, ids: Sequence[str]) -> None:
        """Ids that another transaction has just inserted. If their records are visible, the changes are made again."""
        for key in ids:
            if self.connection.execute("SELECT 1 FROM records WHERE id = %s", (key,)).fetchone() is None:
                raise UsageError(
                    f"the id {key!r} is taken by a record of another scope", hint="leave the id out, or use another"
                )
        if ids:
            raise pg.SerializationFailure("another transaction has inserted a record with the same id")

    def _scope(self, scope: Scope) -> int:
        if scope not in self._scopes:
            self._scopes[scope] = scope_number(self.connection, scope)
        return self._scopes[scope]

    def _row(self, key: str) -> int:
        self.flush()
        return _number(self.connection.execute("SELECT row FROM records WHERE id = %s", (key,)).fetchone())

    def _erase(self, row: int) -> None:
        """Remove the content of a purged record from the record, its history and the vectors."""
        passage = self.connection.execute("SELECT passage FROM records WHERE row = %s", (row,)).fetchone()
        with self.connection.pipeline():
            self.connection.execute(
                "UPDATE records SET text = '', title = '', category = NULL, tags = '{}', source = NULL, path = NULL,"
                " first_line = NULL, last_line = NULL, fold = '', passage = '' WHERE row = %s",
                (row,),
            )
            self.connection.execute("UPDATE history SET detail = '{}' WHERE row = %s", (row,))
            self._drop_unused_vector(passage[0] if passage else b"")

    def _drop_unused_vector(self, passage: bytes) -> None:
        """Delete the vectors of a text that no record has any more: a text can be recovered from its vector."""
        self.connection.execute("SELECT drop_orphan(%s)", (passage,))


def _number(row: Any) -> int:
    return int(row[0])


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def lock_texts(connection: Connection, changes: Iterable[Change]) -> None:
    """Wait for transactions that add the same texts. A transaction locks all of its texts at once."""
    slots = sorted({int.from_bytes(fold[:8]) % SLOTS for fold in merged_texts(changes)})
    if slots:
        lock = "SELECT pg_advisory_xact_lock(%s, slot) FROM unnest(%s::integer[]) AS slot"
        connection.execute(lock, (TEXT_LOCKS, slots))


def merged_texts(changes: Iterable[Change]) -> set[bytes]:
    """The hashes of texts that are merged with a record of the same text."""
    return {change.record.text_hash for change in changes if isinstance(change, Put) and change.merge}


def ids_of(changes: Iterable[Change]) -> Iterator[str]:
    """The ids of records that changes name."""
    for change in changes:
        match change:
            case Put():
                yield change.record.id
            case Supersede():
                yield from (change.id, change.by)
            case Forget() | Restore() | ExpectUnchanged():
                yield change.id


class PostgresRecords(Records):
    """Reads and changes the records of one store.

    `lock_language` returns the analyzer of a write transaction. With a `scope`, all transactions act as that scope.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        writer: IndexWriter,
        lock_language: Callable[[Connection], Analyzer],
        scope: Scope | None = None,
    ) -> None:
        self._database = database
        self._writer = writer
        self._lock_language = lock_language
        self._scope = scope

    def within(self, scope: Scope) -> PostgresRecords:
        """The same records, always read and changed as one scope."""
        return PostgresRecords(self._database, self._writer, self._lock_language, scope)

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        stored: list[Record] = []
        applied = 0
        for batch in _batches(iter(groups)):
            writer = self._writer.ahead(change.record for group in batch for change in group if isinstance(change, Put))
            try:
                stored += self._database.write(
                    lambda connection, batch=batch, writer=writer: self._apply(connection, batch, writer),  # type: ignore[misc]
                    self._scope,
                )
            except RecollectError as error:
                error.applied = applied
                raise
            applied += len(batch)
        return stored

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        condition, values = matching(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read(self._reader(where)) as connection:
            sql = f"{SELECT} WHERE {condition} AND id = ANY(%s)"
            rows = connection.execute(sql, [*values, list(ids)])
            records = {record.id: record for record in map(from_row, rows)}
        return [records[key] for key in ids if key in records]

    def history(self, record_id: str) -> list[Event]:
        with self._database.read(self._scope) as connection:
            rows = connection.execute(
                "SELECT seq, id, action, at, detail FROM history WHERE id = %s ORDER BY seq", (record_id,)
            )
            return [
                Event(seq, key, action, moment(at) or EPOCH, json.loads(detail))
                for seq, key, action, at, detail in rows
            ]

    def scope_of(self, record_id: str) -> Scope | None:
        with self._database.read(self._scope) as connection:
            row = connection.execute(
                'SELECT "user", agent, session FROM records JOIN scopes USING (scope) WHERE id = %s AND passage <> %s',
                (record_id, b""),
            ).fetchone()
        return None if row is None else Scope(*row)

    def _reader(self, where: Filter | None) -> Scope | None:
        """The scope to read as: that of the filter, or ours if the filter names none."""
        if where is None:
            return self._scope
        return self._scope or where.scope if where.any_scope else where.scope

    def _apply(self, connection: Connection, groups: Sequence[Sequence[Change]], writer: IndexWriter) -> list[Record]:
        writer = writer.by(self._lock_language(connection))
        stored: list[Record] = []
        for changes in self._by_scope(connection, groups):
            rows = Rows(connection, writer)
            rows.prepare(changes)
            stored += [record for change in changes for record in ledger.apply(rows, change)]
            rows.flush()
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))
        return stored

    def _by_scope(self, connection: Connection, groups: Sequence[Sequence[Change]]) -> Iterator[list[Change]]:
        """All changes; with row-level security, consecutive ones of the same scope, after acting as that scope."""
        if not self._database.row_security(connection):
            yield list(chain.from_iterable(groups))
            return
        lock_texts(connection, chain.from_iterable(groups))
        for scope, some in groupby(groups, lambda group: _scope_of(group, self._scope)):
            self._database.set_scope(connection, scope)
            yield list(chain.from_iterable(some))

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        condition, values = matching(where)
        with self._database.read(self._reader(where)) as connection:
            sql = f'{SELECT} WHERE {condition} ORDER BY time DESC, id COLLATE "C" LIMIT %s OFFSET %s'
            return [from_row(row) for row in connection.execute(sql, [*values, limit, offset])]


def _batches(groups: Iterator[Sequence[Change]]) -> Iterator[list[Sequence[Change]]]:
    """Groups that are written together. The transaction starts when all of them are available."""
    for first in groups:
        batch, deadline = [first], time.monotonic() + MAX_SECONDS
        count, characters = len(first), _characters(first)
        while count < MAX_CHANGES and characters < MAX_CHARACTERS and time.monotonic() < deadline:
            if (group := next(groups, None)) is None:
                break
            batch.append(group)
            count += len(group)
            characters += _characters(group)
        yield batch


def _characters(group: Sequence[Change]) -> int:
    return sum(len(change.record.title) + len(change.record.text) for change in group if isinstance(change, Put))


def _scope_of(group: Sequence[Change], caller: Scope | None) -> Scope:
    """The scope that writes a group: the caller's, or that of the first record that the caller cannot see."""
    own = caller or GLOBAL
    puts = (change.record.scope for change in group if isinstance(change, Put))
    return next((scope for scope in puts if not own.admits(scope)), own)
