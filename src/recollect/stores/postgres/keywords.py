"""The keyword index: BM25 over the visible records by SQL, over postings that are written with their record."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from recollect.analysis import Analyzer
from recollect.errors import StoreError
from recollect.stores.database import K1, TITLE_WEIGHT, B, SqlKeywords
from recollect.stores.postgres.database import DIALECT, MAX_TRIES, Connection, PostgresDatabase
from recollect.stores.postgres.rows import RowReader, filtered_rows, ranked_rows, row_reader
from recollect.stores.rows import from_row, meta, passage_hash, set_meta
from recollect.types import Filter, RankedList, Record

T = TypeVar("T")

PRECISION = 1e9
"""Scores are rounded to nine places, as in the SQLite store, so that the order of summation does not matter."""

MAX_TERM_LENGTH = 500  # a longer term is indexed by its hash: PostgreSQL cannot index long strings
MAX_JSON_LETTERS = 20_000_000  # letters of the terms in one statement: PostgreSQL limits JSON to 256 MB
TALLY_MERGE_CHANCE = 256  # one change in so many merges the tallies of its scope

REINDEX_BATCH = 200
REINDEX_CHARACTERS = 2_000_000  # records that are analysed again in one transaction, which takes a few seconds at most

WORK_MEMORY = "64MB"
"""Memory for the sums of one search. A term that every fourth record has does not fit into a server's default."""

_POSTINGS = (
    "INSERT INTO postings (scope, term, row, often, length)"
    " SELECT (entry->0)::integer, term.key, (entry->1)::bigint, term.value::real, (entry->2)::integer"
    " FROM jsonb_array_elements(%s::jsonb) AS entry, jsonb_each_text(entry->3) AS term"
)

MERGE_TALLIES = (  # one tally for each scope, in place of many
    "WITH gone AS (DELETE FROM tallies RETURNING scope, records, length) INSERT INTO tallies (scope, records, length)"
    " SELECT scope, sum(records), sum(length) FROM gone GROUP BY scope"
)

_MERGE_SCOPE = (
    "WITH gone AS (DELETE FROM tallies WHERE number IN"
    " (SELECT number FROM tallies WHERE scope = %s FOR UPDATE SKIP LOCKED) RETURNING records, length)"
    " INSERT INTO tallies (scope, records, length)"
    " SELECT %s, sum(records), sum(length) FROM gone HAVING count(*) > 0"
)

_HITS = "{name} AS MATERIALIZED (SELECT term, row, often, length FROM postings WHERE {scoped} AND term = ANY(%s))"
_SCORED = """
    WITH {hits},
    weights AS MATERIALIZED (
        SELECT term, held, ln(1 + (%s - held + 0.5) / (held + 0.5)) AS weight
        FROM (SELECT term, count(*) AS held FROM hits GROUP BY term) AS counted
    ),
    scored AS MATERIALIZED (
        SELECT row, round({precision} * sum(weight * often / (often + {k1} * (1 - {b} + {b} * length / %s))))
            / {precision} AS score
        FROM hits JOIN weights USING (term) GROUP BY row
    ),
    head AS MATERIALIZED (
        SELECT row, score FROM scored
        WHERE score >= (SELECT min(score) FROM (SELECT score FROM scored ORDER BY score DESC LIMIT %s) AS best)
    )
    SELECT row, score, fold, time, importance, decay,
        CASE row_number() OVER (ORDER BY score DESC, time DESC, id COLLATE "C")
            WHEN 1 THEN (SELECT json_object_agg(term, held) FROM weights)::text END
    FROM head CROSS JOIN LATERAL
        (SELECT fold, time, id, importance, decay FROM records WHERE records.row = head.row OFFSET 0) AS kept
    ORDER BY score DESC, time DESC, id COLLATE "C" LIMIT %s
"""
"""OFFSET 0 makes the planner fetch about a hundred records by row; without it, it would read all of them."""


class TermCounts(NamedTuple):
    """The weighted count of each term of a record, and the record's length without stop words."""

    counts: dict[str, float]
    length: int


