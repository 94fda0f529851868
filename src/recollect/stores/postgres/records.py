"""The steps of changes in one transaction. New records wait and go in together, with their history and all derived."""

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
from recollect.stores.postgres.database import Connection, Database, plain, text
from recollect.stores.postgres.keywords import Derived, Placed
from recollect.stores.postgres.rows import (
    COLUMNS,
    SELECT,
    condition,
    from_row,
    scope_find,
    scope_number,
    time_of,
    to_row,
)
from recollect.stores.rows import micros, passage_hash
from recollect.types import (
    GLOBAL,
    Change,
    Event,
    Filter,
    Forget,
    Mirrors,
    Put,
    Record,
    Restore,
    SawFile,
    Scope,
    Still,
    Supersede,
    now,
)

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

    def look(self, key: str) -> ledger.StoredRecord | None:
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
        return ledger.StoredRecord(from_row(row), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope that says the same."""
        fold = record.text_hash
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
        self._told.add(record.text_hash)

    def replace(self, record: Record, before: Record) -> None:
        """Keep a record in the place of another; vectors of a passage that nobody has any more go."""
        row, scope = self._row(record.id), self._scope(record.scope)
        terms = self.derived.terms(record)
        self._unsaid.discard(record.text_hash)
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


TURNS = 0x52434C57
SLOTS = 256
"""The advisory locks of those who add the same text at once: few, for the server's table of locks is small."""


def take_turns(connection: Connection, changes: Iterable[Change]) -> None:
    """Wait for those who add the same texts; a transaction names all of its texts at once, the first time."""
    slots = sorted({int.from_bytes(fold[:8]) % SLOTS for fold in folds_of(changes)})
    if slots:
        connection.execute("SELECT pg_advisory_xact_lock(%s, slot) FROM unnest(%s::integer[]) AS slot", (TURNS, slots))


def folds_of(changes: Iterable[Change]) -> set[bytes]:
    """The texts that must not come twice."""
    return {change.record.text_hash for change in changes if isinstance(change, Put) and change.merge}


def ids_of(changes: Iterable[Change]) -> Iterator[str]:
    """The records that changes look at, as far as they name them."""
    for change in changes:
        match change:
            case Put():
                yield change.record.id
            case Supersede():
                yield from (change.id, change.by)
            case Forget() | Restore() | Still():
                yield change.id


MOST_CHANGES = 200
MOST_CHARACTERS = 10_000_000
MOST_SECONDS = 0.1
"""What one transaction holds, or waits for: when it is full or this old it is made, so that nobody waits long."""

CHANNEL = "recollect"


class PostgresRecords:
    """Reads and writes the records of one PostgreSQL store; `follow` says in which language a transaction writes."""

    def __init__(
        self, database: Database, derived: Derived, follow: Callable[[Connection], Analyzer], scope: Scope | None = None
    ) -> None:
        self._database = database
        self._derived = derived
        self._follow = follow
        self._scope = scope

    def within(self, scope: Scope) -> PostgresRecords:
        """The same records, always in the name of one scope."""
        return PostgresRecords(self._database, self._derived, self._follow, scope)

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, each group as one; the records put come back as they now stand."""
        stored: list[Record] = []
        applied = 0
        for some in _batches(iter(groups)):
            read = self._derived.reading(change.record for group in some for change in group if isinstance(change, Put))
            try:
                stored += self._database.write(lambda c, some=some, read=read: self._make(c, some, read), self._scope)  # type: ignore[misc]
            except RecollectError as error:
                error.applied = applied
                raise
            applied += len(some)
        return stored

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), in the order asked."""
        sql, values = condition(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read(self._reader(where)) as connection:
            rows = connection.execute(f"{SELECT} WHERE {sql} AND id = ANY(%s)", [*values, [text(key) for key in ids]])
            found = {record.id: record for record in map(from_row, rows)}
        return [found[key] for key in ids if key in found]

    def history(self, record_id: str) -> list[Event]:
        """All that happened to one record, oldest first."""
        with self._database.read(self._scope) as connection:
            rows = connection.execute(
                "SELECT seq, id, action, at, detail FROM history WHERE id = %s ORDER BY seq", (text(record_id),)
            )
            return [
                Event(seq, plain(key), action, time_of(at), json.loads(detail)) for seq, key, action, at, detail in rows
            ]

    def _reader(self, where: Filter | None) -> Scope | None:
        """In whose name is read: that of the filter, and ours where it names nobody."""
        if where is None:
            return self._scope
        return self._scope or where.scope if where.any_scope else where.scope

    def _make(self, connection: Connection, groups: Sequence[Sequence[Change]], derived: Derived) -> list[Record]:
        """Some groups in one transaction."""
        derived = derived.by(self._follow(connection))
        done: list[Record] = []
        for changes in self._together(connection, groups):
            done += _apply(Rows(connection, derived), changes)
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))
        return done

    def _together(self, connection: Connection, groups: Sequence[Sequence[Change]]) -> Iterator[list[Change]]:
        """All changes; behind row-level security those that follow one another for one scope, in its name."""
        if not self._database.walled(connection):
            yield list(chain.from_iterable(groups))
            return
        take_turns(connection, chain.from_iterable(groups))
        for scope, some in groupby(groups, lambda group: _whose(group, self._scope)):
            self._database.be(connection, scope)
            yield list(chain.from_iterable(some))

    def scope_of(self, record_id: str) -> Scope | None:
        """Whose a record is, forgotten or not; of one that was purged nothing is told."""
        with self._database.read(self._scope) as connection:
            found = connection.execute(
                'SELECT "user", agent, session FROM records JOIN scopes USING (scope) WHERE id = %s AND passage <> %s',
                (text(record_id), b""),
            ).fetchone()
        return None if found is None else Scope(*map(plain, found))

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""
        sql, values = condition(where)
        with self._database.read(self._reader(where)) as connection:
            rows = connection.execute(
                f'{SELECT} WHERE {sql} ORDER BY time DESC, id COLLATE "C" LIMIT %s OFFSET %s', [*values, limit, offset]
            )
            return [from_row(row) for row in rows]


def _apply(table: Rows, changes: Sequence[Change]) -> list[Record]:
    table.prepare(changes)
    done = [record for change in changes for record in ledger.apply(table, change)]
    table.flush()
    return done


def _batches(groups: Iterator[Sequence[Change]]) -> Iterator[list[Sequence[Change]]]:
    """Groups that are made together; the transaction begins when they are all at hand."""
    for first in groups:
        some, deadline = [first], time.monotonic() + MOST_SECONDS
        count, letters = len(first), _letters(first)
        while count < MOST_CHANGES and letters < MOST_CHARACTERS and time.monotonic() < deadline:
            if (group := next(groups, None)) is None:
                break
            some.append(group)
            count += len(group)
            letters += _letters(group)
        yield some


def _letters(group: Sequence[Change]) -> int:
    return sum(len(change.record.title) + len(change.record.text) for change in group if isinstance(change, Put))


def _whose(group: Sequence[Change], mine: Scope | None) -> Scope:
    """In whose name a group is made: ours, or that of the first record in it which is not for us to see."""
    ours = mine or GLOBAL
    puts = (change.record.scope for change in group if isinstance(change, Put))
    return next((scope for scope in puts if not ours.admits(scope)), ours)
