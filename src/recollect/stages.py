"""The steps after fusion. A stage is a callable `(query, candidates) -> candidates`; `order` lists them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate, takewhile
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from recollect.dataclass import dataclass
from recollect.errors import TimedOut
from recollect.fusion import minmax
from recollect.ranking import (
    DAY,
    HALF_LIVES,
    LONGEST_WORDS,
    Evidence,
    Null,
    Statement,
    fold,
    importance_factor,
    mmr,
    statement,
)
from recollect.ranking import confidence as confidence_of
from recollect.ranking import decay as decay_factor
from recollect.types import Candidate, FileState, Query, Record, Stage, Warned
from recollect.types.records import micros

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
    shown, and it changes scores, while the later stages change ranks only. Last, what is to be shown is checked again.
    """
    stages: tuple[tuple[str, Stage | None], ...] = (
        ("confidence", confidence),
        ("decay", decay),
        ("importance", importance),
        ("threshold", threshold),
        ("rerank", rerank),
        ("newer", newer),
        ("mmr", partial(diversify, vectors)),
        ("limit", limit),
        ("scope", in_scope),
        ("superseded", in_effect),
        ("freshness", partial(mark_freshness, states)),
    )
    return tuple((name, stage) for name, stage in stages if stage is not None)


def decay(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Lower the score of older records that have a decay class or, with `half_life_days`, of those that have none."""
    if not query.ranking.decay:
        return candidates
    days, now = query.ranking.half_life_days, micros(query.filter.moment) or 0
    default = math.inf if days is None else days * DAY
    for candidate in candidates:
        half_life = default if candidate.decay is None else HALF_LIVES[candidate.decay]
        if half_life != math.inf:
            candidate.scale("decay", decay_factor((now - candidate.time) / 10**6, half_life))
    return _by_total(candidates)


def importance(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Raise or lower the score of records whose importance is not the middle one."""
    for candidate in candidates:
        factor = importance_factor(candidate.importance, query.ranking.importance_weight)
        if factor != 1:
            candidate.scale("importance", factor)
    return _by_total(candidates)


def threshold(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop results that score below `min_score`."""
    least = query.ranking.min_score
    return [candidate for candidate in candidates if candidate.score >= least] if least > 0 else candidates


def limit(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Cut the list to the requested number of results."""
    return candidates[: query.limit]


def in_scope(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop records outside the query's scope. Every source has filtered already: this checks what is to be shown."""
    where, shown = query.filter, candidates[0].pool.read(candidates) if candidates else []
    return [one for one in shown if where.any_scope or where.scope.admits(one.record.scope)]


def in_effect(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Drop records that were superseded or have expired at the query's time: the same check, for time."""
    where = query.filter

    def ended(record: Record) -> bool:
        times = (record.expires_at, None if where.superseded else record.superseded_at)
        return any(time is not None and time <= where.moment for time in times)

    return [candidate for candidate in candidates if not ended(candidate.record)]


def _by_total(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Sorted by total; equal ones keep their order."""
    return sorted(candidates, key=attrgetter("total"), reverse=True)


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
    candidates: Sequence[Candidate],
) -> Sequence[Candidate]:
    """Set the `confidence` of each candidate, and drop those below `min_confidence`.

    It reads the own scores of these sources, not the fused one, so that it means the same with every fusion method.
    With a `min_confidence`, what none of them ranked is dropped too: nothing is known about it. `gauge_of` takes the
    query and the names of the sources that answered it.
    """
    if not query.ranking.wants_confidence or not candidates:
        return candidates
    scores = {name: candidates[0].pool.scores.get(name, {}) for name in sources}
    # A vector source that answered always found something; a keyword source may find nothing.
    answered = {name for name in sources if name == "keyword" or scores[name]}
    try:
        gauge = gauge_of(query, answered)
    except TimedOut as error:
        return Warned(candidates, f"no confidence: {error.message} ({error.hint})")
    # Source → its scores, their unit, and the score to beat. A query without words has no keyword evidence.
    scales = {
        name: (scores[name], unit, _floor([score or 0.0 for score in scores[name].values()], bounded=name == "vector"))
        for name, unit in (("keyword", gauge.most), ("vector", 1.0))
        if name in gauge.nulls and unit > 0
    }
    for candidate in candidates:
        if any(candidate.key in of for of, _, _ in scales.values()):
            found = {name: _above(floor, unit, of.get(candidate.key)) for name, (of, unit, floor) in scales.items()}
            candidate.confidence = round(confidence_of(found, gauge.nulls, gauge.words), 6)
    least = query.ranking.min_confidence
    return [one for one in candidates if least <= 0 or (one.confidence or 0.0) >= least]


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

    def __call__(self, query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The reordered candidates; in the same order if the reranker failed or had no time."""
        head = list(takewhile(lambda candidate: candidate.total > NOTHING, candidates[: self.head]))
        if len(head) < 2:  # noqa: PLR2004  (one result has no rival)
            return candidates
        head = head[0].pool.read(head)
        reranked = self.scores(query, [candidate.record for candidate in head])
        head = head[: len(reranked.scores)]
        rest = [candidate for candidate in candidates if candidate not in head]
        if len(head) > 1:
            totals = [candidate.total for candidate in head]
            low, span = min(totals), max(totals) - min(totals)
            pairs = zip(minmax(totals, False), minmax(reranked.scores, False), strict=True)
            blend = [(1 - self.weight) * fused + self.weight * score for fused, score in pairs]
            for candidate, total, blended in zip(head, totals, blend, strict=True):
                candidate.scale("rerank", (low + span * blended) / total)
            best_first = sorted(range(len(head)), key=lambda i: -blend[i])
            # Sorted again, because rounding may set two that are all but equal apart.
            head = list(_by_total([head[i] for i in best_first]))
        return Warned([*head, *rest], reranked.warning)


COMPARED_RESULTS = 50  # how many results are compared: two versions of a statement stand near each other
ALIKE = 0.4  # the share of their words that two versions of a statement have in common: what differs is the answer
SIZE = 0.7  # how long the shorter must be, relative to the longer: a longer text may hold the very answer


def newer(query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Put a newer fact before an older one that says nearly the same ("the key is under the pot", "… with Anneke").

    Both must contain the same words of the query: the other words that they share may be about something else.
    """
    if not query.ranking.prefer_newer or len(candidates) < 2:  # noqa: PLR2004  (one result has no rival)
        return candidates
    head = list(candidates[:COMPARED_RESULTS])
    query_words = statement("fact", query.text).words
    placed: list[int] = []  # positions in `head`
    rivals: dict[frozenset[int], list[int]] = {}  # words of the query → positions of the statements with these
    statements = head[0].pool.statements(head)
    for position, (candidate, own) in enumerate(zip(head, statements, strict=True)):
        before = len(placed)
        if common := query_words & own.words:
            alike = rivals.setdefault(common, [])
            older = {at for at in alike if head[at].time < candidate.time and _versions(own, statements[at])}
            before = next((place for place, at in enumerate(placed) if at in older), before) if older else before
            alike.append(position)
        placed.insert(before, position)
    for rank, position in enumerate(placed):
        head[position].move("newer", position + 1, rank + 1)
    return [*(head[position] for position in placed), *candidates[COMPARED_RESULTS:]]


def _versions(one: Statement, other: Statement) -> bool:
    """Whether two statements with the same words of the query say nearly the same."""
    short, long = sorted((one.length, other.length))
    if not short or long > LONGEST_WORDS or short < SIZE * long:
        return False
    common = len(one.words & other.words)
    return common >= ALIKE * (len(one.words) + len(other.words) - common)


COMPARED_CHARACTERS = 4_000
"""Characters whose words are compared where a record has no vector: the words of a book take a second."""


def diversify(vectors: VectorsOf, query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Reorder the results so that the first ones differ, and cut them to `limit`: Maximal Marginal Relevance.

    Similarity is the cosine of the records' vectors, or the overlap of their words if one of them has no vector.
    """
    balance = query.ranking.mmr_lambda
    if not query.ranking.mmr or balance == 1 or len(candidates) < 2:  # noqa: PLR2004  (one result has no rival)
        return candidates
    candidates = candidates[0].pool.read(candidates)
    # An earlier stage may have put a result with a lower score first; the first counts as the more relevant.
    relevance = minmax(list(accumulate((candidate.total for candidate in candidates), min)), True)
    ids = [candidate.record.id for candidate in candidates]
    known = vectors(ids)
    if all(key in known for key in ids):
        import numpy as np

        matrix, words = np.stack([known[key] for key in ids]), []
    else:
        words = [set(fold(candidate.record.text[:COMPARED_CHARACTERS]).split()) for candidate in candidates]

    def similarity(i: int) -> Sequence[float]:
        query.check()
        if words:
            return [len(words[i] & other) / len(words[i] | other) if words[i] or other else 1.0 for other in words]
        cosines: Sequence[float] = matrix @ matrix[i]
        return cosines

    picks = mmr(relevance, similarity, balance=balance, picks=query.limit)
    for rank, i in enumerate(picks, 1):
        candidates[i].move("mmr", i + 1, rank)
    return [candidates[i] for i in picks]


def mark_freshness(states: StatesOf, _query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Mark each result that comes from a file as `fresh`, `changed`, `missing` or `unknown` (never indexed)."""
    paths = {one.record.path for one in candidates if one.record.path and one.record.kind != "outside"}
    known = states(sorted(paths)) if paths else {}
    marks = {path: freshness(path, known.get(path)) for path in paths}
    for candidate in candidates:
        candidate.freshness = marks.get(candidate.record.path or "")
    return candidates


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
