"""The keyword index: FTS5 stores where terms occur, and BM25 is computed over the visible rows.

FTS5 would rank with statistics of the whole table, so that one user's records change another's ranking. It gets ready
terms, and its vocabulary table is read one term at a time: no text of a user reaches its query language.
"""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.analysis import Analyzer
from recollect.errors import StoreError
from recollect.stores.database import K1, TITLE_WEIGHT, B, SqlKeywords
from recollect.stores.rows import meta, set_meta
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import Visible, VisibleSets, best, integers, sequence
from recollect.types import Filter, RankedList

BATCH_SECONDS = 0.1
BATCH_CHANGES = 256
MERGE_PAGES = 500  # pages of the index rewritten in one transaction
CACHED_POSTINGS = 4_000_000  # postings in memory: 32 MB of row numbers and as much of frequencies

Postings: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The rows that contain a term, rising, and the number of times in each."""

_TABLES = """
    DROP TABLE IF EXISTS terms_instance;
    DROP TABLE IF EXISTS terms;
    DROP TABLE IF EXISTS lengths;
    CREATE VIRTUAL TABLE terms USING fts5(
        title, text, content='', contentless_delete=1,
        tokenize="ascii tokenchars '._-/\\:@&#+''!""$%()*,;<=>?[]^`{|}~'"
    );
    CREATE VIRTUAL TABLE terms_instance USING fts5vocab(terms, instance);
    CREATE TABLE lengths (row INTEGER PRIMARY KEY, length INTEGER NOT NULL) STRICT;
"""

_TABLE_NAMES = ("terms", "terms_instance", "terms_docsize", "lengths")
"""The tables without which there is no index; the third is FTS5's own."""


