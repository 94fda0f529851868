"""The vector index: what may be seen is the file's word, what is near LanceDB's, and the cosines are exact.

A search sees what LanceDB has and what still waits in the file, in one snapshot of the file, so that a write is visible
to the next search in any process though commits to LanceDB are few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.errors import EmbedderError, StoreError
from recollect.stores.lance.filling import Filling
from recollect.stores.lance.numbers import GONE, WITHOUT, Numbers, tables
from recollect.stores.lance.seen import SeenSets, inside
from recollect.stores.lance.shelf import Lost
from recollect.stores.lance.state import State, state_of
from recollect.stores.lance.waiting import NearBy, Numbered, Waiting
from recollect.stores.rows import passage_hash
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import sequence
from recollect.stores.sqlite.top import best
from recollect.stores.sqlite.vectors import MARGIN, SqliteVectors
from recollect.stores.sqlite.visible import VisibleSets
from recollect.types import Filter, RankedList

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

FEW = 2_000
"""Visible vectors that are all compared, whatever LanceDB could say of them."""

TIMES, SPARE = 4, 200
"""Candidates: so many times what is wanted, and so many more. The index's own order is rough; theirs is exact."""

MORE = 1.2
"""What LanceDB is asked for, over what should do if near and far were seen alike."""

TRIES = 20
MANY_BATCHES = 4


