"""What follows from a record: its places in the inverted index, its scope's tally, its vectors; in its own transaction.

So no index ever lags, on any machine; only a change of the analysis itself makes the words be read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from recollect.analysis import LANGUAGES, Analyzer
from recollect.errors import StoreError
from recollect.stores.postgres.database import Connection, Database, text
from recollect.stores.postgres.rows import SELECT, best, from_row, meta, seen, set_meta
from recollect.stores.rows import analyzer_of, passage_hash, usable_language
from recollect.types import Filter, RankedList, Record

T = TypeVar("T")

TITLE_WEIGHT = 2.0

LONGEST_TERM = 500
"""Letters of a term; an index of PostgreSQL cannot hold a page of them. A longer one stands under its hash."""

MOST_LETTERS = 20_000_000
"""Of the terms that go in with one statement: PostgreSQL's JSON has an end, at 256 MB."""

ADD_UP = 256
"""One change in so many adds up its scope's tallies."""

_POSTINGS = (
    "INSERT INTO postings (scope, term, row, often, length)"
    " SELECT (held->0)::integer, found.key, (held->1)::bigint, found.value::real, (held->2)::integer"
    " FROM jsonb_array_elements(%s::jsonb) AS held, jsonb_each_text(held->3) AS found"
)

ADDED_UP = (
    "WITH gone AS (DELETE FROM tallies RETURNING scope, records, length) INSERT INTO tallies (scope, records, length)"
    " SELECT scope, sum(records), sum(length) FROM gone GROUP BY scope"
)
"""One line for each scope, after many were added one by one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A record's terms, how often each stands in it, and how many count."""

    names: list[str]
    often: list[float]
    length: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A record that is in the table, in which row and of which scope, with its terms."""

    row: int
    scope: int
    record: Record
    terms: Terms


@dataclass(frozen=True, slots=True)
class Derived:
    """Adds and removes what follows from records, by statements that answer nothing: they can be sent together."""

    analyzer: Callable[[], Analyzer]
    ahead: Mapping[tuple[str, str, str], Terms] = field(default_factory=dict)

    def reading(self, records: Iterable[Record]) -> Derived:
        """The same, with the words of some records read ahead, so that no transaction waits for that."""
        return replace(self, ahead={self._key(record): self.terms(record) for record in records})

    def by(self, analyzer: Analyzer) -> Derived:
        """The same by one chain, whatever others hear meanwhile."""
        return replace(self, analyzer=lambda: analyzer)

    def terms(self, record: Record) -> Terms:
        """A record's terms; a place in the title counts more."""
        if (known := self.ahead.get(self._key(record))) is not None:
            return known
        analyzer = self.analyzer()
        often: Counter[str] = Counter()
        length = 0
        for part, weight in ((record.title, TITLE_WEIGHT), (record.text, 1.0)):
            for token in analyzer.tokens(part):
                often[term_key(token.term)] += weight  # type: ignore[assignment]
                length += not token.stop
        return Terms(list(often), [float(count) for count in often.values()], max(1, length))

    def _key(self, record: Record) -> tuple[str, str, str]:
        return self.analyzer().fingerprint, record.title, record.text

    @staticmethod
    def add(connection: Connection, placed: Sequence[Placed], spaces: Sequence[int]) -> None:
        """All that follows from records that are now there. A record without a vector has an empty place for it."""
        held = [
            (each.scope, each.row, each.terms.length, dict(zip(each.terms.names, each.terms.often, strict=True)))
            for each in placed
        ]
        passages = [passage_hash(each.record.passage) for each in placed]
        for some in parted(held, lambda each: sum(10 + len(term) for term in each[3]), MOST_LETTERS):
            connection.execute(_POSTINGS, (json.dumps(some, ensure_ascii=False),))
        _tally(connection, placed)
        for space in spaces:
            connection.execute(
                f"INSERT INTO vectors_{space} (row, scope, vector)"
                " SELECT row, scope, (SELECT vector::halfvec FROM embeddings WHERE space = %s"
                " AND embeddings.passage = held.passage FOR KEY SHARE)"  # it must not go before we are there
                " FROM unnest(%s::bigint[], %s::integer[], %s::bytea[]) AS held (row, scope, passage)"
                " ON CONFLICT (row) DO UPDATE SET scope = excluded.scope, vector = excluded.vector",
                (space, [each.row for each in placed], [each.scope for each in placed], passages),
            )

    @staticmethod
    def remove(connection: Connection, row: int, spaces: Sequence[int]) -> None:
        """Nothing follows from a record that is not there any more."""
        connection.execute("DELETE FROM postings WHERE row = %s", (row,))
        connection.execute(
            "INSERT INTO tallies (scope, records, length)"
            " SELECT scope, -1, -length FROM records WHERE row = %s AND forgotten_at IS NULL",
            (row,),
        )
        for space in spaces:
            connection.execute(f"DELETE FROM vectors_{space} WHERE row = %s", (row,))


