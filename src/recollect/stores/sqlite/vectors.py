"""The vector index: exact cosine over a matrix in memory that follows the file by sequence number.

A search first narrows the matrix to the visible rows. No approximate index is used, so a small scope loses nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.errors import EmbedderError
from recollect.stores.rows import passage_hash
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import VisibleSets, best, integers, meta, sequence, set_meta
from recollect.types import Filter, RankedList, VectorSpace

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

SAVE_BATCH = 200
MARGIN = 1e-5
"""More than the error of a cosine in single precision."""

GATHER_BELOW = 0.5
"""The share of visible rows below which copying them is faster than multiplying the whole matrix."""


class SqliteSpaces:
    """The vector spaces of one SQLite store."""

    def __init__(self, database: Database, visible: VisibleSets) -> None:
        self._database = database
        self._visible = visible
        self._open: dict[str, SqliteVectors] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> VectorSpace | None:
        """The active space, in every process."""
        with self._database.read() as connection:
            fingerprint = meta(connection, "space")
            rows: Any = connection.execute(
                "SELECT fingerprint, embedder, dimension FROM spaces WHERE fingerprint = ?", (fingerprint,)
            ).fetchall()
        return VectorSpace(*rows[0]) if rows else None

    def open(self, space: VectorSpace) -> SqliteVectors:
        """The index of one space, made where there is none."""
        with self._lock:
            if space.fingerprint not in self._open:
                number = self._number(space)
                self._open[space.fingerprint] = SqliteVectors(self._database, self._visible, space, number)
            return self._open[space.fingerprint]

    def activate(self, space: VectorSpace) -> None:
        """Make this the active space."""
        self.open(space)
        with self._database.write() as connection:
            set_meta(connection, "space", space.fingerprint)

    def _number(self, space: VectorSpace) -> int:
        find = "SELECT space FROM spaces WHERE fingerprint = ?"
        with self._database.read() as connection:
            number = connection.execute(find, (space.fingerprint,)).get
        if number is None:
            with self._database.write() as connection:
                connection.execute(
                    "INSERT OR IGNORE INTO spaces (fingerprint, embedder, dimension) VALUES (?, ?, ?)",
                    (space.fingerprint, space.embedder, space.dimension),
                )
                number = connection.execute(find, (space.fingerprint,)).get
        return int(number)


class SqliteVectors:
    """Search by vector in one space of one SQLite store."""

    def __init__(self, database: Database, visible: VisibleSets, space: VectorSpace, number: int) -> None:
        self._database = database
        self._visible = visible
        self._space = space
        self._number = number
        self._lock = threading.Lock()
        self._rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._matrix: NDArray[np.float32] = np.zeros((0, space.dimension), dtype=np.float32)
        self._position: dict[int, int] = {}
        self._used = 0
        self._read_to = (-1, -1)
        self._without: set[int] = set()

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        """At most `depth` visible records by falling cosine."""
        if vector.shape != (self._space.dimension,):
            raise EmbedderError(
                f"the query's vector has {vector.shape[-1]} numbers, the store's have {self._space.dimension}",
                hint="the embedder serves another model than the one it names",
            )
        with self._database.read() as connection:
            last = sequence(connection)
            visible = self._visible.get(connection, where, last)
            with self._lock:
                self._follow(connection, last)
                rows, matrix = self._rows[: self._used], self._matrix[: self._used]
            admitted = np.flatnonzero(visible.holds(rows))
            few = len(admitted) < GATHER_BELOW * len(rows)
            rough = matrix[admitted] @ vector if few else (matrix @ vector)[admitted]
            return _nearest(connection, rows, matrix, _RoughScores(admitted, rough, vector), depth)

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of these records, where there are any."""
        with self._database.read() as connection:
            pairs = connection.execute(
                "SELECT id, vector FROM records JOIN embeddings ON embeddings.passage = records.passage"
                " WHERE space = ? AND id IN (SELECT value FROM json_each(?))",
                (self._number, json.dumps(list(ids))),
            )
            return {key: np.frombuffer(vector, dtype=np.float32) for key, vector in pairs}

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        """Passages of the records (that the filter admits) without a vector."""
        with self._database.read() as connection:
            last = sequence(connection)
            with self._lock:
                self._follow(connection, last)
                without = np.fromiter(sorted(self._without), dtype=np.int64)
            if where and len(without):
                without = without[self._visible.get(connection, where, last).holds(without)]
            rows = without[:limit].tolist()
            pairs = connection.execute(
                "SELECT DISTINCT iif(title = '', text, title || char(10) || text) FROM records"
                " WHERE row IN (SELECT value FROM json_each(?))",
                (json.dumps(rows),),
            )
            return [passage for (passage,) in pairs]

    def known(self, passages: Sequence[str]) -> set[str]:
        """The passages whose vectors are stored."""
        hashes = {passage_hash(passage): passage for passage in passages}
        with self._database.read() as connection:
            find = "SELECT passage FROM embeddings WHERE space = ? AND passage = ?"
            return {passage for key, passage in hashes.items() if connection.execute(find, (self._number, key)).get}

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        """How many records (that the filter admits) have a vector, and how many have none."""
        with self._database.read() as connection:
            last = sequence(connection)
            with self._lock:
                self._follow(connection, last)
                if where is None:
                    return len(self._position), len(self._without)
                rows, without = self._rows[: self._used], np.fromiter(self._without, dtype=np.int64)
            visible = self._visible.get(connection, where, last)
            return int(visible.holds(rows).sum()), int(visible.holds(without).sum())

    def save(self, passages: Sequence[str], vectors: Matrix) -> None:
        """Store the vectors of passages, in short transactions."""
        for start in range(0, len(passages), SAVE_BATCH):
            with self._database.write() as connection:
                connection.executemany(
                    "INSERT INTO embeddings (space, passage, vector) VALUES (?, ?, ?)"
                    " ON CONFLICT (space, passage) DO NOTHING",
                    [
                        (self._number, passage_hash(passage), vector.astype("<f4").tobytes())
                        for passage, vector in zip(
                            passages[start : start + SAVE_BATCH], vectors[start : start + SAVE_BATCH], strict=True
                        )
                    ],
                )

    def _follow(self, connection: apsw.Connection, last: int) -> None:
        """Read what has changed: records, and vectors that were computed later."""
        newest = int(connection.execute("SELECT ifnull(max(number), 0) FROM embeddings").get)
        seq, number = self._read_to
        if last <= seq and newest <= number:
            return  # nothing new, or a snapshot older than what another thread has read
        select = (
            "SELECT row, vector FROM records LEFT JOIN embeddings ON embeddings.passage = records.passage"
            " AND space = ? WHERE forgotten_at IS NULL"
        )
        if seq < 0:
            self._take(connection.execute(select, (self._number,)).fetchall())
        else:
            changed = integers(
                connection.execute("SELECT group_concat(DISTINCT row) FROM history WHERE seq > ?", (seq,)).get
            ).tolist()
            arrived = connection.execute(
                "SELECT row FROM embeddings JOIN records USING (passage) WHERE number > ? AND space = ?",
                (number, self._number),
            )
            rows = set(changed).union(row for (row,) in arrived)
            self._drop(rows)
            only = f"{select} AND row IN (SELECT value FROM json_each(?))"
            self._take(connection.execute(only, (self._number, json.dumps(list(rows)))).fetchall())
        self._read_to = (last, newest)

    def _drop(self, rows: set[int]) -> None:
        """Free the positions of changed rows: row 0 is never visible. Running searches keep the old array."""
        self._without -= rows
        self._rows = self._rows.copy()
        for row in rows & self._position.keys():
            self._rows[self._position.pop(row)] = 0

    def _take(self, pairs: list[Any]) -> None:
        """Add (row, vector) pairs, and remember the rows without a vector."""
        self._without.update(row for row, vector in pairs if vector is None)
        new = [(row, vector) for row, vector in pairs if vector is not None]
        if not new:
            return
        self._make_room(len(new))
        end = self._used + len(new)
        self._rows[self._used : end] = [row for row, _ in new]
        flat = np.frombuffer(b"".join(vector for _, vector in new), dtype="<f4")
        self._matrix[self._used : end] = flat.reshape(len(new), self._space.dimension)
        self._position.update({row: self._used + i for i, (row, _) in enumerate(new)})
        self._used = end

    def _make_room(self, more: int) -> None:
        """Grow by doubling, without the positions that were freed. Running searches keep the old arrays."""
        if self._used + more <= len(self._rows):
            return
        live = np.flatnonzero(self._rows[: self._used])
        size = max(2 * (len(live) + more), 64) if self._used else more
        rows = np.zeros(size, dtype=np.int64)
        matrix = np.zeros((size, self._space.dimension), dtype=np.float32)
        rows[: len(live)], matrix[: len(live)] = self._rows[live], self._matrix[live]
        self._rows, self._matrix, self._used = rows, matrix, len(live)
        self._position = {int(row): place for place, row in enumerate(rows[: len(live)])}


class _RoughScores(NamedTuple):
    """Scores in single precision; their last digits depend on the position of a row in the matrix."""

    places: NDArray[np.int64]
    scores: NDArray[np.float32]
    vector: Vector


def _nearest(
    connection: apsw.Connection, rows: NDArray[np.int64], matrix: NDArray[np.float32], rough: _RoughScores, depth: int
) -> RankedList:
    """The nearest, computed again in double precision, so that a cosine does not depend on neighbouring rows."""
    exact_query, wanted = rough.vector.astype(np.float64), depth
    while True:
        head = rough.places
        if wanted < len(head):
            edge = np.partition(rough.scores, len(head) - wanted)[len(head) - wanted]
            head = head[rough.scores >= edge - MARGIN]
        scores = matrix[head].astype(np.float64) @ exact_query
        matches = best(connection, rows[head], scores.round(6), depth)
        if len(matches.entries) >= depth or len(head) == len(rough.places):
            return matches
        wanted *= 4
