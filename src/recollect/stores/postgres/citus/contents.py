"""Dump and load a distributed store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from recollect.stores import contents
from recollect.stores.postgres.citus.database import NEW_SCOPE
from recollect.stores.postgres.citus.records import ClusterRows, merge_tallies
from recollect.stores.postgres.citus.vectors import UNOWNED_SCOPE, adopt_vectors, create_cluster_space
from recollect.stores.postgres.connections import Connection, copy_rows, integer
from recollect.stores.postgres.contents import PostgresContents, PostgresSnapshot, packed
from recollect.stores.postgres.postings import IndexedRecord, IndexWriter
from recollect.stores.rows import passage_hash
from recollect.types import Record
from recollect.types.parts import Part


class ClusterSnapshot(PostgresSnapshot):
    """A vector that several scopes have is one part."""

    keys: ClassVar = {**contents.KEYS, "record": {'id COLLATE "C"': "text"}}  # `records` has no other index by the id

    def counts(self) -> Mapping[str, int]:
        different = "SELECT count(*) FROM (SELECT DISTINCT space, passage FROM embeddings) AS every"
        return {**super().counts(), "vector": integer(self.connection, different)}

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
    new_scope = NEW_SCOPE

    def begin(self, connection: Connection) -> None:
        """Begin to read on every worker while nobody writes, so that all of them show one state. Then writers go on."""
        with self._database.connect() as lock:
            lock.execute(f"BEGIN; LOCK TABLE {self._database.locked} IN SHARE MODE")
            super().begin(connection)
            connection.execute("SELECT count(*) FROM records")

    def copy_records(self, connection: Connection, columns: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        copy_rows(connection, "ids (id, scope)", ((each["id"], each["scope"]) for each in columns))
        ids = [each["id"] for each in columns]
        rows: dict[str, int] = dict(connection.execute("SELECT id, row FROM ids WHERE id = ANY(%s)", (ids,)).fetchall())
        names = ", ".join(f'"{name}"' for name in columns[0])
        copy_rows(connection, f"records ({names}, row)", ((*each.values(), rows[each["id"]]) for each in columns))
        return rows

    @staticmethod
    def add_derived(connection: Connection, stored: Sequence[IndexedRecord], spaces: Sequence[int]) -> None:
        tallies = ((each.scope, each.terms.kind, 1, each.terms.words) for each in stored)
        copy_rows(connection, "tallies (scope, kind, records, length)", tallies)
        for space in spaces:
            copy_rows(connection, f"vectors_{space} (row, scope)", ((each.row, each.scope) for each in stored))

    def update_records(self, connection: Connection, parts: Mapping[Part, Record], writer: IndexWriter) -> None:
        if not parts:
            return
        table = ClusterRows(connection, writer)
        stored = table.lock([part.field("id") for part in parts])
        self.insert_records(connection, {each: parts[each] for each in parts if each.field("id") not in stored}, writer)
        orphans = [table.restate(part, record) for part, record in parts.items() if part.field("id") in stored]
        table.drop_orphans(orphans)
        adopt_vectors(connection, [passage_hash(record.passage) for record in parts.values()])

    def copy_vectors(self, connection: Connection, space: int, vectors: Mapping[bytes, bytes]) -> None:
        """Insert new vectors by the hashes of their texts, and again with the records that have these texts.

        An UPDATE with a join would depend on statistics, which a store has only after it was loaded.
        """
        of_texts = "SELECT row, scope, passage FROM records WHERE passage = ANY(%s)"
        cursor = connection.execute(of_texts, (list(vectors),))
        places = {row: (scope, bytes(passage)) for row, scope, passage in cursor}
        owners = set(places.values())
        nowhere = vectors.keys() - {passage for _, passage in owners}
        texts = (*owners, *((UNOWNED_SCOPE, passage) for passage in nowhere))
        copy_rows(
            connection,
            "embeddings (scope, space, passage, vector)",
            ((scope, space, passage, packed(vectors[passage])) for scope, passage in texts),
            ["int4", "int4", "bytea", "bytea"],
        )
        empty = f"DELETE FROM vectors_{space} WHERE vector IS NULL AND row = ANY(%s) RETURNING row"
        rows = [row for (row,) in connection.execute(empty, (list(places),))]
        copy_rows(
            connection,
            f"vectors_{space} (row, scope, vector, settled)",
            ((row, places[row][0], packed(vectors[places[row][1]], "f2"), True) for row in rows),
            ["int8", "int4", "bytea", "bool"],
        )

    def merge_tallies(self, connection: Connection) -> None:
        scopes = connection.execute(
            "SELECT scope FROM tallies GROUP BY scope HAVING count(*) > count(DISTINCT kind)"
        ).fetchall()
        for (scope,) in scopes:
            with connection.transaction():
                merge_tallies(connection, scope)