class SqliteKeywords(SqlKeywords):
    """Search by words in one SQLite store."""

    _database: Database

    def __init__(self, database: Database, visible: VisibleSets, language: str | None) -> None:
        self._visible = visible
        self._lock = threading.Lock()
        self._postings: dict[str, Postings] = {}
        self._postings_size = 0
        self._lengths: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._read_to = -1
        super().__init__(database, language)

    @property
    def analyzer(self) -> Analyzer:
        with self._database.read() as connection:
            self._follow_language(connection)
        return self._analyzer

    def search(self, terms: Sequence[str], where: Filter, depth: int) -> RankedList:
        while True:
            self.catch_up()
            with self._database.read() as connection:
                last = sequence(connection)
                if not last:
                    return RankedList("", among=0)
                if self._lags(connection):
                    if self._database.read_only:
                        raise StoreError(
                            f"the keyword index of {self._database.path} is not up to date, and the store is read-only",
                            hint="search it once as a user who may write to it",
                        )
                    continue  # a write came between catching up and reading
                visible = self._visible.get(connection, where, last)
                with self._lock:
                    lengths = self._lengths_at(connection, last)
                    postings = [self._read_postings(connection, term, last) for term in dict.fromkeys(terms)]
                scores, most = bm25(postings, lengths, visible)
                rows = np.flatnonzero(scores)
                matches = best(connection, rows, scores[rows].round(9), depth)
                return replace(matches, max_score=most, among=visible.count)

    def catch_up(self) -> None:
        """Index every change that is not indexed yet, in short transactions."""
        while not self._database.read_only:
            with self._database.read() as connection:
                if not self._lags(connection):
                    return
            with self._database.write() as connection:
                self.follow(connection)

    def follow(self, connection: apsw.Connection) -> None:
        """Index the next changes inside a transaction that is already open."""
        self._follow_language(connection)
        done = self.indexed_to(connection)
        if done is None:
            connection.execute(_TABLES)
            done = 0
        deadline = time.monotonic() + BATCH_SECONDS
        changed: list[Any] = connection.execute(
            "SELECT seq, row FROM history WHERE seq > ? ORDER BY seq LIMIT ?", (done, BATCH_CHANGES)
        ).fetchall()
        for position, (seq, row) in enumerate(changed):
            done = seq
            if all(later != row for _, later in changed[position + 1 :]):
                self._index(connection, row)
            if time.monotonic() > deadline:
                break
        set_meta(connection, "keywords", f"{self._analyzer.fingerprint} {done}")

    def scrub(self) -> None:
        """Rewrite the index in short steps, so that no term of a deleted text stays in it."""
        step = -MERGE_PAGES
        while True:
            with self._database.write() as connection:
                before = connection.total_changes()
                connection.execute("INSERT INTO terms (terms, rank) VALUES ('merge', ?)", (step,))
                # Fewer than two changes mean that FTS5 had nothing left to merge.
                if connection.total_changes() - before < 2:  # noqa: PLR2004
                    return
            step = MERGE_PAGES

    def lag(self, connection: apsw.Connection) -> int:
        """The number of changes that are not indexed yet."""
        self._follow_language(connection)
        return sequence(connection) - (self.indexed_to(connection) or 0)

    def _follow_language(self, connection: apsw.Connection) -> None:
        """Another process may have changed the store's language."""
        language = meta(connection, "language")
        if language is not None and language != self._analyzer.language:
            with self._lock:
                self._analyzer = Analyzer(language)
                # The cached postings are of the other language, even if no record has changed.
                self._read_to = -1

    def _lags(self, connection: apsw.Connection) -> bool:
        self._follow_language(connection)
        done = self.indexed_to(connection)
        return done is None or done < sequence(connection)

    def indexed_to(self, connection: apsw.Connection) -> int | None:
        """The last change that is indexed by this analysis; None where there is no such index."""
        state = meta(connection, "keywords")
        tables = f"SELECT count(*) FROM sqlite_schema WHERE name IN {_TABLE_NAMES}"
        if state is None or connection.execute(tables).get != len(_TABLE_NAMES):
            return None
        fingerprint, done = state.rsplit(" ", 1)
        return int(done) if fingerprint == self._analyzer.fingerprint else None

    def _index(self, connection: apsw.Connection, row: int) -> None:
        connection.execute("DELETE FROM terms WHERE rowid = ?", (row,))
        connection.execute("DELETE FROM lengths WHERE row = ?", (row,))
        select = "SELECT title, text FROM records WHERE row = ? AND forgotten_at IS NULL"
        for parts in connection.execute(select, (row,)).fetchall():
            tokens = [list(self._analyzer.tokens(str(part))) for part in parts]
            terms = [" ".join(token.term for token in part) for part in tokens]
            connection.execute("INSERT INTO terms (rowid, title, text) VALUES (?, ?, ?)", (row, *terms))
            length = sum(not token.stop for part in tokens for token in part)
            connection.execute("INSERT INTO lengths VALUES (?, ?)", (row, max(1, length)))

    def _lengths_at(self, connection: apsw.Connection, last: int) -> NDArray[np.int64]:
        """The length of every row. Lengths and postings are cached until a record changes."""
        if last > self._read_to:
            only = "WHERE row IN (SELECT row FROM history WHERE seq > ?)" if self._read_to >= 0 else "WHERE ? < 0"
            rows, lengths = (
                integers(connection.execute(f"SELECT group_concat({of}) FROM lengths {only}", (self._read_to,)).get)
                for of in ("row", "length")
            )
            size = int(connection.execute("SELECT ifnull(max(row), 0) FROM records").get) + 1
            grown = np.zeros(max(size, len(self._lengths)), dtype=np.int64)
            grown[: len(self._lengths)] = self._lengths
            grown[rows] = lengths
            self._lengths, self._read_to = grown, last
            self._postings.clear()
            self._postings_size = 0
        return self._lengths

    def _read_postings(self, connection: apsw.Connection, term: str, last: int) -> Postings:
        """The postings of a term; an occurrence in a title counts more."""
        cached = self._postings.get(term)
        if cached is not None:
            return cached
        joined = connection.execute(
            "SELECT group_concat(iif(col = 'title', -doc, doc)) FROM terms_instance WHERE term = ?", (term,)
        ).get
        places = integers(joined)
        rows = np.abs(places)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        counts = np.where(places < 0, TITLE_WEIGHT, 1.0)
        postings = (rows[starts], np.add.reduceat(counts, starts) if len(starts) else counts)
        # A snapshot older than that of the cache must not change the cache.
        if last == self._read_to and self._postings_size + len(rows) < CACHED_POSTINGS:
            self._postings[term] = postings
            self._postings_size += len(rows)
        return postings


def bm25(
    postings: Sequence[Postings], lengths: NDArray[np.int64], visible: Visible
) -> tuple[NDArray[np.float64], float]:
    """Lucene's BM25 of every row, 0 where no term matches or the row is not visible; and the most a row could score.

    A term scores less than its weight however often it occurs in a record, so the most is the sum of the weights. Terms
    that no record contains count too, because they are part of the query.
    """
    scores = np.zeros(len(visible.mask), dtype=np.float64)
    if not visible.count:
        return scores, 0.0
    mean, most = float(lengths[: len(visible.mask)][visible.mask].mean()) or 1.0, 0.0
    for rows, counts in postings:
        admitted = visible.holds(rows)
        frequency = int(admitted.sum())
        idf = math.log(1 + (visible.count - frequency + 0.5) / (frequency + 0.5))
        most += idf
        if frequency:
            hits, often = rows[admitted], counts[admitted]
            scores[hits] += idf * often / (often + K1 * (1 - B + B * lengths[hits] / mean))
    return scores, most
