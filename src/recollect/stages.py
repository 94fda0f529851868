"""The steps after fusion. A stage is a callable `(query, results) -> results`; `order` lists them all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from recollect.errors import TimedOut
from recollect.fusion import minmax
from recollect.ranking import DAY, HALF_LIVES, Evidence, Null, fold, importance_factor, mmr
from recollect.ranking import confidence as confidence_of
from recollect.ranking import decay as decay_factor
from recollect.types import FileState, Query, Record, Result, Stage, WarnedResults

if TYPE_CHECKING:
    from recollect.types import Vector

VectorsOf: TypeAlias = "Callable[[Sequence[str]], Mapping[str, Vector]]"  # record ids → the vectors that are known

StatesOf: TypeAlias = Callable[[Sequence[str]], Mapping[str, FileState]]
"""Paths → the state of those files when they were indexed."""


def order(
    vectors: VectorsOf, states: StatesOf, rerank: Rerank | None = None, confidence: Stage | None = None
) -> tuple[tuple[str, Stage], ...]:
    """The stages with their names, in the order in which they run.

    Confidence reads whole lists, so it precedes whatever shortens or reorders them. The threshold precedes MMR, so that
    results too weak to be shown do not displace others. Reranking comes between the two: it reads only what can be
    shown, and it changes scores, while the later stages change ranks only.
    """
    stages: tuple[tuple[str, Stage | None], ...] = (
        ("scope", in_scope),
        ("superseded", in_effect),
        ("confidence", confidence),
        ("decay", decay),
        ("importance", importance),
        ("threshold", threshold),
        ("rerank", rerank),
        ("newer", newer),
        ("mmr", partial(diversify, vectors)),
        ("limit", limit),
        ("freshness", partial(mark_freshness, states)),
    )
    return tuple((name, stage) for name, stage in stages if stage is not None)


def in_scope(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop records outside the query's scope. Every source has filtered already: this is a second check."""
    where = query.filter
    return [result for result in results if where.any_scope or where.scope.admits(result.record.scope)]


