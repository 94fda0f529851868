"""Measures of rankings, computed by ir-measures, and their statistics: intervals and paired tests, with fixed seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import UsageError
from recollect.registry import missing_package

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Run: TypeAlias = Mapping[str, Mapping[str, float]]  # question → document → score; higher is better
MEASURES = ("nDCG@10", "R@20", "RR@10")
EXAMPLES = "for example nDCG@10 R@5 R@20 RR@10 AP P@1 Success@5"

MOST = 10_000  # the deepest cutoff: the most results that one search can return
_MEASURE = re.compile(r"[^\s,(]+(?:\([^)]*\))?[^\s,]*")


def parse_measures(words: str | Sequence[str]) -> tuple[str, ...]:
    """Parse measures by their usual names (`nDCG@10 R@5`, also with commas)."""
    names = _MEASURE.findall(words if isinstance(words, str) else " ".join(words))
    if not names:
        raise UsageError("no measure is named", hint=EXAMPLES)
    return tuple(dict.fromkeys(str(_parse(word)) for word in names))


def deepest(measures: Iterable[str]) -> int:
    """Return the largest cutoff of these measures, or 0."""
    return max((int(cutoff) for measure in measures for cutoff in re.findall(r"@(\d+)$", measure)), default=0)


def by_place(documents: Iterable[str]) -> dict[str, float]:
    """Score documents by 1 / rank, which no library reorders; a document that occurs twice keeps its better rank."""
    return {document: 1.0 / rank for rank, document in enumerate(dict.fromkeys(documents), 1)}


def in_order(run: Run) -> dict[str, dict[str, float]]:
    """Make the scores of a run unique: ties are broken by descending document id."""
    return {
        key: by_place(sorted(ranking, key=lambda document: (ranking[document], document), reverse=True))
        for key, ranking in run.items()
    }


def without_self(run: Run, selves: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Remove each question's own document, which `selves` names."""
    return {
        key: {document: score for document, score in ranking.items() if document != selves.get(key)}
        for key, ranking in run.items()
    }


