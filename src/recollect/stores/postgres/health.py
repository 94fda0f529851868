"""The health of a store in PostgreSQL: server, role and replica, the keyword index, the vectors.

Transactions only read, and no question may take long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from psycopg.errors import QueryCanceled

from recollect.analysis import Analyzer
from recollect.config import parameters, shown_place
from recollect.errors import RecollectError, StoreError
from recollect.stores.health import (
    LONGEST_S,
    MOST_CHARACTERS,
    SAMPLE,
    Altered,
    Examination,
    Finding,
    NotExamined,
    Reporter,
    State,
    altered,
)
from recollect.stores.postgres.contents import SETTLING
from recollect.stores.postgres.database import Connection, Database, plain
from recollect.stores.postgres.keywords import Derived
from recollect.stores.postgres.schema import MIGRATIONS, version
from recollect.stores.postgres.store import PostgresStore
from recollect.stores.postgres.vectors import EXACT_UP_TO, LONGEST_INDEXED
from recollect.types import Record

WAIT_S = 5
"""For a server that does not answer, where the URL does not say."""


class TooLong(Exception):
    """A question takes longer than anybody should wait for."""


@dataclass(frozen=True, slots=True)
class Server:
    """A store in PostgreSQL that can be reached."""

    database: Database
    shown: str
    url: str

    def rows(self, sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """What a question finds, in a moment of its own."""
        with self.database.read() as connection:
            connection.execute(f"SET LOCAL statement_timeout TO '{LONGEST_S:g}s'")
            try:
                return connection.execute(sql, values or None).fetchall()
            except QueryCanceled as error:
                raise TooLong from error

    def row(self, sql: str, *values: Any) -> tuple[Any, ...]:
        """The first row that a question finds."""
        return next(iter(self.rows(sql, *values)), ())

    def number(self, sql: str, *values: Any) -> int:
        """The number that a question finds."""
        return int(self.row(sql, *values)[0] or 0)

    def meta(self, key: str) -> str | None:
        """One value of the store's own notes."""
        found = self.row("SELECT value FROM meta WHERE key = %s", key)
        return str(found[0]) if found else None


@contextlib.contextmanager
def looking(url: str) -> Iterator[Server]:
    """The main server of a store, to be read only; replicas have a look of their own."""
    main = main_of(url)
    quick = _told(main, connect_timeout=str(WAIT_S))
    database = Database(quick, read_only=True)
    try:
        yield Server(database, shown_place(main), quick)
    finally:
        database.close()


def main_of(url: str) -> str:
    """The URL of the main server: a replica that is down must not keep anybody from mending."""
    return _told(url, drop="read")


def replica_of(url: str) -> str | None:
    """The URL of the replica that a store names, with the store's schema."""
    said = dict(parameters(url))
    if "read" not in said:
        return None
    return _told(said["read"], **({"schema": said["schema"]} if "schema" in said else {}))


def _told(url: str, *, drop: str = "", **more: str) -> str:
    """A URL without one of its parameters, and with others where it does not say them itself."""
    where = url.partition("?")[0]
    said = more | {name: value for name, value in parameters(url) if name != drop}
    return f"{where}?{urlencode(said, quote_via=quote, safe='/:@,')}" if said else where


def examine(check: str, examination: Examination) -> list[Finding]:
    """The findings of one check. Where the server cannot be reached, `store` says why, and the others say no more."""
    checks: dict[str, Callable[[Server, Examination], Iterable[Finding]]] = {
        "store": store,
        "keywords": keywords,
        "vectors": vectors,
    }
    try:
        with looking(examination.place) as server:
            if check != "store":
                require_ready(server)
            return list(_in_time(checks[check], server, examination))
    except NotExamined:
        raise
    except RecollectError as error:
        if check == "store":
            raise
        raise NotExamined("the store cannot be read") from error


