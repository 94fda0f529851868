"""Ranked lists in, one ranking out; every score is a sum of contributions that can be shown.

The mathematics only: no I/O, and nothing imported but the types, so that `recollect.fuse` costs one small import.
Adding a method is one function with the decorator `@method`; adding a normalisation is one with `@normalisation`.
The command line, the page, the JSON shapes, the pipeline and the evaluation all read the two tables.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from recollect.dataclass import dataclass
from recollect.options import DEFAULT_K
from recollect.types.search import Contribution, Hit, RankedList

__all__ = ["DEFAULT_K", "METHODS", "NORMALISATIONS", "Fused", "Hit", "RankedList", "calculate_rrf_score", "fuse"]

ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Fused:
    """One document of the fused ranking: `fused` is the sum of its contributions, `score` that sum over its maximum."""

    id: str
    fused: float
    score: float
    shares: Mapping[str, Contribution] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Ranking:
    """A ranked list as fusion reads it: keys of documents, best first, with their scores and ranks, in columns.

    `weight`, `bounded` and `among` are those of `RankedList`. `combine` sets `amounts`: what the list gives to each.
    """

    source: str
    keys: Sequence[Any]
    scores: Sequence[float | None]
    weight: float = 1.0
    bounded: bool = False
    among: int | None = None
    ranks: Sequence[int] = ()
    amounts: Sequence[float] = ()
    _positions: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ranks = self.ranks or range(1, len(self.keys) + 1)

    def position(self, key: Any) -> int | None:
        """The position of a document in the list, from 0; None if the list does not contain it."""
        if not self._positions:
            self._positions = dict(zip(self.keys, range(len(self.keys)), strict=True))
        return self._positions.get(key)

    def amount(self, key: Any) -> float:
        """What the list gives to a document: 0 if it does not contain it."""
        at = self.position(key)
        return 0.0 if at is None else self.amounts[at]

    def contribution(self, key: Any) -> Contribution | None:
        """The rank and the score of a document, and what the list gives to it; None if it does not contain it."""
        at = self.position(key)
        return None if at is None else Contribution(self.ranks[at], self.scores[at], self.amounts[at])

    def without_repeats(self) -> Ranking:
        """The list itself, or one in which a document that occurs twice keeps only its better place.

        What follows it moves up, unless the hits came with their ranks.
        """
        if len(set(self.keys)) == len(self.keys):
            return self
        first = sorted({key: at for at, key in reversed(list(enumerate(self.keys)))}.values())
        ranks = () if isinstance(self.ranks, range) else [self.ranks[at] for at in first]
        return replace(
            self, keys=[self.keys[at] for at in first], scores=[self.scores[at] for at in first], ranks=ranks
        )


Amounts: TypeAlias = list[list[float]]  # for each list in turn, what it gives to each of its documents

Compute: TypeAlias = Callable[[Sequence[Ranking], float, str], tuple[Amounts, float]]
"""(lists, k, normalisation) → contributions, and the most that one document could collect."""

Normalise: TypeAlias = Callable[[Sequence[float], bool], list[float]]  # (scores, bounded) → scores between 0 and 1


@dataclass(frozen=True, slots=True)
class FusionMethod:
    """A fusion method and what others need to know about it.

    `reads` names the search options, beyond the weights, that change its result. A method that is not `by_score` reads
    ranks only. One that is `by_trust` multiplies a source's weight by the trust that the source reports,
    and lets the turns around a turn of a conversation count.
    """

    name: str
    label: str
    help: str
    compute: Compute
    reads: tuple[str, ...] = ()
    by_score: bool = True
    by_trust: bool = False

    def as_dict(self, k: float, normalisation: str) -> dict[str, Any]:
        """The method as JSON, with those of the options that change its result."""
        options = {"rrf_k": ("k", int(k) if k.is_integer() else k), "normalisation": ("normalisation", normalisation)}
        return {"method": self.name, **dict(options[name] for name in self.reads)}


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A way to make the scores of different sources comparable; calling it normalises the scores of one list."""

    name: str
    help: str
    normalise: Normalise

    def __call__(self, scores: Sequence[float], bounded: bool) -> list[float]:
        """The scores between 0 and 1. `bounded` scores, such as cosines, are comparable already."""
        return self.normalise(scores, bounded)