class LanceVectors:
    """Search by vector in one space. `kept` is the file's own index, of which no matrix is ever made."""

    def __init__(self, database: Database, visible: VisibleSets, kept: SqliteVectors, filling: Filling) -> None:
        self.filling = filling
        self._database = database
        self._visible = visible
        self._kept = kept
        self._table = filling.table
        self._numbers = Numbers(self._table.space)
        self._seen = SeenSets()
        self._waiting = Waiting(self._table)
        self._near_by = NearBy(self._table)
        self._alone = False

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        """At most `depth` visible records by falling cosine."""
        if vector.shape != (self._table.dimension,):
            raise EmbedderError(
                f"the query's vector has {vector.shape[-1]} numbers, the store's have {self._table.dimension}",
                hint="the embedder answered for another model than the one it names",
            )
        for _ in range(TRIES):
            try:
                with self._database.read() as connection:
                    found = self._search(connection, vector, where, depth)
                if found is not None:
                    self._hand_on()
                    return found
            except Lost:
                self._make_good()
        raise StoreError(
            f"LanceDB does not keep what it is given at {self.filling.place.dataset}", hint="check the disk it is on"
        )

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of these records, where there are any."""
        with self._database.read() as connection:
            found: Any = connection.execute(
                "SELECT id, row FROM records WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
            )
            numbers, _ = self._numbers.at(connection, sequence(connection))
            named: dict[str, int] = {key: int(numbers[row]) for key, row in found if numbers[row] > WITHOUT}
            held = self.fetch(connection, np.unique(list(named.values())))
        place = {int(number): at for at, number in enumerate(held.numbers)}
        return {key: held.matrix[place[number]] for key, number in named.items()}

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        """Passages (of the records that the filter lets through) that have no vector yet."""
        with self._database.read() as connection:
            rows = np.flatnonzero(self._shown(connection, where) == WITHOUT)[:limit]
            found: Any = connection.execute(
                "SELECT DISTINCT iif(title = '', text, title || char(10) || text) FROM records"
                " WHERE row IN (SELECT value FROM json_each(?)) AND forgotten_at IS NULL",
                (json.dumps(rows.tolist()),),
            )
            return [passage for (passage,) in found]

    def known(self, passages: Sequence[str]) -> set[str]:
        """Those of the passages whose vectors are kept already."""
        known = self._kept.known(passages)
        hashes = {passage_hash(passage): passage for passage in passages if passage not in known}
        with self._database.read() as connection:
            if "lance_held" not in tables(connection):
                return known
            find = "SELECT 1 FROM lance_held WHERE passage = ? AND space = ?"
            held = {
                passage for key, passage in hashes.items() if connection.execute(find, (key, self._table.space)).get
            }
        return known | held

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        """How many records (that the filter lets through) have a vector, and how many have none."""
        with self._database.read() as connection:
            numbers = self._shown(connection, where)
        return int((numbers > WITHOUT).sum()), int((numbers == WITHOUT).sum())

    def save(self, passages: Sequence[str], vectors: Matrix) -> None:
        """Keep the vectors of passages in the file, and hand them on when there are many."""
        self._kept.save(passages, vectors)
        self.filling.if_due()

    def fetch(self, connection: apsw.Connection, numbers: NDArray[np.int64]) -> Numbered:
        """The vectors that have these numbers in a snapshot of the file."""
        return self._fetch(connection, self._state(connection), numbers)

    def _shown(self, connection: apsw.Connection, where: Filter | None) -> NDArray[np.int64]:
        """The number of each row that the filter lets through."""
        last = sequence(connection)
        numbers, _ = self._numbers.at(connection, last)
        if where is None:
            return numbers
        mask = self._visible.get(connection, where, last).mask
        return np.where(mask, numbers[: len(mask)], GONE)

    def _hand_on(self) -> None:
        """What was left in great numbers, by a copy or a process that died, is committed by who has to read it."""
        if self._waiting.count >= MANY_BATCHES * self.filling.place.batch and not self._database.read_only:
            self.filling.if_due()

    def _make_good(self) -> None:
        """What LanceDB has lost is made again; who may only read does without it, where the file has the vectors."""
        if not self._database.read_only:
            self.filling.restore()
        elif self.filling.place.remote:
            raise StoreError(
                f"the vectors at {self.filling.place.dataset} are not those that {self._database.path} speaks of",
                hint="take a newer copy of the file",
            )
        else:
            self._alone = True

    def _state(self, connection: apsw.Connection) -> State:
        return State() if self._alone else state_of(connection, self._table.space)

    def _search(self, connection: apsw.Connection, vector: Vector, where: Filter, depth: int) -> RankedList | None:
        """The answer; None where another thread has read further than this snapshot, so that a new one is needed."""
        last = sequence(connection)
        visible = self._visible.get(connection, where, last)
        numbers, ahead = self._numbers.at(connection, last)
        if ahead:
            return None
        seen = self._seen.get(visible, numbers)
        query, wanted = vector.astype(np.float64), depth
        while True:
            parts = self._candidates(connection, seen.numbers, vector, self._enough(wanted))
            found = parts[0].vectors.and_also(parts[1].vectors)
            matches = best(connection, *seen.scored(found.numbers, _cosines(found.matrix, query)), depth)
            if all(part.whole for part in parts):
                return matches
            # Those that tie at the edge must all be here: which of them is shown is a matter of age and id.
            floor = max(_cosines(part.vectors.matrix, query).min() for part in parts if not part.whole)
            if len(matches.entries) == depth and floor < matches.scores[-1] - MARGIN:
                return matches
            wanted *= 4

    def _enough(self, wanted: int) -> int:
        """How many candidates. From afar each is a request: there the index has more bits, and fewer are read."""
        return wanted + SPARE // 2 if self.filling.place.remote else TIMES * wanted + SPARE

    def _candidates(
        self, connection: apsw.Connection, seen: NDArray[np.int64], vector: Vector, count: int
    ) -> tuple[_Part, _Part]:
        """About the `count` nearest of what may be seen, in the file and in LanceDB; all where they are few."""
        state = self._state(connection)
        later = self._waiting.at(connection, state.number)
        later = later.only(inside(later.numbers, seen))
        cut = len(later.numbers) > max(count, FEW)
        if cut:
            later = later.only(np.argpartition(-(later.matrix @ vector), count)[:count])
        held = seen[: np.searchsorted(seen, state.number, side="right")]
        near = self._near(state, held, vector, count)
        return _Part(later, not cut), _Part(self._fetch(connection, state, near), len(near) == len(held))

    def _near(self, state: State, held: NDArray[np.int64], vector: Vector, count: int) -> NDArray[np.int64]:
        """The nearest `count` of `held` by LanceDB's order. It does not know who may see what, so it is asked for more.

        How many more follows from the share that may be seen; where that is so small that it would have to name as
        many as there are to compare, they are all compared.
        """
        if len(held) <= max(FEW, count):
            return held
        shelf = self.filling.shelf(state)
        total = shelf.rows(state.version)
        asked = math.ceil(MORE * count * total / len(held))
        if asked >= len(held):
            return held
        while True:
            exact = 4 * asked >= total
            near = shelf.nearest(vector, total if exact else asked, state.version, exact=exact)
            theirs = near[inside(near, held)]
            if len(theirs) >= count:
                return theirs[:count]
            if exact:
                raise Lost  # it has fewer than the file says
            asked *= 4

    def _fetch(self, connection: apsw.Connection, state: State, numbers: NDArray[np.int64]) -> Numbered:
        """Vectors by number: from the file as far as it has them, else from LanceDB."""
        here = self._table.unpacked(
            connection.execute(
                "SELECT number, vector FROM embeddings WHERE number IN (SELECT value FROM json_each(?))",
                (json.dumps(numbers.tolist()),),
            ).fetchall()
        )
        missing = np.setdiff1d(numbers, here.numbers)
        if not len(missing):
            return here
        near, far = self._near_by.take(missing)
        if len(far):
            fetched = self.filling.shelf(state).fetch(far, state.version)
            if len(fetched.numbers) < len(far):
                raise Lost
            self._near_by.keep(fetched)
            near = near.and_also(fetched)
        return here.and_also(near)


class _Part(NamedTuple):
    """Candidates of one kind, and whether these are all there are."""

    vectors: Numbered
    whole: bool


def _cosines(matrix: Matrix, query: NDArray[np.float64]) -> NDArray[np.float64]:
    """In double precision: a record's cosine must not depend on what stands beside it."""
    scores: NDArray[np.float64] = (matrix.astype(np.float64) @ query).round(6)
    return scores