def _in_time(
    check: Callable[[Server, Examination], Iterable[Finding]], server: Server, examination: Examination
) -> list[Finding]:
    try:
        return list(check(server, examination))
    except TooLong:
        raise NotExamined(f"it takes longer than {LONGEST_S:g} s") from None
    except RecollectError as error:
        return [Finding(check.__name__, "failure", error.message, error.hint)]


# -- server, role and replica -------------------------------------------------------------------------------

SERVICE = "let a service use a role that owns nothing: see Roles in docs/postgresql.md"

FAR_BYTES, FAR_S = 64_000_000, 30.0
"""How far a replica may be behind before searches there are of another day."""

WALLED = (
    "scopes", "records", "history", "postings", "tallies", "embeddings", "files", "roots", "notes", "joins",
)  # fmt: skip
"""Tables that row-level security guards, beside those of vectors."""

_ROLE = """
    SELECT rolname, rolsuper, rolbypassrls, row_security_active(pg_class.oid),
        pg_has_role(rolname, relowner, 'USAGE'), has_table_privilege(pg_class.oid, 'INSERT')
    FROM pg_class, pg_roles WHERE pg_class.oid = 'records'::regclass AND rolname = current_user
"""

_UNWALLED = """
    SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND NOT relrowsecurity
        AND (relname = ANY(%s) OR relname ~ '^vectors_[0-9]+$')
"""

_REPLAYED = """
    SELECT pg_is_in_recovery(), to_regclass('migrations') IS NOT NULL,
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text ELSE pg_current_wal_lsn()::text END,
        coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float
"""


def require_ready(server: Server) -> None:
    """Raise NotExamined with the reason where the content of a store cannot be examined."""
    try:
        done, known = version(server.database), len(MIGRATIONS)
    except StoreError as error:
        raise NotExamined("the store cannot be read") from error
    if done != known:
        raise NotExamined(f"the store has schema {done}, this version {known}" if done else "there is no store yet")
    if server.row("SELECT row_security_active('records')")[0]:
        raise NotExamined("this role sees the rows of one scope only; ask as the owner of the tables")


def store(server: Server, examination: Examination) -> Iterator[Finding]:
    """Whether the store is of this version, who we are there, and whether the replica follows."""
    done, known = version(server.database), len(MIGRATIONS)
    engine = _engine(server)
    if not done:
        make = f"the first command makes it, as a role that may: recollect status{examination.flags}"
        yield Finding("store", "note", f"there is no store at {server.shown} yet ({engine})", make)
    elif done > known:
        newer = f"{server.shown} has schema {done}, this version knows {known}"
        yield Finding("store", "failure", newer, "pip install -U recollect")
    elif done < known:
        older = f"{server.shown} has schema {done} of {known}: its owner's next command brings it up to date"
        yield Finding("store", "note", older, f"recollect status{examination.flags}")
    else:
        count = server.number("SELECT coalesce(sum(records), 0) FROM tallies")
        yield Finding("store", "ok", f"{server.shown}: {count:,} records, schema {done}, {engine}")
        yield from _texts(server)
        yield _role(server)
        yield from _walls(server)
    yield from _replica(server, examination.place)


def _texts(server: Server) -> Iterator[Finding]:
    """Records whose texts are not what was stored. A role behind row-level security sees too few of them to look."""
    if server.row("SELECT row_security_active('records')")[0]:
        return
    altered = _altered(server)
    if altered.records:
        yield Finding("store", "failure", altered.message, altered.mend)
    elif not altered.finished:
        yield Finding("store", "note", f"the texts seen in {LONGEST_S:g} s are what was stored; there are more")


def _engine(server: Server) -> str:
    version = server.number("SELECT current_setting('server_version_num')")
    (vector,) = server.row("SELECT max(extversion) FROM pg_extension WHERE extname = 'vector'")
    return f"PostgreSQL {version // 10_000}.{version % 10_000}, pgvector {vector or 'not created yet'}"


