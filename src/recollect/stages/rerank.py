"""A second look at the head of the ranking, by a model that reads question and record together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from recollect.fusion import minmax
from recollect.types import Noted, Query, Record, Result

WEIGHT = 0.5
"""Share of the model's word in the blend; the rest is the fused score's. Chosen as docs/reranking.md tells."""

NOTHING = 1e-6
"""A total that no factor makes something of: such results stay at the end."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a model says of records: a number for each of the first ones, as far as it came, and what kept it."""

    scores: tuple[float, ...] = ()
    warning: str = ""


ScoresOf: TypeAlias = Callable[[Query, Sequence[Record]], Scored]
"""A query and records → how well each answers it. It never raises, and keeps to the query's deadline."""


@dataclass(frozen=True, slots=True)
class Rerank:
    """Reorders the first `head` results by a blend of their score and the model's; the others stay below, as they are.

    The blend is laid between the head's lowest and highest total, so that what passed the threshold still does, and
    nothing of the head falls below the rest. It enters as the factor `rerank`.
    """

    scores: ScoresOf
    head: int = 20
    weight: float = WEIGHT

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """The same results; in the same order where the model has failed, or had no time."""
        head = list(takewhile(lambda result: result.total > NOTHING, results[: self.head]))
        if len(head) < 2:  # noqa: PLR2004  (one result has no rival)
            return results
        said = self.scores(query, [result.record for result in head])
        head = head[: len(said.scores)]
        moved = _blended(head, said.scores, self.weight) if len(head) > 1 else head
        return Noted([*moved, *results[len(head) :]], said.warning)


def _blended(head: Sequence[Result], scores: Sequence[float], weight: float) -> list[Result]:
    """The head by falling blend; equal ones keep their order."""
    totals = [result.total for result in head]
    low, span = min(totals), max(totals) - min(totals)
    blend = [
        (1 - weight) * ours + weight * theirs
        for ours, theirs in zip(minmax(totals, False), minmax(scores, False), strict=True)
    ]
    order = sorted(range(len(head)), key=lambda i: -blend[i])
    scaled = [head[i].scaled("rerank", (low + span * blend[i]) / totals[i]) for i in order]
    # Rounding may set two that are all but equal apart; the order is by total to the last digit.
    return sorted(scaled, key=lambda result: -result.total)
