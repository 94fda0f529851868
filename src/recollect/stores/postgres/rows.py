"""Rows of `records`: statements in PostgreSQL's dialect, scopes by number, and what a filter lets through."""

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
    """What a filter lets through, as conditions that index scans need, and how much it is.

    Usually that is some scopes without hidden rows: superseded and expired records are few. Rows of a filter on fields
    or on a time in the past are selected instead.
    """

    in_scopes: Condition
    in_rows: Condition
    """For rows of these scopes."""
    count: int
    length: int


def filtered_rows(connection: Connection, where: Filter) -> FilteredRows:
    """Prepare a filter for index scans."""
    scopes: Condition = ("true", [])
    if not where.any_scope:
        scopes = ("scope = ANY(%s)", [visible_scopes(connection, where.scope)])
    if where.as_of or any(DIALECT.of_fields(where)):
        condition, values = DIALECT.matching(where)
        sums = f"SELECT count(*), coalesce(sum(length), 0) FROM records WHERE {condition}"
        count, length = connection.execute(sums, values).fetchone() or (0, 0)
        rows = (f"row IN (SELECT row FROM records WHERE {condition})", values)
        return FilteredRows(scopes, rows, int(count), int(length))
    current, values = all_of(list(of_time(where)))
    with connection.pipeline():
        passing = connection.execute(
            "SELECT row, length FROM records WHERE forgotten_at IS NULL"
            " AND (expires_at IS NOT NULL OR superseded_at IS NOT NULL)"
            f" AND {scopes[0]} AND NOT ({current})",
            [*scopes[1], *values],
        )
        sums = f"SELECT coalesce(sum(records), 0), coalesce(sum(length), 0) FROM tallies WHERE {scopes[0]}"
        tallied = connection.execute(sums, scopes[1])
    hidden: dict[int, int] = dict(passing.fetchall())
    count, length = tallied.fetchone() or (0, 0)
    rows = ("row NOT IN (SELECT unnest(%s::bigint[]))", [list(hidden)]) if hidden else ("true", [])
    return FilteredRows(scopes, rows, int(count) - len(hidden), int(length) - sum(hidden.values()))


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
