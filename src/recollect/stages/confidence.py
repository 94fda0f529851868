"""How sure a result is: what the sources say for it, against what they say for unrelated queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from recollect.errors import TimedOut
from recollect.ranking import Evidence, Null, confidence
from recollect.types import Contribution, Query, Result, WarnedResults

RANK_TO_BEAT = 20
"""The margin of a record is over this rank; all that is ranked lower counts as this rank does.

So confidence depends neither on `limit` nor on how deep a source is read.
"""


@dataclass(frozen=True, slots=True)
class Gauge:
    """What one query's evidence is judged by: its words, the most a keyword score can be, and unrelated queries."""

    words: int
    most: float
    nulls: Mapping[str, Null]


GaugeOf: TypeAlias = Callable[[Query, Collection[str]], Gauge]
"""A query and the sources that answered it → its gauge."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """Fills `confidence`, and drops what has less than the query asks for.

    It reads the sources' own scores, not the fused one, so that it means the same under every fusion. Where the query
    asks for a least confidence, what no source of ours has ranked is dropped too: nothing is known of it.
    `asked` names those of the sources that it reads.
    """

    gauge: GaugeOf
    asked: tuple[str, ...] = ("keyword", "vector")

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """The same results with their confidence; nothing happens when the query does not ask for it."""
        if not query.ranking.wants_confidence or not results:
            return results
        try:
            gauge = self.gauge(query, self._answered(results))
        except TimedOut as error:
            return WarnedResults(results, f"no confidence: {error.message} ({error.hint})")
        scales = _scales(gauge, results)
        marked = [replace(result, confidence=_of(result, scales, gauge)) for result in results]
        least = query.ranking.min_confidence
        return [result for result in marked if least <= 0 or (result.confidence or 0.0) >= least]

    def _answered(self, results: Sequence[Result]) -> set[str]:
        """A vector source that answers always finds something; a keyword source that found nothing has answered."""
        return {name for name in self.asked if name == "keyword" or _scores(name, results)}


@dataclass(frozen=True, slots=True)
class _Scale:
    """What a source's scores are divided by, and its score at the rank to beat."""

    unit: float
    floor: float

    def evidence(self, share: Contribution | None) -> Evidence:
        score = self.floor if share is None or share.score is None else max(self.floor, share.score)
        return Evidence(score / self.unit, (score - self.floor) / self.unit)


def evidence(scores: Sequence[float], unit: float, *, bounded: bool) -> Evidence:
    """What a source says for the first of its list, whose scores these are."""
    floor = _floor(scores, bounded=bounded)
    return _Scale(unit, floor).evidence(Contribution(1, max(scores, default=floor), 0.0))


def _scales(gauge: Gauge, results: Sequence[Result]) -> dict[str, _Scale]:
    """Source → scale. A query without words has no keyword evidence for or against anything."""
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
    """The score at the rank to beat. A shorter list of cosines ends with all there is; a keyword list, with zero."""
    ranked = sorted(scores, reverse=True)
    if len(ranked) >= RANK_TO_BEAT:
        return ranked[RANK_TO_BEAT - 1]
    return ranked[-1] if bounded and ranked else 0.0


def _of(result: Result, scales: Mapping[str, _Scale], gauge: Gauge) -> float | None:
    if not scales.keys() & result.shares.keys():
        return None
    found = {source: scale.evidence(result.shares.get(source)) for source, scale in scales.items()}
    return round(confidence(found, gauge.nulls, gauge.words), 6)