def in_effect(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop records that were superseded or have expired at the query's time: a second check, too."""
    where = query.filter

    def ended(record: Record) -> bool:
        times = (record.expires_at, None if where.superseded else record.superseded_at)
        return any(time is not None and time <= where.moment for time in times)

    return [result for result in results if not ended(result.record)]


def decay(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Lower the score of older records that have a decay class or, with `half_life_days`, of those that have none."""
    if not query.ranking.decay:
        return results
    days = query.ranking.half_life_days
    default = math.inf if days is None else days * DAY

    def aged(result: Result) -> Result:
        half_life = default if result.record.decay is None else HALF_LIVES[result.record.decay]
        if math.isinf(half_life):
            return result
        age = (query.filter.moment - result.record.time).total_seconds()
        return result.scaled("decay", decay_factor(age, half_life))

    return _by_total([aged(result) for result in results])


def importance(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Raise or lower the score of records whose importance is not the middle one."""
    weight = query.ranking.importance_weight

    def weighed(result: Result) -> Result:
        factor = importance_factor(result.record.importance, weight)
        return result if factor == 1 else result.scaled("importance", factor)

    return _by_total([weighed(result) for result in results])


def threshold(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop results that score below `min_score`."""
    return [result for result in results if result.score >= query.ranking.min_score]


def limit(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Cut the list to the requested number of results."""
    return results[: query.limit]


def _by_total(results: Sequence[Result]) -> list[Result]:
    """Sorted by total; equal ones keep their order."""
    return sorted(results, key=lambda result: -result.total)


RANK_TO_BEAT = 20
"""The margin of a record is its score above the score at this rank; everything ranked lower counts as this rank does.

So confidence depends neither on `limit` nor on `fetch_k`.
"""


@dataclass(frozen=True, slots=True)
class Gauge:
    """What the evidence of one query is compared with.

    `words` counts its words, `most` is the highest keyword score that a record could have, and `nulls` holds the scores
    of unrelated queries by source.
    """

    words: int
    most: float
    nulls: Mapping[str, Null]


def rate(
    gauge_of: Callable[[Query, Collection[str]], Gauge],
    sources: Sequence[str],
    query: Query,
    results: Sequence[Result],
) -> Sequence[Result]:
    """Set the `confidence` of each result, and drop results below `min_confidence`.

    It reads the own scores of these sources, not the fused one, so that it means the same with every fusion method.
    With a `min_confidence`, results that none of them ranked are dropped too: nothing is known about them. `gauge_of`
    takes the query and the names of the sources that answered it.
    """
    if not query.ranking.wants_confidence or not results:
        return results
    scores: dict[str, list[float]] = {name: [] for name in sources}
    for result in results:
        for name, share in result.shares.items():
            if name in scores and share.score is not None:
                scores[name].append(share.score)
    # A vector source that answered always found something; a keyword source may find nothing.
    answered = {name for name in sources if name == "keyword" or scores[name]}
    try:
        gauge = gauge_of(query, answered)
    except TimedOut as error:
        return WarnedResults(results, f"no confidence: {error.message} ({error.hint})")
    # Source → the unit of its scores, and the score to beat. A query without words has no keyword evidence.
    scales = {
        name: (unit, _floor(scores.get(name, ()), bounded=name == "vector"))
        for name, unit in (("keyword", gauge.most), ("vector", 1.0))
        if name in gauge.nulls and unit > 0
    }

    def rated(result: Result) -> Result:
        if not scales.keys() & result.shares.keys():
            return result
        found = {}
        for name, (unit, floor) in scales.items():
            share = result.shares.get(name)
            found[name] = _above(floor, unit, share.score if share else None)
        return replace(result, confidence=round(confidence_of(found, gauge.nulls, gauge.words), 6))

    least = query.ranking.min_confidence
    return [result for result in map(rated, results) if least <= 0 or (result.confidence or 0.0) >= least]


def evidence(scores: Sequence[float], unit: float, *, bounded: bool) -> Evidence:
    """The evidence for the first hit of a list with these scores."""
    return _above(_floor(scores, bounded=bounded), unit, max(scores, default=None))


def _floor(scores: Sequence[float], *, bounded: bool) -> float:
    """The score at the rank to beat. A shorter list ends with its last cosine, or with zero if it is a keyword list."""
    ranked = sorted(scores, reverse=True)
    if len(ranked) >= RANK_TO_BEAT:
        return ranked[RANK_TO_BEAT - 1]
    return ranked[-1] if bounded and ranked else 0.0


def _above(floor: float, unit: float, score: float | None) -> Evidence:
    score = floor if score is None else max(floor, score)
    return Evidence(score / unit, (score - floor) / unit)


WEIGHT = 0.5
"""The reranker's share of the blended score; the rest is the fused score's. docs/reranking.md gives the reasons."""

NOTHING = 1e-6  # a total so small that no factor can raise it: such results stay at the end


@dataclass(frozen=True, slots=True)
class RerankScores:
    """A reranker's scores of the first records, as far as it came, and a warning if that was not all of them."""

    scores: tuple[float, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Rerank:
    """Reorders the first `head` results by a blend of their score and the reranker's; the others stay below them.

    The blend is scaled to lie between the lowest and the highest total of the head, so that what passed the threshold
    still does, and nothing in the head falls below the rest. It is applied as the factor `rerank`.
    `scores` never raises, and it keeps to the query's deadline.
    """

    scores: Callable[[Query, Sequence[Record]], RerankScores]
    head: int = 20
    weight: float = WEIGHT

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """The reordered results; in the same order if the reranker failed or had no time."""
        head = list(takewhile(lambda result: result.total > NOTHING, results[: self.head]))
        if len(head) < 2:  # noqa: PLR2004  (one result has no rival)
            return results
        reranked = self.scores(query, [result.record for result in head])
        head = head[: len(reranked.scores)]
        rest = results[len(head) :]
        if len(head) > 1:
            totals = [result.total for result in head]
            low, span = min(totals), max(totals) - min(totals)
            pairs = zip(minmax(totals, False), minmax(reranked.scores, False), strict=True)
            blend = [(1 - self.weight) * fused + self.weight * score for fused, score in pairs]
            best_first = sorted(range(len(head)), key=lambda i: -blend[i])
            # Sorted again, because rounding may set two that are all but equal apart.
            head = _by_total([head[i].scaled("rerank", (low + span * blend[i]) / totals[i]) for i in best_first])
        return WarnedResults([*head, *rest], reranked.warning)


COMPARED_RESULTS = 50  # how many results are compared: two versions of a statement stand near each other
ALIKE = 0.4  # the share of their words that two versions of a statement have in common: what differs is the answer
SIZE = 0.7  # how long the shorter must be, relative to the longer: a longer text may hold the very answer
LONGEST_WORDS = 60  # words of a statement; a longer text says several things
WORD_LETTERS = 12  # letters of a long word, with the space after it

_WORD = re.compile(r"\w+")


def newer(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Put a newer fact before an older one that says nearly the same ("the key is under the pot", "… with Anneke").

    Both must contain the same words of the query: the other words that they share may be about something else.
    """
    if not query.ranking.prefer_newer or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
        return results
    query_words = frozenset(_words(query.text))
    placed: list[_Statement] = []
    for rank, result in enumerate(results[:COMPARED_RESULTS], 1):
        words = _words(result.record.text) if result.record.kind == "fact" else []  # chunks are no statements
        statement = _Statement(result, rank, frozenset(words), len(words), query_words.intersection(words))
        before = next((i for i, older in enumerate(placed) if statement.updates(older)), len(placed))
        placed.insert(before, statement)
    head = [statement.result.moved("newer", statement.rank, rank) for rank, statement in enumerate(placed, 1)]
    return [*head, *results[COMPARED_RESULTS:]]


@dataclass(frozen=True, slots=True)
class _Statement:
    """A result with its rank and its words: all of them, their number, and those that are in the query."""

    result: Result
    rank: int
    words: frozenset[str]
    length: int
    query_words: frozenset[str]

    def updates(self, older: _Statement) -> bool:
        """Whether this is a newer version of the other statement. The cheap conditions come first."""
        if not self.query_words or self.query_words != older.query_words:
            return False
        if self.result.record.time <= older.result.record.time:
            return False
        short, long = sorted((self.length, older.length))
        if long > LONGEST_WORDS or short < SIZE * long:
            return False
        return len(self.words & older.words) >= ALIKE * len(self.words | older.words)


def _words(text: str) -> list[str]:
    """The words of a statement; none for a text too long to be one."""
    return _WORD.findall(text.casefold()) if len(text) <= LONGEST_WORDS * WORD_LETTERS else []


COMPARED_CHARACTERS = 4_000
"""Characters whose words are compared where a record has no vector: the words of a book take a second."""


def diversify(vectors: VectorsOf, query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Reorder the results so that the first ones differ, and cut them to `limit`: Maximal Marginal Relevance.

    Similarity is the cosine of the records' vectors, or the overlap of their words if one of them has no vector.
    """
    balance = query.ranking.mmr_lambda
    if not query.ranking.mmr or balance == 1 or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
        return results
    # An earlier stage may have put a result with a lower score first; the first counts as the more relevant.
    relevance = minmax(list(accumulate((result.total for result in results), min)), True)
    ids = [result.record.id for result in results]
    known = vectors(ids)
    if all(key in known for key in ids):
        import numpy as np

        matrix, words = np.stack([known[key] for key in ids]), []
    else:
        words = [set(fold(result.record.text[:COMPARED_CHARACTERS]).split()) for result in results]

    def similarity(i: int) -> Sequence[float]:
        query.check()
        if words:
            return [len(words[i] & other) / len(words[i] | other) if words[i] or other else 1.0 for other in words]
        cosines: Sequence[float] = matrix @ matrix[i]
        return cosines

    picks = mmr(relevance, similarity, balance=balance, picks=query.limit)
    return [results[i].moved("mmr", i + 1, rank) for rank, i in enumerate(picks, 1)]


def mark_freshness(states: StatesOf, _query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Mark each result that comes from a file as `fresh`, `changed`, `missing` or `unknown` (never indexed)."""
    paths = {result.record.path for result in results if result.record.path and result.record.kind != "outside"}
    known = states(sorted(paths)) if paths else {}
    marks = {path: freshness(path, known.get(path)) for path in paths}
    return [
        replace(result, freshness=marks[result.record.path]) if result.record.path in marks else result
        for result in results
    ]


def freshness(path: str, state: FileState | None) -> str:
    """Whether a file is still as it was indexed: by its time and size, and by its hash if the time differs."""
    try:
        stat = Path(path).stat()
        if state is None:
            return "unknown"
        if (stat.st_mtime_ns, stat.st_size) == (state.mtime_ns, state.size):
            return "fresh"
        same = stat.st_size == state.size and FileState.digest_of(Path(path).read_bytes()) == state.digest
    except (OSError, ValueError):
        return "missing"
    return "fresh" if same else "changed"
