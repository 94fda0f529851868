"""What a store holds, in numbers and in names: all of it, or what one filter lets through."""

from __future__ import annotations

from typing import Any

import apsw

from recollect.stores.sqlite.visible import condition
from recollect.types import EVERYTHING, Filter

MOST_NAMES = 500
"""Of tags, categories and scopes each; those of the most records."""

_COUNTS = ("total", "facts", "chunks", "superseded")


def counts(connection: apsw.Connection, where: Filter = EVERYTHING) -> dict[str, int]:
    """How many records there are, and of which kind."""
    sql, values = condition(where)
    found = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
        f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {sql}",
        values,
    ).get
    return dict(zip(_COUNTS, found, strict=True))


def forgotten(connection: apsw.Connection) -> int:
    """How many records were taken out of every answer."""
    return int(connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL").get)


def facets(connection: apsw.Connection, where: Filter) -> dict[str, list[Any]]:
    """The categories, tags and scopes of what may be seen, those of the most records first."""
    sql, values = condition(where)
    categories = connection.execute(
        f"SELECT category FROM records WHERE {sql} AND category IS NOT NULL"
        " GROUP BY category ORDER BY count(*) DESC, category LIMIT ?",
        (*values, MOST_NAMES),
    )
    tags = connection.execute(
        f"SELECT tag FROM tags WHERE row IN (SELECT row FROM records WHERE {sql})"
        " GROUP BY tag ORDER BY count(*) DESC, tag LIMIT ?",
        (*values, MOST_NAMES),
    )
    scopes = connection.execute(
        f"SELECT user, agent, session FROM records WHERE {sql} GROUP BY user, agent, session"
        " ORDER BY count(*) DESC, user, agent, session LIMIT ?",
        (*values, MOST_NAMES),
    )
    parts = ("user", "agent", "session")
    return {
        "categories": [name for (name,) in categories],
        "tags": [name for (name,) in tags],
        "scopes": [{part: name for part, name in zip(parts, row, strict=True) if name is not None} for row in scopes],
    }
