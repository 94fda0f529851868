"""Dump and load a whole store, row by row: read in one snapshot, written with COPY."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import psycopg
from psycopg import errors as pg

from recollect.errors import StoreError
from recollect.stores import contents
from recollect.stores.postgres.additions import CHANNEL
from recollect.stores.postgres.connections import Connection, copy_rows, integer
from recollect.stores.postgres.database import BEGIN_READ, DIALECT, PostgresDatabase, translated
from recollect.stores.postgres.keywords import PostgresKeywords
from recollect.stores.postgres.postings import MERGE_TALLIES, IndexedRecord, IndexWriter
from recollect.stores.postgres.rows import NEW_SCOPE, scope_number
from recollect.stores.postgres.vectors import create_index, create_space, spaces_of, unpack
from recollect.types import Progress, Record, VectorSpace
from recollect.types.parts import Contents, Part

INDEX_LOCK = 0x52434C56  # the advisory lock for building indexes, one for each schema
FETCH_ROWS = 100  # rows that the cursor of a dump fetches at once: a text may be a megabyte
FETCH_HEADS = 10_000  # the same for rows without texts and vectors

_INDEX_SETTINGS = """
    SET lock_timeout TO 0;
    SELECT set_config('maintenance_work_mem', greatest(262144, setting::integer) || 'kB', false)
    FROM pg_settings WHERE name = 'maintenance_work_mem'
