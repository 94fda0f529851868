"""The keyword index of a distributed store. Each scope is merged by itself, in its shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from recollect.stores.postgres.citus.database import ClusterDatabase
from recollect.stores.postgres.connections import Connection, copy_rows
from recollect.stores.postgres.keywords import LOCK_LANGUAGE, PostgresKeywords
from recollect.stores.postgres.postings import MERGE_LOCK
from recollect.stores.postgres.rows import POSTING, find_scope
from recollect.stores.rows import micros
from recollect.types import Scope, now

MERGE_BATCH = 1_000

FULL_BLOCK = 1_600  # bytes of postings after which a block is not appended to

_BLOCKS = """
    SELECT place, string_agg(postings, ''::bytea) FROM (SELECT term, postings FROM blocks WHERE {scoped}) AS held
    JOIN unnest(%s::text[]) WITH ORDINALITY AS wanted (term, place) USING (term) GROUP BY place
"""

_MOVING = (
    "SELECT row, length, terms, counts FROM documents WHERE scope = %s AND NOT merged AND NOT EXISTS (SELECT 1"
    " FROM removals WHERE removals.scope = documents.scope AND removals.row = documents.row)"
    " LIMIT %s FOR UPDATE SKIP LOCKED"
)


class ClusterKeywords(PostgresKeywords):
    """Keyword search in a distributed store."""

    _blocks = _BLOCKS
    lock = ((f"LOCK TABLE {ClusterDatabase.locked} IN ROW EXCLUSIVE MODE", ()), LOCK_LANGUAGE[1])

    def merge(self) -> None:
        """Writers merge the scopes that they change."""

    def merge_scope(self, scope: Scope) -> None:
        """Move some new records of a scope into the blocks, unless another process does."""

        def work(connection: Connection) -> None:
            if (row := connection.execute(*find_scope(scope)).fetchone()) is not None:
                merge_postings(connection, int(row[0]), patient=False)

        self._database.try_write(work, scope)

    def merge_all(self) -> None:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT DISTINCT scope FROM documents WHERE NOT merged UNION SELECT DISTINCT scope FROM removals"
            ).fetchall()
        for (scope,) in rows:
            while self._database.write(partial(merge_postings, scope=scope, patient=True)) >= MERGE_BATCH:
                pass


def merge_postings(connection: Connection, scope: int, *, patient: bool) -> int:
    """Move removals and unmerged documents of a scope into its blocks; returns how many were moved."""
    schema = f"{MERGE_LOCK}, current_schema()::regnamespace::oid::integer"
    if patient:
        lock = f"SELECT pg_advisory_xact_lock_shared({schema}), pg_advisory_xact_lock({MERGE_LOCK}, %s), true"
    else:
        lock = f"SELECT pg_try_advisory_xact_lock_shared({schema}) AND pg_try_advisory_xact_lock({MERGE_LOCK}, %s)"
    if not (connection.execute(lock, (scope,)).fetchone() or [False])[-1]:
        return 0
    return _merge_removals(connection, scope) + _merge_documents(connection, scope)


def _merge_removals(connection: Connection, scope: int) -> int:
    removals = connection.execute(
        "SELECT number, row, terms FROM removals WHERE scope = %s ORDER BY number LIMIT %s", (scope, MERGE_BATCH)
    ).fetchall()
    if not removals:
        return 0
    numbers, rows, terms = zip(*removals, strict=True)
    blocks = connection.cursor(binary=True).execute(
        "SELECT term, part, postings FROM blocks WHERE scope = %s AND term = ANY(%s)",
        (scope, sorted({term for each in terms for term in each})),
    ).fetchall()  # fmt: skip
    with connection.pipeline():
        for term, part, packed in blocks:
            postings = np.frombuffer(packed, POSTING)
            left = postings[~np.isin(postings["row"], rows)]
            key = (scope, term, part)
            if not left.size:
                connection.execute("DELETE FROM blocks WHERE scope = %s AND term = %s AND part = %s", key)
            elif left.size < postings.size:
                update = "UPDATE blocks SET postings = %s WHERE scope = %s AND term = %s AND part = %s"
                connection.execute(update, (left.tobytes(), *key))
        connection.execute("DELETE FROM removals WHERE scope = %s AND number = ANY(%s)", (scope, list(numbers)))
    return len(removals)


def _merge_documents(connection: Connection, scope: int) -> int:
    documents = connection.execute(_MOVING, (scope, MERGE_BATCH)).fetchall()
    if not documents:
        return 0
    postings: dict[str, list[tuple[int, float, int]]] = defaultdict(list)
    for row, length, terms, counts in sorted(documents):
        for term, count in zip(terms, counts, strict=True):
            postings[term].append((row, count, length))
    connection.execute(
        "UPDATE documents SET merged = true WHERE scope = %s AND row = ANY(%s)", (scope, [row for row, *_ in documents])
    )
    if connection.execute("SELECT 1 FROM blocks WHERE scope = %s LIMIT 1", (scope,)).fetchone() is None:
        _copy_blocks(connection, scope, postings)
        return len(documents)
    full: list[str] = []
    terms = sorted(postings)
    for start in range(0, len(terms), MERGE_BATCH):
        some = terms[start : start + MERGE_BATCH]
        values = [
            value
            for term in some
            for value in (
                term, scope, postings[term][0][0], postings[term][-1][0], np.array(postings[term], POSTING).tobytes(),
            )
        ]  # fmt: skip
        places = ", ".join(["(%s, %s, 0, %s, %s, %s)"] * len(some))
        written = connection.execute(
            f"INSERT INTO blocks (term, scope, part, low, high, postings) VALUES {places}"
            " ON CONFLICT (term, scope, part) DO UPDATE SET postings = blocks.postings || excluded.postings,"
            " low = least(blocks.low, excluded.low), high = greatest(blocks.high, excluded.high)"
            " RETURNING term, octet_length(postings)",
            values,
        )
        full += [term for term, size in written if size >= FULL_BLOCK]
    connection.execute(
        "UPDATE blocks SET part = %s WHERE scope = %s AND term = ANY(%s) AND part = 0", (micros(now()), scope, full)
    )
    return len(documents)


def _copy_blocks(connection: Connection, scope: int, postings: Mapping[str, Sequence[tuple[int, float, int]]]) -> None:
    """The first blocks of a scope, all at once."""
    number, rows = micros(now()), list[tuple[Any, ...]]()
    for term, each in sorted(postings.items()):
        block = np.array(each, POSTING).tobytes()
        rows.append((term, scope, number if len(block) >= FULL_BLOCK else 0, each[0][0], each[-1][0], block))
    copy_rows(connection, "blocks (term, scope, part, low, high, postings)", rows)
