"""What happens to results after fusion. Each stage is `(query, results) -> results`; `order` is their one order."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.stages.confidence import Confidence
from recollect.stages.order import (
    Freshness,
    Mmr,
    Rerank,
    StatesOf,
    VectorsOf,
    decay,
    freshness,
    importance,
    in_force,
    in_scope,
    limit,
    newer,
    threshold,
)
from recollect.types import Stage

__all__ = [
    "Confidence",
    "Freshness",
    "Mmr",
    "Rerank",
    "decay",
    "freshness",
    "importance",
    "in_force",
    "in_scope",
    "limit",
    "newer",
    "order",
    "threshold",
]


def order(
    vectors: VectorsOf, states: StatesOf, rerank: Rerank | None = None, confidence: Confidence | None = None
) -> tuple[tuple[str, Stage], ...]:
    """The stages, named, in the one order there is.

    Confidence reads whole lists, so it comes before whatever shortens or reorders them.
    The threshold comes before MMR: it reads scores, which MMR leaves alone, and what is too weak to be shown must
    not push away what is not. Reranking comes between: its time is for what can be shown, and it changes scores,
    while what follows changes places.
    """
    stages: Sequence[tuple[str, Stage]] = (
        ("scope", in_scope),
        ("superseded", in_force),
        *([("confidence", confidence)] if confidence else []),
        ("decay", decay),
        ("importance", importance),
        ("threshold", threshold),
        *([("rerank", rerank)] if rerank else []),
        ("newer", newer),
        ("mmr", Mmr(vectors)),
        ("limit", limit),
        ("freshness", Freshness(states)),
    )
    return tuple(stages)
