"""Vector search: exact if few records are visible, else HNSW with iterative scans; scores are exact in both cases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from psycopg import errors as pg

from recollect.errors import StoreError
from recollect.stores.database import SqlSpaces, SqlVectors
from recollect.stores.postgres.connections import Connection, integer
from recollect.stores.postgres.database import PostgresDatabase
from recollect.stores.postgres.rows import (
    COLUMNS,
    FilteredRows,
    filtered_rows,
    ranked_rows,
    row_reader,
    scope_condition,
)
from recollect.stores.rows import Condition, check_dimension, passage_hash
from recollect.types import Filter, Matrix, RankedList, Vector, VectorSpace

EXACT_UP_TO = 20_000
"""Visible records that are all compared: an approximate index is not faster there, and could return too few."""

MAX_INDEXED_DIMENSION = 4_000  # HNSW supports half-precision vectors up to this dimension
MORE_CANDIDATES = 64  # candidates beyond the number of results: half precision may order a few of them wrongly

MARGIN = 0.002
"""Twice what half precision of both vectors can change a cosine by. A record that is further behind the last wanted
one cannot belong before it."""

MAX_EXPLORED = 1_000  # the maximum of `hnsw.ef_search` in pgvector

MAX_SCANNED = 200_000

MAX_UNSETTLED = 10_000
"""Vectors that may be outside the index, and are compared one by one: that takes a few milliseconds."""

SETTLE_BATCH = 32  # vectors that are added to the index at once, while somebody waits


def create_vectors(connection: Connection, number: int, dimension: int) -> None:
    """Create the table of a space. It has the row and the scope of each vector, so that an index scan can filter."""
    table = f"vectors_{number}"
    connection.execute(
        f"CREATE TABLE {table} (row bigint PRIMARY KEY, scope integer NOT NULL, vector halfvec({dimension}),"
        " settled boolean NOT NULL DEFAULT false)"
    )
    add_rows(connection, number)
    connection.execute(f"CREATE INDEX {table}_missing ON {table} (row) WHERE vector IS NULL")
    connection.execute(f"CREATE INDEX {table}_scope ON {table} (scope)")
    connection.execute(f"CREATE INDEX {table}_new ON {table} (scope) WHERE NOT settled AND vector IS NOT NULL")
    create_index(connection, number, dimension)
    connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    connection.execute(f"CREATE POLICY seen ON {table} USING (scope IN (SELECT scope FROM mine))")


def create_space(
    connection: Connection,
    space: VectorSpace,
    *,
    locked: str = PostgresDatabase.locked,
    create_table: Callable[[Connection, int, int], None] = create_vectors,
) -> int:
    """Create a vector space, if it does not exist, and return its number."""
    connection.execute(f"LOCK TABLE {locked} IN SHARE ROW EXCLUSIVE MODE")  # later writes see the space
    find = "SELECT space FROM spaces WHERE fingerprint = %s"
    if present := integer(connection, find, (space.fingerprint,)):
        return present
    created = integer(
        connection,
        "INSERT INTO spaces (fingerprint, embedder, dimension) VALUES (%s, %s, %s) RETURNING space",
        (space.fingerprint, space.embedder, space.dimension),
    )
    create_table(connection, created, space.dimension)
    return created


def spaces_of(connection: Connection) -> list[int]:
    """The numbers of all spaces."""
    return [space for (space,) in connection.execute("SELECT space FROM spaces ORDER BY space")]


def add_rows(connection: Connection, number: int) -> None:
    """Give an empty space a row for each record, without a vector."""
    every = "SELECT row, scope FROM records WHERE forgotten_at IS NULL"
    connection.execute(f"INSERT INTO vectors_{number} (row, scope) {every}")


def create_index(connection: Connection, number: int, dimension: int) -> None:
    """Create the HNSW index of a space, if it does not exist. That is much faster when the vectors are there."""
    table = f"vectors_{number}"
    missing = connection.execute("SELECT to_regclass(%s) IS NULL", (f"{table}_near",)).fetchone() == (True,)
    if missing and dimension <= MAX_INDEXED_DIMENSION:
        connection.execute(f"UPDATE {table} SET settled = true WHERE NOT settled AND vector IS NOT NULL")
        connection.execute(
            f"CREATE INDEX IF NOT EXISTS {table}_near ON {table} USING hnsw (vector halfvec_ip_ops) WHERE settled"
        )


class PostgresSpaces(SqlSpaces):
    """The vector spaces of one PostgreSQL store."""

    _database: PostgresDatabase
    _create = staticmethod(create_space)

    def open(self, space: VectorSpace) -> PostgresVectors:
        vectors: PostgresVectors = super().open(space)
        return vectors.within(self._scope)

    def _index(self, space: VectorSpace, number: int) -> PostgresVectors:
        kind = RestrictedVectors if self._database.row_security() else PostgresVectors
        return kind(self._database, space, number)

    def _cleared(self, connection: Connection, number: int) -> None:
        # While the table is filled again nobody may add a record, which would then be in it twice or not at all.
        connection.execute(f"LOCK TABLE {self._database.locked} IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(f"TRUNCATE vectors_{number}")
        add_rows(connection, number)


class PostgresVectors(SqlVectors):
    """Vector search in one space."""

    _database: PostgresDatabase
    save_batch = 200
    _key = "row"
    _embedded = "records JOIN embeddings USING (passage)"
    _explored = 8  # `hnsw.ef_search` for each candidate
    _has_unsettled = True  # new vectors are outside the index at first
    _sees_texts = True  # whether a record has a text

    def __init__(self, database: PostgresDatabase, space: VectorSpace, number: int) -> None:
        super().__init__(database, space, number)
        self._table = f"vectors_{number}"
        self._distance = f"vector <#> %s::halfvec({space.dimension})"

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        check_dimension(vector, self._space.dimension)
        where = self._database.with_scope_numbers(where)
        try:
            return self._search(vector, where, depth, replica=True)
        except StoreError as error:
            if not isinstance(error.__cause__, pg.UndefinedTable):
                raise
            return self._search(vector, where, depth, replica=False)  # a replica may not have the space yet

    def _search(self, vector: Vector, where: Filter, depth: int, *, replica: bool) -> RankedList:
        read = row_reader(self._database, where, replica=replica)
        with self._database.read(where.scope, replica=replica) as connection:
            visible = filtered_rows(connection, where, self._key)
            count = depth
            while True:
                rows, more = self._nearest(connection, visible, vector, count)
                measured = self._measured(connection, rows, vector, scope_condition(where))
                entries, duplicates = ranked_rows(measured[:count], depth, read)
                if len(entries) >= depth or not more:
                    break
                count *= 4
        return RankedList("", entries, duplicates=duplicates)

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        with self._database.read(self._scope) as connection:
            condition, values = self._database.with_ids(connection, ids)
            rows = connection.cursor(binary=True).execute(
                f"SELECT id, vector FROM {self._embedded} WHERE space = %s AND {condition}",
                [self._number, *values],
            )
            return {key: unpack([vector])[0] for key, vector in rows}

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        where = where and self._database.with_scope_numbers(where)
        with self._database.read(where.scope if where else self._scope) as connection:
            condition, values = filtered_rows(connection, where, self._key).condition if where else ("true", [])
            among, numbers = scope_condition(where) if where else ("true", [])
            rows = connection.execute(
                "SELECT DISTINCT CASE title WHEN '' THEN text ELSE title || chr(10) || text END FROM records"
                f" WHERE row IN (SELECT row FROM {self._table} WHERE vector IS NULL AND {condition}"
                f" ORDER BY row DESC LIMIT %s) AND {among}",
                [*values, limit, *numbers],
            )
            return [passage for (passage,) in rows]

    def known(self, passages: Sequence[str]) -> set[str]:
        hashes = {passage_hash(passage): passage for passage in passages}
        (known,) = self._database.one("SELECT ARRAY(SELECT kept_passages(%s, %s))", (self._number, list(hashes)))
        return {hashes[bytes(key)] for key in known}

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        if where is None:
            total, without = self._database.one(f"SELECT total, without FROM vector_coverage({self._number})")
            return int(total) - int(without), int(without)
        where = self._database.with_scope_numbers(where)
        with self._database.read(where.scope) as connection:
            visible = filtered_rows(connection, where, self._key)
            condition, values = visible.condition
            count = f"SELECT count(*) FROM {self._table} WHERE vector IS NULL AND {condition}"
            without = integer(connection, count, values)
        return visible.count - without, without

    def _save(self, pairs: Sequence[tuple[bytes, bytes]], *, ahead: bool) -> None:
        self._database.write_at_once(save_vectors(self._number, pairs, any_text=ahead or not self._sees_texts))

    def _nearest(
        self, connection: Connection, visible: FilteredRows, vector: Vector, count: int
    ) -> tuple[list[int], bool]:
        """Rows that contain the nearest `count` ones, and whether there may be more."""
        condition, values = visible.condition
        filled = (f"vector IS NOT NULL AND {condition}", values)
        candidates = count + count // 4 + MORE_CANDIDATES
        if visible.count > EXACT_UP_TO and self._space.dimension <= MAX_INDEXED_DIMENSION:
            rows = self._approximate(connection, filled, vector, candidates)
            if len(rows) >= candidates:  # else the index gave up before it found enough visible ones
                if self._has_unsettled:
                    rows += self._exact(connection, (f"NOT settled AND {filled[0]}", filled[1]), vector, count)
                return rows, True
        rows = self._exact(connection, filled, vector, count)
        return rows, len(rows) >= count

    def _exact(self, connection: Connection, filled: Condition, vector: Vector, count: int) -> list[int]:
        """Compare all visible vectors. Those near the last one are included, so that ties are never split."""
        rows = connection.execute(
            f"WITH far AS MATERIALIZED (SELECT row, {self._distance} AS distance FROM {self._table} WHERE {filled[0]})"
            " SELECT row FROM far WHERE distance <= %s + (SELECT max(distance) FROM"
            " (SELECT distance FROM far ORDER BY distance LIMIT %s) AS head)",
            [literal(vector), *filled[1], MARGIN, count],
        )
        return [row for (row,) in rows]

    def _approximate(self, connection: Connection, filled: Condition, vector: Vector, count: int) -> list[int]:
        """Scan the index until it has found enough visible vectors."""
        connection.execute(
            f"SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.max_scan_tuples = {MAX_SCANNED};"
            f" SET LOCAL hnsw.ef_search = {min(MAX_EXPLORED, self._explored * count)}"
        )
        rows = connection.execute(
            f"SELECT row FROM {self._table} WHERE settled AND {filled[0]} ORDER BY {self._distance} LIMIT %s",
            [*filled[1], literal(vector), count],
        )
        return [row for (row,) in rows]

    def _measured(
        self, connection: Connection, rows: list[int], vector: Vector, among: Condition
    ) -> list[tuple[Any, ...]]:
        """(row, cosine, *`COLUMNS`) in their exact order: cosine in full precision, newest, id."""
        cursor = connection.cursor(binary=True)
        embedded: list[Any] = cursor.execute(
            f"SELECT embeddings.vector, row, {COLUMNS} FROM {self._embedded}"
            f' WHERE space = %s AND row = ANY(%s) AND {among[0]} ORDER BY time DESC, id COLLATE "C"',
            [self._number, rows, *among[1]],
        ).fetchall()
        if not embedded:
            return []
        matrix = unpack([packed for packed, *_ in embedded]).astype(np.float64)
        scores = (matrix @ vector.astype(np.float64)).round(6).tolist()
        ranked = [(row, score, *columns) for (_, row, *columns), score in zip(embedded, scores, strict=True)]
        return sorted(ranked, key=itemgetter(1), reverse=True)


class RestrictedVectors(PostgresVectors):
    """Vector search for a role that sees one scope. It cannot tell whether a record has a text, so it saves later."""

    _sees_texts = False
    saving = None  # type: ignore[assignment]


def save_vectors(space: int, vectors: Sequence[tuple[bytes, bytes]], *, any_text: bool = False) -> list[Condition]:
    """Statements that save vectors by the hashes of their texts; unless `any_text`, of those that live records have."""
    keys, values = zip(*vectors, strict=True)
    live = "EXISTS (SELECT 1 FROM records WHERE records.passage = added.passage AND forgotten_at IS NULL)"
    insert = (
        "INSERT INTO embeddings (space, passage, vector) SELECT %s, added.*"
        " FROM unnest(%s::bytea[], %s::vector[]) AS added (passage, vector)"
        f" WHERE {'true' if any_text else live} ON CONFLICT DO NOTHING"
    )
    literals = [literal(np.frombuffer(value, "<f4")) for value in values]
    return [(insert, [space, list(keys), literals]), ("SELECT attach_vectors(%s, %s)", [space, list(keys)])]


def literal(vector: Vector) -> str:
    """A vector as pgvector reads it, without loss."""
    return f"[{','.join(map(repr, vector.astype(np.float32).tolist()))}]"


def unpack(vectors: Sequence[bytes]) -> Matrix:
    """Vectors from pgvector's binary format: two short integers, then big-endian floats."""
    joined = b"".join(bytes(vector)[4:] for vector in vectors)
    return np.frombuffer(joined, dtype=">f4").reshape(len(vectors), -1).astype("<f4")


def settle(database: PostgresDatabase) -> None:
    """Add some vectors to the indexes if many are not in them. Nothing is lost if that fails."""
    some = ("SELECT settle_vectors(space, %s, %s) FROM spaces", (SETTLE_BATCH, MAX_UNSETTLED))
    with contextlib.suppress(StoreError):
        database.write_at_once([("SET LOCAL synchronous_commit TO off", ()), some], then=())
