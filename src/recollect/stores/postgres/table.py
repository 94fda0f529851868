"""The steps of changes in one transaction. New records wait and go in together, with their history and all derived."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg import errors as pg

from recollect.errors import UsageError
from recollect.ranking import fold_hash
from recollect.stores import ledger
from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.derived import Derived, Placed
from recollect.stores.postgres.rows import COLUMNS, SELECT, from_row, text, to_row
from recollect.stores.postgres.scopes import scope_find, scope_number
from recollect.stores.postgres.turns import folds_of, ids_of, take_turns
from recollect.stores.postgres.visible import condition
from recollect.stores.rows import micros, passage_hash
from recollect.types import Change, Filter, Mirrors, Put, Record, SawFile, Scope, now

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
    " FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[]) WITH ORDINALITY AS said (id, action, at, detail, n)"
    " JOIN records USING (id) ORDER BY n"
)


@dataclass(slots=True)
class Rows:
    """What `ledger` needs. Rows that are looked at are locked; what is known to be absent is not asked for again."""

    connection: Connection
    derived: Derived
    _absent: set[str] = field(default_factory=set)
    _unsaid: set[bytes] = field(default_factory=set)
    _scopes: dict[Scope, int] = field(default_factory=dict)
    _spaces: list[int] = field(default_factory=list)
    _waiting: dict[str, Record] = field(default_factory=dict)
    _told: set[bytes] = field(default_factory=set)
    _notes: list[tuple[str, str, int | None, str]] = field(default_factory=list)

    def prepare(self, changes: Sequence[Change]) -> None:
        """Learn in one round trip which ids and texts are new; two who add the same text at once take turns."""
        puts = [change for change in changes if isinstance(change, Put)]
        keys = list({text(key) for key in ids_of(changes)})
        folds = folds_of(changes)
        with self.connection.pipeline():
            found = self.connection.execute("SELECT space FROM spaces ORDER BY space")
            take_turns(self.connection, changes)
            said = self.connection.execute("SELECT DISTINCT fold FROM records WHERE fold = ANY(%s)", (list(folds),))
            found_keys = self.connection.execute("SELECT id FROM records WHERE id = ANY(%s)", (keys,))
            asked = {put.record.scope: self.connection.execute(*scope_find(put.record.scope)) for put in puts}
        self._spaces = [space for (space,) in found]
        self._unsaid = folds - {bytes(fold) for (fold,) in said}
        there = [key for (key,) in found_keys]
        self._absent = set(keys) - set(there)
        if len(there) > 1:  # in the same order by all, so that no two wait for each other
            lock = "SELECT 1 FROM records WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
            self.connection.execute(lock, (there,))
        self._scopes = {scope: int(row[0]) for scope, cursor in asked.items() if (row := cursor.fetchone()) is not None}

    def flush(self) -> None:
        """Put in what waits, in the same order by all; the history is in the order of the changes."""
        placed = self._insert([self._waiting[key] for key in sorted(self._waiting)]) if self._waiting else []
        self._absent -= self._waiting.keys()
        self._unsaid -= self._told
        with self.connection.pipeline():
            if placed:
                self.derived.add(self.connection, placed, self._spaces)
            if self._notes:
                self.connection.execute(_NOTE, [list(column) for column in zip(*self._notes, strict=True)])
        for done in (self._waiting, self._told, self._notes):
            done.clear()

    def look(self, key: str) -> ledger.Kept | None:
        """What has this id."""
        written = text(key)
        if written in self._waiting:
            self.flush()
        if written in self._absent:
            return None
        found = self.connection.execute(
            f"{SELECT.replace(' FROM', ', forgotten_at, passage FROM', 1)} WHERE id = %s FOR UPDATE OF records",
            (written,),
        ).fetchone()
        if found is None:
            return None
        *row, forgotten, passage = found
        return ledger.Kept(from_row(row), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope that says the same."""
        fold = fold_hash(record.text)
        if fold in self._told:
            self.flush()
        if fold in self._unsaid:
            return None
        sql, values = condition(Filter(scope=record.scope, kinds=(record.kind,)))
        rows = self.connection.execute(f"{SELECT} WHERE {sql} AND fold = %s FOR UPDATE OF records", [*values, fold])
        return next((twin for twin in map(from_row, rows) if twin.scope == record.scope), None)

    def insert(self, record: Record) -> None:
        """Keep a new record, with the next that are put in."""
        self._waiting[text(record.id)] = record
        self._told.add(fold_hash(record.text))

    def replace(self, record: Record, before: Record) -> None:
        """Keep a record in the place of another; vectors of a passage that nobody has any more go."""
        row, scope = self._row(record.id), self._scope(record.scope)
        terms = self.derived.terms(record)
        self._unsaid.discard(fold_hash(record.text))
        with self.connection.pipeline():
            self.derived.remove(self.connection, row, self._spaces)
            self.connection.execute(_REPLACE, [*to_row(record), scope, terms.length, row])
            self._drop_orphan(passage_hash(before.passage))
            self.derived.add(self.connection, [Placed(row, scope, record, terms)], self._spaces)

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Note what stands in a record's place."""
        self.flush()
        self.connection.execute(
            "UPDATE records SET superseded_by = %s, superseded_at = %s WHERE id = %s", (text(by), micros(at), text(key))
        )

    def hide(self, key: str, *, purge: bool) -> None:
        """A tombstone; the id stays taken."""
        row = self._row(key)
        with self.connection.pipeline():
            self.derived.remove(self.connection, row, self._spaces)
            self.connection.execute("UPDATE records SET forgotten_at = %s WHERE row = %s", (micros(now()), row))
        if purge:
            self._wipe(row)

    def show(self, record: Record) -> None:
        """Away with the tombstone."""
        row, scope, terms = self._row(record.id), self._scope(record.scope), self.derived.terms(record)
        with self.connection.pipeline():
            self.connection.execute(
                "UPDATE records SET forgotten_at = NULL, length = %s WHERE row = %s", (terms.length, row)
            )
            self.derived.add(self.connection, [Placed(row, scope, record, terms)], self._spaces)

    def saw(self, change: SawFile) -> None:
        """Note the state of a file."""
        self.connection.execute("DELETE FROM files WHERE path = %s", (text(change.path),))
        if (state := change.state) is not None:
            values = (text(state.path), text(state.root), state.mtime_ns, state.size, state.digest)
            self.connection.execute("INSERT INTO files VALUES (%s, %s, %s, %s, %s)", values)

    def mirrors(self, change: Mirrors) -> None:
        """Note how a folder was told to be mirrored."""
        self.connection.execute(
            "INSERT INTO roots VALUES (%s, %s) ON CONFLICT (root) DO UPDATE SET told = excluded.told",
            (text(change.root), json.dumps(change.told)),
        )

    def ingested(self, digest: str) -> None:
        """Note what was read for facts."""
        self.connection.execute(
            "INSERT INTO ingested VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET at = excluded.at",
            (digest, micros(now())),
        )

    def last(self, key: str) -> int | None:
        """The number of the last line of a record's history; the record is locked, so that none can be added."""
        self.flush()
        self.look(key)
        found = self.connection.execute("SELECT max(seq) FROM history WHERE id = %s", (text(key),)).fetchone()
        return None if found is None else found[0]

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write a line of history, with the next that are put in."""
        self._notes.append((text(key), action, micros(now()), json.dumps(detail, default=_as_text)))

    def _insert(self, records: Sequence[Record]) -> list[Placed]:
        scopes = [self._scope(record.scope) for record in records]
        terms = [self.derived.terms(record) for record in records]
        values = [
            [*to_row(record), scope, held.length] for record, scope, held in zip(records, scopes, terms, strict=True)
        ]
        with self.connection.cursor() as cursor:
            cursor.executemany(_INSERT, values, returning=True)
            rows = [result.fetchone() for result in cursor.results()]
        self._refuse_taken([record.id for record, row in zip(records, rows, strict=True) if row is None])
        return list(map(Placed, map(_number, rows), scopes, records, terms))

    def _refuse_taken(self, keys: Sequence[str]) -> None:
        """What was there first: if it can be seen now, the change is made again, upon that."""
        for key in keys:
            if self.connection.execute("SELECT 1 FROM records WHERE id = %s", (text(key),)).fetchone() is None:
                raise UsageError(
                    f"the id {key!r} is taken by a record of another scope", hint="leave the id out, or use another"
                )
        if keys:
            raise pg.SerializationFailure("another has put a record under the same id")

    def _scope(self, scope: Scope) -> int:
        if scope not in self._scopes:
            self._scopes[scope] = scope_number(self.connection, scope)
        return self._scopes[scope]

    def _row(self, key: str) -> int:
        self.flush()
        return _number(self.connection.execute("SELECT row FROM records WHERE id = %s", (text(key),)).fetchone())

    def _wipe(self, row: int) -> None:
        """Nothing of the content stays: not in the record, not in its history, not as a vector."""
        passage = self.connection.execute("SELECT passage FROM records WHERE row = %s", (row,)).fetchone()
        with self.connection.pipeline():
            self.connection.execute(
                "UPDATE records SET text = '', title = '', category = NULL, tags = '{}', source = NULL, path = NULL,"
                " first_line = NULL, last_line = NULL, fold = '', passage = '' WHERE row = %s",
                (row,),
            )
            self.connection.execute("UPDATE history SET detail = '{}' WHERE row = %s", (row,))
            self._drop_orphan(passage[0] if passage else b"")

    def _drop_orphan(self, passage: bytes) -> None:
        """Delete the vectors of a passage that no record has any more: a vector can be turned back into words."""
        self.connection.execute("SELECT drop_orphan(%s)", (passage,))


def _number(row: Any) -> int:
    return int(row[0])


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
