"""Records and their history, changed in short transactions together with everything that is derived from them."""

import functools
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from typing import Any

from psycopg import errors as pg

from recollect.errors import RecollectError, UsageError
from recollect.stores import ledger
from recollect.stores.postgres.database import DIALECT, Connection, PostgresDatabase, set_scope
from recollect.stores.postgres.keywords import PostgresKeywords
from recollect.stores.postgres.postings import IndexedRecord, IndexWriter, stored_vector
from recollect.stores.postgres.rows import find_scope, scope_number, visible_scopes
from recollect.stores.postgres.vectors import settle
from recollect.stores.records import SqlJoins, SqlNotes, SqlRecords, path_forms
from recollect.stores.rows import COLUMNS, micros, passage_hash, to_row
from recollect.types import GLOBAL, Change, ExpectUnchanged, Forget, Put, Record, Restore, Scope, Supersede, now

MAX_CHANGES = 200
MAX_CHARACTERS = 10_000_000
MAX_SECONDS = 0.1
"""Limits of one batch of changes. A batch is written when it is full or this old, so that nobody waits long."""

MERGE_CHANCE = 500  # one change in so many merges new records into the blocks of the keyword index
SETTLE_CHANCE = 20  # one change in so many adds vectors to the approximate index if many are missing there

CHANNEL = "recollect"  # the channel of NOTIFY; the payload is the schema

TEXT_LOCKS = 0x52434C57
SLOTS = 256  # advisory locks for adding the same text at once. They are few because the server's lock table is small.

_INSERT = (
    f"INSERT INTO records ({', '.join(COLUMNS)}, scope, length)"
    f" VALUES ({', '.join(['%s'] * (len(COLUMNS) + 2))}) ON CONFLICT (id) DO NOTHING"
    " RETURNING row, scope, id, length, passage"
)
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


@functools.cache
def _insertion(spaces: tuple[int, ...], *, noted: bool) -> str:
    """The statement that inserts a new record into its table, the tallies and all indexes; `noted` with an event."""
    places = (
        f"space_{space} AS (INSERT INTO vectors_{space} (row, scope, vector) SELECT row, scope,"
        f" {stored_vector(space, 'new')} FROM new)"
        for space in spaces
    )
    parts = [
        f"new AS ({_INSERT})",
        "document AS (INSERT INTO documents SELECT row, scope, length, %s::text[], %s::real[] FROM new)",
        "tally AS (INSERT INTO tallies (scope, records, length) SELECT scope, 1, length FROM new)",
        *places,
    ]
    if noted:
        event = "INSERT INTO history (row, scope, id, action, at, detail) SELECT row, scope, id, %s, %s, %s FROM new"
        parts.append(f"event AS ({event})")
    return f"WITH {', '.join(parts)} SELECT row FROM new"


class Rows(ledger.Table):
    """The steps of changes in one transaction. New records are buffered and inserted together with their history.

    `prepare` learns in one round trip which ids and texts are new; these are not looked up again. Rows that are read
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

    def prepare(self, changes: Sequence[Change]) -> None:
        """Lock the texts and records of some changes, and learn which of them are new."""
        puts = [change for change in changes if isinstance(change, Put)]
        ids = list(set(ids_of(changes)))
        texts = merged_texts(changes)
        with self.connection.pipeline():
            lock_texts(self.connection, changes)
            known = self.connection.execute(_KNOWN, (list(texts), ids))
            scopes = {put.record.scope: find_scope(put.record.scope) for put in puts}
            numbers = {scope: self.connection.execute(*find) for scope, find in scopes.items()}
        self._spaces, folds, stored_ids = known.fetchone() or ([], [], [])
        self._new_texts = texts - set(map(bytes, folds))
        self._new_ids = set(ids) - set(stored_ids)
        if len(stored_ids) > 1:  # all transactions lock in the same order, which avoids deadlocks
            self.connection.execute("SELECT 1 FROM records WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (stored_ids,))
        self._scopes = {scope: int(row[0]) for scope, cursor in numbers.items() if (row := cursor.fetchone())}

    def flush(self) -> None:
        """Insert buffered records, ordered by id, and buffered history, in the order of the changes."""
        records = [self._buffer[key] for key in sorted(self._buffer)]
        scopes = [self._scope(record.scope) for record in records]
        noted = len(records) == 1 and [key for key, *_ in self._events] == [records[0].id]
        insert = _insertion(tuple(self._spaces), noted=noted)
        with self.connection.pipeline():
            inserted = []
            for record, scope in zip(records, scopes, strict=True):
                terms, length = self.writer.terms(record)
                values = [*to_row(record), scope, length, list(terms), list(terms.values())]
                inserted.append(self.connection.execute(insert, [*values, *self._events[0][1:]] if noted else values))
            self.writer.merge_tallies(self.connection, scopes)
            if self._events and not noted:
                self.connection.execute(_NOTE, [list(column) for column in zip(*self._events, strict=True)])
        rows = [cursor.fetchone() for cursor in inserted]
        self._refuse_taken([record.id for record, row in zip(records, rows, strict=True) if row is None])
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
            self.drop_orphan(passage_hash(before.passage))
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

    def drop_orphan(self, passage: bytes) -> None:
        self.connection.execute("SELECT drop_orphan(%s)", (passage,))

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


class PostgresRecords(SqlRecords):
    """Reads and changes the records of one store. With a `scope`, all transactions act as that scope."""

    _database: PostgresDatabase

    def __init__(self, database: PostgresDatabase, keywords: PostgresKeywords, scope: Scope | None = None) -> None:
        super().__init__(database, scope)
        self._keywords = keywords

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        stored: list[Record] = []
        applied = 0
        for batch in _batches(iter(groups)):
            puts = (change for group in batch for change in group if isinstance(change, Put))
            writer = self._keywords.writer.ahead(put.record for put in puts)
            try:
                stored += self._database.write(partial(self._apply, batch, writer), self._scope, notify=CHANNEL)
            except RecollectError as error:
                error.applied = applied
                raise
            applied += len(batch)
            chance = random.randrange(MERGE_CHANCE) / max(1, sum(map(len, batch)))  # noqa: S311  (not a secret)
            if chance < 1:
                self._keywords.merge()
            if chance < MERGE_CHANCE / SETTLE_CHANCE:
                self._database.try_write(settle)
        return stored

    def _apply(self, groups: Sequence[Sequence[Change]], writer: IndexWriter, connection: Connection) -> list[Record]:
        writer = writer.by(self._keywords.lock_language(connection))
        stored: list[Record] = []
        for changes in self._by_scope(connection, groups):
            rows = Rows(connection, writer)
            rows.prepare(changes)
            stored += [record for change in changes for record in ledger.apply(rows, change)]
            rows.flush()
        return stored

    def _by_scope(self, connection: Connection, groups: Sequence[Sequence[Change]]) -> Iterator[list[Change]]:
        """All changes; with row-level security, consecutive ones of the same scope, after acting as that scope."""
        if not self._database.row_security(connection):
            yield list(chain.from_iterable(groups))
            return
        lock_texts(connection, chain.from_iterable(groups))
        for scope, some in groupby(groups, lambda group: _scope_of(group, self._scope)):
            connection.execute(set_scope(scope))
            yield list(chain.from_iterable(some))


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
    """The same statements, beside row-level security."""

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
