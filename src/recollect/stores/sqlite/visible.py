"""Which records a filter admits, by the columns of the segments and by words and phrases; and the best of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recollect.analysis import Analyzer, term_hash
from recollect.dataclass import dataclass
from recollect.querylang import has_phrase, is_word, needed_terms, term_of
from recollect.stores.database import mean_lengths
from recollect.stores.rows import all_of, distinct, from_row, micros
from recollect.stores.sqlite.arrays import Array, score_threshold
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import DIALECT, Connection, integers
from recollect.stores.sqlite.segments import NEVER, Ints, Mask, Segment
from recollect.stores.sqlite.views import View
from recollect.types import Filter, RankedList, RankedRows, Record, Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

CACHED_SETS = 32


class Visible:
    """The records that one filter admits in one view: `mask` over the positions of the view, None for all."""

    def __init__(self, view: View, mask: Mask | None, until: int = NEVER) -> None:
        self.view = view
        self.mask = mask
        self.until = until
        self.count = view.total if mask is None else int(np.count_nonzero(mask))

    @cached_property
    def positions(self) -> Ints:
        """The positions of the admitted records, rising."""
        return np.arange(self.view.total) if self.mask is None else np.flatnonzero(self.mask)

    @cached_property
    def places(self) -> list[tuple[int, NDArray[np.int32]]]:
        """The admitted places of each segment, rising, and the number of the first of them among all positions."""
        bounds = self.positions.searchsorted(self.view.starts).tolist()
        return [
            (start, (self.positions[start:end] - offset).astype(np.int32))
            for start, end, offset in zip(bounds[:-1], bounds[1:], self.view.starts[:-1], strict=True)
        ]

    def mean_lengths(self, positions: Ints) -> Any:
        """The length in words that each of these records is compared with, or one for all."""
        means = self._mean_lengths
        return means[0] if self.view.kinds is None else means[self.view.kinds[positions]]

    @cached_property
    def _mean_lengths(self) -> NDArray[np.float64]:
        admitted = slice(None) if self.mask is None else self.positions
        lengths, kinds = self.view.lengths[admitted], self.view.kinds
        if kinds is None:
            return np.array(mean_lengths([len(lengths)], [int(lengths.sum(dtype=np.int64))]))
        counts, totals = np.bincount(kinds[admitted]), np.bincount(kinds[admitted], lengths)
        return np.array(mean_lengths(counts.tolist(), totals.tolist()))

    @cached_property
    def by_row(self) -> Mask:
        """For each row of the file whether it is admitted."""
        rows = self.view.rows[self.positions]
        mask = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.bool_)
        mask[rows] = True
        return mask


@dataclass(slots=True)
class _CachedSet:
    """A set that is valid from `start` on, until its own end, and the lock of who builds it."""

    visible: Visible | None = None
    start: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class VisibleSets:
    """A cache of the sets of recent filters, each valid until a record changes or the clock reaches its end."""

    def __init__(self) -> None:
        self._sets: dict[tuple[Any, ...], _CachedSet] = {}
        self._lock = threading.Lock()

    def get(self, connection: Connection, where: Filter, view: View, analyzer: Analyzer) -> Visible:
        """The set of `where` in this connection's snapshot, whose view is `view`, made by `analyzer`.

        Of several threads that need the same set at once, one builds it.
        """
        key = (
            where.scope, where.any_scope, where.superseded, where.as_of, where.kinds, where.categories, where.tags,
            where.path, where.since, where.until, where.origins, where.authors, where.author_sessions,
            where.written_since, where.written_until, where.phrases, where.without, where.required,
            view.serial,
        )  # fmt: skip
        moment = micros(where.moment) or 0
        with self._lock:
            cached = self._sets.pop(key, None)
            if cached is None:  # sets of older views go: each holds the arrays of all its records
                old = [each for each in self._sets if each[-1] < view.serial]
                for each in old if len(self._sets) < CACHED_SETS else (*old, next(iter(self._sets))):
                    self._sets.pop(each, None)
                cached = _CachedSet()
            self._sets[key] = cached  # the last one used is at the end
        with cached.lock:
            if cached.visible is None or not cached.start <= moment < cached.visible.until:
                cached.visible, cached.start = _select(connection, where, view, analyzer), moment
            return cached.visible


def _select(connection: Connection, where: Filter, view: View, analyzer: Analyzer) -> Visible:
    moment = micros(where.moment) or 0
    parts = [_admitted(segment, where, moment) for segment in view.segments]
    mask = view.mask
    if any(part is not None for part in parts):
        whole = zip(view.segments, parts, strict=True)
        own = np.concatenate([np.ones(len(each), dtype=np.bool_) if part is None else part for each, part in whole])
        mask = own if mask is None else own & mask
    # Tags, categories, authors and paths are not in the segments.
    sql, values = all_of(list(DIALECT.of_fields(replace(where, kinds=(), origins=(), since=None, until=None))))
    if values:
        rows = integers(connection.execute(f"SELECT group_concat(row) FROM records WHERE {sql}", values).get)
        positions = view.find(rows)
        chosen = np.zeros(view.total, dtype=np.bool_)
        chosen[positions[positions >= 0]] = True
        mask = chosen if mask is None else chosen & mask
    if where.phrases or where.without or where.required:
        mask = worded(connection, where, view, mask, analyzer)
    ends = (_next_event(segment, moment) for segment in view.segments)
    return Visible(view, mask, NEVER if where.as_of else min(ends, default=NEVER))


def _admitted(segment: Segment, where: Filter, moment: int) -> Mask | None:
    """The rows of a segment that a filter admits by their columns; None for all."""
    masks = [] if where.any_scope else list(_in_scope(segment, where.scope))
    for column, names in (("kind", where.kinds), ("origin", where.origins)):
        if names and not set(segment.names[column]).issubset(names):
            masks.append(np.isin(getattr(segment, column), [segment.code(column, name) for name in names]))
    if where.as_of:
        masks.append((segment.time <= moment) & (segment.edited <= moment))
    if not where.superseded and segment.lowest("superseded") <= moment:
        masks.append(segment.superseded > moment)
    if segment.lowest("expires") <= moment:
        masks.append(segment.expires > moment)
    if where.since:
        masks.append(segment.time >= (micros(where.since) or 0))
    if where.until:
        masks.append(segment.time < (micros(where.until) or 0))
    return None if not masks else masks[0] if len(masks) == 1 else np.logical_and.reduce(masks)


def _in_scope(segment: Segment, scope: Scope) -> Iterator[Mask]:
    """For each part of a scope the rows that a caller with this scope may see."""
    for column, name in (("user", scope.user), ("agent", scope.agent), ("session", scope.session)):
        if segment.names[column]:
            codes = getattr(segment, column)
            mask = codes == 0
            code = -1 if name is None else segment.code(column, name)
            yield mask if code < 0 else mask | (codes == code)


def _next_event(segment: Segment, moment: int) -> int:
    """The next time at which a record expires or a planned supersession begins."""
    ends = NEVER
    for column in ("expires", "superseded"):
        if segment.lowest(column) < NEVER:
            times = getattr(segment, column)
            ends = min(ends, int(times[times > moment].min(initial=NEVER)))
    return ends


Scores: TypeAlias = "NDArray[np.float64]"


def best(
    database: Database,
    view: View,
    positions: Array | None,
    scores: Scores,
    depth: int,
    *,
    digits: int,
    above: float = -math.inf,
    **facts: Any,
) -> RankedList:
    """The `depth` best positions by rounded score, newer, id; of records with the same text only the first.

    Without `positions` the scores are those of the first positions. Only scores `above` some value count. `facts` are
    other fields of the list.
    """
    count = depth
    while True:
        head = _head(scores, count, 10.0**-digits, above)
        chosen = head if positions is None else positions[head]
        leading, rounded = _leading(database, view, chosen, scores[head].round(digits), count)
        rows, folds, *others = view.columns(leading)
        first, duplicates = distinct(folds, depth)
        if len(first) >= depth or len(leading) < count:
            break
        count *= 4
    if not first:
        return RankedList("", duplicates=duplicates, **facts)
    columns: list[list[Any]] = [rows, rounded.tolist(), folds, *others]
    if len(first) < len(rows):
        columns = [[column[place] for place in first] for column in columns]
    rows, ordered, folds, times, importances, decays, files, lines = columns
    entries = RankedRows(
        rows, ordered, folds, times, importances, decays, files, lines,
        lambda chosen: read_records(database, chosen), view.statements,
    )  # fmt: skip
    return RankedList("", entries, duplicates=duplicates, **facts)


def _head(scores: Scores, count: int, margin: float, above: float) -> Ints:
    """Which scores may be among the first `count`: those that are less than `margin` below the last of these."""
    if len(scores) > count and (edge := score_threshold(scores, count) - margin) > above:
        return np.flatnonzero(scores >= edge)
    return np.flatnonzero(scores > above)


def read_records(database: Database, rows: Sequence[int]) -> Mapping[int, Record]:
    """The records in some rows, without those that are gone."""
    select = DIALECT.select.replace("SELECT", "SELECT records.row,", 1)
    with database.read() as connection:
        found = connection.execute(f"{select} WHERE row = ANY(%s) AND forgotten_at IS NULL", (list(rows),))
        return {row: from_row(fields) for row, *fields in found}


def _leading(database: Database, view: View, positions: Array, scores: Scores, count: int) -> tuple[Array, Scores]:
    """The first `count` positions in their exact order, and their scores."""
    if len(positions) > count:
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        above, tied = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
        # All records of a store may tie at the edge, so only as many are ordered as there is room for.
        chosen = np.concatenate([above, tied[_newest(database, view, positions[tied], count - len(above))]])
        positions, scores = positions[chosen], scores[chosen]
    times = view.times(positions)
    order = np.lexsort((-times, -scores))
    positions, scores, times = positions[order], scores[order], times[order]
    same = (scores[1:] == scores[:-1]) & (times[1:] == times[:-1])
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        rank = _ranks_of_ids(database, view.rows_of(positions[tied]))
        group = np.append(0, np.cumsum(~same))[tied]
        positions[tied] = positions[tied][np.lexsort((rank, group))]
    return positions, scores


def _newest(database: Database, view: View, positions: Array, count: int) -> Ints:
    """Which of some positions are the newest, by time and then by id."""
    if len(positions) <= count:
        return np.arange(len(positions))
    times = view.times(positions)
    edge = np.partition(times, len(times) - count)[len(times) - count]
    newer, tied = np.flatnonzero(times > edge), np.flatnonzero(times == edge)
    room = count - len(newer)
    if len(tied) > room:
        rank = _ranks_of_ids(database, view.rows_of(positions[tied]), room)
        tied = tied[rank < room]
    return np.concatenate([newer, tied])


def _ranks_of_ids(database: Database, rows: Ints, limit: int = -1) -> Ints:
    """The rank of each row in the order of the ids; rows beyond the limit get the last rank."""
    with database.read() as connection:
        ordered = connection.execute(
            "SELECT row FROM records WHERE row = ANY(%s) ORDER BY id LIMIT %s", (rows.tolist(), limit)
        )
        ranks = {row: rank for rank, (row,) in enumerate(ordered)}
    return np.array([ranks.get(row, len(rows)) for row in rows.tolist()], dtype=np.int64)


BATCH = 1_000  # texts that are read at once


def worded(connection: Connection, where: Filter, view: View, mask: Mask | None, analyzer: Analyzer) -> Mask:
    """Of the records of a mask, those that contain what a filter requires and nothing that it excludes."""
    chosen = np.ones(view.total, dtype=np.bool_) if mask is None else mask.copy()

    def containing(wording: str) -> Ints:
        if is_word(wording):
            return _having(view, [term_of(wording, analyzer)])
        return _with_phrase(connection, view, chosen, wording, analyzer)

    for wording in where.without:
        chosen[containing(wording)] = False
    for group in where.required:
        meeting = np.zeros(view.total, dtype=np.bool_)
        for wording in group:
            meeting[containing(wording)] = True
        chosen &= meeting
    for phrase in where.phrases:
        meeting = np.zeros(view.total, dtype=np.bool_)
        meeting[_with_phrase(connection, view, chosen, phrase, analyzer)] = True
        chosen &= meeting
    return chosen


def _having(view: View, terms: Sequence[str]) -> Ints:
    """The positions of the records that have all of these terms, also of records that are not live."""
    hashes = np.array([term_hash(term) for term in terms], dtype=np.uint64)
    counts = np.zeros(view.total, dtype=np.int16)
    for start, segment in zip(view.starts.tolist(), view.segments, strict=False):
        for first, end in segment.postings(hashes):
            counts[segment.places[first:end] + start] += 1
    return np.flatnonzero(counts == len(terms))


def _with_phrase(connection: Connection, view: View, chosen: Mask, phrase: str, analyzer: Analyzer) -> Ints:
    """The positions of the chosen records that contain a phrase: those with its terms are read."""
    candidates = chosen.copy()
    for alternatives in needed_terms(phrase, analyzer):
        having = np.zeros(view.total, dtype=np.bool_)
        for terms in alternatives:
            having[_having(view, list(dict.fromkeys(terms)))] = True
        candidates &= having
    positions = np.flatnonzero(candidates)
    rows = view.rows_of(positions)
    found = list(_rows_with(connection, rows, phrase))
    return positions[np.isin(rows, np.array(found, dtype=np.int64))]


def _rows_with(connection: Connection, rows: Ints, phrase: str) -> Iterator[int]:
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH].tolist()
        for row, title, text in connection.execute("SELECT row, title, text FROM records WHERE row = ANY(%s)", (part,)):
            if has_phrase(phrase, title, text):
                yield row
