"""The keyword index: Lucene's BM25 over what the filter lets through, computed where the postings are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recollect.analysis import Analyzer
from recollect.errors import StoreError, UsageError
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.derived import Derived, Terms, term_key
from recollect.stores.postgres.rows import SELECT, from_row
from recollect.stores.postgres.top import best
from recollect.stores.postgres.visible import seen
from recollect.types import Filter, Matches

K1, B = 1.2, 0.75
PRECISION = 1e9
"""Scores are compared to nine places, as in the embedded store: the order of a sum must not decide."""

REINDEX_BATCH = 200

_SCORED = """
    WITH held AS MATERIALIZED (
        SELECT term, row, often, length FROM postings WHERE scope = ANY(%s) AND term = ANY(%s)
    ),
    hits AS MATERIALIZED (SELECT * FROM held WHERE {visible}),
    frequencies AS (SELECT term, count(*) AS held FROM hits GROUP BY term),
    scored AS (
        SELECT row, round({precision} * sum(
            ln(1 + (%s - held + 0.5) / (held + 0.5)) * often / (often + {k1} * (1 - {b} + {b} * length / %s))
        )) / {precision} AS score
        FROM hits JOIN frequencies USING (term) GROUP BY row
    )
    SELECT row, fold, score, (SELECT json_object_agg(term, held) FROM frequencies)
    FROM scored JOIN records USING (row)
    WHERE score >= (SELECT min(score) FROM (SELECT score FROM scored ORDER BY score DESC LIMIT %s) AS head)
    ORDER BY score DESC, time DESC, id COLLATE "C" LIMIT %s
"""


class PostgresKeywords:
    """Search by words in one PostgreSQL store."""

    def __init__(self, database: Database, language: str | None) -> None:
        self._database = database
        self._analyzer = self._settle_language(language)
        self._current = False

    @property
    def analyzer(self) -> Analyzer:
        """The chain of the store's language."""
        return self._analyzer

    def speak(self, language: str) -> None:
        """From now on this is the store's language."""
        self._analyzer, self._current = self._settle_language(language), False

    def search(self, terms: Sequence[str], where: Filter, depth: int) -> Matches:
        """At most `depth` visible records with any of the terms, by BM25."""
        self.catch_up()
        wanted = list(dict.fromkeys(map(term_key, terms)))
        with self._database.read(where.scope) as connection:
            visible = seen(connection, where)
            if visible.count <= 0:
                return Matches()
            sql, values = visible.rows
            scored = _SCORED.format(visible=sql, precision=PRECISION, k1=K1, b=B)
            mean = visible.length / visible.count or 1.0
            given = [visible.scopes, wanted, *values, float(visible.count), mean]
            found, held = best(connection, scored, given, depth)
        most = sum(
            math.log(1 + (visible.count - held.get(term, 0) + 0.5) / (held.get(term, 0) + 0.5)) for term in wanted
        )
        return Matches(found.found, found.folded, most, visible.count)

    def lag(self, connection: Connection) -> int:
        """How many records were read by another analysis than today's."""
        return 0 if _noted(connection) == self._analyzer.fingerprint else _records(connection)

    def catch_up(self) -> None:
        """Read all words again where the analysis has changed; machines that do so at once share the work."""
        if self._current:
            return
        with self._database.read() as connection:
            noted = _noted(connection)
        if noted != self._analyzer.fingerprint:
            self._read_again()
        self._current = True

    def _read_again(self) -> None:
        if self._database.read_only:
            raise StoreError(
                "the words of the store were read by another version's analysis, and it may only be read here",
                hint="open it once as a user who may write to it",
            )
        last, derived = 0, Derived(lambda: self._analyzer)
        while last >= 0:
            last = self._database.write(lambda connection, after=last: _reindex(connection, derived, after))  # type: ignore[misc]
        fingerprint = self._analyzer.fingerprint
        self._database.write(lambda connection: set_meta(connection, "keywords", fingerprint))

    def _settle_language(self, language: str | None) -> Analyzer:
        """The language belongs to the store: it is set when the store is made, and changed by naming another."""
        with self._database.read() as connection:
            kept = meta(connection, "language")
        try:
            wanted = Analyzer(language or kept or "english")
        except ValueError as error:
            raise UsageError(str(error), hint="`none` keeps words as they are written") from error
        if wanted.language != kept and not self._database.read_only:
            self._database.write(lambda connection: self._keep_language(connection, wanted))
        return wanted

    @staticmethod
    def _keep_language(connection: Connection, wanted: Analyzer) -> None:
        set_meta(connection, "language", wanted.language)
        if not _records(connection):
            set_meta(connection, "keywords", wanted.fingerprint)


def _reindex(connection: Connection, derived: Derived, after: int) -> int:
    """The words of the next records, read again; the last row that was, or -1 where there is none left."""
    select = SELECT.replace("SELECT ", "SELECT records.row, records.scope, ", 1)
    rows: list[Any] = connection.execute(
        f"{select} WHERE forgotten_at IS NULL AND row > %s ORDER BY row LIMIT %s FOR UPDATE OF records",
        (after, REINDEX_BATCH),
    ).fetchall()
    for row, scope, *fields in rows:
        record = from_row(fields)
        terms: Terms = derived.terms(record)
        derived.remove(connection, row)
        connection.execute("UPDATE records SET length = %s WHERE row = %s", (terms.length, row))
        derived.add(connection, row, scope, record, terms)
    return int(rows[-1][0]) if rows else -1


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