_methods: dict[str, FusionMethod] = {}
_normalisations: dict[str, Normalisation] = {}

METHODS: Mapping[str, FusionMethod] = MappingProxyType(_methods)  # every fusion method by name, the default first

NORMALISATIONS: Mapping[str, Normalisation] = MappingProxyType(_normalisations)
"""Every normalisation by name, the default first."""


def method(
    name: str, summary: str, *, label: str, reads: tuple[str, ...] = (), by_score: bool = True, by_trust: bool = False
) -> Callable[[Compute], Compute]:
    """Add a function to the fusion methods."""

    def add(compute: Compute) -> Compute:
        _methods[name] = FusionMethod(name, label, summary, compute, reads, by_score, by_trust)
        return compute

    return add


def normalisation(name: str, summary: str) -> Callable[[Normalise], Normalise]:
    """Add a function to the normalisations."""

    def add(normalise: Normalise) -> Normalise:
        _normalisations[name] = Normalisation(name, summary, normalise)
        return normalise

    return add


def calculate_rrf_score(ranks: Iterable[int], *, k: float = DEFAULT_K) -> float:
    """The RRF score of a document with these ranks, one per list that holds it."""
    counted = list(ranks)
    if any(rank < 1 for rank in counted):
        raise ValueError(f"ranks count from 1, not {min(counted)}")
    return math.fsum(1.0 / (_checked_k(k) + rank) for rank in counted)


def fuse(
    lists: Iterable[RankedList] | Mapping[str, Sequence[object]],
    *,
    method: str = "rrf",
    k: float = DEFAULT_K,
    normalisation: str = "none",
    weights: Mapping[str, float] | None = None,
) -> list[Fused]:
    """Fuse ranked lists into one ranking.

    `lists` is a sequence of `RankedList`, or a mapping from a source's name to its ranking, best first: ids, or
    (id, score) pairs. The order of the lists matters only for the last ties.
    """
    for name, table, what in ((method, METHODS, "fusion method"), (normalisation, NORMALISATIONS, "normalisation")):
        if name not in table:
            raise ValueError(f"unknown {what} {name!r}; there are {', '.join(table)}")
    _checked_k(k)
    rankings = [_as_ranking(ranked) for ranked in _as_lists(lists, weights or {}) if ranked.weight > 0]
    results = []
    for key, total, score in combine(rankings, method, k, normalisation):
        shares = {ranking.source: ranking.contribution(key) for ranking in rankings}
        results.append(Fused(key, total, score, {source: share for source, share in shares.items() if share}))
    return results


def combine(rankings: Sequence[Ranking], method: str, k: float, normalisation: str) -> list[tuple[Any, float, float]]:
    """Each document's key, the sum of its contributions, and that sum over its maximum; best first.

    Of equal sums the better rank is first, then the earlier list; ranks that came with the hits may be equal, too.
    """
    if not rankings:
        return []
    amounts, ceiling = METHODS[method].compute(rankings, k, normalisation)
    places = list[tuple[int, Any, float]]()
    for position, (ranking, given) in enumerate(zip(rankings, amounts, strict=True)):
        ranking.amounts = given
        numbers = [rank * len(rankings) + position for rank in ranking.ranks]
        places += zip(numbers, ranking.keys, given, strict=True)
    places.sort()
    totals: dict[Any, float] = {}  # documents in the order that decides between equal sums
    for _, key, amount in places:
        totals[key] = totals.get(key, 0.0) + amount
    if len(rankings) > 2:  # noqa: PLR2004  (the sum of two is exact, that of several depends on their order)
        totals = {key: math.fsum(ranking.amount(key) for ranking in rankings) for key in totals}
    ordered = sorted(totals.items(), key=operator.itemgetter(1), reverse=True)
    if ordered and ordered[0][1] <= ceiling and ordered[-1][1] >= 0:
        return [(key, total, total / ceiling) for key, total in ordered]
    return [(key, total, min(1.0, max(0.0, total / ceiling))) for key, total in ordered]


