"""Keyword search: BM25 over the visible records, computed in arrays from the postings of the segments.

The statistics are those of the visible records alone: otherwise one user's records would change another's ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from recollect.analysis import Analyzer, term_hash
from recollect.frequencies import idf, shares
from recollect.stores.database import K1, NOTHING, B, SqlKeywords
from recollect.stores.sqlite.arrays import Array
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.index import Index, state_of
from recollect.stores.sqlite.rows import Connection
from recollect.stores.sqlite.segments import Ints
from recollect.stores.sqlite.visible import Scores, Visible, best
from recollect.types import Filter, Progress, RankedList

DIGITS = 9  # of a score: records whose scores differ less tie
MANY = 10_000  # occurrences whose arrays are large blocks
REUSED_BYTES = 2**25 - 2**13  # just below 32 MiB, the largest block whose size glibc learns from
SEARCH_FACTOR = 16  # postings for each visible record above which looking these up is faster than reading them all


class SqliteKeywords(SqlKeywords):
    """Search by words in one SQLite store."""

    _database: Database

    def __init__(self, database: Database, index: Index, language: str | None) -> None:
        super().__init__(database, language)
        self.index = index
        self.index.analyzer = self._analyzer

    @property
    def analyzer(self) -> Analyzer:
        with self._database.read() as connection:
            language = state_of(connection).language
        return self._analyzer if language in (None, self._analyzer.language) else Analyzer(language)

    def search(
        self, terms: Sequence[str], where: Filter, depth: int, near: Mapping[str, float] = NOTHING
    ) -> RankedList:
        with self._database.read() as connection:
            view = self.index.view(connection)
            if not view.total:
                return RankedList("", among=0)
            visible = self.index.visible(connection, where)
            common = shares(self.index.analyzer.language)
            positions, scores, most, unknown = bm25(Counter(terms), visible, common, near)
            facts = {"max_score": most, "among": visible.count, "unknown": unknown}
            return best(self._database, view, positions, scores, depth, digits=DIGITS, above=0.0, **facts)

    def known(self, terms: Sequence[str], where: Filter) -> dict[str, int]:
        with self._database.read() as connection:
            visible = self.index.visible(connection, where)
            hashes = np.array([_hash(term) for term in terms], dtype=np.uint64)
            here = [segment.has(hashes) for segment in visible.view.segments if visible.count]
            indexed = [terms[at] for at in np.flatnonzero(np.any(here, axis=0)).tolist()]  # most are no words
            sizes = _occurrences(indexed, visible)[2] if indexed else []
            return {term: size for term, size in zip(indexed, sizes, strict=True) if size}

    def vocabulary(self, prefix: str, where: Filter) -> set[str]:  # noqa: ARG002  (`known` applies the filter)
        with self._database.read() as connection:
            segments = self.index.view(connection).segments
        return {term for segment in segments for term in segment.beginning(prefix)}

    def catch_up(self, progress: Progress | None = None) -> None:
        with self._database.read() as connection:
            self.index.view(connection, progress)

    def lag(self, connection: Connection) -> int:
        """The number of changes that are not indexed yet."""
        return self.index.lag(connection)


def bm25(
    terms: Mapping[str, int], visible: Visible, common: Mapping[str, float], near: Mapping[str, float] = NOTHING
) -> tuple[Ints | None, Scores, float, tuple[str, ...]]:
    """Lucene's BM25: positions (None for all) with their scores, 0 without a match, and the most that one could score.

    `terms` says how often each term occurs in the query, `common` in which share of general text. A term scores less
    than its weight however often a record contains it, so the most is the sum of the weights. Terms that no record
    contains count too, because they are part of the query, and are returned last. Terms that are `near` those of the
    query, with their weights, add to the scores and not to the most.
    """
    if not visible.count:
        return None, np.zeros(0), 0.0, ()
    weighted: Mapping[str, float] = {**{term: weight for term, weight in near.items() if term not in terms}, **terms}
    places, counts, sizes, among = _occurrences(list(weighted), visible)
    if len(places) > MANY:
        _reuse_large_blocks()
    pairs = list(zip(weighted.items(), sizes, strict=True))
    unknown = tuple(term for (term, _), size in pairs if not size and term in terms)
    idfs = [often * idf(visible.count, size, common.get(term, 0.0)) for (term, often), size in pairs]
    positions = places if among is None else among[places]
    norms = visible.view.lengths[positions] * B
    norms /= visible.mean_lengths(positions)
    norms += 1 - B
    norms *= K1
    norms += counts
    weights = np.repeat(idfs, sizes)
    weights *= counts
    weights /= norms
    scores: Any = np.bincount(places, weights)  # sums in the order of the terms, whatever the segments are
    return among, scores, sum(idfs[len(weighted) - len(terms) :], 0.0), unknown


def _occurrences(terms: Sequence[str], visible: Visible) -> tuple[Ints, Array, list[int], Ints | None]:
    """Where the terms occur, one term after the other; the count at each place; how many places each term has.

    Places are positions in the view, or numbers of the visible positions where these are returned.
    """
    segments, starts = visible.view.segments, visible.view.starts.tolist()
    hashes = np.array([_hash(term) for term in terms], dtype=np.uint64)
    spans = [segment.postings(hashes) for segment in segments]
    found = [
        [(number, start, end) for number, span in enumerate(spans) for start, end in (span[term],) if start < end]
        for term in range(len(terms))
    ]
    sizes = [sum(end - start for _, start, end in parts) for parts in found]
    if not any(sizes):
        return np.zeros(0, dtype=np.int64), np.zeros(0), sizes, None
    if sum(sizes) > SEARCH_FACTOR * visible.count:
        return *_looked_up(found, visible), visible.positions
    spread = [part for parts in found for part in parts]
    often = np.concatenate([segments[number].counts[start:end] for number, start, end in spread])
    positions = np.concatenate(
        [segments[number].places[start:end] for number, start, end in spread], dtype=np.int64, casting="safe"
    )
    if len(segments) > 1:
        positions += np.repeat([starts[part[0]] for part in spread], [end - start for _, start, end in spread])
    if visible.mask is not None:
        admitted = visible.mask[positions]
        ends = np.cumsum(sizes).tolist()
        sizes = [int(np.count_nonzero(admitted[end - size : end])) for end, size in zip(ends, sizes, strict=True)]
        positions, often = positions[admitted], often[admitted]
    return positions, often, sizes, None


def _looked_up(found: Sequence[Sequence[tuple[int, int, int]]], visible: Visible) -> tuple[Ints, Array, list[int]]:
    """Where terms with long postings occur in few visible records: each record is looked up in the postings."""
    of, numbers, counts = list[Array](), list[Array](), list[Array]()
    for number, (segment, (first, own)) in enumerate(zip(visible.view.segments, visible.places, strict=True)):
        spans = [(term, start, end) for term, parts in enumerate(found) for n, start, end in parts if n == number]
        if not spans or not len(own):
            continue
        terms, starts, ends = np.array(spans).T
        at = np.array([segment.places[start:end].searchsorted(own) for _, start, end in spans]) + starts[:, None]
        np.minimum(at, ends[:, None] - 1, out=at)
        term, place = (segment.places[at] == own).nonzero()
        of.append(terms[term])
        numbers.append(place + first)
        counts.append(segment.counts[at[term, place]])
    if not of:
        return np.zeros(0, dtype=np.int64), np.zeros(0), [0] * len(found)
    by_term = np.argsort(terms := np.concatenate(of), kind="stable")
    sizes = np.bincount(terms, minlength=len(found)).tolist()
    return np.concatenate(numbers)[by_term], np.concatenate(counts)[by_term], sizes


@cache
def _reuse_large_blocks() -> None:
    """Let the C library use large blocks again. glibc gives them back to the system until one of this size was freed.

    Half the time of scoring the keywords of 100,000 records was for getting such pages.
    """
    np.empty(REUSED_BYTES, dtype=np.uint8)


_hash = lru_cache(10_000)(term_hash)
