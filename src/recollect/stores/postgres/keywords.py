"""Keyword search: BM25 over the visible records, computed from packed postings that are read in one round trip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import psycopg
from psycopg.rows import TupleRow

from recollect.analysis import Analyzer
from recollect.errors import StoreError
from recollect.frequencies import idf, shares
from recollect.stores.database import K1, KIND_NUMBERS, NOTHING, B, SqlKeywords, mean_lengths
from recollect.stores.postgres.connections import Connection, integer, run
from recollect.stores.postgres.database import DIALECT, MAX_TRIES, PostgresDatabase
from recollect.stores.postgres.postings import (
    KIND,
    LENGTH_BITS,
    WORDS,
    IndexWriter,
    clear,
    lock_index,
    reindex,
    term_key,
)
from recollect.stores.postgres.rows import (
    COLUMNS,
    POSTING,
    in_scopes,
    matching,
    passing,
    ranked_rows,
    row_reader,
    scope_condition,
    selects_rows,
)
from recollect.stores.rows import Condition, meta, set_meta
from recollect.types import Filter, RankedList

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRECISION = 1e9
"""Scores are rounded to nine places, as in the SQLite store, so that the order of summation does not matter."""

MERGE_BATCH = 1_000  # new records that are merged into the blocks at once, while somebody waits
MERGE_BULK = 250_000  # the same where all are merged, with more memory for sorting
BULK_MEMORY = "256MB"

SPARSE, DENSE = 8, 1_000_000
"""Rows are looked up in a table, unless their numbers span so much more than their count that sorting is faster."""

_ELEMENT = np.dtype([("size", ">i4"), ("value", ">i8")])  # of a bigint[], as the server sends it
_ARRAY_HEAD = 20  # bytes before the elements

_BLOCKS = """
    SELECT place, (SELECT string_agg(postings, ''::bytea) FROM blocks WHERE blocks.term = wanted.term AND {scoped})
    FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (term, place)
"""
_UNMERGED = """
    SELECT place, string_agg(int8send(row) || float4send(count) || int4send(length), ''::bytea)
    FROM documents, unnest(terms, counts) AS held (term, count)
    JOIN unnest(%s::text[]) WITH ORDINALITY AS wanted (term, place) USING (term)
    WHERE NOT merged AND terms && %s::text[] AND {scoped} GROUP BY place
"""
LOCK_LANGUAGE: Sequence[Condition] = (
    ("LOCK TABLE records IN ROW EXCLUSIVE MODE", ()),
    ("SELECT value FROM meta WHERE key = 'language'", ()),
)
"""In a write transaction: the language does not change until it ends."""

RECORD_COUNT = "SELECT count(*) FROM records WHERE forgotten_at IS NULL"

_REMOVED = "SELECT array_send(array_agg(row)) FROM removals WHERE {scoped}"

Rows: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of some terms in the visible records, and the number and total length of these, by kind.

    `fingerprint` is that of the analysis that made them.
    """

    fingerprint: str | None
    terms: Sequence[NDArray[np.void]]
    counts: Sequence[int]
    lengths: Sequence[int]

    @property
    def count(self) -> int:
        """How many records are visible."""
        return max(0, sum(self.counts))