@method("blend", "how far each score stands above the rest of its list", label="Blend", by_trust=True)
def blend(lists: Sequence[Ranking], _k: float, _normalisation: str) -> tuple[Amounts, float]:
    """A convex combination of how far each score stands above the tail of its list: Σ w · above(score) / Σ w.

    Scores that are nearly equal say little, and a score that stands out says much. So a source counts for more in a
    query for which it separates documents well. A document that is absent counts like one after the end of the list.
    The maximum is the first place in every list, as with RRF.
    """
    total = math.fsum(ranking.weight for ranking in lists)
    amounts = [_above(ranking, ranking.weight / total) for ranking in lists]
    return amounts, math.fsum(max(of, default=0.0) for of in amounts) or 1.0


@method("rrf", "Σ w / (k + rank): ranks only", label="RRF", reads=("rrf_k",), by_score=False)
def rrf(lists: Sequence[Ranking], k: float, _normalisation: str) -> tuple[Amounts, float]:
    """Reciprocal Rank Fusion: Σ w / (k + rank). Scores are not read."""
    amounts = [[ranking.weight / (k + rank) for rank in ranking.ranks] for ranking in lists]
    return amounts, math.fsum(ranking.weight / (k + 1) for ranking in lists)


@method("weighted", "Σ w · normalised score", label="Weighted", reads=("normalisation",))
def weighted(lists: Sequence[Ranking], _k: float, normalisation: str) -> tuple[Amounts, float]:
    """A convex combination of normalised scores: Σ w · norm(score) / Σ w."""
    total = math.fsum(ranking.weight for ranking in lists)
    amounts = []
    for ranking in lists:
        values = NORMALISATIONS[normalisation](_scores(ranking), ranking.bounded) if ranking.keys else []
        amounts.append([ranking.weight / total * value for value in values])
    return amounts, 1.0


@method("combmnz", "the weighted sum, times how many sources agree", label="CombMNZ", reads=("normalisation",))
def combmnz(lists: Sequence[Ranking], _k: float, normalisation: str) -> tuple[Amounts, float]:
    """CombMNZ: the weighted sum, times the number of lists that hold the document."""
    amounts, _ = weighted(lists, _k, normalisation)
    counts = Counter(key for ranking in lists for key in ranking.keys)
    pairs = zip(lists, amounts, strict=True)
    times = [[counts[key] * value for key, value in zip(ranking.keys, of, strict=True)] for ranking, of in pairs]
    return times, float(len(lists))


@method("borda", "points for every place above the last", label="Borda", by_score=False)
def borda(lists: Sequence[Ranking], _k: float, _normalisation: str) -> tuple[Amounts, float]:
    """Borda count: with c documents in all, rank r earns (c - r + 1) / c; an absent document earns nothing."""
    documents = {key for ranking in lists for key in ranking.keys}
    # A rank that came with a hit can exceed the number of documents here: then there were at least that many.
    count = max(len(documents), *(rank for ranking in lists for rank in ranking.ranks[-1:]), 0)
    amounts = [[ranking.weight * (count - rank + 1) / count for rank in ranking.ranks] for ranking in lists]
    return amounts, math.fsum(ranking.weight for ranking in lists)


@normalisation("none", "bounded scores as they are, others as s / (1 + s)")
def as_given(scores: Sequence[float], bounded: bool) -> list[float]:
    """A bounded score as it is; an unbounded one, such as BM25's, as s / (1 + s)."""
    return list(scores) if bounded else [s / (1 + abs(s)) for s in scores]


@normalisation("minmax", "best 1, worst 0")
def minmax(scores: Sequence[float], _bounded: bool) -> list[float]:
    """Best 1, worst 0; when all are equal, all are best."""
    sized = _sized(scores)
    low, high = min(sized), max(sized)
    return [(s - low) / (high - low) if high > low else 1.0 for s in sized]


@normalisation("zscore", "the normal distribution function of the z-score")
def zscore(scores: Sequence[float], _bounded: bool) -> list[float]:
    """The normal distribution function of the z-score: 0 to 1, so that absence (0) is never better than presence."""
    return [0.5 * (1 + math.erf(z / math.sqrt(2))) for z in _deviations(scores)]


@normalisation("dbsf", "mean ± 3σ as 0 and 1")
def dbsf(scores: Sequence[float], _bounded: bool) -> list[float]:
    """Distribution-based: mean - 3σ is 0, mean + 3σ is 1, cut off outside."""
    return [min(1.0, max(0.0, z / 6 + 0.5)) for z in _deviations(scores)]