"""
"""A graph that does not fit into memory is built slowly. A higher setting of the server is used."""

_SAME_EVENT = (
    "SELECT DISTINCT ON (n) n, same.seq, same.id, same.action, same.at, same.detail"
    " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS given (seq, id, action, at, n)"
    " JOIN history AS same USING (id, action, at) ORDER BY n, same.seq = given.seq DESC, same.seq"
)


class PostgresSnapshot(contents.SqlSnapshot):
    """Fetches rows through a cursor of the server."""

    keys: ClassVar = contents.KEYS

    def rows(self, kind: str, *, short: bool = False) -> Iterator[Sequence[Any]]:
        order = ", ".join(ascending(column, sql_type) for column, sql_type in contents.KEYS[kind].items())
        cursor, count = self.connection.cursor(binary=True), FETCH_HEADS if short else FETCH_ROWS
        cursor.execute(f"DECLARE parts NO SCROLL CURSOR FOR {self.select(kind, short=short)} ORDER BY {order}")
        try:
            while rows := cursor.execute(f"FETCH {count} FROM parts", prepare=False).fetchall():
                yield from map(_unpacked, rows) if kind == "vector" and not short else rows
        finally:
            with contextlib.suppress(psycopg.Error):  # a lost connection has no cursor
                cursor.execute("CLOSE parts")

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        if not parts:
            return []
        return _same_events(self.connection, parts) if parts[0].kind == "history" else self.by_key(parts)

    def by_key(self, parts: Sequence[Part]) -> list[Part | None]:
        """The stored parts with the keys of these parts, which are of one kind."""
        kind = parts[0].kind
        keys = ", ".join(f"%s::{sql_type}[]" for sql_type in self.keys[kind].values())
        rows: Iterable[Any] = self.connection.cursor(binary=True).execute(
            f"{self.selects[kind]} AND ({', '.join(self.keys[kind])}) IN (SELECT * FROM unnest({keys}))",
            [list(column) for column in zip(*(part.key for part in parts), strict=True)],
        )
        parts_there = (contents.part_of(kind, row) for row in (map(_unpacked, rows) if kind == "vector" else rows))
        stored = {part.key: part for part in parts_there}
        return [stored.get(part.key) for part in parts]


class PostgresContents(Contents):
    """Dumps and loads one PostgreSQL store."""

    selects = contents.selects(DIALECT, "embeddings JOIN spaces USING (space)")
    index_settings = _INDEX_SETTINGS
    create_space = staticmethod(create_space)
    snapshot_type: type[PostgresSnapshot] = PostgresSnapshot
    new_scope = NEW_SCOPE
    add_derived = staticmethod(IndexWriter.add_derived)

    def __init__(self, database: PostgresDatabase, keywords: PostgresKeywords) -> None:
        self._database = database
        self._keywords = keywords

    @property
    def identity(self) -> str:
        return self._identified("extract(epoch FROM pg_postmaster_start_time())")

    @property
    def name(self) -> str:
        return self._identified("(SELECT system_identifier FROM pg_control_system())")

    def _identified(self, server: str) -> str:
        row = self._database.one(
            f"SELECT {server}, oid, '{self._database.schema}'::regnamespace::oid"
            " FROM pg_database WHERE datname = current_database()"
        )
        return f"postgresql {' '.join(map(str, row))}"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """A snapshot on the main server: a replica may be behind."""
        if self._database.row_security():
            message = f"{self._database.address}: this role sees only the rows of one scope"
            raise StoreError(message, hint="copy a store as the role that owns its tables")
        if self._database.is_at_once:  # what it has written is not visible to others yet
            with self._database.read() as connection:
                yield self.snapshot_type(connection, self.selects)
            return
        with self._database.connect() as connection, translated(self._database.address):
            connection.execute("SET idle_in_transaction_session_timeout TO 0")  # writing the target may take long
            self.begin(connection)
            yield self.snapshot_type(connection, self.selects)
            connection.rollback()

    def begin(self, connection: Connection) -> None:
        """Begin to read one state of the store."""
        connection.execute(BEGIN_READ)

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        with self._database.read() as connection:  # of the main server, which has what was just written
            return self.snapshot_type(connection, self.selects).find(parts)

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        if not parts:
            return
        # Texts are analysed before the transaction begins, so that it is short.
        records = {part: _texts_of(part) for part in parts if part.kind == "record"}
        writer = self._keywords.writer.ahead(records.values())

        def work(connection: Connection) -> None:
            match parts[0].kind:
                case "meta":
                    contents.load_meta(connection, parts, self._keywords)
                case "space":
                    for part in self._new(connection, parts):  # `finish` builds the indexes when the vectors are there
                        number = self.create_space(connection, VectorSpace(*part.values))
                        connection.execute(f"DROP INDEX IF EXISTS vectors_{number}_near")
                case "record":
                    locked = writer.by(self._keywords.lock_language(connection))
                    new = self._new(connection, parts)
                    self.insert_records(connection, {part: records[part] for part in new}, locked)
                case "history":
                    events = parts if renumber else self._new(connection, parts)
                    _insert_events(connection, events, self.places(connection, events), renumber=renumber)
                case "vector":
                    self.load_vectors(connection, parts)
                case _:
                    contents.insert_rows(connection, parts)

        self._database.write(work, notify=CHANNEL if parts[0].kind in ("record", "history") else "")

    def follow(self, records: Sequence[Part], events: Sequence[Part], *, newest: int) -> None:
        parts = {part: _texts_of(part) for part in records}
        writer = self._keywords.writer.ahead(parts.values())

        def work(connection: Connection) -> None:
            # Writers that have begun end first, and later ones wait: then all of their events are visible.
            connection.execute(f"LOCK TABLE {self._database.locked} IN SHARE ROW EXCLUSIVE MODE")
            contents.refuse_newer_events(integer(connection, "SELECT max(seq) FROM history"), newest)
            self.update_records(connection, parts, writer.by(self._keywords.lock_language(connection)))
            new = self._new(connection, events)
            _insert_events(connection, new, self.places(connection, new), renumber=False)
            for seq, key, action, *_ in (part.values for part in new):
                if action == "purge":
                    named, values = self._database.with_ids(connection, [key])
                    connection.execute(f"UPDATE history SET detail = '{{}}' WHERE {named} AND seq < %s", [*values, seq])

        self._database.write(work, notify=CHANNEL)

    def replace(self, parts: Sequence[Part], gone: Sequence[Part] = ()) -> None:
        def work(connection: Connection) -> None:
            match (*parts, *gone)[0].kind:
                case "meta":
                    contents.update_meta(connection, parts, self._keywords)
                case "vector":
                    _delete_vectors(connection, gone)
                    self.load_vectors(connection, parts)
                case _:
                    contents.update_rows(connection, parts, gone)

        self._database.write(work)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Load all that the block loads in one transaction. The indexes are built after it."""
        with self._database.at_once():
            yield
        self.finish()

    def finish(self, progress: Progress | None = None) -> None:
        """Merge the new records, build the indexes of new spaces, and update the planner's statistics."""
        if self._database.is_at_once:  # indexes are built after the commit; the parts that are read back need a plan
            self._database.write(lambda connection: connection.execute("ANALYZE records, history, embeddings"))
            return
        self._keywords.catch_up()
        self._keywords.merge_all()
        with self._database.connect() as connection, translated(self._database.address):
            connection.execute(self.index_settings)
            # A server finishes an index whose client was killed. Wait for it instead of building it twice.
            lock = "SELECT pg_advisory_lock(%s, current_schema()::regnamespace::oid::integer)"
            connection.execute(lock, (INDEX_LOCK,))
            spaces = connection.execute("SELECT space, dimension FROM spaces ORDER BY space").fetchall()
            for done, (space, dimension) in enumerate(spaces):
                try:
                    create_index(connection, space, dimension)
                except (pg.DiskFull, pg.OutOfMemory):  # no shared memory for several workers
                    connection.execute("SET max_parallel_maintenance_workers TO 0")
                    create_index(connection, space, dimension)
                connection.execute(f"ANALYZE vectors_{space}")
                if progress:
                    progress(done + 1, len(spaces))
            self.merge_tallies(connection)
            connection.execute("VACUUM ANALYZE documents")
            connection.execute("ANALYZE records, history, blocks, embeddings, tallies")

    def _new(self, connection: Connection, parts: Sequence[Part]) -> list[Part]:
        present = self.snapshot_type(connection, self.selects).by_key(parts)
        return [part for part, stored in zip(parts, present, strict=True) if stored is None]

    def insert_records(self, connection: Connection, parts: Mapping[Part, Record], writer: IndexWriter) -> None:
        """Insert new records with their postings, tallies and vectors."""
        if not parts:
            return
        # In a fixed order, so that two transactions that create the same scopes do not deadlock.
        ordered = sorted(set(map(contents.scope_of, parts)), key=lambda scope: sorted(scope.as_dict().items()))
        scopes = {scope: scope_number(connection, scope, create=self.new_scope) for scope in ordered}
        columns, terms = [], [writer.terms(record) for record in parts.values()]
        for part, term in zip(parts, terms, strict=True):
            scope = scopes[contents.scope_of(part)]
            columns.append({**contents.columns_of(part), "scope": scope, "length": term.length})
        rows = self.copy_records(connection, columns)
        stored = [
            IndexedRecord(rows[each["id"]], each["scope"], record, term)
            for each, record, term in zip(columns, parts.values(), terms, strict=True)
            if each["forgotten_at"] is None
        ]
        documents = ((each.row, each.scope, *each.terms.columns) for each in stored)
        copy_rows(connection, "documents (row, scope, length, terms, counts)", documents)
        self.add_derived(connection, stored, spaces_of(connection))

    def copy_records(self, connection: Connection, columns: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Write new records; returns the row of each id."""
        names = _own_columns(columns[0])
        copy_rows(connection, f"records ({', '.join(names)})", ([each[name] for name in names] for each in columns))
        ids = [each["id"] for each in columns]
        return dict(connection.execute("SELECT id, row FROM records WHERE id = ANY(%s)", (ids,)).fetchall())

    def update_records(self, connection: Connection, parts: Mapping[Part, Record], writer: IndexWriter) -> None:
        """Store records in place of those with their ids, new ones too, with all that is derived from them."""
        ids = [part.field("id") for part in parts]
        places = "SELECT id, row, passage FROM records WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
        stored = {key: (row, passage) for key, row, passage in connection.execute(places, (ids,))}
        new = {part: record for part, record in parts.items() if part.field("id") not in stored}
        self.insert_records(connection, new, writer)
        spaces = spaces_of(connection)
        for part, record in parts.items():
            if part not in new:
                row, scope = stored[part.field("id")][0], scope_number(connection, contents.scope_of(part))
                updated = IndexedRecord(row, scope, record, writer.terms(record))
                _update_record(connection, part, updated, writer, spaces)
        for _, passage in stored.values():
            connection.execute("SELECT drop_orphan(%s)", (passage,))

    def places(self, connection: Connection, events: Sequence[Part]) -> dict[str, tuple[int, int]]:
        """The row and the scope of the records that these events are of, by id."""
        ids = list({part.field("id") for part in events})
        rows = connection.execute(f"SELECT id, row, scope FROM {self._database.ids} WHERE id = ANY(%s)", (ids,))
        return {key: (row, scope) for key, row, scope in rows}

    def load_vectors(self, connection: Connection, parts: Sequence[Part]) -> None:
        """Insert new vectors; those that exist stay as they are."""
        rows = connection.execute("SELECT fingerprint, space, dimension FROM spaces").fetchall()
        contents.check_dimensions(parts, {fingerprint: dimension for fingerprint, _, dimension in rows})
        new = self._new(connection, parts) if parts else []
        for fingerprint, space, _ in rows:
            if vectors := dict(part.values[1:] for part in new if part.field("space") == fingerprint):
                self.copy_vectors(connection, space, vectors)

    def copy_vectors(self, connection: Connection, space: int, vectors: Mapping[bytes, bytes]) -> None:
        """Insert vectors by the hashes of their texts without loss, and attach them to the rows of live records."""
        rows = ((space, passage, packed(vector)) for passage, vector in vectors.items())
        copy_rows(connection, "embeddings (space, passage, vector)", rows, ["int4", "bytea", "bytea"])
        connection.execute("SELECT attach_vectors(%s, %s)", (space, list(vectors)))

    def merge_tallies(self, connection: Connection) -> None:
        """One tally for each scope and kind, in place of many."""
        connection.execute(MERGE_TALLIES)


_SORTABLE = ((r"\x01", r"\x01\x02"), (r"\x10\x10", r"\x10\x11"), (r"\x100", r"\x01\x01"))
"""From the escaped form to one that sorts like the original: 0 as 1 1, 1 as 1 2, 16 as 16 17."""


def ascending(column: str, sql_type: str) -> str:
    """An ORDER BY expression that sorts texts as the other stores do, with NUL in its place."""
    if sql_type != "text":
        return column
    for old, new in _SORTABLE:
        column = f"replace({column}, E'{old}', E'{new}')"
    return f'{column} COLLATE "C"'


def packed(vector: bytes, number: str = "f4") -> bytes:
    """A vector of a part in pgvector's binary format: two short integers, then big-endian floats (f2: halfvec)."""
    numbers = np.frombuffer(vector, dtype="<f4").astype(f">{number}")
    return struct.pack("!hh", numbers.size, 0) + numbers.tobytes()


def _unpacked(row: Sequence[Any]) -> tuple[str, bytes, bytes]:
    """A vector as parts have it."""
    fingerprint, passage, vector = row
    return fingerprint, bytes(passage), unpack([vector]).tobytes()


def _same_events(connection: Connection, parts: Sequence[Part]) -> list[Part | None]:
    """Those with the same id, action and time; of several, the one with the same number."""
    values = [list(column) for column in zip(*(part.values[:4] for part in parts), strict=True)]
    stored = {number: contents.part_of("history", row) for number, *row in connection.execute(_SAME_EVENT, values)}
    return [stored.get(number) for number in range(1, len(parts) + 1)]


def _texts_of(part: Part) -> Record:
    """A record with the text, the kind and the title of a part, from which its terms and its length are made."""
    return Record("", *map(part.field, ("text", "kind", "title")))


def _own_columns(columns: Iterable[str]) -> list[str]:
    """The columns of the table of records: it has the number of a scope instead of its parts."""
    return [name for name in columns if name not in contents.SCOPE]


def _update_record(
    connection: Connection, part: Part, updated: IndexedRecord, writer: IndexWriter, spaces: Sequence[int]
) -> None:
    """Store a record in place of the one in its row."""
    columns = {**contents.columns_of(part), "scope": updated.scope, "length": updated.terms.length}
    names = _own_columns(columns)
    assignments, values = ", ".join(f"{name} = %s" for name in names), [columns[name] for name in names]
    with connection.pipeline():
        writer.remove(connection, updated.row, spaces)
        connection.execute(f"UPDATE records SET {assignments} WHERE row = %s", [*values, updated.row])
        if columns["forgotten_at"] is None:
            writer.add(connection, [updated], spaces)


def _insert_events(
    connection: Connection, parts: Sequence[Part], records: Mapping[str, tuple[int, int]], *, renumber: bool
) -> None:
    if not parts:
        return
    number = "" if renumber else ", seq"
    rows = list[tuple[Any, ...]]()
    for part in parts:
        seq, key, action, at, detail = part.values
        if key not in records:
            raise StoreError(f"event {seq} of the history is of {key!r}, and there is no such record")
        rows.append((*records[key], key, action, at, json.dumps(detail), *(() if renumber else (seq,))))
    copy_rows(connection, f"history (row, scope, id, action, at, detail{number})", rows)
    if not renumber:
        connection.execute(
            "SELECT setval(numbers::regclass, greatest(%s, nextval(numbers::regclass) - 1))"
            " FROM pg_get_serial_sequence('history', 'seq') AS numbers",
            (max(part.field("seq") for part in parts),),
        )


def _delete_vectors(connection: Connection, parts: Sequence[Part]) -> None:
    """Delete vectors by the hashes of their texts. Records that have these texts stay, without a vector."""
    for fingerprint, space in connection.execute("SELECT fingerprint, space FROM spaces").fetchall():
        if passages := [part.field("passage") for part in parts if part.field("space") == fingerprint]:
            connection.execute("DELETE FROM embeddings WHERE space = %s AND passage = ANY(%s)", (space, passages))
            connection.execute(
                f"UPDATE vectors_{space} AS held SET vector = NULL, settled = false FROM records"
                " WHERE held.scope = records.scope AND held.row = records.row AND passage = ANY(%s)",
                (passages,),
            )
