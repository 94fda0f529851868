"""The vector index: exact where few may be seen, HNSW with iterative scans where many may; exact cosines either way."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import errors as pg

from recollect.errors import EmbedderError, StoreError
from recollect.stores.postgres.database import Connection, Database, plain, text
from recollect.stores.postgres.rows import Seen, condition, matches, seen, set_meta
from recollect.stores.rows import distinct, passage_hash
from recollect.types import Filter, RankedList, Scope, VectorSpace

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

EXACT_UP_TO = 20_000
"""Visible records that are all compared: there an approximate index saves nothing, and could starve."""

LONGEST_INDEXED = 4_000
"""Numbers of a half-precision vector that HNSW takes."""

SPARE = 64
"""Candidates of the index beyond what is wanted: half precision may put a few in the wrong order."""

MARGIN = 0.002
"""What half precision of both vectors can change a cosine by, twice: so far behind the last that is wanted, none can
stand before it."""

EXPLORED, MOST_EXPLORED = 8, 1_000
"""How many nodes of the graph are kept in sight for each candidate, and how many pgvector allows."""

SCANNED = 200_000
SAVE_BATCH = 200


class PostgresSpaces:
    """The vector spaces of one PostgreSQL store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: dict[str, PostgresVectors] = {}
        self._lock = threading.Lock()
        self._scope: Scope | None = None

    def within(self, scope: Scope) -> PostgresSpaces:
        """The same spaces, whose vectors are read in the name of one scope."""
        view = copy.copy(self)
        view._scope = scope  # noqa: SLF001  (its own kind)
        return view

    @property
    def active(self) -> VectorSpace | None:
        """The space that answers, on every machine."""
        found = self._database.glance(
            "SELECT fingerprint, embedder, dimension FROM spaces JOIN meta ON value = fingerprint WHERE key = 'space'"
        )
        return VectorSpace(*found) if found else None

    def open(self, space: VectorSpace) -> PostgresVectors:
        """The index of one space, made where there is none."""
        with self._lock:
            if space.fingerprint not in self._open:
                self._open[space.fingerprint] = PostgresVectors(self._database, space, self._number(space))
            return self._open[space.fingerprint].within(self._scope)

    def activate(self, space: VectorSpace) -> None:
        """From now on this space answers."""
        self.open(space)
        self._database.write(lambda connection: set_meta(connection, "space", space.fingerprint))

    def _number(self, space: VectorSpace) -> int:
        find = "SELECT space FROM spaces WHERE fingerprint = %s"
        with self._database.read() as connection:
            found = connection.execute(find, (space.fingerprint,)).fetchone()
        return int(found[0]) if found else self._database.write(lambda connection: make_space(connection, space))