def _sized(scores: Sequence[float]) -> list[float]:
    """The scores divided by the largest, so that none is too large or too small to compute with."""
    largest = max(map(abs, scores))
    return [s / largest for s in scores] if largest else list(scores)


def _deviations(scores: Sequence[float]) -> list[float]:
    """How many standard deviations each is above the mean; 0 where all are equal."""
    sized = _sized(scores)
    mean = math.fsum(sized) / len(sized)
    deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in sized) / len(sized))
    # Equal scores can leave a deviation of rounding error; dividing by it would invent differences.
    return [(s - mean) / deviation if deviation > ROUNDING else 0.0 for s in sized]


def _scores(ranking: Ranking) -> Sequence[float]:
    """The scores of a list, of which higher is better. If they rise, best first, lower is better (as in FTS5)."""
    scores = [score for score in ranking.scores if score is not None]
    if len(scores) < len(ranking.keys):
        by_rank = " or ".join(repr(known.name) for known in METHODS.values() if not known.by_score)
        raise ValueError(f"{ranking.source!r} has entries without a score; fuse it by rank: method {by_rank}")
    rising = not ranking.bounded and scores and (scores[0] < scores[-1] or scores[0] == scores[-1] < 0)
    return [-s for s in scores] if rising else scores


MOST_ABOVE = 6.0
"""The number of root mean squares above the tail that counts as the maximum: the first of a hundred rarely has more."""


def _above(ranking: Ranking, weight: float) -> list[float]:
    """The distance of each score to the tail, divided by its root mean square in the list, and by the maximum."""
    if not ranking.keys:
        return []
    sized = _sized(_scores(ranking))
    low, count, among = min(sized), len(sized), ranking.among or 0
    if among > count and low >= 0:
        # The tail of a complete list is made of the documents that it does not contain.
        tail, count = 0.0, among
    else:
        # The document after the last would score one mean step lower.
        tail = low - (max(sized) - low) / count
    spread = math.sqrt(math.fsum([(score - tail) ** 2 for score in sized]) / count)
    if spread <= ROUNDING:  # if all are equal, none stands out, and each is one unit above an absent document
        return [weight * min(1.0, 1.0 / MOST_ABOVE)] * len(sized)
    above = [(score - tail) / spread / MOST_ABOVE for score in sized]
    return [weight * share if share < 1.0 else weight for share in above]


def _as_ranking(ranked: RankedList) -> Ranking:
    """The columns of a list."""
    keys, scores = [hit.id for hit in ranked.entries], [hit.score for hit in ranked.entries]
    ranks = [hit.rank for hit in ranked.entries if hit.rank is not None]
    return Ranking(ranked.source, keys, scores, ranked.weight, ranked.bounded, ranked.among, ranks).without_repeats()


def _as_lists(
    lists: Iterable[RankedList] | Mapping[str, Sequence[object]], weights: Mapping[str, float]
) -> list[RankedList]:
    if isinstance(lists, Mapping):
        lists = [
            RankedList(source, tuple(_as_hit(item) for item in items), weights.get(source, 1.0))
            for source, items in lists.items()
        ]
    elif weights:
        raise ValueError("a RankedList carries its own weight; `weights` goes with a mapping of rankings")
    ranked = list(lists)
    if not all(isinstance(ranking, RankedList) for ranking in ranked):
        raise ValueError(
            "rankings without a name; write {'keyword': [...], 'vector': [...]}, or give each as RankedList"
        )
    names = [ranking.source for ranking in ranked]
    if len(set(names)) < len(names):
        raise ValueError(f"two lists have the same source name: {', '.join(names)}")
    if unknown := set(weights) - set(names):
        raise ValueError(f"a weight names a source that is not there: {', '.join(sorted(unknown))}")
    return ranked


def _as_hit(item: object) -> Hit:
    match item:
        case Hit():
            return item
        case str():
            return Hit(item)
        case (str(key), int() | float() as score):
            return Hit(key, float(score))
    raise ValueError(f"a ranking holds ids or (id, score) pairs, not {item!r}")


def _checked_k(k: float) -> float:
    if not (math.isfinite(k) and k >= 0):
        raise ValueError(f"k must be a number of 0 or more, not {k!r}")
    return k
