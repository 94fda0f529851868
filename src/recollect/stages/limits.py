"""Where an answer ends: what is too weak, and what is too much."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.types import Query, Result


def threshold(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop what scores below `min_score`."""
    return [result for result in results if result.score >= query.ranking.min_score]


def limit(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Keep as many as were asked for."""
    return results[: query.limit]
