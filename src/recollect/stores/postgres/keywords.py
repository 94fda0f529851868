"""The keyword index: Lucene's BM25 over what the filter lets through, computed where the postings are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recollect.analysis import LANGUAGES, Analyzer
from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.derived import Derived, relearn, term_key
from recollect.stores.postgres.top import best
from recollect.stores.postgres.visible import seen
from recollect.stores.rows import analyzer_of, usable_language
from recollect.types import Filter, Matches

K1, B = 1.2, 0.75
PRECISION = 1e9
"""Scores are compared to nine places, as in the embedded store: the order of a sum must not decide."""

REINDEX_BATCH = 200
REINDEX_CHARACTERS = 2_000_000
"""What is read again in one transaction, in a few seconds at most."""

TURNS = 10
"""Of a search that finds the index of another language or version."""

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
    SELECT row, fold, score,
        CASE row_number() OVER (ORDER BY score DESC, time DESC, id COLLATE "C")
            WHEN 1 THEN (SELECT json_object_agg(term, held) FROM weights)::text END
    FROM head CROSS JOIN LATERAL (SELECT fold, time, id FROM records WHERE records.row = head.row OFFSET 0) AS kept
    ORDER BY score DESC, time DESC, id COLLATE "C" LIMIT %s
"""
"""The records are fetched by their rows, a hundred or so; the planner would rather read them all."""

MEMORY = "64MB"
"""For one search's sums: a word that every fourth record has would not fit into a server's default."""


class PostgresKeywords:
    """Search by words in one PostgreSQL store."""

    def __init__(self, database: Database, language: str | None) -> None:
        self._database = database
        self._analyzer = self._settle_language(language)

    @property
    def analyzer(self) -> Analyzer:
        """The chain of the store's language, which another process may have changed."""
        return self._hear(self._database.glance("SELECT value FROM meta WHERE key = 'language'"))

    @property
    def chain(self) -> Analyzer:
        """The chain as it was last heard of: right for who follows in the same transaction."""
        return self._analyzer

    def follow(self, connection: Connection) -> Analyzer:
        """In a transaction that writes: the language stays what it is until that ends."""
        with connection.pipeline():
            connection.execute("LOCK TABLE records IN ROW EXCLUSIVE MODE")
            found = connection.execute("SELECT value FROM meta WHERE key = 'language'")
        return self._hear(found.fetchone())

    def search(self, terms: Sequence[str], where: Filter, depth: int) -> Matches:
        """At most `depth` visible records with any of the terms, by BM25."""
        wanted = list(dict.fromkeys(map(term_key, terms)))
        for turn in range(TURNS):
            # A replica may not know yet what has been read again; the main server does.
            with self._database.read(where.scope, replica=turn == 0) as connection:
                if _noted(connection) == self._analyzer.fingerprint:
                    return _ranked(connection, wanted, where, depth)
            self.catch_up()
        raise StoreError("the language of the store is being changed again and again", hint="agree on one")

    def lag(self, connection: Connection) -> int:
        """How many records were read by another analysis than today's."""
        heard = self._hear((meta(connection, "language"),))
        return 0 if _noted(connection) == heard.fingerprint else _records(connection)

    def change_language(self, language: str) -> None:
        """Make this the store's language; `catch_up`, or the next search, reads all words again."""
        wanted = analyzer_of(language)
        self._database.write(lambda connection: self._keep_language(connection, wanted))
        self._analyzer = wanted

    def catch_up(self) -> None:
        """Read all words again where the analysis has changed; whoever finishes first has done it for all."""
        with self._database.read() as connection:
            noted, walled = _noted(connection), self._database.walled(connection)
        wanted = self.analyzer.fingerprint
        if noted == wanted:
            return
        if self._database.read_only:
            raise StoreError(
                "the words of the store were read by another version's analysis, and it may only be read here",
                hint="open it once as a user who may write to it",
            )
        if walled:
            raise StoreError(
                "the words of the store were read by another version's analysis, and this role sees a part of it only",
                hint="open it once as the owner of its tables: `recollect embed` in that role's name",
            )
        last = 0
        while last >= 0:
            last = self._database.write(lambda connection, after=last: self._relearn(connection, wanted, after))  # type: ignore[misc]
        self._database.write(lambda connection: self._note(connection, wanted))

    def _relearn(self, connection: Connection, fingerprint: str, after: int) -> int:
        heard = self.follow(connection)
        if heard.fingerprint != fingerprint:
            return -1
        return relearn(connection, Derived(lambda: heard), after, REINDEX_BATCH, REINDEX_CHARACTERS)

    def _note(self, connection: Connection, fingerprint: str) -> None:
        """All words were read by this analysis, unless the language has changed meanwhile."""
        if self.follow(connection).fingerprint == fingerprint:
            set_meta(connection, "keywords", fingerprint)

    def _hear(self, found: Any) -> Analyzer:
        """The chain of the language that was found; another thread may hear of another one in the same moment."""
        analyzer = self._analyzer
        if found is not None and found[0] not in (None, analyzer.language):
            self._analyzer = analyzer = Analyzer(found[0])
        return analyzer

    def _settle_language(self, language: str | None) -> Analyzer:
        """The store's own language. A store that has none yet takes the one that is named, or English."""
        wanted = analyzer_of(language or "english")
        with self._database.read() as connection:
            kept = usable_language(meta(connection, "language"), language, self._database.shown)
        if kept is None and not self._database.read_only:
            kept = self._database.write(lambda connection: self._keep_language(connection, wanted, new=True))
        return wanted if kept is None else analyzer_of(kept)

    @staticmethod
    def _keep_language(connection: Connection, wanted: Analyzer, *, new: bool = False) -> str:
        """Note the language, for a `new` store only if no other process has; the language that the store has now.

        Who writes meanwhile is waited for, and who comes later reads words in the new language.
        """
        connection.execute("LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE")
        kept = meta(connection, "language")
        if new and kept in LANGUAGES:
            return kept
        set_meta(connection, "language", wanted.language)
        if not _records(connection):
            set_meta(connection, "keywords", wanted.fingerprint)
        return wanted.language


def _ranked(connection: Connection, wanted: Sequence[str], where: Filter, depth: int) -> Matches:
    visible = seen(connection, where)
    if visible.count <= 0:
        return Matches()
    scoped, scopes = visible.within
    sql, values = visible.rows
    hits = _HITS.format(name="hits", scoped=scoped)
    if sql != "true":
        hits = f"{_HITS.format(name='held', scoped=scoped)}, hits AS MATERIALIZED (SELECT * FROM held WHERE {sql})"
    scored = _SCORED.format(hits=hits, precision=PRECISION, k1=K1, b=B)
    connection.execute(f"SET LOCAL work_mem TO '{MEMORY}'")
    mean = visible.length / visible.count or 1.0
    given = [*scopes, list(wanted), *values, float(visible.count), mean]
    found, held = best(connection, scored, given, depth)
    weights = (math.log(1 + (visible.count - held.get(term, 0) + 0.5) / (held.get(term, 0) + 0.5)) for term in wanted)
    return Matches(found.found, found.folded, sum(weights), visible.count)


def _noted(connection: Connection) -> str | None:
    return meta(connection, "keywords")


def _records(connection: Connection) -> int:
    found = connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NULL").fetchone()
    return int(found[0]) if found else 0


def meta(connection: Connection, key: str) -> str | None:
    """One value of the store's own notes."""
    found = connection.execute("SELECT value FROM meta WHERE key = %s", (key,)).fetchone()
    return None if found is None else str(found[0])


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Note a value."""
    connection.execute(
        "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )
