"""From scored rows to the best records: exact order, no text twice, places refilled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import SELECT, from_row
from recollect.stores.top import distinct
from recollect.types import Match, Matches, Record

_LEADING = """
    SELECT row, fold, score FROM scored JOIN records USING (row)
    WHERE score >= (SELECT min(score) FROM (SELECT score FROM scored ORDER BY score DESC LIMIT %s) AS head)
    ORDER BY score DESC, time DESC, id COLLATE "C" LIMIT %s
"""


def best(connection: Connection, scored: str, values: Sequence[Any], depth: int) -> Matches:
    """The `depth` best by score, then newer, then id, of what `scored` defines; of equal texts only the first."""
    wanted = depth
    while True:
        ranked = connection.execute(scored + _LEADING, [*values, wanted, wanted]).fetchall()
        kept, folded = distinct([(row, bytes(fold), float(score)) for row, fold, score in ranked], depth)
        if len(kept) >= depth or len(ranked) < wanted:
            break
        wanted *= 4
    return matches(connection, kept, folded)


def matches(connection: Connection, kept: dict[int, tuple[float, bytes]], folded: int) -> Matches:
    """The records of rows, with their scores."""
    records = fetch(connection, list(kept))
    found = (Match(records[row], score, fold) for row, (score, fold) in kept.items() if row in records)
    return Matches(tuple(found), folded)


def fetch(connection: Connection, rows: list[int]) -> dict[int, Record]:
    """The records in these rows."""
    select = SELECT.replace("SELECT ", "SELECT records.row, ", 1)
    return {row: from_row(fields) for row, *fields in connection.execute(f"{select} WHERE row = ANY(%s)", (rows,))}
