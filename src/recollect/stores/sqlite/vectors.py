"""The vector index: exact cosine over the visible rows of a matrix that follows the file by sequence number."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recollect.stores.database import SqlSpaces
from recollect.stores.rows import check_dimension, passage_hash
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.index import Index
from recollect.stores.sqlite.rows import Connection, integers, sequence
from recollect.stores.sqlite.visible import best
from recollect.types import Filter, RankedList, VectorIndex, VectorSpace

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

SAVE_BATCH = 200
MARGIN = 1e-5  # more than the error of a cosine in single precision
GATHER_BELOW = 0.5  # the share of visible rows below which copying them is faster than multiplying the whole matrix


class SqliteSpaces(SqlSpaces):
    """The vector spaces of one file."""

    def __init__(self, database: Database, index: Index) -> None:
        super().__init__(database)
        self.index = index

    def _index(self, space: VectorSpace, number: int) -> SqliteVectors:
        return SqliteVectors(self._database, self.index, space, number)

    def _create(self, connection: Connection, space: VectorSpace) -> int:
        insert = "INSERT OR IGNORE INTO spaces (fingerprint, embedder, dimension) VALUES (?, ?, ?)"
        connection.execute(insert, (space.fingerprint, space.embedder, space.dimension))
        return int(connection.execute("SELECT space FROM spaces WHERE fingerprint = ?", (space.fingerprint,)).get)


class SqliteVectors(VectorIndex):
    """Search by vector in one space of one SQLite store."""

    def __init__(self, database: Database, index: Index, space: VectorSpace, number: int) -> None:
        self._database = database
        self._index = index
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
        check_dimension(vector, self._space.dimension)
        with self._database.read() as connection:
            last = sequence(connection)
            view = self._index.view(connection)
            visible = self._index.visible(connection, where)
            with self._lock:
                self._follow(connection, last)
                rows, matrix = self._rows[: self._used], self._matrix[: self._used]
            admitted = np.flatnonzero(visible.holds(rows))
            few = len(admitted) < GATHER_BELOW * len(rows)
            rough = matrix[admitted] @ vector if few else (matrix @ vector)[admitted]
            # The nearest are computed again in double precision: then a cosine does not depend on neighbouring rows.
            exact, wanted = vector.astype(np.float64), depth
            while True:
                head = admitted
                if wanted < len(head):
                    edge = np.partition(rough, len(head) - wanted)[len(head) - wanted]
                    head = head[rough >= edge - MARGIN]
                cosines = matrix[head].astype(np.float64) @ exact
                matches = best(self._database, view, view.find(rows[head]), cosines, depth, digits=6)
                if len(matches.entries) >= depth or len(head) == len(admitted):
                    return matches
                wanted *= 4

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        with self._database.read() as connection:
            pairs = connection.execute(
                "SELECT id, vector FROM records JOIN embeddings ON embeddings.passage = records.passage"
                " WHERE space = ? AND id IN (SELECT value FROM json_each(?))",
                (self._number, json.dumps(list(ids))),
            )
            return {key: np.frombuffer(vector, dtype=np.float32) for key, vector in pairs}

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        with self._database.read() as connection:
            passages: Any = connection.execute(
                "SELECT DISTINCT iif(title = '', text, title || char(10) || text) FROM records"
                " WHERE row IN (SELECT value FROM json_each(?)) AND forgotten_at IS NULL",
                (json.dumps(self._covered(connection, where)[1][::-1][:limit].tolist()),),
            )
            return [passage for (passage,) in passages]

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        with self._database.read() as connection:
            if where is None:  # every search asks
                with self._lock:
                    self._follow(connection, sequence(connection))
                    return len(self._position), len(self._without)
            covered, without = self._covered(connection, where)
        return len(covered), len(without)

    def _covered(self, connection: Connection, where: Filter | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows (that the filter admits) with a vector, and those without one."""
        last = sequence(connection)
        with self._lock:
            self._follow(connection, last)
            rows, without = self._rows[: self._used], np.array(sorted(self._without), dtype=np.int64)
        if where is None:
            return rows[rows > 0], without
        visible = self._index.visible(connection, where)
        return rows[visible.holds(rows)], without[visible.holds(without)]

    def known(self, passages: Sequence[str]) -> set[str]:
        hashes = {passage_hash(passage): passage for passage in passages}
        with self._database.read() as connection:
            find = "SELECT passage FROM embeddings WHERE space = ? AND passage = ?"
            return {passage for key, passage in hashes.items() if connection.execute(find, (self._number, key)).get}

    def save(self, passages: Sequence[str], vectors: Matrix) -> None:
        for start in range(0, len(passages), SAVE_BATCH):
            part = slice(start, start + SAVE_BATCH)
            pairs = zip(passages[part], vectors[part], strict=True)
            with self._database.write() as connection:
                connection.executemany(
                    "INSERT INTO embeddings (space, passage, vector) VALUES (?, ?, ?)"
                    " ON CONFLICT (space, passage) DO NOTHING",
                    [(self._number, passage_hash(text), vector.astype("<f4").tobytes()) for text, vector in pairs],
                )

    def _follow(self, connection: Connection, last: int) -> None:
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
            rows = changed_rows(connection, self._number, seq, number)
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


def changed_rows(
    connection: Connection, space: int, seq: int, number: int, tables: Iterable[str] = ("embeddings",)
) -> set[int]:
    """Rows of records that changed after an event, and of records whose vectors were added after a number."""
    changed = connection.execute("SELECT group_concat(DISTINCT row) FROM history WHERE seq > ?", (seq,)).get
    rows = set(integers(changed).tolist())
    for table in tables:
        added = connection.execute(
            f"SELECT group_concat(row) FROM {table} JOIN records USING (passage) WHERE number > ? AND +space = ?",
            (number, space),
        ).get
        rows.update(integers(added).tolist())
    return rows
