"""Vectors at hand: those that wait in the file, few and compared one and all, and those that were fetched from afar."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from recollect.types import Matrix

KEPT_FROM_AFAR = 20_000
"""Vectors of object storage that are kept in memory: 30 MB at 384 numbers each."""


class Numbered(NamedTuple):
    """Vectors and their numbers."""

    numbers: NDArray[np.int64]
    matrix: Matrix

    def only(self, which: NDArray[Any]) -> Numbered:
        """Some of them, by mask or place."""
        return Numbered(self.numbers[which], self.matrix[which])

    def and_also(self, other: Numbered) -> Numbered:
        """These and those."""
        return Numbered(np.concatenate([self.numbers, other.numbers]), np.concatenate([self.matrix, other.matrix]))


@dataclass(frozen=True, slots=True)
class Table:
    """The vectors of one space in the file's own table."""

    space: int
    dimension: int

    def after(self, connection: apsw.Connection, number: int, limit: int = -1) -> Numbered:
        """Those above a number, rising."""
        return self.unpacked(
            connection.execute(
                "SELECT number, vector FROM embeddings WHERE number > ? AND +space = ? ORDER BY number LIMIT ?",
                (number, self.space, limit),  # the plus keeps SQLite from looking by space, of which there is one
            ).fetchall()
        )

    def unpacked(self, found: Sequence[Any]) -> Numbered:
        """What SQLite gave, as arrays."""
        flat = np.frombuffer(b"".join(vector for _, vector in found), dtype="<f4")
        numbers = np.array([number for number, _ in found], dtype=np.int64)
        return Numbered(numbers, flat.reshape(len(found), self.dimension))


class NearBy:
    """Vectors that were fetched from object storage, the last ones used: a number always means the same vector."""

    def __init__(self, table: Table) -> None:
        self._none = table.unpacked(())
        self._held: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, numbers: NDArray[np.int64]) -> tuple[Numbered, NDArray[np.int64]]:
        """Those that are at hand, and the numbers of those that are not."""
        with self._lock:
            here = [number for number in numbers.tolist() if number in self._held]
            for number in here:
                self._held.move_to_end(number)
            vectors = [self._held[number] for number in here]
        found = np.array(here, dtype=np.int64)
        return Numbered(found, np.stack(vectors)) if here else self._none, np.setdiff1d(numbers, found)

    def keep(self, vectors: Numbered) -> None:
        """Keep them, and let the oldest go."""
        with self._lock:
            self._held.update(zip(vectors.numbers.tolist(), map(np.copy, vectors.matrix), strict=True))
            while len(self._held) > KEPT_FROM_AFAR:
                self._held.popitem(last=False)


class Waiting:
    """The vectors of one space above the number that LanceDB has reached."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._held = table.unpacked(())
        self._reached = 0

    @property
    def count(self) -> int:
        """How many there were when they were last asked for."""
        return len(self._held.numbers)

    def at(self, connection: apsw.Connection, reached: int) -> Numbered:
        """Those of this connection's snapshot, and maybe more: some that were deleted, some that came later."""
        with self._lock:
            if reached < self._reached:  # an older snapshot than another thread has read already
                return self._table.after(connection, reached)
            if reached > self._reached:
                self._held, self._reached = self._held.only(self._held.numbers > reached), reached
            last = int(self._held.numbers[-1]) if len(self._held.numbers) else reached
            more = self._table.after(connection, last)
            if len(more.numbers):
                self._held = self._held.and_also(more)
            return self._held
