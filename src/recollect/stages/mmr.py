"""Diversity: Maximal Marginal Relevance over the results' vectors, or over their words where one has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from recollect.fusion import minmax
from recollect.ranking import fold, mmr
from recollect.types import Query, Result

if TYPE_CHECKING:
    from recollect.types import Vector

COMPARED_CHARACTERS = 4_000
"""Of a text without a vector, whose words are compared: a book's words take a second to compare with others."""

VectorsOf: TypeAlias = "Callable[[Sequence[str]], Mapping[str, Vector]]"
"""Record ids → the vectors that are known."""


@dataclass(frozen=True, slots=True)
class Mmr:
    """Reorders the head of the ranking so that it does not say the same thing twice."""

    vectors: VectorsOf

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """As many picks as will be shown, of all results; nothing when the query does not ask for it."""
        balance = query.ranking.mmr
        if balance is None or balance == 1 or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
            return results
        # A stage before may have put one of less score first: what stands first is the more relevant.
        relevance = minmax(list(accumulate((result.total for result in results), min)), True)
        picks = mmr(relevance, self._similarity(query, results), balance=balance, picks=query.limit)
        return [results[i].moved("mmr", i + 1, rank) for rank, i in enumerate(picks, 1)]

    def _similarity(self, query: Query, results: Sequence[Result]) -> Callable[[int], Sequence[float]]:
        ids = [result.record.id for result in results]
        known = self.vectors(ids)
        if all(key in known for key in ids):
            import numpy as np

            matrix = np.stack([known[key] for key in ids])
            return _checked(query, lambda i: matrix @ matrix[i])
        words = [set(fold(result.record.text[:COMPARED_CHARACTERS]).split()) for result in results]
        return _checked(query, lambda i: [_jaccard(words[i], other) for other in words])


def _checked(query: Query, similarity: Callable[[int], Sequence[float]]) -> Callable[[int], Sequence[float]]:
    """The same function, which ends with an error when nobody waits for the answer any more."""

    def row(i: int) -> Sequence[float]:
        query.check()
        return similarity(i)

    return row


def _jaccard(a: set[str], b: set[str]) -> float:
    union = len(a | b)
    return len(a & b) / union if union else 1.0
