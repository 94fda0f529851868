"""Segments: what the index knows of some rows, as arrays that never change, in memory or mapped from a file.

A segment holds columns of the records, the postings of their terms, the terms themselves and the hashes of the words of
short facts. Of other text it has the names of scopes, kinds and decay classes only.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import finalize

import numpy as np

from recollect.analysis import CONTENT, ENTRY_BYTES, TERM, WORD, Analyzer, term_hash, word_hashes
from recollect.dataclass import dataclass
from recollect.errors import StoreError
from recollect.ranking import is_statement
from recollect.stores.database import TITLE_WEIGHT
from recollect.stores.rows import FILE, IS_MESSAGE
from recollect.stores.sqlite.arrays import Array, map_arrays, read_pieces, write_arrays
from recollect.types.records import MOST_LINES, default_origin

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = 2**63 - 1  # in place of a time that a record does not have: it does not expire, is not superseded
LONG_AGO = -(2**63)  # the same for the time of an edit

WORD_BITS = 32
ENTRY = np.dtype([("term", "<u8"), ("word", "<u4"), ("has", "<u4")])  # of `Analyzer.packed`
SPARING_BYTES = 2**25  # of words from which they are read, not mapped: those of about 200,000 facts

Ints: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"

SELECTED = (
    'row, kind, title, text, "user", agent, session, importance, decay, time, expires_at, edited_at, superseded_at,'
    f" fold, {FILE}, CASE WHEN kind = 'turn' THEN -max(1, created_at) WHEN {IS_MESSAGE} THEN 0"
    f" ELSE max(0, min(ifnull(first_line, 0), {MOST_LINES})) END, origin"
)
"""The columns of `records` that `build` reads."""

WITHOUT_TEXTS = 15  # columns of these that are not texts

NAMED = ("kind", "decay", "user", "agent", "session", "origin")
"""Columns of names, stored as numbers; 0 stands for none."""


class RowArrays:
    """Arrays with what is known of some rows; `rows` are the numbers of these, by place.

    `gone` are rows of which nothing is known any more. `file` is empty while the arrays are in memory only.
    """

    rows: Ints
    gone: Ints
    file: str

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _by_row(self) -> tuple[Ints, Array | None]:
        return rising(self.rows)

    @property
    def highest(self) -> int:
        """The highest row."""
        return int(self._by_row[0][-1]) if len(self.rows) else 0

    def find(self, rows: Ints) -> tuple[Ints, Mask]:
        """The place of each row, and whether it is here."""
        return lookup(*self._by_row, rows)


@dataclass(frozen=True, eq=False)
class Segment(RowArrays):
    """Rows in the order of their changes. The arrays of columns have one entry for each row.

    `file_hash` is equal for chunks of one file, of one message of a mailbox, or turns of one conversation. `line` is a
    chunk's first line, or when a turn was stored, in microseconds and negative. Both are 0 for other records.
    `gone` are rows that were forgotten: like `rows`, they replace what older segments say of the same rows. The words
    of row i are `words[word_starts[i] : word_starts[i + 1]]`, and the places of term t those from `starts[t]` on.
    `spelled` has the terms in the order of the alphabet, as UTF-8, each with a line feed after it. Term t of
    these begins at `spelled_starts[t]`.
    """

    rows: Ints
    gone: Ints
    time: Ints
    expires: Ints
    edited: Ints
    superseded: Ints
    importance: NDArray[np.float64]
    kind: Array
    decay: Array
    user: Array
    agent: Array
    session: Array
    origin: Array
    fold: NDArray[np.uint8]
    file_hash: NDArray[np.uint64]
    line: Ints
    length: NDArray[np.int32]
    words: NDArray[np.uint32]
    word_starts: Ints
    word_count: NDArray[np.int32]
    terms: NDArray[np.uint64]
    starts: Ints
    places: NDArray[np.int32]
    counts: Array
    spelled: NDArray[np.uint8]
    spelled_starts: Ints
    names: Mapping[str, list[str]] = field(default_factory=dict)
    file: str = ""
    start: int = 0
    """Where `words` begin in the file."""
    number: int = -1
    """The descriptor of a file whose words are read, not mapped."""

    @cached_property
    def _lowest(self) -> Mapping[str, int]:
        return {name: int(getattr(self, name).min(initial=NEVER)) for name in ("expires", "superseded")}

    def lowest(self, column: str) -> int:
        """The earliest time in a column; `NEVER` where no record has one."""
        return self._lowest[column]

    @cached_property
    def _codes(self) -> Mapping[str, Mapping[str, int]]:
        return {column: {name: code for code, name in enumerate(names, 1)} for column, names in self.names.items()}

    def code(self, column: str, name: str) -> int:
        """The number of a name in a column; -1 where no row has it."""
        return self._codes[column].get(name, -1)

    def postings(self, hashes: NDArray[np.uint64]) -> list[tuple[int, int]]:
        """For each term the start and end of its places; they are equal where no row has the term."""
        if not len(self.terms):
            return [(0, 0)] * len(hashes)
        found = np.minimum(self.terms.searchsorted(hashes), len(self.terms) - 1)
        ends = self.starts[found + (self.terms[found] == hashes)]
        return list(zip(self.starts[found].tolist(), ends.tolist(), strict=True))

    def has(self, hashes: NDArray[np.uint64]) -> Mask:
        """Which of the terms some row has."""
        if not len(self.terms):
            return np.zeros(len(hashes), dtype=np.bool_)
        at = np.minimum(self.terms.searchsorted(hashes), len(self.terms) - 1)
        return np.equal(self.terms[at], hashes)

    def beginning(self, prefix: str) -> list[str]:
        """The terms that begin with a prefix."""
        sought, starts, data = prefix.encode("utf-8", "replace"), self.spelled_starts, self.spelled.data

        def head(number: int) -> bytes:
            start = int(starts[number])
            return bytes(data[start : start + len(sought)])

        first = bisect_left(range(len(starts) - 1), sought, key=head)
        end = bisect_right(range(len(starts) - 1), sought, first, key=head)
        return bytes(data[starts[first] : starts[end]]).decode("utf-8", "replace").split("\n")[:-1]

    def words_at(self, places: Array) -> tuple[NDArray[np.uint32], Ints]:
        """The different words of the statements at some places, one after the other, and how many each has."""
        starts = self.word_starts[places]
        sizes = self.word_starts[places + 1] - starts
        if self.number < 0:
            return self.words[np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)], sizes
        width, at = self.words.itemsize, zip(starts.tolist(), sizes.tolist(), strict=True)
        pieces = [(self.start + start * width, size * width) for start, size in at]
        return np.frombuffer(b"".join(read_pieces(self.number, pieces)), self.words.dtype), sizes


def rising(rows: Ints) -> tuple[Ints, Array | None]:
    """The rows, rising, and the place of each; None where they are in this order already."""
    if len(rows) < 2 or bool((rows[1:] > rows[:-1]).all()):  # noqa: PLR2004
        return rows, None
    order = np.argsort(rows)
    return rows[order], order


def lookup(ordered: Ints, places: Array | None, rows: Ints) -> tuple[Ints, Mask]:
    """The place of each row, and whether it is among `ordered`; without `places`, they are in this order already."""
    if not len(ordered):
        return np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.bool_)
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # they follow each other, as those of one load do
        found = (rows - ordered[0]).clip(0, len(ordered) - 1)
    else:
        found = np.minimum(ordered.searchsorted(rows), len(ordered) - 1)
    return (found if places is None else places[found]), ordered[found] == rows


def without(part: RowArrays, live: Mask | None, changed: Ints) -> Mask | None:
    """The mask of a segment or block after other rows were changed elsewhere; masks in use are never altered."""
    if not len(part) or int(changed.min()) > part.highest:
        return live
    places, here = part.find(changed)
    if not here.any():
        return live
    mask = np.ones(len(part), dtype=np.bool_) if live is None else live.copy()
    mask[places[here]] = False
    return mask


ARRAYS = tuple(column.name for column in fields(Segment) if column.name not in ("names", "file", "start", "number"))
COLUMNS = (
    "rows", "time", "expires", "edited", "superseded", "importance", "fold", "file_hash", "line", "length",
    "word_count",
)  # fmt: skip
"""The columns that a merged segment takes over as they are."""


class _Names(dict[str | None, int]):
    """Names as numbers from 1, in the order in which they came; None is 0."""

    def __init__(self) -> None:
        super().__init__({None: 0})

    def __missing__(self, name: str | None) -> int:
        self[name] = len(self)
        return self[name]

    def list(self) -> list[str]:
        return [name for name in self if name is not None]


_building = threading.Lock()  # the spellings of terms are of one process


def build(records: Iterable[Sequence[Any]], analyzer: Analyzer) -> Segment:
    """The segment of records that were selected as `SELECTED`."""
    with _building:
        spellings = analyzer.spellings()
        segment = _build(records, analyzer)
        spelled = [spellings[term].encode("utf-8", "replace") for term in segment.terms.tolist()]
        return replace(segment, **_spelled(spelled))


def _spelled(terms: Iterable[bytes]) -> dict[str, Any]:
    """Terms in the order of the alphabet, as one array, and where each begins."""
    lines = sorted([term + b"\n" for term in terms])
    starts = np.cumsum([0, *map(len, lines)], dtype=np.int64)
    return {"spelled": np.frombuffer(b"".join(lines), dtype=np.uint8), "spelled_starts": starts}


def _build(records: Iterable[Sequence[Any]], analyzer: Analyzer) -> Segment:
    others: list[tuple[Any, ...]] = []  # without the texts, of which there may be much more than fits into memory
    entries = list[bytes]()
    parts = list[tuple[int, int, bool]]()  # the record of each entry, its weight, and whether its words are stated
    foreign = list[tuple[int, list[int]]]()  # records and their words, where these are not in the entries
    for number, (row, kind, title, text, *rest) in enumerate(records):
        others.append((row, kind, *rest))
        if title:
            entries.append(analyzer.packed(title))
            parts.append((number, int(TITLE_WEIGHT), False))
        stated = is_statement(kind, text)
        if stated and not text.isascii():
            foreign.append((number, word_hashes(text)))
            stated = False
        entries.append(analyzer.packed(text))
        parts.append((number, 1, stated))
    found = np.frombuffer(b"".join(entries), dtype=ENTRY)
    sizes = [len(each) // ENTRY_BYTES for each in entries]
    places, weights, stating = np.repeat(_ints(parts).reshape(-1, 3).T, sizes, axis=1)
    columns = list(zip(*others, strict=True)) or [()] * WITHOUT_TEXTS
    row, kinds, user, agent, session, importance, decay, time, expires, edited, superseded, *rest = columns
    folds, files, lines, origins = rest
    origins = tuple(origin or default_origin(kind) for origin, kind in zip(origins, kinds, strict=True))
    hashes_of_files = {file: 0 if file is None else _file_hash(file) for file in set(files)}
    counted, terms = (found["has"] & CONTENT) > 0, (found["has"] & TERM) > 0
    words = stating.astype(np.bool_) & ((found["has"] & WORD) > 0)
    names = {name: _Names() for name in NAMED}
    coded: dict[str, Any] = {
        name: _small(_ints([names[name][value] for value in column]))
        for name, column in zip(NAMED, (kinds, decay, user, agent, session, origins), strict=True)
    }
    return Segment(
        rows=_ints(row), gone=_ints(()), time=_ints(time), expires=_times(expires, NEVER),
        edited=_times(edited, LONG_AGO), superseded=_times(superseded, NEVER),
        importance=np.array(importance, dtype=np.float64), **coded,
        fold=np.frombuffer(b"".join(folds), dtype=np.uint8).reshape(len(row), 16),
        file_hash=np.array([hashes_of_files[file] for file in files], dtype=np.uint64), line=_ints(lines),
        length=np.bincount(places, weights * counted, len(row)).clip(1).astype(np.int32),
        **_different(places[words], found["word"][words], foreign, len(row)),
        **_grouped(found["term"][terms], places[terms].astype(np.int32), weights[terms]), **_spelled(()),
        names={name: codes.list() for name, codes in names.items()},
    )  # fmt: skip


def _different(places: Ints, words: Array, foreign: Sequence[tuple[int, list[int]]], total: int) -> dict[str, Any]:
    """The different words of each record, in any order, where they start, and how many words it has."""
    pairs = [(places << WORD_BITS) | words, *((number << WORD_BITS) | _ints(own) for number, own in foreign)]
    joined = np.sort(np.concatenate(pairs))
    count = np.bincount(joined >> WORD_BITS, minlength=total)
    joined = joined[np.diff(joined, prepend=-1) > 0]
    starts = joined.searchsorted(np.arange(total + 1) << WORD_BITS)
    return {"words": joined.astype(np.uint32), "word_starts": starts, "word_count": count.astype(np.int32)}


def _file_hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) or 1


def _times(values: Sequence[int | None], none: int) -> Ints:
    """Times as numbers, with `none` for records that have none."""
    return _ints([none if value is None else value for value in values])


def _grouped(hashes: NDArray[np.uint64], places: NDArray[np.int32], weights: Ints) -> dict[str, Any]:
    """Postings of single occurrences, whose places rise: by term, and one for each place."""
    order = np.argsort(hashes, kind="stable")
    hashes, places = hashes[order], places[order]
    if not len(order):
        return {"terms": hashes, "starts": _ints([0]), "places": places, "counts": np.zeros(0, dtype=np.uint8)}
    new_term = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    new_place = new_term | np.concatenate([[True], places[1:] != places[:-1]])
    single = np.flatnonzero(new_place)
    starts = np.flatnonzero(new_term[single])
    return {
        "terms": hashes[single][starts],
        "starts": np.append(starts, len(single)).astype(np.int64),
        "places": places[single],
        "counts": _small(np.add.reduceat(weights[order], single)),
    }


def _small(values: Ints) -> Array:
    """Numbers of 0 or more in as few bytes as they need."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _ints(values: Sequence[Any]) -> Ints:
    return np.array(values, dtype=np.int64)


