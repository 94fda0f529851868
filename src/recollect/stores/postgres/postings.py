"""The writing side of the keyword index: the terms of each record, merged into blocks of postings now and then."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from recollect.analysis import Analyzer
from recollect.stores.database import KIND_NUMBERS, TITLE_WEIGHT
from recollect.stores.postgres.connections import Connection
from recollect.stores.rows import passage_hash
from recollect.types import Record

MAX_TERM_LENGTH = 500  # a longer term is indexed by its hash: PostgreSQL cannot index long strings
TALLY_MERGE_CHANCE = 256  # one change in so many merges the tallies of its scope

REINDEX_BATCH = 1_000
REINDEX_CHARACTERS = 2_000_000  # records that are analysed again in one transaction, which takes a few seconds at most

MERGE_LOCK = 0x52434C50  # the advisory lock for merging, one for each schema

LENGTH_BITS = 29  # of the length of a record as it is stored; the bits above are the number of its kind
KIND, WORDS = f"length >> {LENGTH_BITS}", f"length & {(1 << LENGTH_BITS) - 1}"  # of a stored length

DOCUMENT = "INSERT INTO documents (row, scope, length, terms, counts) VALUES (%s, %s, %s, %s::text[], %s::real[])"
TALLY = "INSERT INTO tallies (scope, kind, records, length) VALUES (%s, %s, %s, %s)"
_REMOVE = (
    "WITH old AS (DELETE FROM documents WHERE row = %s RETURNING row, scope, terms, merged)"
    " INSERT INTO removals (row, scope, terms) SELECT row, scope, terms FROM old WHERE merged"
)

_MERGED = (
    " RETURNING scope, kind, records, length) INSERT INTO tallies (scope, kind, records, length)"
    " SELECT scope, kind, sum(records), sum(length) FROM gone GROUP BY scope, kind"
)
MERGE_TALLIES = f"WITH gone AS (DELETE FROM tallies{_MERGED}"  # one for each scope and kind, in place of many

_MERGE_SCOPE = (
    "WITH gone AS (DELETE FROM tallies WHERE number IN"
    f" (SELECT number FROM tallies WHERE scope = %s FOR UPDATE SKIP LOCKED){_MERGED}"
)


class TermCounts(NamedTuple):
    """The weighted count of each term of a record, and the record's length without stop words, with its kind."""

    counts: dict[str, float]
    length: int

    @property
    def columns(self) -> tuple[int, list[str], list[float]]:
        """The columns `length`, `terms` and `counts` of `documents`."""
        return self.length, list(self.counts), list(self.counts.values())

    @property
    def kind(self) -> int:
        """The number of the record's kind."""
        return self.length >> LENGTH_BITS

    @property
    def words(self) -> int:
        """The length alone."""
        return self.length & (1 << LENGTH_BITS) - 1


class IndexedRecord(NamedTuple):
    """A record with its row, the number of its scope, and its terms."""

    row: int
    scope: int
    record: Record
    terms: TermCounts


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """Adds records to the indexes and removes them, with statements that return nothing and can be pipelined."""

    analyzer: Analyzer
    analysed: Mapping[tuple[str, str, str, str], TermCounts] = field(default_factory=dict)

    def ahead(self, records: Iterable[Record]) -> IndexWriter:
        """A writer that has analysed some records, so that no transaction waits for that."""
        return replace(self, analysed={self._key(record): self.terms(record) for record in records})

    def by(self, analyzer: Analyzer) -> IndexWriter:
        """The same writer with another analyzer; records that were analysed by the present one are analysed again."""
        return replace(self, analyzer=analyzer)

    def terms(self, record: Record) -> TermCounts:
        """The terms of a record; those of the title count more."""
        if (known := self.analysed.get(self._key(record))) is not None:
            return known
        counts: dict[str, float] = {}
        length = 0
        for part, weight in ((record.title, TITLE_WEIGHT), (record.text, 1.0)):
            for token in self.analyzer.tokens(part):
                term = term_key(token.term)
                counts[term] = counts.get(term, 0.0) + weight
                length += 0 if token.stop else int(weight)
        return TermCounts(counts, KIND_NUMBERS[record.kind] << LENGTH_BITS | max(1, length))

    def _key(self, record: Record) -> tuple[str, str, str, str]:
        return self.analyzer.fingerprint, record.kind, record.title, record.text

    def add(self, connection: Connection, stored: Sequence[IndexedRecord], spaces: Sequence[int]) -> None:
        """Add records to all indexes."""
        for each in stored:
            connection.execute(DOCUMENT, (each.row, each.scope, *each.terms.columns))
        self.add_derived(connection, stored, spaces)

    @staticmethod
    def add_derived(connection: Connection, stored: Sequence[IndexedRecord], spaces: Sequence[int]) -> None:
        """Add tallies and vectors. A record without a vector gets an empty row in each vector table."""
        rows, scopes = [each.row for each in stored], [each.scope for each in stored]
        counts, lengths = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for each in stored:
            counts[each.scope, each.terms.kind] += 1
            lengths[each.scope, each.terms.kind] += each.terms.words
        for key, count in counts.items():  # a new row for each, so that no transaction waits for another
            connection.execute(TALLY, (*key, count, lengths[key]))
        IndexWriter.merge_tallies(connection, drawn_scopes(set(scopes)))
        passages = [passage_hash(each.record.passage) for each in stored]
        for space in spaces:
            connection.execute(
                f"INSERT INTO vectors_{space} (row, scope, vector, settled)"
                f" SELECT row, scope, {stored_vector(space, 'added')}, to_regclass('vectors_{space}_near') IS NULL"
                " FROM unnest(%s::bigint[], %s::integer[], %s::bytea[]) AS added (row, scope, passage)"
                " ON CONFLICT (row) DO UPDATE SET scope = excluded.scope, vector = excluded.vector,"
                " settled = excluded.settled",
                (rows, scopes, passages),
            )

    @staticmethod
    def merge_tallies(connection: Connection, scopes: Iterable[int]) -> None:
        """One tally of each scope and kind in place of many."""
        for scope in scopes:
            connection.execute(_MERGE_SCOPE, (scope,))

    @staticmethod
    def remove(connection: Connection, row: int, spaces: Sequence[int]) -> None:
        """Remove a record from all indexes."""
        connection.execute(_REMOVE, (row,))
        connection.execute(
            "INSERT INTO tallies (scope, kind, records, length)"
            f" SELECT scope, {KIND}, -1, -({WORDS}) FROM records WHERE row = %s AND forgotten_at IS NULL",
            (row,),
        )
        for space in spaces:
            connection.execute(f"DELETE FROM vectors_{space} WHERE row = %s", (row,))


