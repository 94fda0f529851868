"""Rows of `records`: statements in PostgreSQL's dialect, scopes by number, and what a filter lets through."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.stores.postgres.database import DIALECT, Connection
from recollect.stores.rows import Condition, all_of, distinct, of_time, visible_to
from recollect.types import Filter, RankedList, Scope


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
    condition, values = visible_to(scope)
    return [number for (number,) in connection.execute(f"SELECT scope FROM scopes WHERE {condition}", values)]


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
    if where.as_of or any(DIALECT.of_fields(where)):
        condition = DIALECT.matching(where)
        sums = f"SELECT count(*), coalesce(sum(length), 0) FROM records WHERE {condition[0]}"
        count, length = connection.execute(sums, condition[1]).fetchone() or (0, 0)
        return FilteredRows(scopes, [], condition, int(count), int(length))
    current, values = all_of(list(of_time(where)))
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


def best(connection: Connection, scored: str, values: Sequence[Any], depth: int) -> tuple[RankedList, dict[str, int]]:
    """The first `depth` different texts that the query `scored` ranks, and how many records contain each term."""
    limit = depth
    while True:
        ranked = connection.execute(scored, [*values, limit, limit]).fetchall()
        rows, duplicates = distinct([(row, bytes(fold), float(score)) for row, fold, score, _ in ranked], depth)
        if len(rows) >= depth or len(ranked) < limit:
            break
        limit *= 4
    return DIALECT.hits(connection, rows, duplicates), json.loads(ranked[0][3]) if ranked else {}