def merged(segments: Sequence[Segment], live: Sequence[Mask | None], *, first: bool) -> Segment:
    """Adjacent segments as one, without the rows that are not live. The `first` segments of all replace nothing."""
    masks = [
        np.ones(len(each), dtype=np.bool_) if mask is None else mask for each, mask in zip(segments, live, strict=True)
    ]
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        parts = [getattr(each, name)[mask] for each, mask in zip(segments, masks, strict=True)]
        columns[name] = np.concatenate(parts)
    names = {name: _Names() for name in NAMED}
    for name in NAMED:
        columns[name] = _renamed(name, segments, masks, names[name])
    gone = np.unique(np.concatenate([each.gone for each in segments]))
    gone = np.zeros(0, dtype=np.int64) if first else np.setdiff1d(gone, columns["rows"])
    words = np.concatenate([
        each.words[np.repeat(mask, np.diff(each.word_starts))] for each, mask in zip(segments, masks, strict=True)
    ])  # fmt: skip
    sizes = np.concatenate([np.diff(each.word_starts)[mask] for each, mask in zip(segments, masks, strict=True)])
    return Segment(
        **columns, gone=gone, words=words, word_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        **(postings := _merged_postings(segments, masks)), **_merged_spellings(segments, postings["terms"]),
        names={name: codes.list() for name, codes in names.items()},
    )  # fmt: skip