def _role(server: Server) -> Finding:
    name, above, past, walled, owns, writes = server.row(_ROLE)
    if above or past:
        what = "is a superuser" if above else "has BYPASSRLS"
        return Finding("store", "warning", f"the role {name} {what}: row-level security does not hold for it", SERVICE)
    if walled:
        only = "" if writes else ", and may only read"
        return Finding("store", "ok", f"the role {name} is behind row-level security{only}")
    if owns:
        owner = f"the role {name} owns the tables: row-level security does not hold for it"
        return Finding("store", "note", owner, SERVICE)
    return Finding("store", "warning", f"row-level security does not hold for the role {name}", SERVICE)


def _walls(server: Server) -> Iterator[Finding]:
    """Tables whose rows the database does not guard, though it should."""
    (found,) = server.row(_UNWALLED, list(WALLED))
    if found:
        mend = "as their owner: ALTER TABLE … ENABLE ROW LEVEL SECURITY"
        yield Finding("store", "warning", f"row-level security is switched off for {found}", mend)


def _replica(server: Server, place: str) -> Iterator[Finding]:
    url = replica_of(place)
    if url is None:
        return
    try:
        with looking(url) as replica:
            yield _followed(server, replica)
    except RecollectError as error:
        yield Finding("store", "warning", f"the replica: {error.message}", error.hint)


def _followed(server: Server, replica: Server) -> Finding:
    """How far the replica is behind: what it has replayed beside what the main server had written by then."""
    (written,) = server.row("SELECT pg_current_wal_lsn()::text WHERE NOT pg_is_in_recovery()") or (None,)
    follows, there, replayed, seconds = replica.row(_REPLAYED)
    name = f"the replica {shown_place(replica.shown)}"
    if not there:
        return Finding("store", "warning", f"{name} has no store of this name", "check ?read=… in the URL")
    if not follows or written is None:
        return Finding("store", "note", f"{name} is no replica: it does not follow another server")
    behind = max(0, server.number("SELECT pg_wal_lsn_diff(%s::pg_lsn, %s::pg_lsn)", written, replayed))
    late = seconds if behind else 0.0
    said = f"{name} is {behind / 1e6:,.1f} MB and {late:,.0f} s behind" if behind else f"{name} has read everything"
    if behind > FAR_BYTES or late > FAR_S:
        return Finding("store", "warning", said, "look at pg_stat_replication on the main server")
    return Finding("store", "ok", said)


BATCH = 1_000
_BATCHED = (
    "SELECT row, id, kind, title, text, fold, passage FROM records WHERE passage <> '' AND row > %s"
    f" ORDER BY row LIMIT {BATCH}"
)
"""A purged record has an empty hash."""


def _altered(server: Server) -> Altered:
    try:
        return altered(_batches(server))
    except TooLong:
        return Altered([], finished=False)


def _batches(server: Server) -> Iterator[tuple[Any, ...]]:
    last = 0
    while rows := server.rows(_BATCHED, last):
        last = rows[-1][0]
        for _, key, kind, title, text, fold, passage in rows:
            yield plain(key), kind, plain(title), plain(text), bytes(fold), bytes(passage)


# -- the keyword index --------------------------------------------------------------------------------------

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

