"""Rows of `records`: statements in PostgreSQL's dialect, scopes by number, and what a filter lets through."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.stores.postgres.database import DIALECT, Connection, PostgresDatabase
from recollect.stores.rows import Condition, all_of, from_row, of_time, visible_to
from recollect.types import Filter, Record, Scope
from recollect.types.search import RankedRows

RowReader: TypeAlias = Callable[[Sequence[int]], Mapping[int, Record]]  # `RankedRows.read`


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


def ranked_rows(ranked: Sequence[tuple[Any, ...]], depth: int, read: RowReader) -> tuple[RankedRows, int]:
    """The first `depth` different texts of ranked (row, score, fold, time, importance, decay), and the duplicates."""
    folds: set[bytes] = set()
    first: list[tuple[Any, ...]] = []
    duplicates = 0
    for each in ranked:
        if each[2] in folds:
            duplicates += 1
        elif len(first) == depth:
            break
        else:
            folds.add(each[2])
            first.append(each)
    rows, scores, hashes, times, importances, decays = zip(*first, strict=True) if first else ((),) * 6
    return RankedRows(rows, scores, hashes, times, importances, decays, read), duplicates


def row_reader(database: PostgresDatabase, where: Filter, *, replica: bool) -> RowReader:
    """Reads the records of rows that a search has found, if the filter still lets them through."""
    select = DIALECT.select.replace("SELECT", "SELECT records.row,", 1)
    condition, values = DIALECT.matching(where)

    def read(rows: Sequence[int]) -> Mapping[int, Record]:
        with database.read(where.scope, replica=replica) as connection:
            found = connection.execute(
                f"{select} WHERE records.row = ANY(%s) AND {condition}", [list(map(int, rows)), *values]
            )
            return {row: from_row(fields) for row, *fields in found}

    return read
