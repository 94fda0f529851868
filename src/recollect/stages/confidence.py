"""Confidence: how far the scores of a result stand above those that unrelated queries get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from recollect.errors import TimedOut
from recollect.ranking import Evidence, Null, confidence
from recollect.types import Contribution, Query, Result, WarnedResults

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


GaugeOf: TypeAlias = Callable[[Query, Collection[str]], Gauge]
"""A query and the names of the sources that answered it → its gauge."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Sets the `confidence` of each result, and drops results below `min_confidence`.

    It reads the sources' own scores, not the fused one, so that it means the same with every fusion method. With a
    `min_confidence`, results that no built-in source ranked are dropped too: nothing is known about them.
    """

    gauge: GaugeOf
    sources: tuple[str, ...] = ("keyword", "vector")

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """The results with their confidence; the same results if the query does not ask for it."""
        if not query.ranking.wants_confidence or not results:
            return results
        try:
            gauge = self.gauge(query, self._answered(results))
        except TimedOut as error:
            return WarnedResults(results, f"no confidence: {error.message} ({error.hint})")
        scales = _scales(gauge, results)
        rated = [replace(result, confidence=_of(result, scales, gauge)) for result in results]
        least = query.ranking.min_confidence
        return [result for result in rated if least <= 0 or (result.confidence or 0.0) >= least]

    def _answered(self, results: Sequence[Result]) -> set[str]:
        """The sources that answered: a vector source always finds something, a keyword source may find nothing."""
        return {name for name in self.sources if name == "keyword" or _scores(name, results)}


@dataclass(frozen=True, slots=True)
class _Scale:
    """The unit that a source's scores are divided by, and its score at the rank to beat."""

    unit: float
    floor: float

    def evidence(self, share: Contribution | None) -> Evidence:
        score = self.floor if share is None or share.score is None else max(self.floor, share.score)
        return Evidence(score / self.unit, (score - self.floor) / self.unit)


def evidence(scores: Sequence[float], unit: float, *, bounded: bool) -> Evidence:
    """The evidence for the first hit of a list with these scores."""
    floor = _floor(scores, bounded=bounded)
    return _Scale(unit, floor).evidence(Contribution(1, max(scores, default=floor), 0.0))


def _scales(gauge: Gauge, results: Sequence[Result]) -> dict[str, _Scale]:
    """Source → scale. A query without words has no keyword evidence."""
    scales = {}
    if "keyword" in gauge.nulls and gauge.most > 0:
        scales["keyword"] = _Scale(gauge.most, _floor(_scores("keyword", results), bounded=False))
    if "vector" in gauge.nulls:
        scales["vector"] = _Scale(1.0, _floor(_scores("vector", results), bounded=True))
    return scales


def _scores(source: str, results: Iterable[Result]) -> list[float]:
    shares = (result.shares.get(source) for result in results)
    return [share.score for share in shares if share is not None and share.score is not None]


def _floor(scores: Sequence[float], *, bounded: bool) -> float:
    """The score at the rank to beat. A shorter list ends with its last cosine, or with zero if it is a keyword list."""
    ranked = sorted(scores, reverse=True)
    if len(ranked) >= RANK_TO_BEAT:
        return ranked[RANK_TO_BEAT - 1]
    return ranked[-1] if bounded and ranked else 0.0


def _of(result: Result, scales: Mapping[str, _Scale], gauge: Gauge) -> float | None:
    if not scales.keys() & result.shares.keys():
        return None
    found = {source: scale.evidence(result.shares.get(source)) for source, scale in scales.items()}
    return round(confidence(found, gauge.nulls, gauge.words), 6)
