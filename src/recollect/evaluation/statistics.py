"""How far a mean could be off, and whether two systems differ by more than chance; repeatable to the digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
