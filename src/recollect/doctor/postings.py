"""The keyword index in PostgreSQL beside what is stored: analysis, terms, tallies; and building it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from recollect.analysis import Analyzer
from recollect.doctor.findings import Finding, Telling
from recollect.doctor.keywords import MOST_CHARACTERS, SAMPLE
from recollect.doctor.looking import LONGEST_S
from recollect.doctor.server import Server, TooLong, main_of
from recollect.doctor.setup import Setup
from recollect.stores.postgres import PostgresStore
from recollect.stores.postgres.database import Connection, Database, plain
from recollect.stores.postgres.keywords import Derived
from recollect.types import Record

LIVE = "SELECT count(*) FROM records WHERE forgotten_at IS NULL"

_HELD = (
    "SELECT scope, count(*) AS records, sum(length) AS length FROM records WHERE forgotten_at IS NULL GROUP BY scope"
)

_TALLIED = f"""
    SELECT count(*) FROM ({_HELD}) AS held FULL JOIN
        (SELECT scope, sum(records) AS records, sum(length) AS length FROM tallies GROUP BY scope) AS told USING (scope)
    WHERE coalesce(held.records, 0) <> coalesce(told.records, 0)
        OR coalesce(held.length, 0) <> coalesce(told.length, 0)
"""

_ASTRAY = """
    SELECT count(DISTINCT postings.row) FROM postings LEFT JOIN records ON records.row = postings.row
        AND forgotten_at IS NULL AND records.scope = postings.scope AND records.length = postings.length
    WHERE records.row IS NULL
"""

_UNREAD = """
    SELECT title, text FROM records WHERE forgotten_at IS NULL AND length(text) <= %s
        AND NOT EXISTS (SELECT 1 FROM postings WHERE postings.row = records.row) LIMIT %s
"""

_SAMPLED = """
    SELECT id, title, text, length, (SELECT json_object_agg(term, often) FROM postings WHERE postings.row = records.row)
    FROM records WHERE forgotten_at IS NULL AND row %% %s = 0 AND length(text) <= %s LIMIT %s
"""


def keywords(server: Server, setup: Setup) -> Iterator[Finding]:
    """Whether the words were read by this analysis, and whether terms and tallies are those of the records."""
    yield from setup.language_note(server.meta("language"))
    mend = f"recollect doctor --fix{setup.flags}"
    analyzer = Analyzer(server.meta("language") or "english")
    if server.meta("keywords") != analyzer.fingerprint:
        count = server.number(LIVE)
        said = f"the words of {count:,} records were read by another analysis; the next search reads them again"
        yield Finding("keywords", "note", said, mend, partial(catch_up, setup.place))
        return
    whole = True
    for look, fix in ((_tallies, recount), (partial(_terms, analyzer), rebuild)):
        try:
            wrong = look(server)
        except TooLong:
            wrong, whole = "", False
        if wrong:
            said = f"the keyword index is not what is stored: {wrong}"
            yield Finding("keywords", "failure", said, f"{mend} builds it again", partial(fix, setup.place))
            return
    if whole:
        yield Finding("keywords", "ok", "up to date, and agrees with what is stored")
    else:
        yield Finding("keywords", "note", f"nothing wrong seen in {LONGEST_S:g} s; there is more of it")


def _tallies(server: Server) -> str:
    scopes = server.number(_TALLIED)
    return f"its counts do not fit its records, in {scopes:,} of the scopes" if scopes else ""


def _terms(analyzer: Analyzer, server: Server) -> str:
    terms = Derived(lambda: analyzer).terms
    unread = sum(bool(terms(_record(*row)).names) for row in server.rows(_UNREAD, MOST_CHARACTERS, SAMPLE))
    if unread:
        return f"{unread}{' or more' if unread == SAMPLE else ''} records are not in it"
    step = max(1, server.number(LIVE) // SAMPLE)
    for name, title, text, length, held in server.rows(_SAMPLED, step, MOST_CHARACTERS, SAMPLE):
        right = terms(_record(title, text))
        if length != right.length or (held or {}) != dict(zip(right.names, right.often, strict=True)):
            return f"it does not have the words of the record {plain(name)}"
    astray = server.number(_ASTRAY)
    return f"it has terms of {astray:,} records that are gone, or another's" if astray else ""


def _record(title: str, text: str) -> Record:
    return Record("", plain(text), title=plain(title))


def catch_up(place: str, telling: Telling) -> None:
    """Let the words be read by today's analysis."""
    telling.announce("reading the words of all records again")
    store = PostgresStore(main_of(place))
    try:
        store.keywords.catch_up()
    finally:
        store.close()


def rebuild(place: str, telling: Telling) -> None:
    """Make the index again from what is stored, as if it had never been read."""
    written(place, _unlearn)
    catch_up(place, telling)
    recount(place, telling)


def recount(place: str, telling: Telling) -> None:
    """Count anew how many records each scope has, and how long they are."""
    telling.announce("counting the records of each scope anew")
    written(place, _recount)


def _unlearn(connection: Connection) -> None:
    connection.execute(
        "DELETE FROM postings WHERE NOT EXISTS"
        " (SELECT 1 FROM records WHERE records.row = postings.row AND forgotten_at IS NULL)"
    )
    connection.execute("DELETE FROM meta WHERE key = 'keywords'")


def _recount(connection: Connection) -> None:
    """While nobody writes: a tally that comes meanwhile would be counted twice."""
    connection.execute("LOCK TABLE records, tallies IN SHARE ROW EXCLUSIVE MODE")
    connection.execute("DELETE FROM tallies")
    connection.execute(f"INSERT INTO tallies (scope, records, length) {_HELD}")


def written(place: str, work: Callable[[Connection], None]) -> None:
    """Do work in one transaction on the main server."""
    database = Database(main_of(place))
    try:
        database.write(work)
    finally:
        database.close()
