"""Which rows a filter lets through: one SQL condition, and the set it gives as an array to rank within.

Every source ranks inside this set and takes its statistics from it, so that a search in a shared store answers as
if the store held nothing else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.stores.rows import micros
from recollect.types import Filter, Scope

KEPT_SETS = 32
_Clause: TypeAlias = tuple[str, Sequence[Any]]
_NEVER = datetime.max.replace(tzinfo=UTC)


def condition(where: Filter) -> tuple[str, list[Any]]:
    """The filter as SQL over `records`, with its parameters."""
    clauses: list[_Clause] = [("forgotten_at IS NULL", ()), *_of_moment(where), *_of_wishes(where)]
    if not where.any_scope:
        clauses.insert(1, scoped(where.scope))
    return " AND ".join(sql for sql, _ in clauses), [value for _, values in clauses for value in values]


def scoped(scope: Scope) -> _Clause:
    """What one who asks with this scope may see, as SQL over `records`; forgotten records included."""
    parts = ("user", "agent", "session")
    sql = " AND ".join(f"({part} IS NULL OR {part} = ?)" for part in parts)
    return sql, [getattr(scope, part) for part in parts]


def _of_moment(where: Filter) -> Iterator[_Clause]:
    """What holds at the time asked about. A text that was changed since then is not what was known then."""
    moment = micros(where.moment)
    if where.as_of:
        yield "time <= ? AND (edited_at IS NULL OR edited_at <= ?)", (moment, moment)
    if not where.superseded:
        yield "(superseded_at IS NULL OR superseded_at > ?)", (moment,)
    yield "(expires_at IS NULL OR expires_at > ?)", (moment,)


def _of_wishes(where: Filter) -> Iterator[_Clause]:
    """What the one who asks wants to see of it."""
    for column, names in (("category", where.categories), ("kind", where.kinds)):
        if names:
            yield f"{column} IN ({', '.join('?' * len(names))})", names
    for tag in where.tags:
        yield "row IN (SELECT row FROM tags WHERE tag = ?)", (tag,)
    if where.path is not None:
        globs = _path_globs(where.path)
        yield f"({' OR '.join(['path GLOB ?'] * len(globs))})", globs
    if where.since:
        yield "time >= ?", (micros(where.since),)
    if where.until:
        yield "time < ?", (micros(where.until),)


def _path_globs(pattern: str) -> list[str]:
    """A path filter names a file or a folder, whole or by its last parts, with `*` where wanted."""
    # Brackets and question marks stand in the names of files; only the star is a sign.
    name = pattern.removeprefix("./").rstrip("/").replace("[", "[[]").replace("?", "[?]")
    return [name, f"*/{name}", f"{name}/*", f"*/{name}/*"]


@dataclass(frozen=True, slots=True)
class Visible:
    """The rows of one filter at one sequence number: `mask[row]` is True for those let through."""

    mask: NDArray[np.bool_]
    count: int

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each row whether it is let through; rows newer than the set are not."""
        inside = rows < len(self.mask)
        return inside & self.mask[np.where(inside, rows, 0)]


class VisibleSets:
    """Keeps the sets of recent filters until a change, or the clock, could make them wrong."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Filter, int], tuple[Visible, int, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._building: dict[tuple[Filter, int], threading.Lock] = {}

    def get(self, connection: apsw.Connection, where: Filter, sequence: int) -> Visible:
        """The set of `where` in this connection's snapshot, whose last change is `sequence`.

        Of several threads that need the same set at once, one builds it.
        """
        key = (replace(where, now=_NEVER), sequence)
        moment = micros(where.moment) or 0
        with self._lock:
            if visible := self._cached(key, moment):
                return visible
            building = self._building.setdefault(key, threading.Lock())
        with building:
            with self._lock:
                if visible := self._cached(key, moment):
                    return visible
            try:
                visible = _select(connection, where)
                until = _next_event(connection, moment)
                with self._lock:
                    self._kept[key] = (visible, moment, until)
                    while len(self._kept) > KEPT_SETS:
                        self._kept.popitem(last=False)
            finally:
                with self._lock:
                    self._building.pop(key, None)
        return visible

    def _cached(self, key: tuple[Filter, int], moment: int) -> Visible | None:
        kept = self._kept.get(key)
        if kept is None or not kept[1] <= moment < kept[2]:
            return None
        self._kept.move_to_end(key)
        return kept[0]


def _select(connection: apsw.Connection, where: Filter) -> Visible:
    sql, values = condition(where)
    size = int(connection.execute("SELECT ifnull(max(row), 0) FROM records").get) + 1
    mask = np.zeros(size, dtype=np.bool_)
    rows = integers(connection.execute(f"SELECT group_concat(row) FROM records WHERE {sql}", values).get)
    mask[rows] = True
    return Visible(mask, len(rows))


def _next_event(connection: apsw.Connection, moment: int) -> int:
    """When something next expires, or a supersession set for later begins."""
    times = connection.execute(
        "SELECT (SELECT min(expires_at) FROM records WHERE expires_at > ?1),"
        " (SELECT min(superseded_at) FROM records WHERE superseded_at > ?1)",
        (moment,),
    ).get
    return min((time for time in times if time is not None), default=2**63)


def integers(joined: Any) -> NDArray[np.int64]:
    """Numbers that SQLite joined with commas: the fastest way to get many of them out of it."""
    return np.fromstring(joined, dtype=np.int64, sep=",") if joined else np.zeros(0, dtype=np.int64)