class PostgresKeywords(SqlKeywords):
    """Keyword search in one PostgreSQL store."""

    _database: PostgresDatabase
    lock = LOCK_LANGUAGE
    _blocks = _BLOCKS

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of the store's language, which another process may have changed."""
        return self._follow(self._database.one("SELECT value FROM meta WHERE key = 'language'"))

    @property
    def writer(self) -> IndexWriter:
        """Writes with the analyzer that was read last, which is right in a transaction that has locked the language."""
        return IndexWriter(self._analyzer)

    def lock_language(self, connection: Connection) -> Analyzer:
        """In a write transaction: the language does not change until it ends."""
        return self.locked_language(run(connection, self.lock)[-1])

    def locked_language(self, language: psycopg.Cursor[TupleRow]) -> Analyzer:
        """The analyzer of the language that the last statement of LOCK_LANGUAGE has read."""
        return self._follow(language.fetchone())

    def search(
        self, terms: Sequence[str], where: Filter, depth: int, near: Mapping[str, float] = NOTHING
    ) -> RankedList:
        own, where = Counter(terms), self._database.with_scope_numbers(where)
        counts: Mapping[str, float] = {**{term: near[term] for term in near if term not in own}, **own}
        for attempt in range(MAX_TRIES):  # until the index is of the store's language and analysis
            # A replica may not have the new index yet; the main server has.
            with self._database.read(where.scope, replica=attempt == 0) as connection:
                postings = read_postings(connection, list(map(term_key, counts)), where, self._blocks)
                current = postings.fingerprint == self._analyzer.fingerprint
                weights = _weights(counts, postings, self._analyzer.language)
                ranked = _ranked(connection, postings, weights, depth, scope_condition(where)) if current else []
            if current:
                read = row_reader(self._database, where, replica=attempt == 0)
                entries, duplicates = ranked_rows(ranked, depth, read)
                by_term = zip(counts, postings.terms, strict=True)
                unknown = tuple(term for term, each in by_term if not each.size and term in own)
                return RankedList(
                    "",
                    entries,
                    max_score=sum(weights[len(counts) - len(own) :]),
                    among=postings.count,
                    duplicates=duplicates,
                    unknown=unknown if postings.count else (),
                )
            self._database.renew()
            self.catch_up()
        raise StoreError("the language of the store is changed again and again", hint="use one language")

    def known(self, terms: Sequence[str], where: Filter) -> dict[str, int]:
        where = self._database.with_scope_numbers(where)
        with self._database.read(where.scope) as connection:
            postings = read_postings(connection, list(map(term_key, terms)), where, self._blocks)
        return {term: each.size for term, each in zip(terms, postings.terms, strict=True) if each.size}

    def vocabulary(self, prefix: str, where: Filter) -> set[str]:
        scoped, values = in_scopes(self._database.with_scope_numbers(where))
        like = f"{prefix.translate(DIALECT.wildcards)}%"
        with self._database.read(where.scope) as connection:
            rows = connection.execute(
                f"SELECT DISTINCT term FROM blocks WHERE term LIKE %s AND {scoped} UNION SELECT term FROM documents,"
                f" unnest(terms) AS held (term) WHERE NOT merged AND term LIKE %s AND {scoped}",
                [like, *values, like, *values],
            )
            return {term for (term,) in rows}

    def lag(self, connection: Connection) -> int:
        """How many records must be analysed again."""
        analyzer = self._follow((meta(connection, "language"),))
        return 0 if meta(connection, "keywords") == analyzer.fingerprint else integer(connection, RECORD_COUNT)

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

        unfinished = f"unfinished {fingerprint}"  # an interrupted rebuild continues

        def begin(connection: Connection) -> None:
            lock_index(connection, self._database.locked)
            if meta(connection, "keywords") not in (fingerprint, unfinished):
                clear(connection)
                set_meta(connection, "keywords", unfinished)

        def analyse(connection: Connection, after: int) -> int:
            analyzer = self.lock_language(connection)
            if analyzer.fingerprint != fingerprint or meta(connection, "keywords") != unfinished:
                return -1  # another process has changed the language, or has finished
            last = reindex(connection, IndexWriter(analyzer), after, self._database.ids)
            if last < 0:
                set_meta(connection, "keywords", fingerprint)
            return last

        self._database.write(begin)
        last = 0
        while last >= 0:
            last = self._database.write(partial(analyse, after=last))
        self.merge_all()

    def merge(self) -> None:
        """Move some new records into the blocks, unless another process does. Nothing is lost if it fails."""

        def work(connection: Connection) -> None:
            _merge(connection, MERGE_BATCH, patient=False)

        self._database.try_write(work)

    def merge_all(self) -> None:
        """Move all new records into the blocks, so that searches are fast and nothing of removed ones is left."""
        while self._database.write(lambda connection: _merge(connection, MERGE_BULK, patient=True)):
            pass

    def _follow(self, row: Any) -> Analyzer:
        """The analyzer of the language in a row of `meta`. Another thread may read another language meanwhile."""
        analyzer = self._analyzer
        if row is not None and row[0] not in (None, analyzer.language):
            self._analyzer = analyzer = Analyzer(row[0])
        return analyzer

    def store_language(self, connection: Connection, analyzer: Analyzer, *, new: bool = False) -> str:
        """The lock waits for running writes; later ones use the new language."""
        connection.execute(f"LOCK TABLE {self._database.locked} IN SHARE ROW EXCLUSIVE MODE")
        language = super().store_language(connection, analyzer, new=new)
        if language == analyzer.language and not integer(connection, RECORD_COUNT):
            set_meta(connection, "keywords", analyzer.fingerprint)
        return language


def read_postings(connection: Connection, terms: Sequence[str], where: Filter, blocks: str) -> Postings:
    """Read what the score of a query needs, in one round trip; `blocks` selects the place and postings of each term."""
    scoped, scopes = in_scopes(where)
    of_fields = selects_rows(where)
    selected, values = matching(connection, where) if of_fields else passing(where)
    statements: list[Condition] = [
        ("SELECT value FROM meta WHERE key = 'keywords'", []),
        (f"SELECT array_send(array_agg(row)), {KIND}, sum({WORDS}) FROM records WHERE {selected} GROUP BY 2", values),
        (f"SELECT kind, sum(records)::bigint, sum(length)::bigint FROM tallies WHERE {scoped} GROUP BY 1", scopes),
        (_REMOVED.format(scoped=scoped), scopes),
        (blocks.format(scoped=scoped), [*scopes, list(terms)]),
        (_UNMERGED.format(scoped=scoped), [list(terms), list(terms), *scopes]),
    ]
    with connection.pipeline():
        cursors = [connection.cursor(binary=True).execute(*statement) for statement in statements]
    fingerprint, selection, tallies, removed, merged, unmerged = (cursor.fetchall() for cursor in cursors)
    parts = [(_numbers(rows), kind, length) for rows, kind, length in selection]
    totals = np.zeros((len(KIND_NUMBERS), 2), np.int64)
    for kind, *total in [] if of_fields else tallies:
        totals[kind] = total
    for rows, kind, length in parts:
        totals[kind] += (rows.size, length) if of_fields else (-rows.size, -length)
    listed = np.concatenate([np.zeros(0, np.int64), *(rows for rows, *_ in parts)])
    gone, blocks_of = _numbers(removed[0][0]), dict[int, bytes](merged)
    new = dict[int, bytes](unmerged)
    of_terms = []
    for place in range(1, len(terms) + 1):
        postings = np.frombuffer(blocks_of.get(place) or b"", POSTING)
        if gone.size:
            postings = postings[~_among(postings, gone)]
        if place in new:
            postings = np.concatenate([postings, np.frombuffer(new[place], POSTING)])
        if of_fields or listed.size:
            postings = postings[_among(postings, listed) == of_fields]
        of_terms.append(postings)
    counts, lengths = totals.T.tolist()
    return Postings(fingerprint[0][0] if fingerprint else None, of_terms, counts, lengths)


