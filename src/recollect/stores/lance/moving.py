"""All that a store holds, in and out: what the file has, and the vectors that it gave up to object storage."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import apsw
import numpy as np

from recollect.stores.lance.numbers import tables
from recollect.stores.lance.vectors import LanceVectors
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.moving import SqliteMoving, SqliteSnapshot
from recollect.types import Progress, VectorSpace
from recollect.types.moving import FIELDS, Part

if TYPE_CHECKING:
    from recollect.stores.lance.store import LanceSpaces

AT_ONCE = 2_000
_ORDER = {sort: place for place, sort in enumerate(FIELDS)}
_HELD = (
    "SELECT fingerprint, embedder, dimension, held.passage, held.number FROM spaces CROSS JOIN lance_held AS held"
    " USING (space) WHERE NOT EXISTS (SELECT 1 FROM embeddings WHERE embeddings.space = held.space"
    " AND embeddings.passage = held.passage)"
)

Row: TypeAlias = tuple[str, str, int, bytes, int]


class LanceMoving:
    """Moves what one store holds."""

    def __init__(self, kept: SqliteMoving, database: Database, spaces: LanceSpaces) -> None:
        self._kept = kept
        self._database = database
        self._spaces = spaces

    @property
    def identity(self) -> str:
        """That of the file."""
        return self._kept.identity

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[LanceSnapshot]:
        """What it holds now."""
        with self._database.read() as connection:
            yield LanceSnapshot(connection, SqliteSnapshot(connection), self._spaces.open)

    def held(self, parts: Sequence[Part]) -> list[Part | None]:
        """What has the keys of these parts."""
        found = self._kept.held(parts)
        if not parts or parts[0].sort != "vector":
            return found
        with self._database.read() as connection:
            elsewhere = LanceSnapshot(connection, SqliteSnapshot(connection), self._spaces.open).named(parts)
        return [there or elsewhere.get(part.key) for part, there in zip(parts, found, strict=True)]

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts in one transaction; what is there stays."""
        if parts and parts[0].sort == "vector":
            with self._database.read() as connection:
                there = _rows(connection, parts)
            parts = [part for part in parts if part.key not in {(row[0], row[3]) for row in there}]
        self._kept.load(parts, renumber=renumber)

    def settle(self, progress: Progress | None = None) -> None:
        """Bring the keyword index up to date, and hand LanceDB what waits."""
        self._kept.settle(progress)
        self._spaces.complete()


@dataclass(frozen=True, slots=True)
class LanceSnapshot:
    """Reads the file at one moment, and LanceDB by the numbers that it names."""

    connection: apsw.Connection
    kept: SqliteSnapshot
    open: Callable[[VectorSpace], LanceVectors]

    def counts(self) -> Mapping[str, int]:
        """How many parts of each sort."""
        counts = dict(self.kept.counts())
        if "lance_held" in tables(self.connection):
            counts["vector"] += int(self.connection.execute(f"SELECT count(*) FROM ({_HELD})").get)
        return counts

    def parts(self) -> Iterator[Part]:
        """All parts, by sort and rising key."""
        return heapq.merge(self.kept.parts(), self._elsewhere(), key=lambda part: (_ORDER[part.sort], part.key))

    def named(self, parts: Sequence[Part]) -> dict[tuple[Any, ...], Part]:
        """The vectors that are in LanceDB alone and have the keys of these parts."""
        return {part.key: part for part in self._fetched(_rows(self.connection, parts))}

    def _elsewhere(self) -> Iterator[Part]:
        """The vectors that are in LanceDB alone."""
        if "lance_held" in tables(self.connection):
            cursor: Any = self.connection.execute(f"{_HELD} ORDER BY fingerprint, held.passage")
            while rows := list(itertools.islice(cursor, AT_ONCE)):
                yield from self._fetched(rows)

    def _fetched(self, rows: Sequence[Row]) -> Iterator[Part]:
        for space in dict.fromkeys(VectorSpace(*row[:3]) for row in rows):
            mine = [row for row in rows if row[0] == space.fingerprint]
            numbers = np.array([number for *_, number in mine], dtype=np.int64)
            held = self.open(space).fetch(self.connection, numbers)
            vectors = dict(zip(held.numbers.tolist(), held.matrix, strict=True))
            for *_, passage, number in mine:
                yield Part("vector", (space.fingerprint, passage, vectors[number].astype("<f4").tobytes()))


def _rows(connection: apsw.Connection, parts: Sequence[Part]) -> list[Row]:
    """Of the vectors that are in LanceDB alone, those with the keys of parts."""
    if "lance_held" not in tables(connection):
        return []
    find = f"{_HELD} AND fingerprint = ? AND held.passage = ?"
    found: list[Any] = [connection.execute(find, part.key).fetchone() for part in parts]
    return [row for row in found if row is not None]
