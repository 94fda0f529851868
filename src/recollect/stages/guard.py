"""The second wall: every source has filtered already, so these must find nothing to remove."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from recollect.types import Query, Result


def in_scope(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop what is not of the query's scope."""
    where = query.filter
    return [result for result in results if where.any_scope or where.scope.admits(result.record.scope)]


def in_force(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop what was superseded or has expired at the moment asked about."""
    where = query.filter
    return [
        result
        for result in results
        if (where.superseded or not _passed(result.record.superseded_at, where.moment))
        and not _passed(result.record.expires_at, where.moment)
    ]


def _passed(at: datetime | None, moment: datetime) -> bool:
    return at is not None and at <= moment
