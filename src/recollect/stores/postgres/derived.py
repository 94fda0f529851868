"""What follows from a record: its places in the inverted index, its scope's tally, its vectors; in its own transaction.

So no index ever lags, on any machine; only a change of the analysis itself makes the words be read again.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from recollect.analysis import Analyzer
from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import SELECT, from_row, text
from recollect.stores.rows import passage_hash
from recollect.types import Record

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
