"""Vector search: LanceDB proposes candidates; the file decides which are visible, and has the vectors to score them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.stores.lance.table import NumberedVectors, TableLost
from recollect.stores.lance.updater import TableState, TableUpdater
from recollect.stores.rows import check_dimension
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.index import Index, state_of
from recollect.stores.sqlite.rows import Connection, integers
from recollect.stores.sqlite.vectors import SqliteVectors, changed_rows
from recollect.stores.sqlite.visible import Visible, best
from recollect.types import Filter, Matrix, RankedList, Vector, VectorSpace

SCAN_UP_TO = 2_000  # up to this many visible vectors are all compared without asking LanceDB
CANDIDATES, MORE_CANDIDATES = 4, 200  # candidates per result, and how many more: LanceDB's order is approximate
OVERSAMPLING = 1.2  # factor on the number of candidates, beyond what the share of visible vectors makes necessary
MARGIN = 1e-5  # more than the error of a cosine in single precision
MAX_TRIES = 20
PENDING_BATCHES = 4  # a search commits pending vectors itself when there are this many batches of them
CACHED_SETS = 8
GONE, WITHOUT = -1, 0  # in place of a vector number: the record is forgotten, or has no vector yet


class LanceVectors(SqliteVectors):
    """Vector search in one space. Vectors are saved in the file, and looked up there."""

    def __init__(
        self, database: Database, index: Index, space: VectorSpace, number: int, updater: TableUpdater
    ) -> None:
        super().__init__(database, index, space, number)
        self.updater = updater
        self._numbers: NDArray[np.int64] = np.full(1, GONE, dtype=np.int64)
        self._table, self._read_to = "", (-1, -1)
        self._sets: dict[tuple[int, int], tuple[Visible, NDArray[np.int64], VisibleVectors]] = {}
        none = NumberedVectors(np.zeros(0, dtype=np.int64), np.zeros((0, space.dimension), dtype=np.float32))
        self._pending = ((-1, -1), none)
        self._without_lance = False

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        check_dimension(vector, self._space.dimension)
        many = PENDING_BATCHES * self.updater.url.batch
        for _ in range(MAX_TRIES):
            try:
                with self._database.read() as connection:
                    matches = self._search(connection, vector, where, depth)
                # A copy, or a process that died, may have left a great number pending.
                if len(self._pending[1].numbers) >= many and not self._database.read_only:
                    self.updater.update_if_due()
            except TableLost:
                self._recover()
            else:
                return matches
        raise StoreError(f"LanceDB loses what is written to {self.updater.url.dataset}", hint="check the disk it is on")

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        with self._database.read() as connection:
            covered, without = self._covered(connection, where)
        return len(covered), len(without)

    saving = None  # type: ignore[assignment]  # `save` has to know of every vector

    def save(self, passages: Sequence[str], vectors: Matrix, *, ahead: bool = False) -> None:
        """Save vectors in the file, and commit them to LanceDB when a batch is full."""
        super().save(passages, vectors, ahead=ahead)
        self.updater.update_if_due()

    def _covered(self, connection: Connection, where: Filter | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers = self._record_numbers(connection)
        if where is not None:
            mask = self._index.visible(connection, where).by_row
            numbers = np.where(mask, numbers[: len(mask)], GONE)
        return np.flatnonzero(numbers > WITHOUT), np.flatnonzero(numbers == WITHOUT)

    def _recover(self) -> None:
        """Build a lost table again. A read-only store searches the vectors in the file instead."""
        self._without_lance = self._database.read_only
        if not self._without_lance:
            self.updater.rebuild()

    def _state(self, connection: Connection) -> TableState:
        return TableState() if self._without_lance else TableState.load(connection, self._number)

    def _search(self, connection: Connection, vector: Vector, where: Filter, depth: int) -> RankedList:
        view, visible = self._index.view(connection), self._index.visible(connection, where)
        records = self._visible_vectors(visible, self._record_numbers(connection))
        state = self._state(connection)
        pending = self._pending_vectors(connection, state.number)
        pending = pending.only(_contained(pending.numbers, records.numbers))
        indexed = records.numbers[: np.searchsorted(records.numbers, state.number, side="right")]
        query, reach = vector.astype(np.float64), depth
        while True:
            count = CANDIDATES * reach + MORE_CANDIDATES
            near, rest = self._fetch(connection, self._nearest(state, indexed, vector, count)), pending
            if len(rest.numbers) > max(count, SCAN_UP_TO):
                rest = rest.only(np.argpartition(-(rest.matrix @ vector), count)[:count])
            # In double precision, so that a record's score does not depend on the other rows of the matrix.
            scores = [part.matrix.astype(np.float64) @ query for part in (near, rest)]
            numbers = np.concatenate([near.numbers, rest.numbers])
            rows, cosines = records.scored(numbers, np.concatenate(scores))
            matches = best(self._database, view, view.find(rows), cosines, depth, digits=6)
            incomplete = len(scores[0]) < len(indexed), len(scores[1]) < len(pending.numbers)
            floors = [part.min() for part, more in zip(scores, incomplete, strict=True) if more]
            # Records that tie for the last place must all be candidates: their age and id decide which is returned.
            if not floors or (len(matches.entries) == depth and max(floors) < matches.scores[-1] - 2 * MARGIN):
                return matches
            reach *= 4

    def _record_numbers(self, connection: Connection) -> NDArray[np.int64]:
        """The vector number of each record in this snapshot.

        Records with the same text share a vector, and a record that is moved, tagged or superseded keeps it. A returned
        array is never changed.
        """
        with self._lock:
            table = TableState.load(connection, self._number).table
            if table != self._table:  # a new one is begun when all vectors of the space are deleted
                self._table, self._read_to = table, (-1, -1)
            (seq, number), state = self._read_to, state_of(connection)
            if seq > state.seq or number > state.number:  # another thread has read a later snapshot
                return self._updated(connection, -1, -1)
            if (seq, number) != (state.seq, state.number):
                self._numbers = self._updated(connection, seq, number)
                self._read_to = (state.seq, state.number)
            return self._numbers

    def _updated(self, connection: Connection, seq: int, number: int) -> NDArray[np.int64]:
        size = int(connection.execute("SELECT ifnull(max(row), 0) FROM records").get) + 1
        numbers = np.full(max(size, len(self._numbers)), GONE, dtype=np.int64)
        only, values = "", tuple[str, ...]()
        if seq >= 0:
            rows = changed_rows(connection, self._number, seq, number).tolist()
            numbers[: len(self._numbers)] = self._numbers
            numbers[rows] = GONE
            only, values = " AND row IN (SELECT value FROM json_each(?))", (json.dumps(rows),)
        live = connection.execute(f"SELECT group_concat(row) FROM records WHERE forgotten_at IS NULL{only}", values).get
        numbers[integers(live)] = WITHOUT
        pairs = connection.execute(
            "SELECT group_concat(row), group_concat(number) FROM records JOIN embeddings USING (passage)"
            f" WHERE space = ? AND forgotten_at IS NULL{only}",
            (self._number, *values),
        ).get
        record_rows, vector_numbers = map(integers, pairs)
        numbers[record_rows] = vector_numbers
        return numbers

    def _visible_vectors(self, visible: Visible, numbers: NDArray[np.int64]) -> VisibleVectors:
        """The visible records that have a vector; a few sets are cached."""
        key = (id(visible), id(numbers))  # the cache holds both objects, so their ids are not reused
        with self._lock:
            if key not in self._sets:
                mask = visible.by_row
                rows = np.flatnonzero(mask & (numbers[: len(mask)] > WITHOUT))
                rows = rows[np.argsort(numbers[rows], kind="stable")]
                of = numbers[rows]
                if len(self._sets) == CACHED_SETS:
                    self._sets.pop(next(iter(self._sets)))
                self._sets[key] = visible, numbers, VisibleVectors(rows, of, of[np.flatnonzero(np.diff(of, prepend=0))])
            return self._sets[key][2]

    def _pending_vectors(self, connection: Connection, indexed_to: int) -> NumberedVectors:
        """The vectors that LanceDB does not have yet, read again when some were added; perhaps also purged ones."""
        bounds = (indexed_to, state_of(connection).number)
        cached = self._pending
        if cached[0] != bounds:
            vectors = NumberedVectors.above(connection, self._number, self._space.dimension, indexed_to)
            cached = self._pending = (bounds, vectors)
        return cached[1]

    def _nearest(self, state: TableState, indexed: NDArray[np.int64], vector: Vector, count: int) -> NDArray[np.int64]:
        """The nearest `count` of the visible numbers, in LanceDB's order.

        LanceDB does not know which vectors are visible, so it is asked for more, in proportion to the visible share.
        If it would have to return as many as are visible, all of these are compared instead.
        """
        if len(indexed) <= max(SCAN_UP_TO, count):
            return indexed
        table = self.updater.table(state)
        total = table.rows(state.version)
        limit = math.ceil(OVERSAMPLING * count * total / len(indexed))
        if limit >= len(indexed):
            return indexed
        while True:
            exact = 4 * limit >= total
            near = table.nearest(vector, total if exact else limit, state.version, exact=exact)
            visible = near[_contained(near, indexed)]
            if len(visible) >= count:
                return visible[:count]
            if exact:
                raise TableLost  # it has fewer vectors than the file says
            limit *= 4

    def _fetch(self, connection: Connection, numbers: NDArray[np.int64]) -> NumberedVectors:
        """Vectors from the file."""
        condition, values = "number IN (SELECT value FROM json_each(?))", (json.dumps(numbers.tolist()),)
        return NumberedVectors.read(connection, self._space.dimension, condition, values)


class VisibleVectors(NamedTuple):
    """Visible records ordered by vector number: `rows[i]` has the vector `of[i]`; `numbers` has each vector once."""

    rows: NDArray[np.int64]
    of: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def scored(
        self, numbers: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All records that have one of these vectors, with the vector's score."""
        first, end = np.searchsorted(self.of, numbers), np.searchsorted(self.of, numbers, side="right")
        count = end - first
        positions = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        return self.rows[positions], np.repeat(scores, count)


def _contained(numbers: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each number whether it is in `among`, which is ascending."""
    return np.searchsorted(among, numbers, side="right") > np.searchsorted(among, numbers)
