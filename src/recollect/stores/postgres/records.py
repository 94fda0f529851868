"""Records and their history, changed in short transactions together with everything that is derived from them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.rows import TupleRow

from recollect.errors import RecollectError
from recollect.stores import ledger
from recollect.stores.postgres.additions import CHANNEL, Additions, insertion, lock_folds
from recollect.stores.postgres.connections import Connection, Cursors, run
from recollect.stores.postgres.database import DIALECT, PostgresDatabase
from recollect.stores.postgres.keywords import PostgresKeywords
from recollect.stores.postgres.postings import IndexedRecord, IndexWriter, drawn_scopes
from recollect.stores.postgres.rows import find_scope, scope_number, visible_scopes
from recollect.stores.postgres.vectors import save_vectors, settle
from recollect.stores.records import SqlJoins, SqlNotes, SqlRecords, path_forms
from recollect.stores.rows import COLUMNS, Condition, micros, passage_hash, to_row
from recollect.types import (
    GLOBAL,
    Change,
    ExpectUnchanged,
    Forget,
    Put,
    Record,
    Restore,
    Scope,
    Supersede,
    now,
)
from recollect.types.records import SaveVectors

MAX_CHANGES = 200
MAX_CHARACTERS = 10_000_000
MAX_SECONDS = 0.1
"""Limits of one batch of changes. A batch is written when it is full or this old, so that nobody waits long."""

MERGE_CHANCE = 500  # one change in so many merges new records into the blocks of the keyword index
SETTLE_CHANCE = 20  # one change in so many adds vectors to the approximate index if many are missing there

_KNOWN = (
    "SELECT ARRAY(SELECT space FROM spaces ORDER BY space),"
    " ARRAY(SELECT DISTINCT fold FROM records WHERE fold = ANY(%s::bytea[])),"
    " ARRAY(SELECT id FROM records WHERE id = ANY(%s::text[]))"
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

_ATTACH = "SELECT attach_vectors(%s, %s::bytea[]) WHERE row_security_active('records')"
"""Row-level security shows a vector only once its record is stored: the insertion has not seen it."""


class Rows(ledger.Table):
    """The steps of changes in one transaction. New records are buffered and inserted together with their history.

    `preparation` asks in one round trip which ids and texts are new; these are not looked up again. Rows that are read
    are locked.
    """

    dialect = DIALECT

    def __init__(self, connection: Connection, writer: IndexWriter) -> None:
        super().__init__(connection)
        self.writer = writer
        self._new_ids: set[str] = set()
        self._new_texts: set[bytes] = set()
        self._scopes: dict[Scope, int] = {}
        self._spaces: list[int] = []
        self._buffer: dict[str, Record] = {}
        self._buffered_texts: set[bytes] = set()
        self._events: list[tuple[str, str, int | None, str]] = []

    @staticmethod
    def preparation(changes: Sequence[Change]) -> list[Condition]:
        """Statements that lock the texts of some changes, and ask which ids and texts are new."""
        known: Condition = (_KNOWN, [list(merged_texts(changes)), list(set(ids_of(changes)))])
        return [lock_folds(merged_texts(changes)), known, *map(find_scope, scopes_of(changes))]

    def learn(
        self, changes: Sequence[Change], known: psycopg.Cursor[TupleRow], *numbers: psycopg.Cursor[TupleRow]
    ) -> None:
        """Take the results of `preparation`, and lock the records of these changes."""
        self._spaces, folds, stored_ids = known.fetchone() or ([], [], [])
        self._new_texts = merged_texts(changes) - set(map(bytes, folds))
        self._new_ids = set(ids_of(changes)) - set(stored_ids)
        if len(stored_ids) > 1:  # all transactions lock in the same order, which avoids deadlocks
            self.connection.execute("SELECT 1 FROM records WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (stored_ids,))
        cursors = zip(scopes_of(changes), numbers, strict=True)
        self._scopes = {scope: int(row[0]) for scope, cursor in cursors if (row := cursor.fetchone())}

    def flush(self) -> None:
        """Insert buffered records, ordered by id, and buffered history, in the order of the changes."""
        records = [self._buffer[key] for key in sorted(self._buffer)]
        scopes = [self._scope(record.scope) for record in records]
        noted = len(records) == 1 and [key for key, *_ in self._events] == [records[0].id]
        insert = insertion(self._spaces, noted=noted)
        with self.connection.pipeline():
            inserted = []
            for record, scope in zip(records, scopes, strict=True):
                values = [*to_row(record), scope, *self.writer.terms(record).columns]
                inserted.append(self.connection.execute(insert, [*values, *self._events[0][1:]] if noted else values))
            for space in self._spaces:
                self.connection.execute(_ATTACH, (space, [passage_hash(record.passage) for record in records]))
            self.writer.merge_tallies(self.connection, drawn_scopes(scopes))
            if self._events and not noted:
                self.connection.execute(_NOTE, [list(column) for column in zip(*self._events, strict=True)])
        rows = [cursor.fetchone() for cursor in inserted]
        self._refuse_taken([record.id for record, row in zip(records, rows, strict=True) if row is None])
        self._clear()

    def _clear(self) -> None:
        """Empty the buffers, whose records are stored now."""
        self._new_ids -= self._buffer.keys()
        self._new_texts -= self._buffered_texts
        for buffer in (self._buffer, self._buffered_texts, self._events):
            buffer.clear()

    def look(self, key: str) -> ledger.RecordState | None:
        if key in self._buffer:
            self.flush()
        return None if key in self._new_ids else super().look(key)

    def twin(self, record: Record) -> Record | None:
        if record.text_hash in self._buffered_texts:
            self.flush()
        return None if record.text_hash in self._new_texts else super().twin(record)

    def insert(self, record: Record) -> None:
        self._buffer[record.id] = record
        self._buffered_texts.add(record.text_hash)

    def replace(self, record: Record, before: Record) -> None:
        row, scope, terms = self.row(record.id), self._scope(record.scope), self.writer.terms(record)
        self._new_texts.discard(record.text_hash)
        with self.connection.pipeline():
            self.unindex(row)
            self.connection.execute(_REPLACE, [*to_row(record), scope, terms.length, row])
            self.drop_orphan(row, passage_hash(before.passage))
            self.writer.add(self.connection, [IndexedRecord(row, scope, record, terms)], self._spaces)

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        self.flush()
        super().supersede(key, by, at)

    def unindex(self, row: int) -> None:
        self.writer.remove(self.connection, row, self._spaces)

    def row(self, key: str) -> int:
        self.flush()
        return super().row(key)

    def last(self, key: str) -> int | None:
        self.flush()
        self.look(key)  # locks the record, so that no event is added
        return super().last(key)

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        self._events.append((key, action, micros(now()), ledger.encoded(detail)))

    def drop_orphan(self, row: int, passage: bytes) -> None:  # noqa: ARG002
        self.connection.execute("SELECT drop_orphan(%s)", (passage,))

    def save(self, change: SaveVectors) -> None:
        """Save vectors of texts that records have by now."""
        self.check_space(change.space)
        self.flush()
        run(self.connection, save_vectors(change.space, change.vectors))

    def _refuse_taken(self, ids: Sequence[str]) -> None:
        """Ids that another transaction has just inserted. If their records are visible, the changes are made again."""
        for key in ids:
            if self.connection.execute("SELECT 1 FROM records WHERE id = %s", (key,)).fetchone() is None:
                raise ledger.id_taken(key)
        if ids:
            raise pg.SerializationFailure("another transaction has inserted a record with the same id")

    def _scope(self, scope: Scope) -> int:
        if scope not in self._scopes:
            self._scopes[scope] = self._scope_number(scope)
        return self._scopes[scope]

    def _scope_number(self, scope: Scope) -> int:
        return scope_number(self.connection, scope)


def scopes_of(changes: Iterable[Change]) -> list[Scope]:
    """The scopes of records that are put."""
    return list(dict.fromkeys(change.record.scope for change in changes if isinstance(change, Put)))


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


class PostgresRecords(SqlRecords):
    """Reads and changes the records of one store. A view acts as one scope."""

    _database: PostgresDatabase
    _table: type[Rows] = Rows

    def __init__(self, database: PostgresDatabase, keywords: PostgresKeywords) -> None:
        super().__init__(database)
        self._keywords = keywords
        self._additions = Additions(database, keywords)

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        stored: list[Record] = []
        applied = 0
        for batch in _batches(iter(groups)):
            try:
                records = self._added(batch) or self._write(batch)
            except RecollectError as error:
                error.applied = applied
                raise
            stored += records
            applied += len(batch)
            self._tidy(batch, records)
        return stored

    def _tidy(self, groups: Sequence[Sequence[Change]], stored: Sequence[Record]) -> None:  # noqa: ARG002
        """After some changes, now and then: merge new records into the blocks, and add vectors to their index."""
        chance = random.randrange(MERGE_CHANCE) / max(1, sum(map(len, groups)))  # noqa: S311  (not a secret)
        if chance < 1:
            self._keywords.merge()
        if chance < MERGE_CHANCE / SETTLE_CHANCE:
            settle(self._database)

    def _added(self, groups: Sequence[Sequence[Change]]) -> list[Record]:
        """The record of a single `Put`, perhaps with its vector, if it could be added without a look at the store."""
        added = None
        match groups:
            case [[Put() as put]]:
                added = self._additions.add(put)
            case [[Put() as put], [SaveVectors(space=space, vectors=[(passage, vector)])]]:
                if passage == passage_hash(put.record.passage):
                    added = self._additions.add(put, space, vector)
        return [] if added is None else [added]

    def _write(self, groups: Sequence[Sequence[Change]]) -> list[Record]:
        changes = list(chain.from_iterable(groups))
        writer = self._keywords.writer.ahead(change.record for change in changes if isinstance(change, Put))
        if self._database.row_security():
            first, work = [lock_folds(merged_texts(changes))], partial(self._apply_by_scope, groups, writer)
        else:
            first, work = self._table.preparation(changes), partial(self._apply, changes, writer)
        return self._database.write(work, self._scope, first=[*self._keywords.lock, *first], notify=CHANNEL)

    def _apply(
        self, changes: Sequence[Change], writer: IndexWriter, connection: Connection, *first: psycopg.Cursor[TupleRow]
    ) -> list[Record]:
        _, language, _, *prepared = first
        table = self._table(connection, writer.by(self._keywords.locked_language(language)))
        return _apply_changes(table, changes, prepared)

    def _apply_by_scope(
        self,
        groups: Sequence[Sequence[Change]],
        writer: IndexWriter,
        connection: Connection,
        *first: psycopg.Cursor[TupleRow],
    ) -> list[Record]:
        """With row-level security: consecutive groups of the same scope together, after acting as that scope."""
        writer = writer.by(self._keywords.locked_language(first[1]))
        stored: list[Record] = []
        for scope, some in groupby(groups, lambda group: _scope_of(group, self._scope)):
            changes = list(chain.from_iterable(some))
            naming = self._database.naming(scope, connection)
            _, *prepared = run(connection, [*naming, *self._table.preparation(changes)])[len(naming) :]
            stored += _apply_changes(self._table(connection, writer), changes, prepared)
        return stored


def _apply_changes(rows: Rows, changes: Sequence[Change], prepared: Cursors) -> list[Record]:
    """Apply changes whose `preparation` has been run."""
    rows.learn(changes, *prepared)
    stored: list[Record] = []
    for change in changes:
        if isinstance(change, SaveVectors):
            rows.save(change)
        else:
            stored += ledger.apply(rows, change)
    rows.flush()
    return stored


def _batches(groups: Iterator[Sequence[Change]]) -> Iterator[list[Sequence[Change]]]:
    """Groups that are written together. The transaction starts when all of them are available."""
    batch: list[Sequence[Change]] = []
    count, characters, deadline = 0, 0, 0.0
    for group in groups:
        deadline = deadline if batch else time.monotonic() + MAX_SECONDS
        batch.append(group)
        count += len(group)
        puts = (change.record for change in group if isinstance(change, Put))
        characters += sum(len(record.title) + len(record.text) for record in puts)
        if count >= MAX_CHANGES or characters >= MAX_CHARACTERS or time.monotonic() >= deadline:
            yield batch
            batch, count, characters = [], 0, 0
    if batch:
        yield batch


def _scope_of(group: Sequence[Change], caller: Scope | None) -> Scope:
    """The scope that writes a group: the caller's, or that of the first record that the caller cannot see."""
    own = caller or GLOBAL
    puts = (change.record.scope for change in group if isinstance(change, Put))
    return next((scope for scope in puts if not own.admits(scope)), own)


