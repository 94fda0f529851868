"""Rows of `records`: statements in PostgreSQL's dialect, scopes by number, and what a filter lets through."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from recollect.stores.postgres.connections import Connection
from recollect.stores.postgres.database import DIALECT, PostgresDatabase
from recollect.stores.rows import Condition, all_of, from_row, of_time, unusual_origins, visible_to
from recollect.types import Filter, Hit, Record, Scope
from recollect.types.search import RankedRows

COLUMNS = (
    "fold, time, importance, decay,"
    " CASE kind WHEN 'chunk' THEN path WHEN 'turn' THEN source || ' ' || author_session END,"
    " CASE kind WHEN 'turn' THEN -greatest(1, created_at) ELSE greatest(0, first_line) END"
)
"""The columns of `records` that a ranking holds: those of `RankedRows` after the scores."""

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


def in_scopes(where: Filter) -> Condition:
    """The scopes that a filter admits, as a condition on the column of any table."""
    if where.any_scope:
        return "true", []
    condition, values = visible_to(where.scope)
    return f"scope = ANY(ARRAY(SELECT scope FROM scopes WHERE {condition}))", values


def selects_rows(where: Filter) -> bool:
    """Whether a filter is on fields, on words or on a time in the past, so that its rows are selected.

    Otherwise all rows of its scopes are admitted except a few, those of `passing`.
    """
    fields = DIALECT.of_fields(replace(where, origins=()) if unusual_origins(where) else where)
    return bool(where.as_of or where.phrases or where.without or where.required or any(fields))


def passing(where: Filter) -> Condition:
    """The records of these scopes that are hidden, which are few: expired, superseded, or of another origin."""
    current, values = all_of(list(of_time(where)))
    hidden = f"(expires_at IS NOT NULL OR superseded_at IS NOT NULL) AND NOT ({current})"
    if origins := unusual_origins(where):
        hidden, values = f"({hidden} OR origin = ANY(%s))", [*values, origins]
    return all_of([("forgotten_at IS NULL", []), in_scopes(where), (hidden, values)])


def ranked_rows(ranked: Sequence[tuple[Any, ...]], depth: int, read: RowReader) -> tuple[Sequence[Hit], int]:
    """The first `depth` different texts of ranked (row, score, *`COLUMNS`), and the number of duplicates."""
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
    if not first:
        return (), duplicates
    rows, scores, hashes, times, importances, decays, files, lines = zip(*first, strict=True)
    return RankedRows(rows, scores, hashes, times, importances, decays, files, lines, read), duplicates


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