class PostgresVectors:
    """Search by vector in one space."""

    def __init__(self, database: Database, space: VectorSpace, number: int) -> None:
        self._database = database
        self._space = space
        self._number = number
        self._table = f"vectors_{number}"
        self._near = f"vector <#> %s::halfvec({space.dimension})"
        self._scope: Scope | None = None

    def within(self, scope: Scope | None) -> PostgresVectors:
        """The same vectors, read in the name of one scope."""
        view = copy.copy(self)
        view._scope = scope  # noqa: SLF001  (its own kind)
        return view

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        """At most `depth` visible records by falling cosine."""
        if vector.shape != (self._space.dimension,):
            raise EmbedderError(
                f"the query's vector has {vector.shape[-1]} numbers, the store's have {self._space.dimension}",
                hint="the embedder answered for another model than the one it names",
            )
        try:
            return self._search(vector, where, depth, replica=True)
        except StoreError as error:
            if not isinstance(error.__cause__, pg.UndefinedTable):
                raise
            return self._search(vector, where, depth, replica=False)  # a replica may not know of the space yet

    def _search(self, vector: Vector, where: Filter, depth: int, *, replica: bool) -> RankedList:
        with self._database.read(where.scope, replica=replica) as connection:
            visible = seen(connection, where)
            wanted = depth
            while True:
                rows, more = self._nearest(connection, visible, vector, wanted)
                kept, folded = distinct(self._measured(connection, rows, vector)[:wanted], depth)
                if len(kept) >= depth or not more:
                    break
                wanted *= 4
            return matches(connection, kept, folded)

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of these records, where there are any."""
        with self._database.read(self._scope) as connection:
            rows = connection.cursor(binary=True).execute(
                "SELECT id, vector FROM records JOIN embeddings USING (passage) WHERE space = %s AND id = ANY(%s)",
                (self._number, [text(key) for key in ids]),
            )
            return {plain(key): _read([vector])[0] for key, vector in rows}

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        """Passages (of the records that the filter lets through) that have no vector yet."""
        sql, values = condition(where) if where else ("true", [])
        with self._database.read(where.scope if where else self._scope) as connection:
            rows = connection.execute(
                "SELECT DISTINCT CASE title WHEN '' THEN text ELSE title || chr(10) || text END FROM"
                f" (SELECT title, text FROM {self._table} AS held JOIN records USING (row)"
                f" WHERE vector IS NULL AND {sql} ORDER BY held.row LIMIT %s) AS without",
                [*values, limit],
            )
            return [plain(passage) for (passage,) in rows]

    def known(self, passages: Sequence[str]) -> set[str]:
        """Those of the passages whose vectors are kept already."""
        hashes = {passage_hash(passage): passage for passage in passages}
        with self._database.read() as connection:
            rows = connection.execute("SELECT kept_passages(%s, %s)", (self._number, list(hashes)))
            return {hashes[bytes(key)] for (key,) in rows}

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        """How many records (that the filter lets through) have a vector, and how many have none."""
        if where is None:
            total, without = self._database.glance(f"SELECT total, without FROM vector_coverage({self._number})")
            return int(total) - int(without), int(without)
        empty = f"SELECT count(*) FROM {self._table} WHERE vector IS NULL"
        with self._database.read(where.scope) as connection:
            visible = seen(connection, where)
            (within, scopes), (sql, values) = visible.within, visible.rows
            found = connection.execute(f"{empty} AND {within} AND {sql}", [*scopes, *values]).fetchone()
        without = int(found[0]) if found else 0
        return visible.count - without, without

    def save(self, passages: Sequence[str], vectors: Matrix) -> None:
        """Keep the vectors of passages, in short transactions."""
        for start in range(0, len(passages), SAVE_BATCH):
            part = slice(start, start + SAVE_BATCH)
            keys = [passage_hash(passage) for passage in passages[part]]
            kept = [_written(vector) for vector in vectors[part]]
            self._database.write(lambda connection, keys=keys, kept=kept: self._save(connection, keys, kept))  # type: ignore[misc]

    def _save(self, connection: Connection, keys: list[bytes], vectors: list[str]) -> None:
        with connection.pipeline():
            connection.execute(
                "INSERT INTO embeddings (space, passage, vector) SELECT %s, * FROM unnest(%s::bytea[], %s::vector[])"
                " ON CONFLICT DO NOTHING",
                (self._number, keys, vectors),
            )
            connection.execute("SELECT attach_vectors(%s, %s)", (self._number, keys))

    def _nearest(self, connection: Connection, visible: Seen, vector: Vector, wanted: int) -> tuple[list[int], bool]:
        """Rows by about their cosine, the first `wanted` among them, and whether there may be more."""
        (within, scopes), (sql, values) = visible.within, visible.rows
        only = (f"vector IS NOT NULL AND {within} AND {sql}", [*scopes, *values])
        rows: list[int] = []
        count = wanted + wanted // 4 + SPARE
        if visible.count > EXACT_UP_TO and self._space.dimension <= LONGEST_INDEXED:
            rows = self._approximate(connection, only, vector, count)
        if len(rows) < count:  # few may be seen, or the index gave up before it had found enough of them
            rows = self._exact(connection, only, vector, wanted)
        return rows, len(rows) >= wanted

    def _exact(self, connection: Connection, only: tuple[str, list[Any]], vector: Vector, wanted: int) -> list[int]:
        """All that may be seen are compared; those near the edge are taken, too, so that equals are never parted."""
        found = connection.execute(
            f"WITH far AS MATERIALIZED (SELECT row, {self._near} AS distance FROM {self._table} WHERE {only[0]})"
            " SELECT row FROM far WHERE distance <= %s + (SELECT max(distance) FROM"
            " (SELECT distance FROM far ORDER BY distance LIMIT %s) AS head)",
            [_written(vector), *only[1], MARGIN, wanted],
        )
        return [row for (row,) in found]

    def _approximate(
        self, connection: Connection, only: tuple[str, list[Any]], vector: Vector, count: int
    ) -> list[int]:
        """Those that the index finds, scanning on until there are enough that may be seen; they are measured after."""
        connection.execute(
            f"SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.max_scan_tuples = {SCANNED};"
            f" SET LOCAL hnsw.ef_search = {min(MOST_EXPLORED, EXPLORED * count)}"
        )
        found = connection.execute(
            f"SELECT row FROM {self._table} WHERE {only[0]} ORDER BY {self._near} LIMIT %s",
            [*only[1], _written(vector), count],
        )
        return [row for (row,) in found]

    def _measured(self, connection: Connection, rows: list[int], vector: Vector) -> list[tuple[int, bytes, float]]:
        """(row, fold, cosine) in their exact order: cosines of whole vectors, then newer, then id."""
        found: list[Any] = (
            connection.cursor(binary=True)
            .execute(
                "SELECT row, fold, embeddings.vector FROM records JOIN embeddings USING (passage)"
                ' WHERE space = %s AND row = ANY(%s) ORDER BY time DESC, id COLLATE "C"',
                (self._number, rows),
            )
            .fetchall()
        )
        if not found:
            return []
        matrix = _read([part for *_, part in found]).astype(np.float64)
        scores = (matrix @ vector.astype(np.float64)).round(6).tolist()
        ranked = [(row, bytes(fold), score) for (row, fold, _), score in zip(found, scores, strict=True)]
        return sorted(ranked, key=lambda place: -place[2])


def _written(vector: Vector) -> str:
    """A vector as pgvector reads it, every bit of it."""
    return f"[{','.join(map(repr, vector.astype(np.float32).tolist()))}]"


def _read(vectors: Sequence[bytes]) -> Matrix:
    """Vectors as pgvector sends them: two short numbers, then big-endian floats."""
    joined = b"".join(bytes(vector)[4:] for vector in vectors)
    return np.frombuffer(joined, dtype=">f4").reshape(len(vectors), -1).astype(np.float32)


def make_space(connection: Connection, space: VectorSpace) -> int:
    """A space of its own: its vectors beside their rows and scopes, so that a filter can be part of the scan."""
    connection.execute("LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE")  # who writes later knows the space
    found = connection.execute("SELECT space FROM spaces WHERE fingerprint = %s", (space.fingerprint,)).fetchone()
    if found is not None:
        return int(found[0])
    made = connection.execute(
        "INSERT INTO spaces (fingerprint, embedder, dimension) VALUES (%s, %s, %s) RETURNING space",
        (space.fingerprint, space.embedder, space.dimension),
    ).fetchone()
    number = int(made[0]) if made else 0
    table = f"vectors_{number}"
    connection.execute(
        f"CREATE TABLE {table} (row bigint PRIMARY KEY, scope integer NOT NULL, vector halfvec({space.dimension}))"
    )
    connection.execute(f"INSERT INTO {table} (row, scope) SELECT row, scope FROM records WHERE forgotten_at IS NULL")
    connection.execute(f"CREATE INDEX {table}_missing ON {table} (row) WHERE vector IS NULL")
    connection.execute(f"CREATE INDEX {table}_scope ON {table} (scope)")
    index_near(connection, number, space.dimension)
    connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    connection.execute(f"CREATE POLICY seen ON {table} USING (scope IN (SELECT scope FROM mine))")
    return number


def index_near(connection: Connection, number: int, dimension: int) -> None:
    """The approximate index of a space, where it is not there yet; much faster when the vectors are there already."""
    if dimension <= LONGEST_INDEXED:
        table = f"vectors_{number}"
        connection.execute(f"CREATE INDEX IF NOT EXISTS {table}_near ON {table} USING hnsw (vector halfvec_ip_ops)")
