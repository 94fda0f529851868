"""The vector index: the cosine over the visible records. A scan in eight bits finds those that may be nearest.

Below 200,000 visible vectors the nearest are found exactly, above them nearly always (decision 042). Vectors follow the
file as the segments do: those of files first, and in blocks in memory what was added after them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from recollect.dataclass import dataclass
from recollect.stores.database import SqlSpaces, SqlVectors
from recollect.stores.rows import check_dimension, passage_hash
from recollect.stores.sqlite.arrays import score_threshold
from recollect.stores.sqlite.blocks import Block, Matrix, Products, Scan, Stack, block_of, joined, learned_axes
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.index import (
    COLD_ROWS,
    SCRUB_WAIT_S,
    Index,
    condition_of,
    raise_epoch,
    rows_after,
    state_of,
)
from recollect.stores.sqlite.manifest import WRITTEN_ROWS, due
from recollect.stores.sqlite.records import SAVE_VECTOR
from recollect.stores.sqlite.rows import Connection, integers
from recollect.stores.sqlite.segments import Ints, Mask
from recollect.stores.sqlite.views import View
from recollect.stores.sqlite.visible import Scores, Visible, best
from recollect.types import Filter, RankedList, Vector, VectorSpace

BATCH_ROWS = 16_384  # vectors that are read at once: 25 MB with 384 dimensions
LARGEST_ROWS = 65_536  # vectors of a file that is not merged any more: 126 MB with 384 dimensions

DIGITS = 6  # of a cosine: records whose cosines differ less tie
FEW = 2_000  # visible vectors of which all are compared exactly
ALL_BELOW = 4  # times as many vectors as are wanted of which all are compared exactly
SPARING_FROM = 200_000  # vectors of a store from which exact ones are read, not mapped: 300 MB with 384 dimensions
MANY = 200_000  # visible vectors from which only those that are likely to be near are compared
LIKELY, LIKELY_SHARE = 50, 0.01  # times as many as are wanted, at least this share: those whose heads are nearest
GATHER_BELOW = 0.1  # the share of visible vectors below which copying them is faster than scanning all


class SqliteSpaces(SqlSpaces):
    """The vector spaces of one file."""

    _database: Database

    def __init__(self, database: Database, index: Index) -> None:
        super().__init__(database)
        self.index = index

    def _index(self, space: VectorSpace, number: int) -> SqliteVectors:
        return SqliteVectors(self._database, self.index, space, number)

    def _create(self, connection: Connection, space: VectorSpace) -> int:
        insert = "INSERT OR IGNORE INTO spaces (fingerprint, embedder, dimension) VALUES (?, ?, ?)"
        connection.execute(insert, (space.fingerprint, space.embedder, space.dimension))
        return int(connection.execute("SELECT space FROM spaces WHERE fingerprint = ?", (space.fingerprint,)).get)

    def _cleared(self, connection: Connection, number: int) -> None:  # noqa: ARG002
        # Nothing in the history says that vectors were deleted, and files of the index still hold them.
        raise_epoch(connection)

    def all(self) -> list[Any]:
        """The indexes of all spaces."""
        return [self.open(space) for space in self.stored()]


class SqliteVectors(SqlVectors):
    """Search by vector in one space of one SQLite store."""

    _database: Database
    save_batch = 512  # a few milliseconds, so that others hardly wait

    def __init__(self, database: Database, index: Index, space: VectorSpace, number: int) -> None:
        super().__init__(database, space, number)
        self._index = index
        self._lock = threading.RLock()
        self._epoch = ""
        self._stack: Stack | None = None
        self._cached: WeakKeyDictionary[Block, tuple[object, Any]] = WeakKeyDictionary()

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        check_dimension(vector, self._space.dimension)
        with self._database.read() as connection:
            visible, stack, wanted = self._index.visible(connection, where), self._follow(connection), depth
            # Vectors that are not mapped are read one by one, so as few as possible are compared exactly.
            few = FEW if stack.count < SPARING_FROM else 0
            parts = _Parts(Scan(vector), [part for part in self._parts(stack, visible) if part.count], few)
            while True:
                positions, cosines = parts.best(wanted)
                matches = best(self._database, visible.view, positions, cosines, depth, digits=DIGITS)
                if len(matches.entries) >= depth or len(positions) == parts.count:
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
                covered = self._follow(connection).count
                return covered, max(0, self._index.view(connection).count - covered)
            rows, without = self._covered(connection, where)
        return len(rows), len(without)

    def _covered(self, connection: Connection, where: Filter | None) -> tuple[Ints, Ints]:
        """The rows (that the filter admits) with a vector, and those without one."""
        view = self._index.view(connection)
        visible = Visible(view, view.mask) if where is None else self._index.visible(connection, where)
        has = np.zeros(view.total, dtype=np.bool_)
        for part in self._parts(self._follow(connection), visible):
            has[part.positions()] = True
        return np.sort(view.rows[has]), np.sort(view.rows[~has if visible.mask is None else visible.mask & ~has])

    def known(self, passages: Sequence[str]) -> set[str]:
        hashes = {passage_hash(passage): passage for passage in passages}
        with self._database.read() as connection:
            find = "SELECT passage FROM embeddings WHERE space = ? AND passage = ?"
            return {passage for key, passage in hashes.items() if connection.execute(find, (self._number, key)).get}

    def _save(self, pairs: Sequence[tuple[bytes, bytes]], *, ahead: bool) -> None:
        with self._database.write() as connection:
            connection.executemany(SAVE_VECTOR, [(self._number, *pair, ahead) for pair in pairs])

    def scrub(self) -> bool:
        """Rewrite the files that hold vectors of records that were changed or forgotten; whether that worked."""
        with self._database.read() as connection, self._lock:
            if not self._index.has_files(self._number):
                return True
            self._stack = stack = self._written(connection, self._follow(connection), scrub=True)
            files = self._index.files_of(connection, self._number)
            return files is not None and files.blocks == stack.blocks and all(mask is None for mask in stack.live)

    # -- following the file -------------------------------------------------------------------------------

    def _follow(self, connection: Connection) -> Stack:
        """The vectors of a snapshot, or of a later one that another thread has read."""
        state = state_of(connection)
        with self._lock:
            if self._stack is None or self._epoch != state.epoch:
                self._stack, self._epoch = self._from_files(connection), state.epoch
            stack = self._stack
            if stack.seq < state.seq or stack.number < state.number:
                rows = changed_rows(connection, self._number, stack.seq, stack.number)
                if len(rows) >= COLD_ROWS or stack.unwritten + len(rows) >= WRITTEN_ROWS:
                    stack = self._written(connection, stack)
                else:
                    stack = self._read(connection, stack, rows)
                self._stack = stack
            return stack

    def _from_files(self, connection: Connection) -> Stack:
        files, stack = self._index.files_of(connection, self._number), Stack()
        for block in files.blocks if files else ():
            stack = stack.plus(block)
        return replace(stack, seq=files.seq, number=files.number, based=files.seq) if files else stack

    def _read(
        self, connection: Connection, stack: Stack, rows: Ints, write: Callable[[Block], Block] = lambda block: block
    ) -> Stack:
        """The stack with the vectors of rows as they are now; large blocks are written at once."""
        state, many = state_of(connection), stack.count + len(rows) >= MANY
        for start in range(0, len(rows), BATCH_ROWS):
            part = rows[start : start + BATCH_ROWS]
            only, values = condition_of(part)
            pairs: Any = connection.execute(  # CROSS JOIN: in the other order, SQLite would read every vector
                "SELECT row, vector FROM records CROSS JOIN embeddings ON embeddings.passage = records.passage"
                f" WHERE space = ? AND forgotten_at IS NULL AND {only} ORDER BY row",
                (self._number, *values),
            ).fetchall()
            found = np.array([row for row, _ in pairs], dtype=np.int64)
            gone = np.setdiff1d(part, found) if stack.blocks else found[:0]
            vectors = joined((vector for _, vector in pairs), self._space.dimension)
            axes = learned_axes(vectors, stack.blocks) if many else None
            block = block_of(found, vectors, gone, axes)
            stack = stack.plus(write(block) if len(block) >= WRITTEN_ROWS else block).condensed()
        return replace(stack, seq=state.seq, number=state.number)

    def _written(self, connection: Connection, stack: Stack, *, scrub: bool = False) -> Stack:
        """The vectors of a snapshot in files, or in memory where no file can be written now."""
        folder, state = self._index.folder, state_of(connection)
        with self._index.settled(connection, SCRUB_WAIT_S if scrub else 0.0) as settled, self._index.tolerated():
            files = self._from_files(connection)
            other = [block.file for block in files.blocks] != [block.file for block in stack.blocks if block.file]
            if other and (settled or files.seq > stack.based):
                stack = files  # another process has written
            if settled:
                rows = changed_rows(connection, self._number, stack.seq, stack.number)
                new = self._read(connection, stack, rows, folder.write)
                while span := due(new.blocks, new.live, largest=LARGEST_ROWS, scrub=scrub):
                    new = new.with_merged(*span, folder.write)
                new = replace(new, based=state.seq)
                self._index.publish(connection, self._number, new)
                return new
        return self._read(connection, stack, changed_rows(connection, self._number, stack.seq, stack.number))

    def _parts(self, stack: Stack, visible: Visible) -> Iterator[_Chosen]:
        """The vectors of visible records, block by block."""
        sparing = stack.count >= SPARING_FROM
        for block, live in zip(stack.blocks, stack.live, strict=True):
            positions = self._positions_of(block, stack, visible.view)
            chosen = live
            if visible.mask is not None and isinstance(positions, slice):
                first, end = visible.positions.searchsorted((positions.start, positions.stop))
                places = visible.positions[first:end] - positions.start
                yield _Chosen(block, positions, places if live is None else places[live[places]], sparing)
                continue
            if visible.mask is not None:
                admitted = visible.mask[positions]
                chosen = admitted if live is None else admitted & live
            if not isinstance(positions, slice) and len(positions) and int(positions.min()) < 0:
                chosen = positions >= 0 if chosen is None else chosen & (positions >= 0)
            yield _Chosen(block, positions, None if chosen is None else np.flatnonzero(chosen), sparing)

    def _positions_of(self, block: Block, stack: Stack, view: View) -> Any:
        """The position of each vector's record in a view, as a slice where they follow each other.

        Those of files stay the same while more is added in memory.
        """
        in_files = bool(block.file) and view.based >= stack.based
        key = view.files if in_files else (view.serial,)
        known = self._cached.get(block)
        if known is not None and known[0] == key:
            return known[1]
        positions: Any = view.find_in_files(block.rows) if in_files else view.find(block.rows)
        if len(positions) and positions[0] >= 0 and bool((np.diff(positions) == 1).all()):
            positions = slice(int(positions[0]), int(positions[0]) + len(positions))
        self._cached[block] = key, positions
        return positions


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Some vectors of a block; None for all of them."""

    block: Block
    where: Any
    places: Ints | None
    sparing: bool

    @property
    def count(self) -> int:
        return len(self.block) if self.places is None else len(self.places)

    @property
    def is_dense(self) -> bool:
        """Whether these are some, and not few, of the block's vectors."""
        return self.places is not None and len(self.places) >= GATHER_BELOW * len(self.block)

    def at(self, places: Ints) -> _Chosen:
        """Some of these."""
        return _Chosen(self.block, self.where, places if self.places is None else self.places[places], self.sparing)

    def positions(self) -> Ints:
        """The positions of their records in the view."""
        if isinstance(self.where, slice):
            places = np.arange(len(self.block)) if self.places is None else self.places
            return places + int(self.where.start)
        positions: Ints = self.where if self.places is None else self.where[self.places]
        return positions

    def vectors(self) -> Matrix:
        return self.block.vectors(self.places, sparing=self.sparing)


