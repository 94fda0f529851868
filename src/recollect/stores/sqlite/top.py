"""From a score for every row to the best records: exact order, no text twice, places refilled."""

from __future__ import annotations

import json
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.stores.sqlite.rows import fetch
from recollect.stores.top import distinct
from recollect.types import Hit, RankedList


def best(connection: apsw.Connection, rows: NDArray[np.int64], scores: NDArray[np.float64], depth: int) -> RankedList:
    """The `depth` best of `rows` by score, then newer, then id; of rows with the same text only the first."""
    wanted = depth
    while True:
        kept, folded = distinct(_leading(connection, rows, scores, wanted), depth)
        if len(kept) >= depth or wanted >= len(rows):
            break
        wanted *= 4
    records = fetch(connection, list(kept))
    hits = (
        Hit(record.id, score, record=record, text_hash=fold)
        for record, (score, fold) in zip(records, kept.values(), strict=True)
    )
    return RankedList("", tuple(hits), duplicates=folded)


def _leading(
    connection: apsw.Connection, rows: NDArray[np.int64], scores: NDArray[np.float64], count: int
) -> list[tuple[int, bytes, float]]:
    """The first `count` (row, fold, score) in their exact order."""
    edge = np.partition(scores, len(scores) - count)[len(scores) - count] if len(rows) > count else -np.inf
    above = dict(zip(rows[scores > edge].tolist(), scores[scores > edge].tolist(), strict=True))
    ranked = [(row, fold, above[row]) for row, fold in _newest(connection, list(above), count)]
    ranked.sort(key=lambda place: -place[2])
    # Of those that tie at the edge, which may be as many as the store has, only as many as there is room for.
    tied = rows[scores == edge].tolist()
    return ranked + [(row, fold, float(edge)) for row, fold in _newest(connection, tied, count - len(ranked))]


def _newest(connection: apsw.Connection, rows: list[int], count: int) -> list[tuple[int, bytes]]:
    """The first `count` (row, fold), newest first, then by id: SQLite has both at hand."""
    found: Any = connection.execute(
        "SELECT row, fold FROM records WHERE row IN (SELECT value FROM json_each(?)) ORDER BY time DESC, id LIMIT ?",
        (json.dumps(rows), count),
    )
    return list(found)