_STRAY_TERMS = """
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


def keywords(server: Server, examination: Examination) -> Iterator[Finding]:
    """Whether the words were read by this analysis, and whether terms and tallies are those of the records."""
    yield from examination.language_note(server.meta("language"))
    mend = f"recollect doctor --fix{examination.flags}"
    analyzer = Analyzer(server.meta("language") or "english")
    if server.meta("keywords") != analyzer.fingerprint:
        count = server.number(LIVE)
        said = f"the words of {count:,} records were read by another analysis; the next search reads them again"
        yield Finding("keywords", "note", said, mend, partial(catch_up, examination.place))
        return
    whole = True
    for look, fix in ((_tallies, recount), (partial(_terms, analyzer), rebuild)):
        try:
            wrong = look(server)
        except TooLong:
            wrong, whole = "", False
        if wrong:
            said = f"the keyword index differs from the records: {wrong}"
            yield Finding("keywords", "failure", said, f"{mend} builds it again", partial(fix, examination.place))
            return
    if whole:
        yield Finding("keywords", "ok", "up to date, and agrees with the records")
    else:
        yield Finding("keywords", "note", f"nothing wrong seen in {LONGEST_S:g} s; there is more of it")


def _tallies(server: Server) -> str:
    scopes = server.number(_TALLIED)
    return f"its counts do not fit its records, in {scopes:,} of the scopes" if scopes else ""


def _terms(analyzer: Analyzer, server: Server) -> str:
    terms = Derived(lambda: analyzer).terms
    unread = sum(bool(terms(_record_of(*row)).names) for row in server.rows(_UNREAD, MOST_CHARACTERS, SAMPLE))
    if unread:
        return f"{unread}{' or more' if unread == SAMPLE else ''} records are not in it"
    step = max(1, server.number(LIVE) // SAMPLE)
    for name, title, text, length, held in server.rows(_SAMPLED, step, MOST_CHARACTERS, SAMPLE):
        right = terms(_record_of(title, text))
        if length != right.length or (held or {}) != dict(zip(right.names, right.often, strict=True)):
            return f"it does not have the words of the record {plain(name)}"
    astray = server.number(_STRAY_TERMS)
    return f"it has terms of {astray:,} records that are gone, or another's" if astray else ""


def _record_of(title: str, text: str) -> Record:
    return Record("", plain(text), title=plain(title))


def catch_up(place: str, reporter: Reporter) -> None:
    """Let the words be read by today's analysis."""
    reporter.announce("reading the words of all records again")
    store = PostgresStore(main_of(place))
    try:
        store.keywords.catch_up()
    finally:
        store.close()


def rebuild(place: str, reporter: Reporter) -> None:
    """Make the index again from what is stored, as if it had never been read."""
    written(place, _unlearn)
    catch_up(place, reporter)
    recount(place, reporter)


def recount(place: str, reporter: Reporter) -> None:
    """Count anew how many records each scope has, and how long they are."""
    reporter.announce("counting the records of each scope anew")
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


# -- vectors ------------------------------------------------------------------------------------------------

_INDEXES = f"""
    SELECT space, embedder, indisvalid FROM spaces LEFT JOIN
        (SELECT relname, indisvalid AND indisready AS indisvalid FROM pg_class JOIN pg_index ON indexrelid = oid
        WHERE relnamespace = current_schema()::regnamespace) AS held ON relname = 'vectors_' || space || '_near'
    WHERE dimension <= {LONGEST_INDEXED} AND indisvalid IS NOT TRUE ORDER BY space
"""

_BEING_MADE = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s::integer::oid
        AND objid = current_schema()::regnamespace::oid
"""

_STRAY_VECTORS = """
    SELECT (SELECT count(*) FROM records LEFT JOIN vectors_{0} AS held USING (row)
            WHERE forgotten_at IS NULL AND held.scope IS DISTINCT FROM records.scope),
        (SELECT count(*) FROM vectors_{0} AS held WHERE NOT EXISTS
            (SELECT 1 FROM records WHERE records.row = held.row AND forgotten_at IS NULL))