def _renamed(column: str, segments: Sequence[Segment], masks: Sequence[Mask], names: _Names) -> Array:
    parts = []
    for each, mask in zip(segments, masks, strict=True):
        used = getattr(each, column)[mask]
        codes = np.zeros(len(each.names[column]) + 1, dtype=np.int64)
        for code in (np.flatnonzero(np.bincount(used)[1:]) + 1).tolist():  # names that no row has any more go
            codes[code] = names[each.names[column][code - 1]]
        parts.append(codes[used])
    return _small(np.concatenate(parts))


def _merged_spellings(segments: Sequence[Segment], terms: NDArray[np.uint64]) -> dict[str, Any]:
    """The spellings of these terms; terms that no row has any more go."""
    spelled = list({term for each in segments for term in each.spelled.tobytes().split(b"\n")[:-1]})
    if len(spelled) > len(terms):
        hashes = np.array([term_hash(term.decode("utf-8", "replace")) for term in spelled], dtype=np.uint64)
        spelled = [spelled[at] for at in np.flatnonzero(np.isin(hashes, terms)).tolist()]
    return _spelled(spelled)


def _merged_postings(segments: Sequence[Segment], masks: Sequence[Mask]) -> dict[str, Any]:
    """The postings of all, by term; of one term those of earlier segments first, so that places rise."""
    parts, base = [], 0
    for each, mask in zip(segments, masks, strict=True):
        moved = (np.cumsum(mask) + (base - 1)).astype(np.int32)
        sizes = np.diff(each.starts)
        if mask.all():
            parts.append((each.terms, sizes, each.places + np.int32(base), each.counts))
        else:
            alive = mask[each.places]
            sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[alive], minlength=len(sizes))
            there = sizes > 0
            parts.append((each.terms[there], sizes[there], moved[each.places[alive]], each.counts[alive]))
        base += int(mask.sum())
    terms = np.unique(np.concatenate([part[0] for part in parts]))
    positions = [np.searchsorted(terms, part[0]) for part in parts]
    totals = np.zeros(len(terms), dtype=np.int64)
    for position, (_, sizes, _, _) in zip(positions, parts, strict=True):
        totals[position] += sizes
    starts = np.concatenate([[0], np.cumsum(totals)]).astype(np.int64)
    places = np.empty(int(starts[-1]), dtype=np.int32)
    counts = np.empty(int(starts[-1]), dtype=np.result_type(*(part[3] for part in parts)))
    free = starts[:-1].copy()
    for position, (_, sizes, own_places, own_counts) in zip(positions, parts, strict=True):
        own_starts = np.cumsum(sizes) - sizes
        target = np.repeat(free[position] - own_starts, sizes) + np.arange(len(own_places))
        places[target], counts[target] = own_places, own_counts
        free[position] += sizes
    return {"terms": terms, "starts": starts, "places": places, "counts": counts}


def write_segment(segment: Segment, path: Path) -> tuple[int, int]:
    """Write a segment to a new file. Returns its size and checksum."""
    return write_arrays(path, {name: getattr(segment, name) for name in ARRAYS}, {"names": segment.names})


def map_segment(path: Path, size: int) -> Segment:
    """The segment in a file."""
    arrays, starts, extra = map_arrays(path, size)
    if not set(ARRAYS) <= arrays.keys():
        raise StoreError(f"{path} is damaged")
    sparing = arrays["words"].nbytes >= SPARING_BYTES and hasattr(os, "pread")
    number = os.open(path, os.O_RDONLY) if sparing else -1
    segment = Segment(
        **{name: arrays[name] for name in ARRAYS}, names=extra["names"], file=path.name, start=starts["words"],
        number=number,
    )  # fmt: skip
    if sparing:
        finalize(segment, os.close, number)
    return segment
