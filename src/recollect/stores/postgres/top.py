"""From scored rows to the best records: exact order, no text twice, places refilled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import SELECT, from_row
from recollect.stores.top import distinct
from recollect.types import Match, Matches, Record


def best(connection: Connection, scored: str, values: Sequence[Any], depth: int) -> tuple[Matches, dict[str, int]]:
    """The first `depth` of what `scored` ranks, of equal texts only the first; and how many records hold each term."""
    wanted = depth
    while True:
        ranked = connection.execute(scored, [*values, wanted, wanted]).fetchall()
        kept, folded = distinct([(row, bytes(fold), float(score)) for row, fold, score, _ in ranked], depth)
        if len(kept) >= depth or len(ranked) < wanted:
            break
        wanted *= 4
    return matches(connection, kept, folded), json.loads(ranked[0][3]) if ranked else {}


def matches(connection: Connection, kept: dict[int, tuple[float, bytes]], folded: int) -> Matches:
    """The records of rows, with their scores."""
    records = fetch(connection, list(kept))
    found = (Match(records[row], score, fold) for row, (score, fold) in kept.items() if row in records)
    return Matches(tuple(found), folded)


def fetch(connection: Connection, rows: list[int]) -> dict[int, Record]:
    """The records in these rows."""
    select = SELECT.replace("SELECT ", "SELECT records.row, ", 1)
    return {row: from_row(fields) for row, *fields in connection.execute(f"{select} WHERE row = ANY(%s)", (rows,))}