def _among(postings: NDArray[np.void], rows: Rows) -> NDArray[np.bool_]:
    """Which postings belong to one of these rows."""
    if not rows.size:
        return np.zeros(postings.size, np.bool_)
    places, span = postings["row"].astype(np.int64) - rows.min(), int(np.ptp(rows)) + 1
    if span > SPARSE * (rows.size + postings.size) + DENSE:
        return np.isin(places, rows - rows.min())
    table = np.zeros(span, np.bool_)
    table[rows - rows.min()] = True
    inside: NDArray[np.bool_] = (places >= 0) & (places < span)
    return np.logical_and(inside, table[np.where(inside, places, 0)])


def _numbers(packed: bytes | None) -> Rows:
    """A bigint[] that `array_send` wrote."""
    return np.frombuffer((packed or b"")[_ARRAY_HEAD:], _ELEMENT)["value"].astype(np.int64)


def _weights(terms: Mapping[str, float], postings: Postings, language: str) -> list[float]:
    """The inverse document frequency of each term of the query, times how often it occurs there."""
    common, pairs = shares(language), zip(terms.items(), postings.terms, strict=True)
    if not postings.count:
        return [0.0] * len(terms)
    return [often * idf(postings.count, of_term.size, common.get(term, 0.0)) for (term, often), of_term in pairs]


def _ranked(
    connection: Connection, postings: Postings, weights: Sequence[float], depth: int, among: Condition
) -> list[tuple[Any, ...]]:
    """What `ranked_rows` takes: at least the `depth` best texts by BM25. Ties: newer first, then by id."""
    if not postings.count:
        return []
    rows, scores = _scored(postings, weights)
    limit = depth
    while True:
        head = scores >= np.partition(scores, -limit)[-limit] if limit < scores.size else np.full(scores.size, True)
        best = dict(zip(rows[head].tolist(), scores[head].tolist(), strict=True))
        columns: list[Any] = connection.cursor(binary=True).execute(
            f"SELECT row, {COLUMNS} FROM records WHERE row = ANY(%s) AND {among[0]}"
            ' ORDER BY time DESC, id COLLATE "C"',
            [list(best), *among[1]],
        ).fetchall()  # fmt: skip
        ranked = sorted(((row, best[row], *others) for row, *others in columns), key=itemgetter(1), reverse=True)
        if limit >= scores.size or len({fold for _, _, fold, *_ in ranked[:limit]}) >= depth:
            return ranked[:limit]
        limit *= 4


def _scored(postings: Postings, weights: Sequence[float]) -> tuple[Rows, NDArray[np.float64]]:
    """The rows that have a term, and their scores."""
    means = np.array(mean_lengths(postings.counts, postings.lengths))
    rows, parts = [np.zeros(0, np.int64)], [np.zeros(0)]
    for each, weight in zip(postings.terms, weights, strict=True):
        count, lengths = each["count"].astype(np.float64), each["length"].astype(np.int64)
        relative = (lengths & (1 << LENGTH_BITS) - 1) / means[lengths >> LENGTH_BITS]
        parts.append(weight * count / (count + K1 * (1 - B + B * relative)))
        rows.append(each["row"].astype(np.int64))
    every, values = np.concatenate(rows), np.concatenate(parts)
    low, span = (int(every.min()), int(np.ptp(every)) + 1) if every.size else (0, 1)
    if span <= SPARSE * every.size + DENSE:
        sums = np.bincount(every - low, weights=values, minlength=1)
        different = np.flatnonzero(sums)
        sums, different = sums[different], different + low
    else:
        different, places = np.unique(every, return_inverse=True)
        sums = np.bincount(places, weights=values)
    return different, np.rint(sums * PRECISION) / PRECISION


def _merge(connection: Connection, most: int, *, patient: bool) -> int:
    if not patient:  # else somebody is told that it is done, who may have purged a record
        connection.execute("SET LOCAL synchronous_commit TO off")  # the records stay where they are if it is lost
    if most > MERGE_BATCH:
        connection.execute(f"SET LOCAL work_mem TO '{BULK_MEMORY}'")
    return integer(connection, "SELECT merge_postings(%s, %s)", (most, patient))
