"""Changes to the records of a distributed store. Each statement goes to the shard of one scope."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.rows import TupleRow

from recollect.stores.contents import columns_of, scope_of
from recollect.stores.postgres.additions import lock_folds
from recollect.stores.postgres.citus.database import NEW_SCOPE, ClusterDatabase, insert_rows, list_scopes
from recollect.stores.postgres.citus.keywords import ClusterKeywords
from recollect.stores.postgres.citus.vectors import (
    UNOWNED_SCOPE,
    adopt_vectors,
    attach_vectors,
    insert_vectors,
    save_vectors,
)
from recollect.stores.postgres.connections import Connection, run
from recollect.stores.postgres.database import DIALECT
from recollect.stores.postgres.postings import DOCUMENT, TALLY, IndexedRecord, TermCounts, drawn_scopes
from recollect.stores.postgres.records import MERGE_CHANCE, PostgresRecords, Rows, ids_of, merged_texts, scopes_of
from recollect.stores.postgres.rows import find_scope, scope_number
from recollect.stores.rows import COLUMNS, Condition, NumberedFilter, passage_hash, to_row
from recollect.types import Change, Record, Scope
from recollect.types.parts import Part
from recollect.types.records import SaveVectors

_RECORD = (*COLUMNS, "scope", "length", "row", '"user"', "agent", "session")

_INSERT = f"INSERT INTO records ({', '.join(_RECORD)}) VALUES ({', '.join(['%s'] * len(_RECORD))})"

_EVENT = "INSERT INTO history (row, scope, id, action, at, detail) VALUES (%s, %s, %s, %s, %s, %s)"

_REPLACE = (
    f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{column} = %s' for column in COLUMNS)}, length = %s"
    " WHERE scope = %s AND row = %s"
)

_SPACES = "SELECT ARRAY(SELECT space FROM spaces ORDER BY space)"

_LOCKED = "SELECT id, row, scope FROM ids WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

_DROP_ORPHAN = (
    "DELETE FROM embeddings WHERE scope = ANY(%s) AND passage = %s AND NOT EXISTS (SELECT 1 FROM records"
    " WHERE records.scope = embeddings.scope AND records.passage = embeddings.passage)"
)


class ClusterRows(Rows):
    """The steps of changes in one transaction. A record is locked by its row in `ids`."""

    dialect = replace(DIALECT, records="records", lock="")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._places: dict[str, tuple[int, int]] = {}  # row and scope of each id
        self._scope_of: dict[int, int] = {}
        self._vectors: dict[tuple[int, bytes], bytes] = {}  # of buffered records, by space and hash of the text

    @staticmethod
    def preparation(changes: Sequence[Change]) -> list[Condition]:
        return [
            lock_folds(merged_texts(changes)),
            (_SPACES, []),
            (_LOCKED, [list(set(ids_of(changes)))]),
            *map(find_scope, scopes_of(changes)),
        ]

    def learn(
        self, changes: Sequence[Change], known: psycopg.Cursor[TupleRow], *others: psycopg.Cursor[TupleRow]
    ) -> None:
        places, *numbers = others
        (self._spaces,) = known.fetchone() or ([],)
        for key, row, scope in places:
            self._remember(key, row, scope)
        self._new_ids = set(ids_of(changes)) - self._places.keys()
        cursors = zip(scopes_of(changes), numbers, strict=True)
        self._scopes = {scope: int(row[0]) for scope, cursor in cursors if (row := cursor.fetchone())}
        folds, stored = merged_texts(changes), set[bytes]()
        if folds and self._scopes:
            same = "SELECT DISTINCT fold FROM records WHERE scope = ANY(%s) AND fold = ANY(%s)"
            rows = self.connection.execute(same, (list(self._scopes.values()), list(folds)))
            stored = {bytes(fold) for (fold,) in rows}
        self._new_texts = folds - stored

    def by_id(self, key: str) -> Condition:
        place = self._find(key)
        return ("false", []) if place is None else ("scope = %s AND id = %s", [place[1], key])

    def by_row(self, row: int) -> Condition:
        return "scope = %s AND row = %s", [self._scope_of[row], row]

    def flush(self) -> None:
        records = [self._buffer[key] for key in sorted(self._buffer)]
        scopes = [self._scope(record.scope) for record in records]
        with self.connection.pipeline():
            insert = "INSERT INTO ids (id, scope) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING row"
            cursors = [
                self.connection.execute(insert, (record.id, scope))
                for record, scope in zip(records, scopes, strict=True)
            ]
        rows = [cursor.fetchone() for cursor in cursors]
        self._refuse_taken([record.id for record, row in zip(records, rows, strict=True) if row is None])
        numbers = [int(row[0]) for row in rows if row]
        for record, scope, number in zip(records, scopes, numbers, strict=True):
            self._remember(record.id, number, scope)
        events = [(*self._place(key), key, *event) for key, *event in self._events]
        with self.connection.pipeline():
            self._insert(list(map(self._indexed, records, numbers, scopes)))
            insert_rows(self.connection, _EVENT, events)
        for scope in drawn_scopes(scopes):
            merge_tallies(self.connection, scope)
        self._clear()

    def twin(self, record: Record) -> Record | None:
        if record.text_hash in self._buffered_texts:
            self.flush()
        if record.text_hash in self._new_texts or record.scope not in self._scopes:
            return None
        where = NumberedFilter(scope=record.scope, kinds=(record.kind,), numbers=(self._scopes[record.scope],))
        condition, values = self.dialect.matching(where)
        same = self.connection.execute(
            f"SELECT id FROM records WHERE {condition} AND fold = %s", [*values, record.text_hash]
        )
        for (key,) in same.fetchall():
            state = self.look(key)  # locks it; it may have been changed before that
            if state and not state.forgotten and state.record.text_hash == record.text_hash:
                return state.record
        return None

    def replace(self, record: Record, before: Record) -> None:
        row, (_, old_scope) = self.row(record.id), self._place(record.id)
        scope, terms = self._scope(record.scope), self.writer.terms(record)
        self._new_texts.discard(record.text_hash)
        self.unindex(row)
        if scope != old_scope:
            self._take_out(record.id, scope)
            self._insert([self._indexed(record, row, scope)])
            return
        with self.connection.pipeline():
            self.connection.execute(_REPLACE, [*to_row(record), terms.length, scope, row])
            self.drop_orphan(row, passage_hash(before.passage))
            self._index([self._indexed(record, row, scope)])

    def lock(self, ids: Sequence[str]) -> set[str]:
        """Lock the stored records with these ids, and return these ids. `restate` needs the locks."""
        (self._spaces,) = self.connection.execute(_SPACES).fetchone()
        for key, row, scope in self.connection.execute(_LOCKED, (list(ids),)).fetchall():
            self._remember(key, row, scope)
        return set(self._places)

    def restate(self, part: Part, record: Record) -> tuple[int, bytes]:
        """Replace the record with this id by what a part holds; returns the scope and the passage that it had."""
        key, columns, terms = part.field("id"), columns_of(part), self.writer.terms(record)
        (row, old_scope), scope = self._place(key), self._scope(scope_of(part))
        before = "SELECT passage FROM records WHERE scope = %s AND row = %s"
        (passage,) = self.connection.execute(before, (old_scope, row)).fetchone() or (b"",)
        self.unindex(row)
        columns |= {"length": terms.length, "scope": scope, "row": row}
        self._take_out(key, scope)
        names, places = ", ".join(f'"{name}"' for name in columns), ", ".join(["%s"] * len(columns))
        self.connection.execute(f"INSERT INTO records ({names}) VALUES ({places})", list(columns.values()))
        if columns["forgotten_at"] is None:
            self._index([IndexedRecord(row, scope, record, terms)])
        return old_scope, bytes(passage)

    def drop_orphan(self, row: int, passage: bytes) -> None:
        self.drop_orphans([(self._scope_of[row], passage)])

    def drop_orphans(self, texts: Sequence[tuple[int, bytes]]) -> None:
        """Delete the vectors of texts that no record of a scope has any more."""
        for scope, passage in texts:
            self.connection.execute(_DROP_ORPHAN, ([scope, UNOWNED_SCOPE], passage))

    def _take_out(self, key: str, scope: int) -> None:
        """Delete the row of a record that is then inserted in this scope. A purged id may move to another scope."""
        row, old_scope = self._place(key)
        self.connection.execute("DELETE FROM records WHERE scope = %s AND row = %s", (old_scope, row))
        if scope != old_scope:
            move = "UPDATE ids SET scope = %s, earlier = array_append(earlier, %s) WHERE id = %s"
            self.connection.execute(move, (scope, old_scope, key))
            self._remember(key, row, scope)

    def unindex(self, row: int) -> None:
        key = (self._scope_of[row], row)
        document = self.connection.execute(
            "SELECT terms, merged FROM documents WHERE scope = %s AND row = %s", key
        ).fetchone()
        live = "SELECT length FROM records WHERE scope = %s AND row = %s AND forgotten_at IS NULL"
        length = self.connection.execute(live, key).fetchone()
        with self.connection.pipeline():
            if document:
                self.connection.execute("DELETE FROM documents WHERE scope = %s AND row = %s", key)
            if document and document[1]:
                removal = "INSERT INTO removals (scope, row, terms) VALUES (%s, %s, %s::text[])"
                self.connection.execute(removal, (*key, document[0]))
            if length:
                terms = TermCounts({}, length[0])
                self.connection.execute(TALLY, (key[0], terms.kind, -1, -terms.words))
            for space in self._spaces:
                self.connection.execute(f"DELETE FROM vectors_{space} WHERE scope = %s AND row = %s", key)

    def row(self, key: str) -> int:
        self.flush()
        return self._place(key)[0]

    def save(self, change: SaveVectors) -> None:
        self.check_space(change.space)
        buffered = self._buffer.values()
        new = {passage_hash(record.passage) for record in buffered if record.text_hash in self._new_texts}
        self._vectors = {(change.space, passage): vector for passage, vector in change.vectors if passage in new}
        self.flush()
        self._vectors.clear()
        others = [(passage, vector) for passage, vector in change.vectors if passage not in new]
        save_vectors(self.connection, change.space, others, sorted(self._scopes.values()))

    def _indexed(self, record: Record, row: int, scope: int) -> IndexedRecord:
        return IndexedRecord(row, scope, record, self.writer.terms(record))

    def _insert(self, stored: Sequence[IndexedRecord]) -> None:
        rows = [
            (*to_row(record), scope, terms.length, row, record.scope.user, record.scope.agent, record.scope.session)
            for row, scope, record, terms in stored
        ]
        insert_rows(self.connection, _INSERT, rows)
        self._index(stored)

    def _index(self, stored: Sequence[IndexedRecord]) -> None:
        """Add records to all indexes; with their vectors, if these are given, or stored with the same text."""
        insert_rows(self.connection, DOCUMENT, [(row, scope, *terms.columns) for row, scope, _, terms in stored])
        insert_rows(self.connection, TALLY, [(scope, terms.kind, 1, terms.words) for _, scope, _, terms in stored])
        passages = [passage_hash(each.record.passage) for each in stored]
        for space in self._spaces:
            vectors = [self._vectors.get((space, passage)) for passage in passages]
            records = zip(stored, passages, vectors, strict=True)
            new = [(each.row, each.scope, passage, vector) for each, passage, vector in records]
            insert_vectors(self.connection, space, new)
        known = [at for at, each in enumerate(stored) if each.record.text_hash not in self._new_texts]
        for space in self._spaces if known else ():
            scopes = sorted({stored[at].scope for at in known})
            attach_vectors(self.connection, space, [passages[at] for at in known], scopes)

    def _remember(self, key: str, row: int, scope: int) -> None:
        self._places[key] = (row, scope)
        self._scope_of[row] = scope

    def _find(self, key: str) -> tuple[int, int] | None:
        """The row and scope of the record with this id, which is then locked; None if there is no such record."""
        if key not in self._places:
            place = "SELECT row, scope FROM ids WHERE id = %s FOR UPDATE"
            if (row := self.connection.execute(place, (key,)).fetchone()) is None:
                return None
            self._remember(key, *row)
        return self._places[key]

    def _place(self, key: str) -> tuple[int, int]:
        if (place := self._find(key)) is None:
            raise pg.SerializationFailure("a record that was there is gone")
        return place

    def _scope_number(self, scope: Scope) -> int:
        number = scope_number(self.connection, scope, create=NEW_SCOPE)
        (listed,) = self.connection.execute("SELECT current_setting('recollect.scopes', true)").fetchone() or ("",)
        run(self.connection, [list_scopes([*map(int, filter(None, (listed or "").split(","))), number])])
        return number


class ClusterRecords(PostgresRecords):
    """Reads and changes the records of a distributed store."""

    _database: ClusterDatabase
    _keywords: ClusterKeywords
    _table = ClusterRows

    def _added(self, groups: Sequence[Sequence[Change]]) -> list[Record]:  # noqa: ARG002
        """Nothing is added at once here, because a new record needs several statements."""
        return []

    def _tidy(self, groups: Sequence[Sequence[Change]], stored: Sequence[Record]) -> None:
        """Look for vectors of new texts; now and then, merge new records of a scope into the blocks."""
        if stored and not any(isinstance(change, SaveVectors) for group in groups for change in group):
            passages = [passage_hash(record.passage) for record in stored]
            self._database.try_write(partial(adopt_vectors, passages=passages), self._scope)
        for scope, count in Counter(record.scope for record in stored).items():
            if random.randrange(MERGE_CHANCE) < count:  # noqa: S311  (not a secret)
                self._keywords.merge_scope(scope)


def merge_tallies(connection: Connection, scope: int) -> None:
    """One tally of a scope and kind in place of many."""
    tallies = connection.execute(
        "SELECT kind, number, records, length FROM tallies WHERE scope = %s FOR UPDATE SKIP LOCKED", (scope,)
    ).fetchall()
    for kind in {each[0] for each in tallies}:
        _, numbers, records, lengths = zip(*(each for each in tallies if each[0] == kind), strict=True)
        if len(numbers) > 1:
            connection.execute("DELETE FROM tallies WHERE scope = %s AND number = ANY(%s)", (scope, list(numbers)))
            connection.execute(TALLY, (scope, kind, sum(records), sum(lengths)))
