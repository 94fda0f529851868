"""Rows of the file: records as rows, filters as SQL, the rows that a filter admits, and the best of them.

Every source ranks only the rows that the filter admits and takes its statistics from them, so that a search in a shared
store answers as if the store held nothing else.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.stores.rows import EPOCH, distinct, micros, moment, passage_hash
from recollect.types import Filter, Hit, RankedList, Record, Scope

_COLUMNS = (
    "id", "kind", "text", "title", "category", "tags", "user", "agent", "session", "importance", "decay", "time",
    "created_at", "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path",
    "first_line", "last_line", "fold", "passage",
)  # fmt: skip

INSERT = f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
REPLACE = f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{column} = ?' for column in _COLUMNS)} WHERE row = ?"
SELECT = f"SELECT {', '.join(f'records.{column}' for column in _COLUMNS[:-2])} FROM records"


def to_row(record: Record) -> tuple[Any, ...]:
    """The values for `INSERT` and `REPLACE`."""
    first, last = record.lines or (None, None)
    return (
        record.id, record.kind, record.text, record.title, record.category, json.dumps(record.tags),
        record.scope.user, record.scope.agent, record.scope.session, record.importance, record.decay,
        micros(record.time), micros(record.created_at), micros(record.happened_at), micros(record.expires_at),
        micros(record.edited_at), record.superseded_by, micros(record.superseded_at), record.source, record.path,
        first, last, record.text_hash, passage_hash(record.passage),
    )  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row that `SELECT` returned."""
    (
        key, kind, text, title, category, tags, user, agent, session, importance, decay, _time, created, happened,
        expires, edited, superseded_by, superseded_at, source, path, first, last,
    ) = row  # fmt: skip
    return Record(
        id=key,
        text=text,
        kind=kind,
        title=title,
        category=category,
        tags=tuple(json.loads(tags)) if tags != "[]" else (),
        scope=Scope(user, agent, session),
        importance=importance,
        decay=decay,
        created_at=EPOCH + timedelta(microseconds=created),
        happened_at=moment(happened),
        expires_at=moment(expires),
        edited_at=moment(edited),
        superseded_by=superseded_by,
        superseded_at=moment(superseded_at),
        source=source,
        path=path,
        lines=None if first is None else (first, last),
    )


def fetch(connection: apsw.Connection, rows: Sequence[int]) -> list[Record]:
    """The records in these rows, in the same order."""
    records = {
        row[0]: from_row(row[1:])
        for row in connection.execute(
            SELECT.replace("SELECT", "SELECT records.row,", 1)
            + " WHERE records.row IN (SELECT value FROM json_each(?))",
            (json.dumps(list(rows)),),
        )
    }
    return [records[row] for row in rows if row in records]


def sequence(connection: apsw.Connection) -> int:
    """The number of the last event in the history."""
    return int(connection.execute("SELECT ifnull(max(seq), 0) FROM history").get)


def meta(connection: apsw.Connection, key: str) -> str | None:
    """A value of the table `meta`."""
    value = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return None if value is None else str(value)


def set_meta(connection: apsw.Connection, key: str, value: str) -> None:
    """Set a value of the table `meta`."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


CACHED_SETS = 32
_Clause: TypeAlias = tuple[str, Sequence[Any]]
_NEVER = datetime.max.replace(tzinfo=UTC)


def condition(where: Filter) -> tuple[str, list[Any]]:
    """The filter as SQL over `records`, with its parameters."""
    clauses: list[_Clause] = [("forgotten_at IS NULL", ()), *_time_clauses(where), *_clauses(where)]
    if not where.any_scope:
        clauses.insert(1, scoped(where.scope))
    return " AND ".join(sql for sql, _ in clauses), [value for _, values in clauses for value in values]


def scoped(scope: Scope) -> _Clause:
    """The records that a caller with this scope can see, as SQL over `records`; forgotten ones included."""
    parts = ("user", "agent", "session")
    sql = " AND ".join(f"({part} IS NULL OR {part} = ?)" for part in parts)
    return sql, [getattr(scope, part) for part in parts]


def _time_clauses(where: Filter) -> Iterator[_Clause]:
    """Records that were valid at the time of the filter. A text that was changed after that time does not count."""
    moment = micros(where.moment)
    if where.as_of:
        yield "time <= ? AND (edited_at IS NULL OR edited_at <= ?)", (moment, moment)
    if not where.superseded:
        yield "(superseded_at IS NULL OR superseded_at > ?)", (moment,)
    yield "(expires_at IS NULL OR expires_at > ?)", (moment,)


def _clauses(where: Filter) -> Iterator[_Clause]:
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
    """A path filter names a file or a folder, in full or by its last parts; `*` matches anything."""
    # Brackets and question marks occur in file names, so only the star is a wildcard.
    name = pattern.removeprefix("./").rstrip("/").replace("[", "[[]").replace("?", "[?]")
    return [name, f"*/{name}", f"{name}/*", f"*/{name}/*"]


@dataclass(frozen=True, slots=True)
class Visible:
    """The rows that one filter admits at one sequence number: `mask[row]` is True for them."""

    mask: NDArray[np.bool_]
    count: int

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each row whether the filter admits it; rows newer than the set are not admitted."""
        inside = rows < len(self.mask)
        return inside & self.mask[np.where(inside, rows, 0)]


class VisibleSets:
    """A cache of the sets of recent filters, each valid until a record changes or the clock reaches its end."""

    def __init__(self) -> None:
        self._sets: OrderedDict[tuple[Filter, int], tuple[Visible, int, int]] = OrderedDict()
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
                    self._sets[key] = (visible, moment, until)
                    while len(self._sets) > CACHED_SETS:
                        self._sets.popitem(last=False)
            finally:
                with self._lock:
                    self._building.pop(key, None)
        return visible

    def _cached(self, key: tuple[Filter, int], moment: int) -> Visible | None:
        visible, start, end = self._sets.get(key, (None, 0, 0))
        if visible is None or not start <= moment < end:
            return None
        self._sets.move_to_end(key)
        return visible


def _select(connection: apsw.Connection, where: Filter) -> Visible:
    sql, values = condition(where)
    size = int(connection.execute("SELECT ifnull(max(row), 0) FROM records").get) + 1
    mask = np.zeros(size, dtype=np.bool_)
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
    records = fetch(connection, list(first))
    hits = (
        Hit(record.id, score, record=record, text_hash=fold)
        for record, (score, fold) in zip(records, first.values(), strict=True)
    )
    return RankedList("", tuple(hits), duplicates=duplicates)


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


def _newest(connection: apsw.Connection, rows: list[int], count: int) -> list[tuple[int, bytes]]:
    """The first `count` (row, fold), newest first, then by id."""
    pairs: Any = connection.execute(
        "SELECT row, fold FROM records WHERE row IN (SELECT value FROM json_each(?)) ORDER BY time DESC, id LIMIT ?",
        (json.dumps(rows), count),
    )
    return list(pairs)
