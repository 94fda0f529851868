"""Rows of `records`: conversion from and to `Record`, filters as SQL, scopes by number, and ranked rows as hits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.stores.postgres.database import Connection
from recollect.stores.rows import EPOCH, distinct, micros, moment, passage_hash
from recollect.types import Filter, Hit, RankedList, Record, Scope

COLUMNS = (
    "id", "kind", "text", "title", "category", "tags", "importance", "decay", "time", "created_at", "happened_at",
    "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path", "first_line", "last_line", "fold",
    "passage",
)  # fmt: skip
"""The columns of a record; its scope and length are stored beside them."""

SELECT = (
    f'SELECT {", ".join(f"records.{column}" for column in COLUMNS[:-2])}, "user", agent, session'
    " FROM records JOIN scopes USING (scope)"
)

Condition: TypeAlias = tuple[str, list[Any]]
"""A condition in SQL and its parameters."""


def to_row(record: Record) -> list[Any]:
    """The values of `COLUMNS`."""
    first, last = record.lines or (None, None)
    return [
        record.id, record.kind, record.text, record.title, record.category,
        list(record.tags), record.importance, record.decay, micros(record.time),
        micros(record.created_at), micros(record.happened_at), micros(record.expires_at), micros(record.edited_at),
        record.superseded_by, micros(record.superseded_at), record.source, record.path, first,
        last, record.text_hash, passage_hash(record.passage),
    ]  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row of `SELECT`."""
    (
        key, kind, text, title, category, tags, importance, decay, _time, created, happened, expires, edited,
        superseded_by, superseded_at, source, path, first, last, user, agent, session,
    ) = row  # fmt: skip
    return Record(
        id=key,
        text=text,
        kind=kind,
        title=title,
        category=category,
        tags=tuple(tags),
        scope=Scope(user, agent, session),
        importance=importance,
        decay=decay,
        created_at=moment(created) or EPOCH,
        happened_at=moment(happened),
        expires_at=moment(expires),
        edited_at=moment(edited),
        superseded_by=superseded_by,
        superseded_at=moment(superseded_at),
        source=source,
        path=path,
        lines=None if first is None else (first, last),
    )


def fetch(connection: Connection, rows: list[int]) -> dict[int, Record]:
    """The records in these rows."""
    select = SELECT.replace("SELECT ", "SELECT records.row, ", 1)
    return {row: from_row(fields) for row, *fields in connection.execute(f"{select} WHERE row = ANY(%s)", (rows,))}


