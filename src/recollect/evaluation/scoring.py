"""Measures, by a library of the field.

What the library is given has no equal scores: `in_order` settles them as trec_eval does, so that every measure, whoever
computes it, reads the same ranking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import UsageError
from recollect.types import Answer, Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Run: TypeAlias = Mapping[str, Mapping[str, float]]
"""Question → document → score; higher is better."""

MEASURES = ("nDCG@10", "R@20", "RR@10")
EXAMPLES = "for example nDCG@10 R@5 R@20 RR@10 AP P@1 Success@5"

MOST = 10_000
"""The deepest cutoff: as many results as one search can give."""

_MEASURE = re.compile(r"[^\s,(]+(?:\([^)]*\))?[^\s,]*")


def parse_measures(words: str | Sequence[str]) -> tuple[str, ...]:
    """Measures by their usual names (`nDCG@10 R@5`, also with commas), each once, spelt as the library spells them."""
    said = _MEASURE.findall(words if isinstance(words, str) else " ".join(words))
    if not said:
        raise UsageError("no measure is named", hint=EXAMPLES)
    return tuple(dict.fromkeys(str(_parse(word)) for word in said))


def deepest(measures: Iterable[str]) -> int:
    """The largest cutoff: how many results the measures read at the least."""
    return max((int(cutoff) for measure in measures for cutoff in re.findall(r"@(\d+)$", measure)), default=0)


def rank_all(search: Callable[[Query], Answer], queries: Mapping[str, str], *, depth: int) -> Run:
    """Every question's ranking. The score is the place, so that equal scores cannot be reordered by a library."""
    return {
        key: by_place(result.record.id for result in search(Query(text, limit=depth)).results)
        for key, text in queries.items()
    }


def by_place(documents: Iterable[str]) -> dict[str, float]:
    """A ranking whose scores are one over the place; a document keeps its better one."""
    return {document: 1.0 / rank for rank, document in enumerate(dict.fromkeys(documents), 1)}


def in_order(run: Run) -> dict[str, dict[str, float]]:
    """The run with scores that differ: equal ones are set apart by falling document id."""
    return {
        key: by_place(sorted(ranking, key=lambda document: (ranking[document], document), reverse=True))
        for key, ranking in run.items()
    }


def without_self(run: Run, selves: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """The run without each question's own document, which `selves` names."""
    return {
        key: {document: score for document, score in ranking.items() if document != selves.get(key)}
        for key, ranking in run.items()
    }


def evaluate(qrels: Mapping[str, Mapping[str, int]], run: Run, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure (`nDCG@10`) → question → value. A question without results counts as zero."""
    parsed = [_parse(measure) for measure in measures]
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(qrels, 0.0) for measure in parsed}
    answered = {key: ranking for key, ranking in in_order(run).items() if key in qrels and ranking}
    if answered:
        for metric in _calculated(parsed, {key: dict(qrels[key]) for key in qrels}, answered):
            values[str(metric.measure)][metric.query_id] = float(metric.value)
    return values


def _calculated(measures: Sequence[Any], qrels: Mapping[str, Mapping[str, int]], run: Run) -> list[Any]:
    from subprocess import SubprocessError

    try:
        return list(_library().iter_calc(measures, qrels, run))
    except (ArithmeticError, SubprocessError) as error:  # ERR@10 wants numbers for ids, Accuracy something irrelevant
        names = ", ".join(map(str, measures))
        raise UsageError(f"{names} cannot be computed on these questions", hint=EXAMPLES) from error


def _library() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise UsageError("measuring needs ir-measures", hint="pip install 'recollect[eval]'") from error
    return ir_measures


def _parse(word: str) -> Any:
    library = _library()
    try:
        measure = library.parse_measure(word)
        library.evaluator([measure], {"question": {"document": 1}})
    except AssertionError as error:  # how the library says that a parameter is missing
        raise _wrong(word, "it needs a cutoff, as in R@5") from error
    except KeyError as error:  # and that it has none of that name
        raise _wrong(word, f"it has no parameter {error}") from error
    except (ValueError, NameError, TypeError, RuntimeError) as error:
        raise _wrong(word, " ".join(str(error).split())) from error
    if not 1 <= measure.params.get("cutoff", 1) <= MOST:
        raise _wrong(word, f"a cutoff is between 1 and {MOST:,}")
    return measure


def _wrong(word: str, reason: str) -> UsageError:
    return UsageError(f"{word!r} is no measure that can be computed: {reason}", hint=EXAMPLES)


RESAMPLES = 2000
PERMUTATIONS = 10_000
LEVEL = 0.95
SEED = 60
"""Any number would do; a fixed one makes reports repeatable."""

ROUNDING = 1e-12
"""Rounding must not make the data rarer than they are."""

BLOCK = 4_000_000
"""Numbers drawn at once, so that a large set does not fill the memory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n questions and its bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A system against another on the same questions: by how much, how sure, on how many it won, lost and tied."""

    difference: Estimate
    p: float
    wins: int
    losses: int
    ties: int

    @property
    def significant(self) -> bool:
        """Whether chance alone would give such a difference in fewer than one of twenty trials."""
        return self.p < 1 - LEVEL


def estimate(values: Sequence[float]) -> Estimate:
    """The mean with its percentile bootstrap interval over questions."""
    import numpy as np

    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        return Estimate(0.0, 0.0, 0.0, 0)
    low, high = np.quantile(_resampled(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(found.mean()), float(low), float(high), len(found))


def compare(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Comparison:
    """A paired two-sided randomisation test: how often chance, swapping the two at random, does as much."""
    import numpy as np

    keys = [key for key in ours if key in theirs]
    gains = np.array([ours[key] - theirs[key] for key in keys], dtype=np.float64)
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    return Comparison(estimate(gains.tolist()), _chance(gains), wins, losses, len(keys) - wins - losses)


def noticeable(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float | None:
    """What a difference of means must exceed for the test to take it for more than chance, these questions differing.

    None where so few questions differ that no difference could.
    """
    import numpy as np

    gains = np.array([ours[key] - theirs[key] for key in ours if key in theirs], dtype=np.float64)
    moved = gains[gains != 0]
    if not len(moved):
        return None
    rarest = int((1 - LEVEL) * (PERMUTATIONS + 1)) - 1  # so many of the draws may do as much
    edge = float(np.sort(_swapped(moved))[-rarest - 1])
    return edge / len(gains) if edge < np.abs(moved).sum() - ROUNDING else None


def _resampled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    generator, means, step = np.random.default_rng(SEED), [], max(1, BLOCK // len(values))
    for start in range(0, RESAMPLES, step):
        picks = generator.integers(0, len(values), (min(step, RESAMPLES - start), len(values)))
        means.append(values[picks].mean(axis=1))
    return np.concatenate(means)


def _chance(gains: NDArray[np.float64]) -> float:
    moved = gains[gains != 0]
    if not len(moved):
        return 1.0
    extreme = int((_swapped(moved) >= abs(moved.sum()) - ROUNDING).sum())
    return (extreme + 1) / (PERMUTATIONS + 1)


def _swapped(moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far the sum of differences is from zero, either way, when chance says for each question which is whose."""
    import numpy as np

    generator, sums, step = np.random.default_rng(SEED), [], max(1, BLOCK // len(moved))
    for start in range(0, PERMUTATIONS, step):
        signs = generator.integers(0, 2, (min(step, PERMUTATIONS - start), len(moved))) * 2 - 1
        sums.append(np.abs(signs @ moved))
    return np.concatenate(sums)