def drawn_scopes(scopes: Iterable[int]) -> list[int]:
    """Now and then some of these scopes, whose tallies are then merged."""
    return [scope for scope in scopes if random.randrange(TALLY_MERGE_CHANCE) == 0]  # noqa: S311  (not a secret)


def stored_vector(space: int, table: str) -> str:
    """The vector of a table's passage, if there is one. The lock keeps it from being deleted now."""
    return (
        f"(SELECT vector::halfvec FROM embeddings WHERE space = {space}"
        f" AND embeddings.passage = {table}.passage FOR KEY SHARE)"
    )


def term_key(term: str) -> str:
    """A term as the index stores it."""
    if len(term) <= MAX_TERM_LENGTH:
        return term
    return f"#{hashlib.blake2b(term.encode(), digest_size=16).hexdigest()}"


def lock_index(connection: Connection, locked: str) -> None:
    """Until the transaction ends, no other one merges, and none writes records."""
    connection.execute(f"SELECT pg_advisory_xact_lock({MERGE_LOCK}, current_schema()::regnamespace::oid::integer)")
    connection.execute(f"LOCK TABLE {locked} IN SHARE ROW EXCLUSIVE MODE")


def clear(connection: Connection) -> None:
    """Empty the index."""
    for table in ("documents", "blocks", "removals"):
        connection.execute(f"DELETE FROM {table}")


def _not_indexed(connection: Connection, after: int) -> list[int]:
    """The next rows that are not in the index, as many as one transaction may analyse."""
    sizes = connection.execute(
        "SELECT row, octet_length(title) + octet_length(text) FROM records"
        " WHERE forgotten_at IS NULL AND row > %s AND NOT EXISTS (SELECT 1 FROM documents"
        " WHERE documents.row = records.row AND documents.scope = records.scope) ORDER BY row LIMIT %s",
        (after, REINDEX_BATCH),
    )
    rows: list[int] = []
    room = REINDEX_CHARACTERS
    for row, size in sizes:
        room -= size
        if rows and room < 0:
            break
        rows.append(row)
    return rows


def reindex(connection: Connection, writer: IndexWriter, after: int, ids: str) -> int:
    """Analyse the next records that are not in the index; return the last row, or -1 if there are no more.

    `ids` is the table whose rows lock records.
    """
    if not (batch := _not_indexed(connection, after)):
        return -1
    connection.execute(f"SELECT id FROM {ids} WHERE row = ANY(%s) ORDER BY id FOR UPDATE", (batch,))
    rows = connection.execute(
        "SELECT row, scope, kind, title, text, length FROM records WHERE forgotten_at IS NULL AND row = ANY(%s)",
        (batch,),
    ).fetchall()
    with connection.pipeline():
        for row, scope, kind, title, text, before in rows:
            terms = writer.terms(Record("", text, kind, title))
            insert = f"{DOCUMENT} ON CONFLICT DO NOTHING"  # whoever edits it writes it, too
            connection.execute(insert, (row, scope, *terms.columns))
            if terms.length != before:
                update = "UPDATE records SET length = %s WHERE scope = %s AND row = %s"
                connection.execute(update, (terms.length, scope, row))
                connection.execute(TALLY, (scope, terms.kind, 0, terms.length - before))
    return int(batch[-1])