class IndexedRecord(NamedTuple):
    """A record with its row, the number of its scope, and its terms."""

    row: int
    scope: int
    record: Record
    terms: TermCounts


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """Adds records to the indexes and removes them, with statements that return nothing and can be pipelined."""

    analyzer: Callable[[], Analyzer]
    analysed: Mapping[tuple[str, str, str], TermCounts] = field(default_factory=dict)

    def ahead(self, records: Iterable[Record]) -> IndexWriter:
        """A writer that has analysed some records, so that no transaction waits for that."""
        return replace(self, analysed={self._key(record): self.terms(record) for record in records})

    def by(self, analyzer: Analyzer) -> IndexWriter:
        """A writer that uses one analyzer, whatever the language of the store becomes."""
        return replace(self, analyzer=lambda: analyzer)

    def terms(self, record: Record) -> TermCounts:
        """The terms of a record; those of the title count more."""
        if (known := self.analysed.get(self._key(record))) is not None:
            return known
        analyzer = self.analyzer()
        counts: dict[str, float] = {}
        length = 0
        for part, weight in ((record.title, TITLE_WEIGHT), (record.text, 1.0)):
            for token in analyzer.tokens(part):
                term = term_key(token.term)
                counts[term] = counts.get(term, 0.0) + weight
                length += not token.stop
        return TermCounts(counts, max(1, length))

    def _key(self, record: Record) -> tuple[str, str, str]:
        return self.analyzer().fingerprint, record.title, record.text

    def add(self, connection: Connection, stored: Sequence[IndexedRecord], spaces: Sequence[int]) -> None:
        """Add records to all indexes."""
        entries = [(each.scope, each.row, each.terms.length, each.terms.counts) for each in stored]
        for part in parted(entries, lambda entry: sum(10 + len(term) for term in entry[3]), MAX_JSON_LETTERS):
            connection.execute(_POSTINGS, (json.dumps(part, ensure_ascii=False),))
        self.add_derived(connection, stored, spaces)

    @staticmethod
    def add_derived(connection: Connection, stored: Sequence[IndexedRecord], spaces: Sequence[int]) -> None:
        """Add tallies and vectors. A record without a vector gets an empty row in each vector table."""
        rows, scopes = [each.row for each in stored], [each.scope for each in stored]
        lengths = Counter[int]()
        for each in stored:
            lengths[each.scope] += each.terms.length
        for scope, count in Counter(scopes).items():  # a new row for each, so that no transaction waits for another
            insert = "INSERT INTO tallies (scope, records, length) VALUES (%s, %s, %s)"
            connection.execute(insert, (scope, count, lengths[scope]))
            if random.randrange(TALLY_MERGE_CHANCE) == 0:  # noqa: S311  (not a secret)
                connection.execute(_MERGE_SCOPE, (scope, scope))
        passages = [passage_hash(each.record.passage) for each in stored]
        for space in spaces:
            connection.execute(
                f"INSERT INTO vectors_{space} (row, scope, vector)"
                " SELECT row, scope, (SELECT vector::halfvec FROM embeddings WHERE space = %s"
                " AND embeddings.passage = added.passage FOR KEY SHARE)"  # keeps the vector from being deleted now
                " FROM unnest(%s::bigint[], %s::integer[], %s::bytea[]) AS added (row, scope, passage)"
                " ON CONFLICT (row) DO UPDATE SET scope = excluded.scope, vector = excluded.vector",
                (space, rows, scopes, passages),
            )

    @staticmethod
    def remove(connection: Connection, row: int, spaces: Sequence[int]) -> None:
        """Remove a record from all indexes."""
        connection.execute("DELETE FROM postings WHERE row = %s", (row,))
        connection.execute(
            "INSERT INTO tallies (scope, records, length)"
            " SELECT scope, -1, -length FROM records WHERE row = %s AND forgotten_at IS NULL",
            (row,),
        )
        for space in spaces:
            connection.execute(f"DELETE FROM vectors_{space} WHERE row = %s", (row,))


def term_key(term: str) -> str:
    """A term as the index stores it."""
    if len(term) <= MAX_TERM_LENGTH:
        return term
    return f"#{hashlib.blake2b(term.encode(), digest_size=16).hexdigest()}"


def reindex(connection: Connection, writer: IndexWriter, after: int) -> int:
    """Analyse the next records again; return the last row, or -1 if there are no more."""
    sizes: list[Any] = connection.execute(
        "SELECT row, octet_length(title) + octet_length(text) FROM records"
        " WHERE forgotten_at IS NULL AND row > %s ORDER BY row LIMIT %s",
        (after, REINDEX_BATCH),
    ).fetchall()
    if not sizes:
        return -1
    batch = [row for row, _ in next(parted(sizes, lambda each: each[1], REINDEX_CHARACTERS))]
    select = DIALECT.select.replace("SELECT ", "SELECT records.row, records.scope, ", 1)
    rows = connection.execute(
        f"{select} WHERE forgotten_at IS NULL AND row = ANY(%s) ORDER BY records.id FOR UPDATE OF records", (batch,)
    ).fetchall()
    stored = [
        IndexedRecord(row, scope, record := from_row(fields), writer.terms(record)) for row, scope, *fields in rows
    ]
    with connection.pipeline():
        for each in stored:
            writer.remove(connection, each.row, ())
            connection.execute("UPDATE records SET length = %s WHERE row = %s", (each.terms.length, each.row))
        if stored:
            writer.add(connection, stored, ())
    return int(batch[-1])