def meta(connection: Connection, key: str) -> str | None:
    """One value of the table `meta`."""
    row = connection.execute("SELECT value FROM meta WHERE key = %s", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Write one value of the table `meta`."""
    connection.execute(
        "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )


# -- scopes, which indexes refer to by number ----------------------------------------------------------------


def find_scope(scope: Scope) -> Condition:
    """The statement that finds the number of a scope."""
    parts = {'"user"': scope.user, "agent": scope.agent, "session": scope.session}
    same = " AND ".join(f"{name} IS NULL" if value is None else f"{name} = %s" for name, value in parts.items())
    return f"SELECT scope FROM scopes WHERE {same}", [value for value in parts.values() if value is not None]


def scope_number(connection: Connection, scope: Scope) -> int:
    """The number of a scope, which is created if it is new."""
    find, parameters = find_scope(scope)
    values = (scope.user, scope.agent, scope.session)
    while (row := connection.execute(find, parameters).fetchone()) is None:  # another process may create it, too
        connection.execute(
            'INSERT INTO scopes ("user", agent, session) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING', values
        )
    return int(row[0])


def visible_scopes(connection: Connection, scope: Scope) -> list[int]:
    """The numbers of the scopes whose records a caller with this scope can see."""
    condition, values = _visible_to(scope)
    return [number for (number,) in connection.execute(f"SELECT scope FROM scopes WHERE {condition}", values)]


def _visible_to(scope: Scope) -> Condition:
    conditions: list[Condition] = []
    for column, value in (('"user"', scope.user), ("agent", scope.agent), ("session", scope.session)):
        if value is None:
            conditions.append((f"{column} IS NULL", []))
        else:
            conditions.append((f"({column} IS NULL OR {column} = %s)", [value]))
    return _all(conditions)


# -- filters -------------------------------------------------------------------------------------------------


def matching(where: Filter) -> Condition:
    """The filter as a condition on `records`."""
    conditions: list[Condition] = [("forgotten_at IS NULL", []), *_of_time(where), *_of_fields(where)]
    if not where.any_scope:
        scopes, values = _visible_to(where.scope)
        conditions.append((f"records.scope IN (SELECT scope FROM scopes WHERE {scopes})", values))
    return _all(conditions)


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """What a filter lets through, in the form that index scans need, and how much it is.

    Usually that is some scopes (None: all) without the `hidden` rows: superseded and expired records are few. A filter
    on fields or on a time in the past is kept as a condition instead.
    """

    scopes: list[int] | None
    hidden: list[int]
    condition: Condition | None
    count: int
    length: int

    @property
    def in_scopes(self) -> Condition:
        """A condition on the column `scope`."""
        return _in_scopes(self.scopes)

    @property
    def in_rows(self) -> Condition:
        """A condition on the column `row`, for rows of these scopes."""
        if self.condition is not None:
            return f"row IN (SELECT row FROM records WHERE {self.condition[0]})", self.condition[1]
        if not self.hidden:
            return "true", []
        return "row NOT IN (SELECT unnest(%s::bigint[]))", [self.hidden]


def filtered_rows(connection: Connection, where: Filter) -> FilteredRows:
    """Prepare a filter for index scans."""
    scopes = None if where.any_scope else visible_scopes(connection, where.scope)
    if where.as_of or any(_of_fields(where)):
        condition = matching(where)
        sums = f"SELECT count(*), coalesce(sum(length), 0) FROM records WHERE {condition[0]}"
        count, length = connection.execute(sums, condition[1]).fetchone() or (0, 0)
        return FilteredRows(scopes, [], condition, int(count), int(length))
    current, values = _all(list(_of_time(where)))
    in_scopes, numbers = _in_scopes(scopes)
    with connection.pipeline():
        passing = connection.execute(
            "SELECT row, length FROM records WHERE forgotten_at IS NULL"
            " AND (expires_at IS NOT NULL OR superseded_at IS NOT NULL)"
            f" AND {in_scopes} AND NOT ({current})",
            [*numbers, *values],
        )
        sums = f"SELECT coalesce(sum(records), 0), coalesce(sum(length), 0) FROM tallies WHERE {in_scopes}"
        tallied = connection.execute(sums, numbers)
    hidden, (count, length) = passing.fetchall(), tallied.fetchone() or (0, 0)
    visible_length = int(length) - sum(length for _, length in hidden)
    return FilteredRows(scopes, [row for row, _ in hidden], None, int(count) - len(hidden), visible_length)


def _in_scopes(scopes: list[int] | None) -> Condition:
    return ("true", []) if scopes is None else ("scope = ANY(%s)", [scopes])


def _of_time(where: Filter) -> Iterator[Condition]:
    """What is valid at the filter's time. A text that was edited later was not known then."""
    now = micros(where.moment)
    if where.as_of:
        yield "time <= %s AND (edited_at IS NULL OR edited_at <= %s)", [now, now]
    if not where.superseded:
        yield "(superseded_at IS NULL OR superseded_at > %s)", [now]
    yield "(expires_at IS NULL OR expires_at > %s)", [now]


def _of_fields(where: Filter) -> Iterator[Condition]:
    for column, names in (("category", where.categories), ("kind", where.kinds)):
        if names:
            yield f"{column} = ANY(%s)", [list(names)]
    if where.tags:
        yield "tags @> %s::text[]", [list(where.tags)]
    if where.path is not None:
        yield "path LIKE ANY(%s)", [_path_patterns(where.path)]
    if where.since:
        yield "time >= %s", [micros(where.since)]
    if where.until:
        yield "time < %s", [micros(where.until)]


def _path_patterns(pattern: str) -> list[str]:
    """A path filter names a file or a folder, by its whole path or its last parts, with `*` as a wildcard."""
    name = pattern.removeprefix("./").rstrip("/")
    for special in ("\\", "%", "_"):
        name = name.replace(special, f"\\{special}")
    name = name.replace("*", "%")
    return [name, f"%/{name}", f"{name}/%", f"%/{name}/%"]


def _all(conditions: Sequence[Condition]) -> Condition:
    return " AND ".join(sql for sql, _ in conditions) or "true", [value for _, values in conditions for value in values]


# -- ranked rows as hits --------------------------------------------------------------------------------------


def best(connection: Connection, scored: str, values: Sequence[Any], depth: int) -> tuple[RankedList, dict[str, int]]:
    """The first `depth` different texts that the query `scored` ranks, and how many records contain each term."""
    limit = depth
    while True:
        ranked = connection.execute(scored, [*values, limit, limit]).fetchall()
        rows, duplicates = distinct([(row, bytes(fold), float(score)) for row, fold, score, _ in ranked], depth)
        if len(rows) >= depth or len(ranked) < limit:
            break
        limit *= 4
    return hits(connection, rows, duplicates), json.loads(ranked[0][3]) if ranked else {}


def hits(connection: Connection, rows: dict[int, tuple[float, bytes]], duplicates: int) -> RankedList:
    """A ranked list of the records in these rows, with their scores and text hashes."""
    records = fetch(connection, list(rows))
    entries = (
        Hit(records[row].id, score, record=records[row], text_hash=fold)
        for row, (score, fold) in rows.items()
        if row in records
    )
    return RankedList("", tuple(entries), duplicates=duplicates)
