"""Layers: segments or blocks that together describe one moment of the history. Views: those of segments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from recollect.dataclass import dataclass
from recollect.ranking import Statement
from recollect.stores.database import KIND_NUMBERS
from recollect.stores.sqlite.arrays import Array
from recollect.stores.sqlite.segments import Ints, Mask, RowArrays, Segment, merged, without

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAIL_FACTOR = 4  # a segment or block in memory is this many times as large as the next, or they are merged
TAIL_ROWS = 32_768  # rows of the largest one that is merged in memory

P = TypeVar("P", bound=RowArrays)

_serials = itertools.count(1)


@dataclass(frozen=True, eq=False)
class Layers(Generic[P]):
    """Segments, or blocks, of all changes up to `seq`, oldest first.

    `live[i]` is None where every row of part i is live. A row is live in one part at most: the newest.
    """

    parts: tuple[P, ...] = ()
    live: tuple[Mask | None, ...] = ()
    seq: int = 0
    based: int = 0
    """The change up to which files go."""

    merge: ClassVar[Callable[..., Any]]
    """Makes one part of adjacent ones, as `segments.merged` does."""

    @cached_property
    def count(self) -> int:
        """The number of live rows."""
        return sum(
            len(each) if mask is None else int(np.count_nonzero(mask))
            for each, mask in zip(self.parts, self.live, strict=True)
        )

    @property
    def unwritten(self) -> int:
        """How many rows are in memory only."""
        return sum(len(each) + len(each.gone) for each in self.parts if not each.file)

    def plus(self, part: P) -> Self:
        """These with one more part, whose rows replace those of the others."""
        changed = np.concatenate([part.rows, part.gone])
        if not len(changed):
            return self
        live = [without(each, mask, changed) for each, mask in zip(self.parts, self.live, strict=True)]
        return replace(self, parts=(*self.parts, part), live=(*live, None))

    def condensed(self) -> Self:
        """These with fewer parts in memory: each much larger than the next."""
        layers = self
        while len(layers.parts) > 1 and not layers.parts[-2].file and not layers.parts[-1].file:
            before, last = (len(each) + len(each.gone) for each in layers.parts[-2:])
            if before >= TAIL_FACTOR * last or before + last > TAIL_ROWS:
                break
            end = len(layers.parts)
            layers = layers.with_merged(end - 2, end, lambda part: part)
        return layers

    def with_merged(self, start: int, end: int, write: Callable[[P], P]) -> Self:
        """These with some adjacent parts as one, without what is not live."""
        part = self.merge(self.parts[start:end], self.live[start:end], first=start == 0)
        new = [write(part)] if len(part) + len(part.gone) else []
        return replace(
            self,
            parts=(*self.parts[:start], *new, *self.parts[end:]),
            live=(*self.live[:start], *(None for _ in new), *self.live[end:]),
        )


@dataclass(frozen=True, eq=False)
class View(Layers[Segment]):
    """The rows of all segments one after the other, oldest first; a position is a number in this sequence."""

    serial: int = field(init=False, default_factory=partial(next, _serials))

    merge = staticmethod(merged)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.parts

    @cached_property
    def starts(self) -> Ints:
        """The first position of each segment, and the number of positions."""
        return np.concatenate([[0], np.cumsum([len(each) for each in self.segments], dtype=np.int64)])

    @property
    def total(self) -> int:
        """The number of positions."""
        return int(self.starts[-1])

    @cached_property
    def mask(self) -> Mask | None:
        """The live positions; None where all are."""
        if all(mask is None for mask in self.live):
            return None
        masks = zip(self.segments, self.live, strict=True)
        return np.concatenate([np.ones(len(each), dtype=np.bool_) if mask is None else mask for each, mask in masks])

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The length of each record in words."""
        return self._joined("length")  # type: ignore[no-any-return]

    @cached_property
    def kinds(self) -> NDArray[np.uint8] | None:
        """The number of the kind of each record; None where all are of one kind."""
        if len({tuple(each.names["kind"]) for each in self.segments}) == 1 == len(self.segments[0].names["kind"]):
            return None
        tables = [np.array([0, *map(KIND_NUMBERS.__getitem__, each.names["kind"])], np.uint8) for each in self.segments]
        return np.concatenate([table[each.kind] for table, each in zip(tables, self.segments, strict=True)])

    @cached_property
    def rows(self) -> Ints:
        """The row at each position."""
        return self._joined("rows")  # type: ignore[no-any-return]

    def _joined(self, column: str) -> Any:
        parts = [getattr(each, column) for each in self.segments]
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def split(self, positions: Array) -> list[tuple[Segment, Any, Array]]:
        """For each segment with some of the positions: which of them, and their places in it."""
        if len(self.segments) == 1:
            return [(self.segments[0], slice(None), positions)]
        of = self.starts.searchsorted(positions, side="right") - 1
        parts = []
        for number, start in enumerate(self.starts[:-1].tolist()):
            if len(chosen := (of == number).nonzero()[0]):
                parts.append((self.segments[number], chosen, positions[chosen] - start))
        return parts

    def gather(self, column: str, positions: Array) -> Any:
        """The values of a column at some positions."""
        parts = [(chosen, getattr(segment, column)[places]) for segment, chosen, places in self.split(positions)]
        if len(parts) == 1:
            return parts[0][1]
        values = np.empty(len(positions), dtype=np.int64)
        for chosen, part in parts:
            values[chosen] = part
        return values

    def times(self, positions: Array) -> Ints:
        """The time of each record."""
        return self.gather("time", positions)  # type: ignore[no-any-return]

    def rows_of(self, positions: Array) -> Ints:
        """The row of each record."""
        return self.gather("rows", positions)  # type: ignore[no-any-return]

    def columns(self, positions: Array) -> list[list[Any]]:
        """The row, text hash, time, importance, decay class, file (None for a fact) and line of each record."""
        count = len(positions)
        rows, times = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        importances, decays = np.empty(count), np.empty(count, dtype=object)
        folds, files = np.empty((count, 16), dtype=np.uint8), np.empty(count, dtype=np.uint64)
        lines = np.empty(count, dtype=np.int64)
        for segment, chosen, places in self.split(positions):
            rows[chosen], times[chosen] = segment.rows[places], segment.time[places]
            importances[chosen], folds[chosen] = segment.importance[places], segment.fold[places]
            files[chosen], lines[chosen] = segment.file_hash[places], segment.line[places]
            if segment.names["decay"]:
                decays[chosen] = np.array([None, *segment.names["decay"]], dtype=object)[segment.decay[places]]
        joined = folds.tobytes()
        hashes = [joined[start : start + 16] for start in range(0, len(joined), 16)]
        of_files = [file or None for file in files.tolist()]
        return [rows.tolist(), hashes, times.tolist(), importances.tolist(), decays.tolist(), of_files, lines.tolist()]

    def find(self, rows: Ints) -> Ints:
        """The position of the live copy of each row; -1 where there is none."""
        positions = np.full(len(rows), -1, dtype=np.int64)
        for start, _, places, here in self._places(rows):
            positions[here] = places + start
        return positions

    def _places(self, rows: Ints) -> Iterator[tuple[int, Segment, Ints, Ints]]:
        """For each segment its first position, the places of the live copies that it has, and of which rows."""
        for start, segment, live in zip(self.starts.tolist(), self.segments, self.live, strict=False):
            places, here = segment.find(rows)
            if live is not None and len(live):
                here &= live[places]
            yield start, segment, places[here], here.nonzero()[0]

    @cached_property
    def files(self) -> tuple[Segment, ...]:
        """The first segments, as far as they are in files."""
        return tuple(itertools.takewhile(lambda segment: segment.file, self.segments))

    def find_in_files(self, rows: Ints) -> Ints:
        """The position of the newest copy of each row in files, live or not; -1 where there is none."""
        positions = np.full(len(rows), -1, dtype=np.int64)
        for start, segment in zip(self.starts, self.files, strict=False):
            places, here = segment.find(rows)
            positions[here] = places[here] + start
        return positions

    def place(self, row: int) -> tuple[Segment, int]:
        """The segment with the live copy of a row, and its place there."""
        ((segment, _, places),) = self.split(self.find(np.array([row], dtype=np.int64)))
        return segment, int(places[0])

    def statements(self, rows: Sequence[int], asked: Collection[int]) -> list[Statement]:
        """The statements of rows; one that is not here makes none. `asked` are the words of a query, as hashes."""
        found = [Statement()] * len(rows)
        parts = [
            (here, *segment.words_at(places), segment.word_count[places])
            for _, segment, places, here in self._places(np.array(rows, dtype=np.int64))
        ]
        if not parts or not asked:
            return found
        at, words, sizes, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        sought, ends = np.array(sorted(asked), dtype=words.dtype), np.cumsum(sizes)
        nearest = np.minimum(sought.searchsorted(words), len(sought) - 1)
        matches = np.flatnonzero(sought[nearest] == words)
        # Sums of square roots are equal for the same words, and hardly ever for others.
        sums = np.bincount(ends.searchsorted(matches, side="right"), np.sqrt(words[matches]), len(sizes))
        columns = zip(at.tolist(), sums.tolist(), lengths.tolist(), (ends - sizes).tolist(), ends.tolist(), strict=True)
        for place, same, length, start, end in columns:
            found[place] = Statement(same, length, partial(_listed, words, start, end))
        return found


def _listed(words: Array, start: int, end: int) -> list[int]:
    return words[start:end].tolist()  # type: ignore[no-any-return]


def stacked(segments: Sequence[Segment], seq: int) -> View:
    """The view of segments as files hold them: what newer ones replace is found by their rows."""
    view = View(seq=seq, based=seq)
    for segment in segments:
        view = view.plus(segment)
    return view
