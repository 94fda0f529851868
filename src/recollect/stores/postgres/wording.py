"""What a filter lets through, with its phrases and what it excludes: a phrase is verified in the texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recollect.analysis import Analyzer
from recollect.querylang import has_phrase, is_word, needed_terms, term_of
from recollect.stores.postgres.connections import Connection
from recollect.stores.postgres.database import DIALECT
from recollect.stores.postgres.postings import term_key
from recollect.stores.postgres.rows import in_scopes, passing, selects_rows
from recollect.stores.rows import Condition, all_of, meta
from recollect.types import Filter

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
    found: NDArray[np.int64] | None = None
    for key in keys:
        merged = np.concatenate([np.zeros(0, np.int64), *parts[key]])
        rows = np.union1d(np.setdiff1d(merged, removed), np.array(unmerged[key], np.int64)).astype(np.int64)
        found = rows if found is None else np.intersect1d(found, rows)
    return np.zeros(0, np.int64) if found is None else found


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


def filtered_rows(connection: Connection, where: Filter) -> FilteredRows:
    """Prepare a filter for index scans."""
    scopes = in_scopes(where)
    if selects_rows(where):
        condition, values = matching(connection, where)
        row = connection.execute(f"SELECT count(*) FROM records WHERE {condition}", values).fetchone()
        rows = (f"row IN (SELECT row FROM records WHERE {condition})", values)
        return FilteredRows(all_of([scopes, rows]), int(row[0]) if row else 0)
    condition, values = passing(where)
    with connection.pipeline():
        listed = connection.execute(f"SELECT row FROM records WHERE {condition}", values)
        tallied = connection.execute(f"SELECT coalesce(sum(records), 0) FROM tallies WHERE {scopes[0]}", scopes[1])
    hidden = [row for (row,) in listed]
    (count,) = tallied.fetchone() or (0,)
    rows = ("row NOT IN (SELECT unnest(%s::bigint[]))", [hidden]) if hidden else ("true", [])
    return FilteredRows(all_of([scopes, rows]), int(count) - len(hidden))