def term_key(term: str) -> str:
    """A term as the index has it."""
    if len(term) <= LONGEST_TERM:
        return str(text(term))
    return f"#{hashlib.blake2b(term.encode(), digest_size=16).hexdigest()}"


def spaces(connection: Connection) -> list[int]:
    """The vector spaces there are."""
    return [space for (space,) in connection.execute("SELECT space FROM spaces ORDER BY space")]


def relearn(connection: Connection, derived: Derived, after: int, count: int, characters: int) -> int:
    """The words of the next records, read again; the last row that was, or -1 where there is none left."""
    sizes: list[Any] = connection.execute(
        "SELECT row, octet_length(title) + octet_length(text) FROM records"
        " WHERE forgotten_at IS NULL AND row > %s ORDER BY row LIMIT %s",
        (after, count),
    ).fetchall()
    if not sizes:
        return -1
    wanted = [row for row, _ in next(parted(sizes, lambda each: each[1], characters))]
    select = SELECT.replace("SELECT ", "SELECT records.row, records.scope, ", 1)
    rows = connection.execute(
        f"{select} WHERE forgotten_at IS NULL AND row = ANY(%s) ORDER BY records.id FOR UPDATE OF records", (wanted,)
    ).fetchall()
    placed = [Placed(row, scope, record := from_row(fields), derived.terms(record)) for row, scope, *fields in rows]
    with connection.pipeline():
        for each in placed:
            derived.remove(connection, each.row, ())
            connection.execute("UPDATE records SET length = %s WHERE row = %s", (each.terms.length, each.row))
        if placed:
            derived.add(connection, placed, ())
    return int(wanted[-1])


def parted(things: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Things in parts of at most a size, in order; one that is larger is a part of its own."""
    part: list[T] = []
    room = most
    for thing in things:
        room -= (needed := size(thing))
        if part and room < 0:
            yield part
            part, room = [], most - needed
        part.append(thing)
    if part:
        yield part


def _tally(connection: Connection, placed: Sequence[Placed]) -> None:
    """Each change has a line of its own, so that nobody waits; now and then those that nobody holds are added up."""
    records, lengths = Counter[int](), Counter[int]()
    for each in placed:
        records[each.scope] += 1
        lengths[each.scope] += each.terms.length
    for scope, count in records.items():
        more = (scope, count, lengths[scope])
        connection.execute("INSERT INTO tallies (scope, records, length) VALUES (%s, %s, %s)", more)
        if random.randrange(ADD_UP) == 0:  # noqa: S311  (no secret)
            connection.execute(
                "WITH gone AS (DELETE FROM tallies WHERE number IN"
                " (SELECT number FROM tallies WHERE scope = %s FOR UPDATE SKIP LOCKED) RETURNING records, length)"
                " INSERT INTO tallies (scope, records, length)"
                " SELECT %s, sum(records), sum(length) FROM gone HAVING count(*) > 0",
                (scope, scope),
            )


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

    def search(self, terms: Sequence[str], where: Filter, depth: int) -> RankedList:
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


def _ranked(connection: Connection, wanted: Sequence[str], where: Filter, depth: int) -> RankedList:
    visible = seen(connection, where)
    if visible.count <= 0:
        return RankedList("")
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
    return replace(found, max_score=sum(weights), among=visible.count)


def _noted(connection: Connection) -> str | None:
    return meta(connection, "keywords")


def _records(connection: Connection) -> int:
    found = connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NULL").fetchone()
    return int(found[0]) if found else 0
