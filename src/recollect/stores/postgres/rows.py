"""Rows of `records`: statements in PostgreSQL's dialect, scopes by number, and what a filter lets through.

A phrase is verified in the texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.analysis import Analyzer
from recollect.querylang import has_phrase, is_word, needed_terms, term_of
from recollect.stores.postgres.connections import Connection, integer
from recollect.stores.postgres.database import DIALECT, PostgresDatabase
from recollect.stores.postgres.postings import term_key
from recollect.stores.rows import (
    FILE,
    IS_MESSAGE,
    Condition,
    NumberedFilter,
    all_of,
    distinct,
    from_row,
    meta,
    of_time,
    unusual_origins,
    visible_to,
)
from recollect.types import Filter, Hit, Record, Scope
from recollect.types.search import RankedRows

COLUMNS = (
    f"fold, time, importance, decay, {FILE}, CASE WHEN kind = 'turn' THEN -greatest(1, created_at)"
    f" WHEN {IS_MESSAGE} THEN 0 ELSE greatest(0, first_line) END"
)
"""The columns of `records` that a ranking holds: those of `RankedRows` after the scores."""

RowReader: TypeAlias = Callable[[Sequence[int]], Mapping[int, Record]]  # `RankedRows.read`


def find_scope(scope: Scope) -> Condition:
    """The statement that finds the number of a scope."""
    parts = {'"user"': scope.user, "agent": scope.agent, "session": scope.session}
    same = " AND ".join(f"{name} IS NULL" if value is None else f"{name} = %s" for name, value in parts.items())
    return f"SELECT scope FROM scopes WHERE {same}", [value for value in parts.values() if value is not None]


NEW_SCOPE = (
    'INSERT INTO scopes ("user", agent, session) VALUES (%(user)s, %(agent)s, %(session)s) ON CONFLICT DO NOTHING'
)


def scope_number(connection: Connection, scope: Scope, *, create: str = NEW_SCOPE) -> int:
    """The number of a scope, which is created if it is new."""
    find, parameters = find_scope(scope)
    while (row := connection.execute(find, parameters).fetchone()) is None:  # another process may create it, too
        connection.execute(create, {"user": scope.user, "agent": scope.agent, "session": scope.session})
    return int(row[0])


def visible_scopes(connection: Connection, scope: Scope, among: str = "true") -> list[int]:
    """The numbers of the scopes whose records a caller with this scope can see; `among` is a further condition."""
    condition, values = visible_to(scope)
    scopes = connection.execute(f"SELECT scope FROM scopes WHERE {condition} AND {among} ORDER BY scope", values)
    return [number for (number,) in scopes]


def in_scopes(where: Filter) -> Condition:
    """The scopes that a filter admits, as a condition on the column of any table."""
    if where.any_scope:
        return "true", []
    if isinstance(where, NumberedFilter):
        return "scope = ANY(%s)", [list(where.numbers)]
    condition, values = visible_to(where.scope)
    return f"scope = ANY(ARRAY(SELECT scope FROM scopes WHERE {condition}))", values


def scope_condition(where: Filter) -> Condition:
    """The scopes of rows as a condition in a cluster, whose statements must name them; elsewhere no condition."""
    return in_scopes(where) if isinstance(where, NumberedFilter) else ("true", [])


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
    first, duplicates = distinct([each[2] for each in ranked], depth)
    if not first:
        return (), duplicates
    rows, scores, folds, *others = zip(*(ranked[place] for place in first), strict=True)
    times, importances, decays, files, lines = others
    return RankedRows(rows, scores, folds, times, importances, decays, files, lines, read), duplicates


def row_reader(database: PostgresDatabase, where: Filter, *, replica: bool) -> RowReader:
    """Reads the records of rows that a search has found, if the filter still lets them through."""
    select = database.dialect.select.replace("SELECT", "SELECT records.row,", 1)
    condition, values = database.dialect.matching(where)

    def read(rows: Sequence[int]) -> Mapping[int, Record]:
        with database.read(where.scope, replica=replica) as connection:
            cursor = connection.execute(
                f"{select} WHERE records.row = ANY(%s) AND {condition}", [list(map(int, rows)), *values]
            )
            return {row: from_row(fields) for row, *fields in cursor}

    return read


POSTING = np.dtype([("row", ">i8"), ("count", ">f4"), ("length", ">i4")])


def matching(connection: Connection, where: Filter) -> Condition:
    """The filter as a condition on `records`, with the wordings that it requires and excludes."""
    conditions = [DIALECT.matching(where)]
    if not where.phrases and not where.without and not where.required:
        return conditions[0]
    analyzer, scopes = Analyzer(meta(connection, "language") or "english"), in_scopes(where)

    def containing(wording: str) -> list[int]:
        if is_word(wording):
            return list(_having(connection, scopes, [term_of(wording, analyzer)]).tolist())
        return _with_phrase(connection, scopes, all_of(conditions), wording, analyzer)

    for wording in where.without:
        rows = containing(wording)
        conditions.append(("row NOT IN (SELECT unnest(%s::bigint[]))", [rows]))
    for group in where.required:
        rows = [row for wording in group for row in containing(wording)]
        conditions.append(("row IN (SELECT unnest(%s::bigint[]))", [rows]))
    for phrase in where.phrases:
        rows = _with_phrase(connection, scopes, all_of(conditions), phrase, analyzer)
        conditions.append(("row IN (SELECT unnest(%s::bigint[]))", [rows]))
    return all_of(conditions)


def _having(connection: Connection, scopes: Condition, terms: Sequence[str]) -> NDArray[np.int64]:
    """The rows, in these scopes, that have all of these terms."""
    scoped, values = scopes
    keys = list(map(term_key, dict.fromkeys(terms)))
    packed = connection.cursor(binary=True).execute(
        f"SELECT term, postings FROM blocks WHERE term = ANY(%s) AND {scoped}", [keys, *values]
    )
    parts: dict[str, list[NDArray[np.int64]]] = {key: [] for key in keys}
    for term, postings in packed:
        parts[term].append(np.frombuffer(postings, POSTING)["row"].astype(np.int64))
    removed = [row for (row,) in connection.execute(f"SELECT row FROM removals WHERE {scoped}", values)]
    unmerged: dict[str, list[int]] = {key: [] for key in keys}
    for row, term in connection.execute(
        "SELECT row, term FROM documents, unnest(terms) AS held (term)"
        f" WHERE NOT merged AND terms && %s::text[] AND term = ANY(%s) AND {scoped}",
        [keys, keys, *values],
    ):
        unmerged[term].append(row)
    none = np.zeros(0, np.int64)
    merged = (np.setdiff1d(np.concatenate([none, *parts[key]]), removed) for key in keys)
    rows = [np.union1d(some, np.array(unmerged[key], np.int64)) for key, some in zip(keys, merged, strict=True)]
    return reduce(np.intersect1d, rows) if rows else none


def _with_phrase(
    connection: Connection, scopes: Condition, among: Condition, phrase: str, analyzer: Analyzer
) -> list[int]:
    """The rows of the records that meet a condition and contain a phrase."""
    conditions = [among]
    for alternatives in needed_terms(phrase, analyzer):
        rows = [_having(connection, scopes, terms) for terms in alternatives]
        conditions.append(("row IN (SELECT unnest(%s::bigint[]))", [np.unique(np.concatenate(rows)).tolist()]))
    condition, values = all_of(conditions)
    texts = connection.execute(f"SELECT row, title, text FROM records WHERE {condition}", values)
    return [row for row, title, text in texts if has_phrase(phrase, title, text)]


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """What a filter lets through, as a condition on the columns `row` and `scope`, and how many records that are.

    Usually that is some scopes without hidden rows.
    """

    condition: Condition
    count: int


def filtered_rows(connection: Connection, where: Filter, key: str) -> FilteredRows:
    """Prepare a filter for index scans. `key` are the columns that tables of records have in common."""
    scopes = in_scopes(where)
    if selects_rows(where):
        condition, values = matching(connection, where)
        count = integer(connection, f"SELECT count(*) FROM records WHERE {condition}", values)
        rows = (f"({key}) IN (SELECT {key} FROM records WHERE {condition})", values)
        return FilteredRows(all_of([scopes, rows]), count)
    condition, values = passing(where)
    with connection.pipeline():
        listed = connection.execute(f"SELECT row FROM records WHERE {condition}", values)
        tallied = connection.execute(f"SELECT coalesce(sum(records), 0) FROM tallies WHERE {scopes[0]}", scopes[1])
    hidden = [row for (row,) in listed]
    (count,) = tallied.fetchone() or (0,)
    rows = ("row NOT IN (SELECT unnest(%s::bigint[]))", [hidden]) if hidden else ("true", [])
    return FilteredRows(all_of([scopes, rows]), int(count) - len(hidden))