"""

_ORPHANS = "FROM embeddings WHERE NOT EXISTS (SELECT 1 FROM records WHERE records.passage = embeddings.passage)"


def vectors(server: Server, examination: Examination) -> Iterator[Finding]:
    """Whether every record has a vector of the model that is set, and whether searches find them fast."""
    found: Any = server.rows("SELECT space, fingerprint, embedder FROM spaces ORDER BY space DESC")
    total = server.number(LIVE)
    if examination.embedder == "none":
        yield Finding("vectors", "ok", "none needed: keyword search only")
    else:
        active, own = examination.spaces(found, server.meta("space"))
        empty = f"SELECT count(*) FROM vectors_{own[0]} WHERE vector IS NULL" if own else LIVE
        same = own is not None and active == own
        yield examination.vectors(active[2] if active else None, same=same, missing=server.number(empty), total=total)
    yield from _indexes(server, examination, total)
    for space, _, embedder in found:
        yield from _places(server, examination, space, embedder)
    yield from _orphans(server, examination)


def _indexes(server: Server, examination: Examination, total: int) -> Iterator[Finding]:
    """Approximate indexes that are not there, or that a crash left half made."""
    being_made = server.number(_BEING_MADE, SETTLING)
    for space, embedder, valid in server.rows(_INDEXES):
        what = "is missing" if valid is None else "is invalid"
        said = f"the approximate index of {embedder} {what}"
        if being_made:
            yield Finding("vectors", "note", f"{said}; it is being made")
            continue
        state: State = "note" if valid is None and total <= EXACT_UP_TO else "warning"
        slow = f"{said}: a search that sees more than {EXACT_UP_TO:,} records compares them all"
        mend = f"recollect doctor --fix{examination.flags} makes it"
        yield Finding("vectors", state, slow, mend, partial(settle, examination.place, space))


def _places(server: Server, examination: Examination, space: int, embedder: str) -> Iterator[Finding]:
    """Records that have no place among the vectors, or another's, and places of no record."""
    try:
        without, gone = server.row(_STRAY_VECTORS.format(space))
    except TooLong:
        return
    if without or gone:
        said = f"the vectors of {embedder} are not at their records: {without:,} records and {gone:,} places do not fit"
        mend = f"recollect doctor --fix{examination.flags} puts them there"
        yield Finding("vectors", "failure", said, mend, partial(put_in_place, examination.place, space))


def _orphans(server: Server, examination: Examination) -> Iterator[Finding]:
    """Vectors that no record has: words could be read out of them."""
    try:
        count = server.number(f"SELECT count(*) {_ORPHANS}")
    except TooLong:
        return
    if count:
        mend = f"recollect doctor --fix{examination.flags} removes them"
        yield Finding(
            "vectors", "note", f"{count:,} of the vectors kept are of no record", mend, partial(drop, examination.place)
        )


def settle(url: str, space: int, reporter: Reporter) -> None:
    """Make the approximate index of a space, where none is or one that was never finished."""
    reporter.announce("making the approximate index")

    def drop_invalid(connection: Connection) -> None:
        name = f"vectors_{space}_near"
        found = connection.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (name,))
        if found.fetchone() == (False,):
            connection.execute(f"DROP INDEX {name}")

    written(url, drop_invalid)
    store = PostgresStore(main_of(url))
    try:
        store.contents.finish(reporter.progress("indexing"))
    finally:
        store.close()


def put_in_place(url: str, space: int, reporter: Reporter) -> None:
    """Put every live record's vector where searches look for it, and nothing else."""
    reporter.announce("putting vectors where their records are")

    def work(connection: Connection) -> None:
        connection.execute("LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(
            f"DELETE FROM vectors_{space} AS held WHERE NOT EXISTS (SELECT 1 FROM records"
            " WHERE records.row = held.row AND records.scope = held.scope AND forgotten_at IS NULL)"
        )
        connection.execute(
            f"INSERT INTO vectors_{space} (row, scope, vector) SELECT row, scope, vector::halfvec FROM records"
            " LEFT JOIN embeddings ON embeddings.passage = records.passage AND space = %s"
            " WHERE forgotten_at IS NULL ON CONFLICT DO NOTHING",
            (space,),
        )

    written(url, work)


def drop(url: str, reporter: Reporter) -> None:
    """Remove the vectors that no record has."""
    reporter.announce("removing vectors of no record")
    written(url, _drop)


def _drop(connection: Connection) -> None:
    connection.execute(f"SELECT drop_orphan(passage) FROM (SELECT DISTINCT passage {_ORPHANS}) AS orphans")
