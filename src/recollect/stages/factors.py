"""Factors on the fused score: age, by the record's decay class, and importance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from recollect.ranking import DAY, HALF_LIVES, importance_factor
from recollect.ranking import decay as decay_factor
from recollect.types import Query, Record, Result


def decay(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Let what has a decaying class, or with `half_life_days` whatever has no class, count less with age."""
    if not query.ranking.decay:
        return results
    moment = query.filter.moment
    return _sorted([_aged(result, moment, query.ranking.half_life_days) for result in results])


def importance(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Let importance raise or lower what does not have the middle one."""
    weight = query.ranking.importance_weight
    return _sorted(
        [
            result if result.record.importance == 0.5 or weight == 0  # noqa: PLR2004  (the middle of 0 to 1)
            else result.scaled("importance", importance_factor(result.record.importance, weight))
            for result in results
        ]
    )  # fmt: skip


def _aged(result: Result, moment: datetime, days: float | None) -> Result:
    half_life = _half_life(result.record, days)
    if math.isinf(half_life):
        return result
    age = (moment - result.record.time).total_seconds()
    return result.scaled("decay", decay_factor(age, half_life))


def _half_life(record: Record, days: float | None) -> float:
    if record.decay is not None:
        return HALF_LIVES[record.decay]
    return math.inf if days is None else days * DAY


def _sorted(results: list[Result]) -> list[Result]:
    """By total; equal ones keep the order that fusion gave them."""
    return sorted(results, key=lambda result: -result.total)