class PostgresNotes(SqlNotes):
    """With row-level security a note is visible to those who know its key."""

    prune = "SELECT prune_notes(%s)"

    def announce(self, connection: Connection, key: str) -> None:
        connection.execute("SELECT set_config('recollect.note', %s, true)", (key,))


_ANY_SCOPE = (  # what is stored in any scope: functions that see all rows in spite of row-level security
    "SELECT taken_ids(%(ids)s)", "SELECT taken_folds(%(folds)s)", "SELECT taken_paths(%(same)s, %(ending)s)",
)  # fmt: skip

_LIVE = "FROM records WHERE scope = ANY(%(scopes)s) AND forgotten_at IS NULL"
_SOME_SCOPES = (  # the same for some scopes, with the ids of their forgotten records
    "SELECT id FROM records WHERE scope = ANY(%(scopes)s) AND id = ANY(%(ids)s)",
    f"SELECT DISTINCT fold {_LIVE} AND fold = ANY(%(folds)s)",
    (
        f"SELECT coalesce((SELECT nullif(count(*), 0) {_LIVE} AND path = ANY(%(same)s)),"
        f" (SELECT count(*) {_LIVE} AND right(path, length(%(ending)s::text)) = %(ending)s::text))"
    ),
)


class PostgresJoins(SqlJoins):
    """Finds the records of external results. What any scope has is asked through functions that see all rows."""

    prune = "SELECT prune_joins(%s)"

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], dict[str, int]]:
        by_id, by_fold, by_path = _ANY_SCOPE if within is None else _SOME_SCOPES
        with self._database.read(within) as connection:
            scopes = {"scopes": [] if within is None else visible_scopes(connection, within)}
            with connection.pipeline():
                taken_ids = connection.execute(by_id, {**scopes, "ids": list(ids)})
                taken_folds = connection.execute(by_fold, {**scopes, "folds": list(folds)})
                forms = {path: dict(zip(("same", "ending"), path_forms(path), strict=True)) for path in paths}
                counts = {path: connection.execute(by_path, {**scopes, **form}) for path, form in forms.items()}
            return (
                {key for (key,) in taken_ids},
                {bytes(fold) for (fold,) in taken_folds},
                {path: int(count) for path, cursor in counts.items() for (count,) in cursor},
            )
