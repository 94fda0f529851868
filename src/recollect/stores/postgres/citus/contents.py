"""Dump and load a distributed store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from recollect.stores import contents
from recollect.stores.postgres.citus.database import NEW_SCOPE
from recollect.stores.postgres.citus.records import ClusterRows, merge_tallies
from recollect.stores.postgres.citus.vectors import UNOWNED_SCOPE, adopt_vectors, create_cluster_space
from recollect.stores.postgres.connections import Connection
from recollect.stores.postgres.contents import PostgresContents, PostgresSnapshot, packed
from recollect.stores.postgres.postings import IndexWriter
from recollect.stores.postgres.rows import scope_number
from recollect.stores.rows import passage_hash
from recollect.types import Record
from recollect.types.parts import Part


class ClusterSnapshot(PostgresSnapshot):
    """A vector that several scopes have is one part."""

    keys: ClassVar = {**contents.KEYS, "record": {'id COLLATE "C"': "text"}}  # `records` has no other index by the id

    def counts(self) -> Mapping[str, int]:
        different = "SELECT count(*) FROM (SELECT DISTINCT space, passage FROM embeddings) AS every"
        row = self.connection.execute(different).fetchone()
        return {**super().counts(), "vector": row[0] if row else 0}

    def rows(self, kind: str, *, short: bool = False) -> Iterator[Sequence[Any]]:
        last: Any = None
        for row in super().rows(kind, short=short):
            if kind != "vector" or row[:2] != last:
                yield row
            last = row[:2]


class ClusterContents(PostgresContents):
    """Dumps and loads a distributed store."""

    selects = contents.selects(ClusterRows.dialect, "embeddings JOIN spaces USING (space)")
    index_settings = (  # all workers at once, each two indexes, of which each may need `maintenance_work_mem`
        "SET lock_timeout TO 0; SET citus.multi_shard_modify_mode TO parallel;"
        " SET citus.max_adaptive_executor_pool_size TO 2"
    )
    create_space = staticmethod(create_cluster_space)
    snapshot_type = ClusterSnapshot
    places_table = "ids"

    def begin(self, connection: Connection) -> None:
        """Begin to read on every worker while nobody writes, so that all of them show one state. Then writers go on."""
        with self._database.connect() as lock:
            lock.execute(f"BEGIN; LOCK TABLE {self._database.locked} IN SHARE MODE")
            super().begin(connection)
            connection.execute("SELECT count(*) FROM records")

    def insert_records(self, connection: Connection, parts: Mapping[Part, Record], writer: IndexWriter) -> None:
        if not parts:
            return
        columns = [contents.columns_of(part) for part in parts]
        records = list(parts.values())
        scopes = list(map(contents.scope_of, parts))
        ordered = sorted(set(scopes), key=lambda scope: sorted(scope.as_dict().items()))
        numbers = {scope: scope_number(connection, scope, create=NEW_SCOPE) for scope in ordered}
        with connection.cursor().copy("COPY ids (id, scope) FROM STDIN") as copy:
            for each, scope in zip(columns, scopes, strict=True):
                copy.write_row((each["id"], numbers[scope]))
        held = connection.execute("SELECT id, row FROM ids WHERE id = ANY(%s)", ([each["id"] for each in columns],))
        rows: dict[str, int] = dict(held.fetchall())
        terms = [writer.terms(record) for record in records]
        keys = ", ".join(f'"{name}"' for name in columns[0])
        with connection.cursor().copy(f"COPY records ({keys}, scope, length, row) FROM STDIN") as copy:
            for each, scope, term in zip(columns, scopes, terms, strict=True):
                copy.write_row([*each.values(), numbers[scope], term.length, rows[each["id"]]])
        live = [
            (rows[each["id"]], numbers[scope], term)
            for each, scope, term in zip(columns, scopes, terms, strict=True)
            if each["forgotten_at"] is None
        ]
        with connection.cursor().copy("COPY documents (row, scope, length, terms, counts) FROM STDIN") as copy:
            for row, number, (counts, length) in live:
                copy.write_row((row, number, length, list(counts), list(counts.values())))
        with connection.cursor().copy("COPY tallies (scope, kind, records, length) FROM STDIN") as copy:
            for _, number, terms_of in live:
                copy.write_row((number, terms_of.kind, 1, terms_of.words))
        for (space,) in connection.execute("SELECT space FROM spaces ORDER BY space").fetchall():
            with connection.cursor().copy(f"COPY vectors_{space} (row, scope) FROM STDIN") as copy:
                for row, number, _ in live:
                    copy.write_row((row, number))

    def update_records(self, connection: Connection, parts: Mapping[Part, Record], writer: IndexWriter) -> None:
        if not parts:
            return
        table = ClusterRows(connection, writer)
        stored = table.lock([part.values[0] for part in parts])
        self.insert_records(connection, {each: parts[each] for each in parts if each.values[0] not in stored}, writer)
        orphans = [table.restate(part, record) for part, record in parts.items() if part.values[0] in stored]
        table.drop_orphans(orphans)
        adopt_vectors(connection, [passage_hash(record.passage) for record in parts.values()])

    def load_vectors(self, connection: Connection, parts: Sequence[Part]) -> None:
        rows = connection.execute("SELECT fingerprint, space, dimension FROM spaces").fetchall()
        contents.check_dimensions(parts, {fingerprint: dimension for fingerprint, _, dimension in rows})
        for fingerprint, space, _ in rows:
            values = dict(part.values[1:] for part in parts if part.values[0] == fingerprint)
            if values:
                _copy_vectors(connection, space, values)

    def merge_tallies(self, connection: Connection) -> None:
        scopes = connection.execute(
            "SELECT scope FROM tallies GROUP BY scope HAVING count(*) > count(DISTINCT kind)"
        ).fetchall()
        for (scope,) in scopes:
            with connection.transaction():
                merge_tallies(connection, scope)


def _copy_vectors(connection: Connection, space: int, vectors: Mapping[bytes, bytes]) -> None:
    """Insert new vectors by the hashes of their texts, and again with the records that have these texts.

    An UPDATE with a join would depend on statistics, which a store has only after it was loaded.
    """
    found = connection.execute("SELECT row, scope, passage FROM records WHERE passage = ANY(%s)", (list(vectors),))
    places = {row: (scope, bytes(passage)) for row, scope, passage in found}
    owners = set(places.values())
    nowhere = vectors.keys() - {passage for _, passage in owners}
    with connection.cursor().copy("COPY embeddings (scope, space, passage, vector) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["int4", "int4", "bytea", "bytea"])
        for scope, passage in (*owners, *((UNOWNED_SCOPE, passage) for passage in nowhere)):
            copy.write_row((scope, space, passage, packed(vectors[passage])))
    empty = f"DELETE FROM vectors_{space} WHERE vector IS NULL AND row = ANY(%s) RETURNING row"
    rows = [row for (row,) in connection.execute(empty, (list(places),))]
    with connection.cursor().copy(
        f"COPY vectors_{space} (row, scope, vector, settled) FROM STDIN (FORMAT BINARY)"
    ) as copy:
        copy.set_types(["int8", "int4", "bytea", "bool"])
        for row in rows:
            scope, passage = places[row]
            copy.write_row((row, scope, packed(vectors[passage], "f2"), True))