def evaluate(qrels: Mapping[str, Mapping[str, int]], run: Run, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Compute measure → question → value. A question without results counts as zero."""
    from subprocess import SubprocessError

    parsed = [_parse(measure) for measure in measures]
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(qrels, 0.0) for measure in parsed}
    answered = {key: ranking for key, ranking in in_order(run).items() if key in qrels and ranking}
    if not answered:
        return values
    import ir_measures

    try:
        for metric in ir_measures.iter_calc(parsed, {key: dict(qrels[key]) for key in qrels}, answered):
            values[str(metric.measure)][metric.query_id] = float(metric.value)
    except (ArithmeticError, SubprocessError) as error:  # ERR@10 needs numbers as ids, Accuracy an irrelevant document
        names = ", ".join(map(str, parsed))
        raise UsageError(f"{names} cannot be computed on these questions", hint=EXAMPLES) from error
    return values


def _parse(word: str) -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise missing_package(error, "computing measures", "eval") from error
    reason = ""
    try:
        measure = ir_measures.parse_measure(word)
        ir_measures.evaluator([measure], {"question": {"document": 1}})
        if not 1 <= measure.params.get("cutoff", 1) <= MOST:
            reason = f"a cutoff is between 1 and {MOST:,}"
    except AssertionError:  # the library's way to report a missing parameter
        reason = "it needs a cutoff, as in R@5"
    except KeyError as error:  # and an unknown one
        reason = f"it has no parameter {error}"
    except (ValueError, NameError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
    if reason:
        raise UsageError(f"{word!r} is not a measure that can be computed: {reason}", hint=EXAMPLES)
    return measure


CONFIDENT = 10  # results of a question whose confidence is checked
BINS = 10  # groups of results with about the same confidence


def calibration_error(confidences: Sequence[float], relevant: Sequence[bool]) -> float:
    """Return the expected calibration error: how far confidence is from the share of relevant results.

    The results are grouped by confidence, in ten bins of equal width. The error is the distance between the mean
    confidence and the share of relevant results of a bin, averaged over results.
    """
    bins = reliability(confidences, relevant)
    return sum(count * abs(mean - share) for mean, share, count in bins) / max(1, len(confidences))


def reliability(confidences: Sequence[float], relevant: Sequence[bool]) -> list[tuple[float, float, int]]:
    """Return the mean confidence, the share of relevant results and the number of results of each bin with any."""
    import numpy as np

    values, hits = np.asarray(confidences, dtype=np.float64), np.asarray(relevant, dtype=np.float64)
    places = np.minimum((values * BINS).astype(int), BINS - 1)
    groups = (places == place for place in np.unique(places))
    return [(float(values[group].mean()), float(hits[group].mean()), int(group.sum())) for group in groups]


RESAMPLES = 2000
PERMUTATIONS = 10_000
LEVEL = 0.95
SEED = 60  # a fixed seed makes reports repeatable

ROUNDING = 1e-12  # tolerance for equal sums, so that rounding does not change p
BLOCK = 4_000_000  # random numbers drawn at once, to bound the memory for large sets


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n questions and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems on the same questions: the difference, its p value, and the numbers of wins, losses and ties."""

    difference: Estimate
    p: float
    wins: int
    losses: int
    ties: int

    @property
    def significant(self) -> bool:
        """Whether p is below 0.05."""
        return self.p < 1 - LEVEL


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean with its percentile bootstrap interval over questions."""
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        return Estimate(0.0, 0.0, 0.0, 0)
    means = _drawn(array, RESAMPLES, len(array), lambda picks: array[picks].mean(axis=1))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(array.mean()), float(low), float(high), len(array))


def compare(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Comparison:
    """Compare two systems by a paired two-sided randomisation test."""
    gains = _gains(ours, theirs)
    wins, losses, moved = int((gains > 0).sum()), int((gains < 0).sum()), gains[gains != 0]
    extreme = int((_swapped(moved) >= abs(moved.sum()) - ROUNDING).sum()) if len(moved) else PERMUTATIONS
    p = (extreme + 1) / (PERMUTATIONS + 1)
    return Comparison(estimate(gains.tolist()), p, wins, losses, len(gains) - wins - losses)


def noticeable(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float | None:
    """Return the smallest significant difference of means, given how much the questions differ.

    None if too few questions differ for any significant difference.
    """
    gains = _gains(ours, theirs)
    moved = gains[gains != 0]
    if not len(moved):
        return None
    rarest = int((1 - LEVEL) * (PERMUTATIONS + 1)) - 1  # draws that may be as extreme
    edge = float(sorted(_swapped(moved))[-rarest - 1])
    return edge / len(gains) if edge < abs(moved).sum() - ROUNDING else None


def check_fall(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, Any]:
    """Compare a measure after and before a change, as JSON; `fell` says whether it is significantly lower."""
    comparison = compare(after, before)
    fell = comparison.difference.mean < 0 and comparison.significant
    return {"noticeable": noticeable(after, before), "fell": fell, **asdict(comparison)}


def _gains(ours: Mapping[str, float], theirs: Mapping[str, float]) -> NDArray[np.float64]:
    import numpy as np

    return np.array([value - theirs[key] for key, value in ours.items() if key in theirs], dtype=np.float64)


def _swapped(moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the absolute sums of the differences under random signs."""
    return _drawn(moved, PERMUTATIONS, 2, lambda picks: abs((picks * 2 - 1) @ moved))


def _drawn(
    values: NDArray[np.float64], draws: int, below: int, reduce: Callable[[NDArray[np.int64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Draw a random number below a limit for each value, many times, and reduce each draw to one number."""
    import numpy as np

    generator, step = np.random.default_rng(SEED), max(1, BLOCK // len(values))
    sizes = ((min(step, draws - start), len(values)) for start in range(0, draws, step))
    return np.concatenate([reduce(generator.integers(0, below, size)) for size in sizes])
