"""Of a ranking, the first that say different things."""

from __future__ import annotations

from collections.abc import Sequence


def distinct(ranked: Sequence[tuple[int, bytes, float]], depth: int) -> tuple[dict[int, tuple[float, bytes]], int]:
    """Row → score and fold of the first `depth` different texts, and how many repeats stood among them."""
    seen: set[bytes] = set()
    kept: dict[int, tuple[float, bytes]] = {}
    folded = 0
    for row, fold, score in ranked:
        if fold in seen:
            folded += 1
        elif len(kept) == depth:
            break
        else:
            seen.add(fold)
            kept[row] = (score, fold)
    return kept, folded
