"""Rows of the file in SQLite's dialect: those that a filter admits, and the best of these."""

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.dataclass import dataclass
from recollect.stores.rows import Condition, Dialect, distinct, micros
from recollect.types import Filter, RankedList


def _tagged(tags: Sequence[str]) -> Condition:
    return " AND ".join(["row IN (SELECT row FROM tags WHERE tag = %s)"] * len(tags)) or "true", tags


DIALECT = Dialect(
    records="records",
    in_scopes="{}",
    tagged=_tagged,
    tag_facet="tags WHERE row IN (SELECT row FROM records WHERE {})",
    ends=("path IN (SELECT DISTINCT path FROM records WHERE path IS NOT NULL AND substr(path, -length(%s)) = %s)"),
    like="GLOB",
    wildcards=str.maketrans({"*": "*", "[": "[[]", "?": "[?]"}),  # the others occur in file names
)

_TRANSLATED = {
    "= ANY(%s::bytea[])": "IN (SELECT unhex(value) FROM json_each(?))",
    "= ANY(%s)": "IN (SELECT value FROM json_each(?))",
    ' COLLATE "C"': "",
    "%s": "?",
}


@lru_cache(512)
def _translated(sql: str) -> str:
    for theirs, ours in _TRANSLATED.items():
        sql = sql.replace(theirs, ours)
    return sql


def _value(value: Any) -> Any:
    """A list as JSON, with bytes in hexadecimal."""
    return json.dumps(value, default=bytes.hex) if isinstance(value, list) else value


class Cursor(apsw.Cursor):
    """A cursor that also understands the statements that the SQL stores share."""

    def execute(self, statements: str, bindings: Any = None, **options: Any) -> Any:
        """Run a statement. One with `%s` is translated, and its lists become JSON."""
        if "%s" in statements:
            statements, bindings = _translated(statements), tuple(map(_value, bindings))
        return super().execute(statements, bindings, **options)

    def executemany(self, statements: str, sequenceofbindings: Any, **options: Any) -> Any:
        """Run a statement once for each row of values."""
        return super().executemany(_translated(statements), sequenceofbindings, **options)


class Connection(apsw.Connection):
    """A connection with such cursors."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = Cursor

    @staticmethod
    def pipeline() -> contextlib.AbstractContextManager[None]:
        """Nothing: there is no server to wait for."""
        return contextlib.nullcontext()


def sequence(connection: apsw.Connection) -> int:
    """The number of the last event in the history."""
    return int(connection.execute("SELECT ifnull(max(seq), 0) FROM history").get)


CACHED_SETS = 32
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Visible:
    """The rows that one filter admits at one sequence number: `mask[row]` is True for them."""

    mask: NDArray[np.bool_]
    count: int

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each row whether the filter admits it; rows newer than the set are not admitted."""
        inside = rows < len(self.mask)
        return inside & self.mask[np.where(inside, rows, 0)]


@dataclass(slots=True)
class _CachedSet:
    """A set that is valid from `start` until `end`, and the lock of who builds it."""

    visible: Visible | None = None
    start: int = 0
    end: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class VisibleSets:
    """A cache of the sets of recent filters, each valid until a record changes or the clock reaches its end."""

    def __init__(self) -> None:
        self._sets: OrderedDict[tuple[Filter, int], _CachedSet] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, connection: apsw.Connection, where: Filter, sequence: int) -> Visible:
        """The set of `where` in this connection's snapshot, whose last change is `sequence`.

        Of several threads that need the same set at once, one builds it.
        """
        key = (replace(where, now=_NEVER), sequence)
        moment = micros(where.moment) or 0
        with self._lock:
            cached = self._sets.setdefault(key, _CachedSet())
            self._sets.move_to_end(key)
            if len(self._sets) > CACHED_SETS:
                self._sets.popitem(last=False)
        with cached.lock:
            if cached.visible is None or not cached.start <= moment < cached.end:
                cached.visible = _select(connection, where)
                cached.start, cached.end = moment, _next_event(connection, moment)
            return cached.visible


def _select(connection: apsw.Connection, where: Filter) -> Visible:
    sql, values = DIALECT.matching(where)
    mask = np.zeros(int(connection.execute("SELECT ifnull(max(row), 0) FROM records").get) + 1, dtype=np.bool_)
    rows = integers(connection.execute(f"SELECT group_concat(row) FROM records WHERE {sql}", values).get)
    mask[rows] = True
    return Visible(mask, len(rows))


def _next_event(connection: apsw.Connection, moment: int) -> int:
    """The next time at which a record expires or a planned supersession begins."""
    times = connection.execute(
        "SELECT (SELECT min(expires_at) FROM records WHERE expires_at > ?1),"
        " (SELECT min(superseded_at) FROM records WHERE superseded_at > ?1)",
        (moment,),
    ).get
    return min((time for time in times if time is not None), default=2**63)


def integers(joined: Any) -> NDArray[np.int64]:
    """Numbers that SQLite joined with commas, which is the fastest way to read many of them."""
    return np.fromstring(joined, dtype=np.int64, sep=",") if joined else np.zeros(0, dtype=np.int64)


def best(connection: apsw.Connection, rows: NDArray[np.int64], scores: NDArray[np.float64], depth: int) -> RankedList:
    """The `depth` best of `rows` by score, then newer, then id; of rows with the same text only the first."""
    wanted = depth
    while True:
        first, duplicates = distinct(_leading(connection, rows, scores, wanted), depth)
        if len(first) >= depth or wanted >= len(rows):
            break
        wanted *= 4
    return DIALECT.hits(connection, first, duplicates)


def _leading(
    connection: apsw.Connection, rows: NDArray[np.int64], scores: NDArray[np.float64], count: int
) -> list[tuple[int, bytes, float]]:
    """The first `count` (row, fold, score) in their exact order."""
    edge = np.partition(scores, len(scores) - count)[len(scores) - count] if len(rows) > count else -np.inf
    above = dict(zip(rows[scores > edge].tolist(), scores[scores > edge].tolist(), strict=True))
    ranked = [(row, fold, above[row]) for row, fold in _newest(connection, list(above), count)]
    ranked.sort(key=lambda place: -place[2])
    # All records of a store may tie at the edge, so only as many are read as there is room for.
    tied = rows[scores == edge].tolist()
    return ranked + [(row, fold, float(edge)) for row, fold in _newest(connection, tied, count - len(ranked))]


def _newest(connection: apsw.Connection, rows: list[int], count: int) -> Any:
    newest = "SELECT row, fold FROM records WHERE row = ANY(%s) ORDER BY time DESC, id LIMIT %s"
    return connection.execute(newest, (rows, count))
