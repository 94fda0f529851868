"""What follows from a record: its places in the inverted index, its scope's tally, its vectors; in its own transaction.

So no index ever lags, on any machine; only a change of the analysis itself makes the words be read again.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from recollect.analysis import Analyzer
from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import text
from recollect.stores.rows import passage_hash
from recollect.types import Record

TITLE_WEIGHT = 2.0

LONGEST_TERM = 500
"""Letters of a term; an index of PostgreSQL cannot hold a page of them. A longer one stands under its hash."""

ADD_UP = 256
"""One change in so many adds up its scope's tallies."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A record's terms, how often each stands in it, and how many count."""

    names: list[str]
    often: list[float]
    length: int


@dataclass(frozen=True, slots=True)
class Derived:
    """Adds and removes what follows from a record."""

    analyzer: Callable[[], Analyzer]

    def terms(self, record: Record) -> Terms:
        """A record's terms; a place in the title counts more."""
        analyzer = self.analyzer()
        often: Counter[str] = Counter()
        length = 0
        for part, weight in ((record.title, TITLE_WEIGHT), (record.text, 1.0)):
            for token in analyzer.tokens(part):
                often[term_key(token.term)] += weight  # type: ignore[assignment]
                length += not token.stop
        return Terms(list(often), [float(count) for count in often.values()], max(1, length))

    def add(self, connection: Connection, row: int, scope: int, record: Record, terms: Terms) -> None:
        """All that follows from a record that is now there."""
        connection.execute(
            "WITH tallied AS (INSERT INTO tallies (scope, records, length) VALUES (%s, 1, %s))"
            " INSERT INTO postings (scope, term, row, often, length)"
            " SELECT %s, term, %s, often, %s FROM unnest(%s::text[], %s::real[]) AS found (term, often)",
            (scope, terms.length, scope, row, terms.length, terms.names, terms.often),
        )
        _add_up(connection, scope)
        for space in spaces(connection):
            connection.execute(
                f"INSERT INTO vectors_{space} (row, scope, vector)"
                " SELECT %s, %s, vector::halfvec FROM embeddings WHERE space = %s AND passage = %s"
                " ON CONFLICT (row) DO UPDATE SET scope = excluded.scope, vector = excluded.vector",
                (row, scope, space, passage_hash(record.passage)),
            )

    def remove(self, connection: Connection, row: int) -> None:
        """Nothing follows from a record that is not there any more."""
        connection.execute("DELETE FROM postings WHERE row = %s", (row,))
        found = connection.execute(
            "SELECT scope, length FROM records WHERE row = %s AND forgotten_at IS NULL", (row,)
        ).fetchone()
        if found is not None:
            less = (found[0], -1, -found[1])
            connection.execute("INSERT INTO tallies (scope, records, length) VALUES (%s, %s, %s)", less)
        for space in spaces(connection):
            connection.execute(f"DELETE FROM vectors_{space} WHERE row = %s", (row,))


def term_key(term: str) -> str:
    """A term as the index has it."""
    if len(term) <= LONGEST_TERM:
        return str(text(term))
    return f"#{hashlib.blake2b(term.encode(), digest_size=16).hexdigest()}"


def spaces(connection: Connection) -> list[int]:
    """The vector spaces there are."""
    return [space for (space,) in connection.execute("SELECT space FROM spaces ORDER BY space")]


def _add_up(connection: Connection, scope: int) -> None:
    """Each change has a line of its own, so that nobody waits; now and then those that nobody holds are added up."""
    if random.randrange(ADD_UP) == 0:  # noqa: S311  (no secret)
        connection.execute(
            "WITH gone AS (DELETE FROM tallies WHERE number IN"
            " (SELECT number FROM tallies WHERE scope = %s FOR UPDATE SKIP LOCKED) RETURNING records, length)"
            " INSERT INTO tallies (scope, records, length)"
            " SELECT %s, sum(records), sum(length) FROM gone HAVING count(*) > 0",
            (scope, scope),
        )
