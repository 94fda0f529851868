"""Measures, by a library of the field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.types import Answer, Query

Run: TypeAlias = Mapping[str, Mapping[str, float]]
"""Question → document → score; higher is better."""


def rank_all(search: Callable[[Query], Answer], queries: Mapping[str, str], *, depth: int) -> Run:
    """Every question's ranking. The score is the place, so that equal scores cannot be reordered by a library."""
    run: dict[str, dict[str, float]] = {}
    for key, text in queries.items():
        results = search(Query(text, limit=depth)).results
        run[key] = {result.record.id: 1.0 / rank for rank, result in enumerate(results, 1)}
    return run


def evaluate(qrels: Mapping[str, Mapping[str, int]], run: Run, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure (`nDCG@10`) → question → value. A question without results counts as zero."""
    try:
        import ir_measures
    except ImportError as error:
        raise UsageError("measuring needs ir-measures", hint="pip install 'recollect[eval]'") from error
    parsed = [ir_measures.parse_measure(measure) for measure in measures]
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(qrels, 0.0) for measure in parsed}
    found: Iterable[Any] = ir_measures.iter_calc(parsed, qrels, run)
    for metric in found:
        values[str(metric.measure)][metric.query_id] = metric.value
    return values
