"""From a score for every row to the best records: exact order, no text twice, places refilled."""

from __future__ import annotations

import json

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.stores.sqlite.rows import fetch
from recollect.types import Match, Matches


def best(connection: apsw.Connection, rows: NDArray[np.int64], scores: NDArray[np.float64], depth: int) -> Matches:
    """The `depth` best of `rows` by score, then newer, then id; of rows with the same text only the first."""
    wanted = depth
    while True:
        kept, folded = _distinct(_leading(connection, rows, scores, wanted), depth)
        if len(kept) >= depth or wanted >= len(rows):
            break
        wanted *= 4
    records = fetch(connection, list(kept))
    return Matches(
        tuple(Match(record, score, fold) for record, (score, fold) in zip(records, kept.values(), strict=True)), folded
    )


def _leading(
    connection: apsw.Connection, rows: NDArray[np.int64], scores: NDArray[np.float64], count: int
) -> list[tuple[int, bytes, float]]:
    """The first `count` (row, fold, score) in their exact order."""
    if len(rows) > count:
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        chosen = scores >= edge
        rows, scores = rows[chosen], scores[chosen]
    score_of = dict(zip(rows.tolist(), scores.tolist(), strict=True))
    # SQLite breaks the ties: it has the times and ids at hand, and a tie may be as wide as the store.
    ordered = connection.execute(
        "SELECT row, fold FROM records WHERE row IN (SELECT value FROM json_each(?)) ORDER BY time DESC, id",
        (json.dumps(list(score_of)),),
    )
    ranked = [(row, fold, score_of[row]) for row, fold in ordered]
    ranked.sort(key=lambda place: -place[2])
    return ranked[:count]


def _distinct(ranked: list[tuple[int, bytes, float]], depth: int) -> tuple[dict[int, tuple[float, bytes]], int]:
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