def parted(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Consecutive items in lists of at most a total size; a larger item is a list of its own."""
    part: list[T] = []
    room = limit
    for item in items:
        room -= (needed := size(item))
        if part and room < 0:
            yield part
            part, room = [], limit - needed
        part.append(item)
    if part:
        yield part


class PostgresKeywords(SqlKeywords):
    """Keyword search in one PostgreSQL store."""

    _database: PostgresDatabase

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of the store's language, which another process may have changed."""
        return self._follow(self._database.one("SELECT value FROM meta WHERE key = 'language'"))

    @property
    def writer(self) -> IndexWriter:
        """Writes with the analyzer that was read last, which is right in a transaction that has locked the language."""
        return IndexWriter(lambda: self._analyzer)

    def lock_language(self, connection: Connection) -> Analyzer:
        """In a write transaction: the language does not change until it ends."""
        with connection.pipeline():
            connection.execute("LOCK TABLE records IN ROW EXCLUSIVE MODE")
            language = connection.execute("SELECT value FROM meta WHERE key = 'language'")
        return self._follow(language.fetchone())

    def search(self, terms: Sequence[str], where: Filter, depth: int) -> RankedList:
        keys = list(dict.fromkeys(map(term_key, terms)))
        for attempt in range(MAX_TRIES):  # until the index is of the store's language and analysis
            # A replica may not have the new index yet; the main server has.
            with self._database.read(where.scope, replica=attempt == 0) as connection:
                if meta(connection, "keywords") == self._analyzer.fingerprint:
                    read = row_reader(self._database, where, replica=attempt == 0)
                    return _search(connection, keys, where, depth, read)
            self._database.renew()
            self.catch_up()
        raise StoreError("the language of the store is changed again and again", hint="use one language")

    def lag(self, connection: Connection) -> int:
        """How many records must be analysed again."""
        analyzer = self._follow((meta(connection, "language"),))
        return 0 if meta(connection, "keywords") == analyzer.fingerprint else _record_count(connection)

    def change_language(self, language: str) -> None:
        super().change_language(language)
        self._analyzer = Analyzer(language)

    def catch_up(self) -> None:
        """Analyse all records again if the analysis has changed. Several processes may do so at once."""
        with self._database.read() as connection:
            indexed, restricted = meta(connection, "keywords"), self._database.row_security(connection)
        fingerprint = self.analyzer.fingerprint
        if indexed == fingerprint:
            return
        if self._database.read_only:
            raise StoreError(
                "the keyword index was made by another version's analysis, and the store was opened read only",
                hint="open it once as a user who may write to it",
            )
        if restricted:
            raise StoreError(
                "the keyword index was made by another version's analysis, and this role sees only a part of the store",
                hint="open it once as the owner of its tables: run `recollect embed` as that role",
            )

        def analyse(connection: Connection, after: int) -> int:
            analyzer = self.lock_language(connection)
            if analyzer.fingerprint != fingerprint:
                return -1
            last = reindex(connection, IndexWriter(lambda: analyzer), after)
            if last < 0:
                set_meta(connection, "keywords", fingerprint)
            return last

        last = 0
        while last >= 0:
            last = self._database.write(partial(analyse, after=last))

    def _follow(self, row: Any) -> Analyzer:
        """The analyzer of the language in a row of `meta`. Another thread may read another language meanwhile."""
        analyzer = self._analyzer
        if row is not None and row[0] not in (None, analyzer.language):
            self._analyzer = analyzer = Analyzer(row[0])
        return analyzer

    def store_language(self, connection: Connection, analyzer: Analyzer, *, new: bool = False) -> str:
        """The lock waits for running writes; later ones use the new language."""
        connection.execute("LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE")
        language = super().store_language(connection, analyzer, new=new)
        if language == analyzer.language and not _record_count(connection):
            set_meta(connection, "keywords", analyzer.fingerprint)
        return language


def _search(connection: Connection, terms: Sequence[str], where: Filter, depth: int, read: RowReader) -> RankedList:
    rows = filtered_rows(connection, where)
    if rows.count <= 0:
        return RankedList("", among=0)
    in_scopes, scopes = rows.in_scopes
    in_rows, values = rows.in_rows
    hits = _HITS.format(name="hits", scoped=in_scopes)
    if in_rows != "true":
        every = _HITS.format(name="every", scoped=in_scopes)
        hits = f"{every}, hits AS MATERIALIZED (SELECT * FROM every WHERE {in_rows})"
    scored = _SCORED.format(hits=hits, precision=PRECISION, k1=K1, b=B)
    connection.execute(f"SET LOCAL work_mem TO '{WORK_MEMORY}'")
    mean_length = rows.length / rows.count or 1.0
    parameters = [*scopes, list(terms), *values, float(rows.count), mean_length]
    limit = depth
    while True:
        ranked = connection.cursor(binary=True).execute(scored, [*parameters, limit, limit]).fetchall()
        entries, duplicates = ranked_rows([each[:6] for each in ranked], depth, read)
        if len(entries) >= depth or len(ranked) < limit:
            break
        limit *= 4
    counts = json.loads(ranked[0][6]) if ranked else {}
    weights = (math.log(1 + (rows.count - (n := counts.get(term, 0)) + 0.5) / (n + 0.5)) for term in terms)
    return RankedList("", entries, max_score=sum(weights), among=rows.count, duplicates=duplicates)


def _record_count(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NULL").fetchone()
    return int(row[0]) if row else 0