class _Parts:
    """The visible vectors, block by block, and how near they are. A number counts them through."""

    def __init__(self, scan: Scan, parts: Sequence[_Chosen], few: int) -> None:
        self._scan, self._parts, self._few = scan, parts, few
        self._starts = np.cumsum([0, *(part.count for part in parts)])
        self.count = int(self._starts[-1])

    def best(self, wanted: int) -> tuple[Ints, Scores]:
        """The positions and cosines of at least the `wanted` nearest, and of all that tie with the last of them."""
        if self.count <= max(self._few, ALL_BELOW * wanted):
            return self._exactly(self._parts)
        numbers, products = self._likely(wanted) if self.count >= MANY else (None, self._rough)
        # As many as are wanted reach the lowest of these cosines, so what cannot reach it is not among them.
        first = score_threshold(products, wanted)
        positions, cosines = self._exactly(self._at(products >= first, numbers))
        lowest = np.sort(cosines)[-wanted]
        edge = lowest - 10.0**-DIGITS - max(self._scan.bound(part.block) for part in self._parts)
        if numbers is not None:  # what is left is hardly ever nearer, and each is read from the disk
            edge = max(edge, score_threshold(products, 2 * wanted))
        more = self._exactly(self._at((products >= edge) & (products < first), numbers))
        positions, cosines = np.concatenate([positions, more[0]]), np.concatenate([cosines, more[1]])
        # Below the edge only some were found. They must not take the places that duplicates leave.
        whole = cosines.round(DIGITS) >= lowest.round(DIGITS)
        return positions[whole], cosines[whole]

    @cached_property
    def _rough(self) -> Products:
        return self._products(heads=False)

    def _likely(self, wanted: int) -> tuple[Ints, Products]:
        """Of very many vectors those whose heads are nearest: their numbers, and their products in eight bits."""
        heads = self._products(heads=True)
        likely = min(self.count, max(LIKELY * wanted, int(LIKELY_SHARE * self.count)))
        numbers = np.flatnonzero(heads >= score_threshold(heads, likely))
        products, start = heads[numbers], 0
        for part in self._at(None, numbers):
            self._scan.add_tails(part.block, part.places, products[start : start + part.count])
            start += part.count
        return numbers, products

    def _products(self, *, heads: bool) -> Products:
        """The products of all in eight bits, or those of their heads."""
        # Copying a few vectors of a block is faster than scanning all of it.
        few = [(part.block, None if part.is_dense else part.places) for part in self._parts]
        products = self._scan.rough(few, heads=heads)
        if not any(part.is_dense for part in self._parts):
            return products
        ends = np.cumsum([len(part.block) if part.is_dense else part.count for part in self._parts])
        split = zip(self._parts, np.split(products, ends[:-1]), strict=True)
        return np.concatenate([each[part.places] if part.is_dense else each for part, each in split])

    def _at(self, chosen: Mask | None, numbers: Ints | None) -> list[_Chosen]:
        """The chosen ones of the vectors with some numbers, rising; None stands for all."""
        if chosen is not None:
            numbers = np.flatnonzero(chosen) if numbers is None else numbers[chosen]
        elif numbers is None:
            return list(self._parts)
        bounds = numbers.searchsorted(self._starts).tolist()
        return [
            part.at(numbers[first:end] - start)
            for part, start, first, end in zip(self._parts, self._starts, bounds, bounds[1:], strict=False)
            if first < end
        ]

    def _exactly(self, parts: Sequence[_Chosen]) -> tuple[Ints, Scores]:
        """The positions of vectors, and their exact products."""
        if not parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        vectors = np.concatenate([part.vectors() for part in parts])
        return np.concatenate([part.positions() for part in parts]), self._scan.exactly(vectors)


def changed_rows(connection: Connection, space: int, seq: int, number: int) -> Ints:
    """Rows of records that changed after an event, and of records whose vectors were added after a number; rising."""
    parts = [rows_after(connection, seq)]
    if seq:
        added = "SELECT group_concat(row) FROM embeddings JOIN records USING (passage) WHERE number > ? AND +space = ?"
        parts.append(integers(connection.execute(added, (number, space)).get))
    rows = np.sort(np.concatenate(parts))
    return rows[np.diff(rows, prepend=-1) > 0]  # np.unique imports numpy.ma, which takes 10 ms
