"""Health checks of a PostgreSQL store, which only read: server, role and replica, the keyword index, the vectors."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from psycopg.errors import QueryCanceled

from recollect.analysis import Analyzer
from recollect.config import parameters, shown_place
from recollect.errors import RecollectError
from recollect.stores.health import (
    LONGEST_S,
    MOST_CHARACTERS,
    SAMPLE,
    Examination,
    Finding,
    NotExamined,
    Reporter,
    Space,
    State,
    altered,
)
from recollect.stores.postgres import PostgresStore
from recollect.stores.postgres.contents import INDEX_LOCK
from recollect.stores.postgres.database import PostgresDatabase
from recollect.stores.postgres.keywords import RECORD_COUNT
from recollect.stores.postgres.migrations import MIGRATIONS
from recollect.stores.postgres.postings import KIND, WORDS, IndexWriter, TermCounts
from recollect.stores.postgres.schema import version
from recollect.stores.postgres.vectors import EXACT_UP_TO, MAX_INDEXED_DIMENSION
from recollect.types import Record

CONNECT_S = 5  # how long to wait for a server, unless the URL says otherwise
MAX_BEHIND_BYTES, MAX_BEHIND_S = 64_000_000, 30.0  # how far a replica may be behind without a warning

GUARDED = (  # tables with row-level security, beside those of vectors
    "scopes", "records", "history", "documents", "blocks", "removals", "tallies", "embeddings", "files", "roots",
    "notes", "joins",
)  # fmt: skip

_ROW_SECURITY = "SELECT row_security_active('records')::integer"
_ROLE = """
    SELECT rolname, rolsuper, rolbypassrls, row_security_active(pg_class.oid),
        pg_has_role(rolname, relowner, 'USAGE'), has_table_privilege(pg_class.oid, 'INSERT')
    FROM pg_class, pg_roles WHERE pg_class.oid = 'records'::regclass AND rolname = current_user
"""
_UNGUARDED = """
    SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND NOT relrowsecurity
        AND (relname = ANY(%s) OR relname ~ '^vectors_[0-9]+$')
"""
_REPLAYED = """
    SELECT pg_is_in_recovery(), to_regclass('migrations') IS NOT NULL,
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text ELSE pg_current_wal_lsn()::text END,
        coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float
"""
_TEXTS = (  # a purged record has an empty hash
    "SELECT row, id, kind, title, text, fold, passage FROM records WHERE passage <> '' AND row > %s"
    " ORDER BY row LIMIT 1000"
)

_SUMS = (
    f"SELECT scope, {KIND} AS kind, count(*) AS records, sum({WORDS}) AS length FROM records"
    " WHERE forgotten_at IS NULL GROUP BY 1, 2"
)
_WRONG_TALLIES = f"""
    SELECT count(DISTINCT scope) FROM ({_SUMS}) AS held FULL JOIN
        (SELECT scope, kind, sum(records) AS records, sum(length) AS length FROM tallies GROUP BY 1, 2) AS told
        USING (scope, kind)
    WHERE coalesce(held.records, 0) <> coalesce(told.records, 0)
        OR coalesce(held.length, 0) <> coalesce(told.length, 0)
"""
_STRAY_TERMS = """
    SELECT count(*) FROM documents LEFT JOIN records ON records.row = documents.row
        AND forgotten_at IS NULL AND records.scope = documents.scope AND records.length = documents.length
    WHERE records.row IS NULL
"""
_BLOCKS = """
    SELECT (SELECT coalesce(sum(octet_length(postings) / 16), 0) FROM blocks)::bigint,
        (SELECT coalesce(sum(cardinality(terms)), 0) FROM documents WHERE merged)::bigint
        + (SELECT coalesce(sum(cardinality(terms)), 0) FROM removals)::bigint
"""
_WITHOUT_TERMS = """
    SELECT kind, title, text FROM records WHERE forgotten_at IS NULL AND length(text) <= %s
        AND NOT EXISTS (SELECT 1 FROM documents WHERE documents.row = records.row{beside}) LIMIT %s
"""
_SAMPLE_TERMS = """
    SELECT id, length, kind, title, text, (SELECT json_object_agg(term, count)
        FROM documents, unnest(terms, counts) AS held (term, count) WHERE documents.row = records.row{beside})
    FROM records WHERE forgotten_at IS NULL AND row %% %s = 0 AND length(text) <= %s LIMIT %s
"""

_INDEXES = f"""
    SELECT space, embedder, indisvalid FROM spaces LEFT JOIN
        (SELECT relname, indisvalid AND indisready AS indisvalid FROM pg_class JOIN pg_index ON indexrelid = oid
        WHERE relnamespace = current_schema()::regnamespace) AS held ON relname = 'vectors_' || space || '_near'
    WHERE dimension <= {MAX_INDEXED_DIMENSION} AND indisvalid IS NOT TRUE ORDER BY space
"""
_INDEX_LOCKS = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s::integer::oid
        AND objid = current_schema()::regnamespace::oid
"""
_STRAY_VECTORS = """
    SELECT (SELECT count(*) FROM records LEFT JOIN vectors_{0} AS held
            ON held.row = records.row AND held.scope = records.scope WHERE forgotten_at IS NULL AND held.row IS NULL),
        (SELECT count(*) FROM vectors_{0} AS held WHERE NOT EXISTS
            (SELECT 1 FROM records WHERE records.row = held.row{1} AND forgotten_at IS NULL))
"""
_ORPHANS = "FROM embeddings WHERE NOT EXISTS (SELECT 1 FROM records WHERE records.passage = embeddings.passage)"


class QueryTooSlow(Exception):
    """A query takes longer than a check may."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be reached."""

    database: PostgresDatabase
    address: str

    def rows(self, sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """The rows of a query, in a transaction of its own."""
        with self.database.read() as connection:
            connection.execute(f"SET LOCAL statement_timeout TO '{LONGEST_S:g}s'")
            try:
                return connection.execute(sql, values or None).fetchall()
            except QueryCanceled as error:
                raise QueryTooSlow from error

    def row(self, sql: str, *values: Any) -> tuple[Any, ...]:
        return next(iter(self.rows(sql, *values)), ())

    def number(self, sql: str, *values: Any) -> int:
        return int(self.row(sql, *values)[0] or 0)

    def meta(self, key: str) -> str | None:
        row = self.row("SELECT value FROM meta WHERE key = %s", key)
        return str(row[0]) if row else None


@contextlib.contextmanager
def inspecting(url: str) -> Iterator[Server]:
    """The main server of a store, opened read only."""
    with contextlib.closing(PostgresDatabase(quick_url(url), read_only=True)) as database:
        yield Server(database, shown_place(main_url(url)))


def quick_url(url: str) -> str:
    """The URL of the main server, with a short wait for it."""
    return _with_parameters(main_url(url), connect_timeout=str(CONNECT_S))


def main_url(url: str) -> str:
    """The URL without the replica, so that a replica that is down does not prevent a repair."""
    return _with_parameters(url, drop="read")


def _with_parameters(url: str, *, drop: str = "", **defaults: str) -> str:
    address = url.partition("?")[0]
    every = defaults | {name: value for name, value in parameters(url) if name != drop}
    return f"{address}?{urlencode(every, quote_via=quote, safe='/:@,')}" if every else address


def examine(check: str, examination: Examination) -> list[Finding]:
    """The findings of one check. If the server cannot be reached, only `store` says why."""
    run = {"store": store, "keywords": keywords, "vectors": vectors}[check]
    if check != "store":
        require_ready(examination.place)
    with inspecting(examination.place) as server:
        try:
            return list(run(server, examination))
        except QueryTooSlow:
            raise NotExamined(f"it takes longer than {LONGEST_S:g} s") from None


def require_ready(url: str) -> None:
    """Raise NotExamined with the reason if the content of a store cannot be examined."""
    known = len(MIGRATIONS)
    try:
        with inspecting(url) as server:
            applied = version(server.database)
            restricted = applied == known and server.number(_ROW_SECURITY)
    except RecollectError as error:
        raise NotExamined("the store cannot be read") from error
    if applied != known:
        reason = f"the store has schema {applied}, this version {known}" if applied else "there is no store yet"
        raise NotExamined(reason)
    if restricted:
        raise NotExamined("this role sees the rows of one scope only; run it as the owner of the tables")


def store(server: Server, examination: Examination) -> Iterator[Finding]:
    """Check the schema version, the texts, the role and the replica."""
    applied = version(server.database)
    number = server.number("SELECT current_setting('server_version_num')")
    (vector,) = server.row("SELECT max(extversion) FROM pg_extension WHERE extname = 'vector'")
    engine = f"PostgreSQL {number // 10_000}.{number % 10_000}, pgvector {vector or 'not created yet'}"
    if not applied:
        mend = f"the first command creates it, as a role that may: recollect status{examination.flags}"
        yield Finding("store", "note", f"there is no store at {server.address} yet ({engine})", mend)
    elif other := examination.schema(server.address, applied, len(MIGRATIONS)):
        yield other
    else:
        count = server.number("SELECT coalesce(sum(records), 0) FROM tallies")
        yield Finding("store", "ok", f"{server.address}: {count:,} records, schema {applied}, {engine}")
        if not server.number(_ROW_SECURITY):  # else too few of the texts are visible
            yield from _texts(server)
        yield _role(server)
        if server.database.distributed:
            from recollect.stores.postgres.citus.layout import examine

            yield from examine(server)
        if tables := server.row(_UNGUARDED, list(GUARDED))[0]:
            mend = "as their owner: ALTER TABLE … ENABLE ROW LEVEL SECURITY"
            yield Finding("store", "warning", f"row-level security is switched off for {tables}", mend)
    named = dict(parameters(examination.place))
    if "read" in named:
        try:
            with inspecting(_with_parameters(named["read"], schema=named.get("schema", "recollect"))) as replica:
                yield _replication(server, replica)
        except RecollectError as error:
            yield Finding("store", "warning", f"the replica: {error.message}", error.hint)


def _texts(server: Server) -> Iterator[Finding]:
    def stored() -> Iterator[tuple[Any, ...]]:
        last = 0
        while rows := server.rows(_TEXTS, last):
            last = rows[-1][0]
            for _, key, kind, title, text, fold, passage in rows:
                yield key, kind, title, text, bytes(fold), bytes(passage)

    try:
        failure, finished = altered(stored())
    except QueryTooSlow:
        failure, finished = None, False
    if failure or not finished:
        message = f"the texts that were read in {LONGEST_S:g} s are what was stored; there are more"
        yield failure or Finding("store", "note", message)


def _role(server: Server) -> Finding:
    name, superuser, bypasses, restricted, owner, writes = server.row(_ROLE)
    if restricted:
        suffix = "" if writes else ", which may only read"
        return Finding("store", "ok", f"row-level security applies to the role {name}{suffix}")
    power = "is a superuser" if superuser else "has BYPASSRLS" if bypasses else "owns the tables" if owner else ""
    message = f"the role {name} {power}: row-level security does not apply to it"
    if not power:
        message = f"row-level security does not apply to the role {name}"
    state: State = "note" if owner and not (superuser or bypasses) else "warning"
    mend = "let a service use a role that owns nothing: see Roles in docs/postgresql.md"
    return Finding("store", state, message, mend)


def _replication(server: Server, replica: Server) -> Finding:
    (written,) = server.row("SELECT pg_current_wal_lsn()::text WHERE NOT pg_is_in_recovery()") or (None,)
    follows, has_store, replayed, seconds = replica.row(_REPLAYED)
    name = f"the replica {shown_place(replica.address)}"
    if not has_store:
        return Finding("store", "warning", f"{name} has no store of this name", "check ?read=… in the URL")
    if not follows or written is None:
        return Finding("store", "note", f"{name} is no replica: it does not follow another server")
    behind = max(0, server.number("SELECT pg_wal_lsn_diff(%s::pg_lsn, %s::pg_lsn)", written, replayed))
    message = f"{name} is {behind / 1e6:,.1f} MB and {seconds:,.0f} s behind" if behind else f"{name} is up to date"
    if behind and (behind > MAX_BEHIND_BYTES or seconds > MAX_BEHIND_S):
        return Finding("store", "warning", message, "look at pg_stat_replication on the main server")
    return Finding("store", "ok", message)


def keywords(server: Server, examination: Examination) -> Iterator[Finding]:
    """Check that the index is of the present analysis, and that terms and tallies are those of the records."""
    yield from examination.language_note(server.meta("language"))
    analyzer = Analyzer(server.meta("language") or "english")
    if server.meta("keywords") != analyzer.fingerprint:
        count = server.number(RECORD_COUNT)
        message = f"{count:,} records were analysed by another version; the next search analyses them again"
        yield Finding("keywords", "note", message, examination.fix_command, partial(_catch_up, examination.place))
        return
    complete = True
    for check, fix in ((_wrong_tallies, _recount), (_wrong_terms, _rebuild)):
        try:
            if problem := check(server, analyzer):
                yield examination.keywords(problem, partial(fix, examination.place))
                return
        except QueryTooSlow:
            complete = False
    if complete:
        yield examination.keywords("", partial(_rebuild, examination.place))
    else:
        yield Finding("keywords", "note", f"no problem found in {LONGEST_S:g} s; not all of it was read")


def _wrong_tallies(server: Server, _: Analyzer) -> str:
    scopes = server.number(_WRONG_TALLIES)
    return f"the counts of {scopes:,} scopes are wrong" if scopes else ""


def _wrong_terms(server: Server, analyzer: Analyzer) -> str:
    def terms(kind: str, title: str, text: str) -> TermCounts:
        return writer.terms(Record("", text, kind, title))

    writer = IndexWriter(analyzer)
    beside = " AND documents.scope = records.scope" if server.database.distributed else ""
    without = server.rows(_WITHOUT_TERMS.format(beside=beside), MOST_CHARACTERS, SAMPLE)
    missing = sum(bool(terms(*row).counts) for row in without)
    if missing:
        return f"{missing}{' or more' if missing == SAMPLE else ''} records are not in it"
    step = max(1, server.number(RECORD_COUNT) // SAMPLE)
    sample = server.rows(_SAMPLE_TERMS.format(beside=beside), step, MOST_CHARACTERS, SAMPLE)
    for key, length, *record, counts in sample:
        analysed = terms(*record)
        if length != analysed.length or (counts or {}) != analysed.counts:
            return f"the terms of the record {key} are wrong"
    stray = server.number(_STRAY_TERMS)
    if stray:
        return f"it has terms of {stray:,} records that were forgotten or belong to another scope"
    held, expected = server.row(_BLOCKS)
    return f"its blocks have {held:,} postings, and the records {expected:,}" if held != expected else ""


def _catch_up(url: str, reporter: Reporter) -> None:
    reporter.announce("analysing all records again")
    with contextlib.closing(PostgresStore(main_url(url))) as opened:
        opened.keywords.catch_up()


def _rebuild(url: str, reporter: Reporter) -> None:
    _write(url, "DELETE FROM meta WHERE key = 'keywords'")
    _catch_up(url, reporter)
    _recount(url, reporter)


def _recount(url: str, reporter: Reporter) -> None:
    reporter.announce("counting the records of each scope again")
    lock = "LOCK TABLE {locked}, tallies IN SHARE ROW EXCLUSIVE MODE"  # tallies that others add would be counted twice
    _write(url, lock, "DELETE FROM tallies", f"INSERT INTO tallies (scope, kind, records, length) {_SUMS}")


def _write(url: str, *statements: str) -> None:
    with contextlib.closing(PostgresStore(main_url(url))) as opened:
        database = opened._database  # noqa: SLF001  (same package)
        beside = " AND embeddings.scope = records.scope" if database.distributed else ""
        ready = [each.replace("{locked}", database.locked).replace("{beside}", beside) for each in statements]
        database.write(lambda connection: [connection.execute(statement) for statement in ready])


def vectors(server: Server, examination: Examination) -> Iterator[Finding]:
    """Check that every record has a vector of the configured model, and that tables and indexes are complete."""

    def missing(own: Space | None) -> int:
        return server.number(f"SELECT count(*) FROM vectors_{own[0]} WHERE vector IS NULL" if own else RECORD_COUNT)

    spaces: Any = server.rows("SELECT space, fingerprint, embedder FROM spaces ORDER BY space DESC")
    total, command, url = server.number(RECORD_COUNT), examination.fix_command, examination.place
    yield examination.vectors(spaces, server.meta("space"), total, missing)
    building = server.number(_INDEX_LOCKS, INDEX_LOCK)
    for space, embedder, valid in server.rows(_INDEXES):
        message = f"the approximate index of {embedder} is {'missing' if valid is None else 'invalid'}"
        if building:
            yield Finding("vectors", "note", f"{message}; it is being built")
            continue
        state: State = "note" if valid is None and total <= EXACT_UP_TO else "warning"
        message = f"{message}: a search that sees more than {EXACT_UP_TO:,} records compares them all"
        yield Finding("vectors", state, message, f"{command} builds it", partial(_build_index, url, space))
    for space, _, embedder in spaces:
        with contextlib.suppress(QueryTooSlow):
            beside = " AND records.scope = held.scope" if server.database.distributed else ""
            without, stray = server.row(_STRAY_VECTORS.format(space, beside))
            if without or stray:
                message = (
                    f"the vectors of {embedder} do not match the records:"
                    f" {without:,} records without a row, {stray:,} rows without a record"
                )
                fix = partial(_attach_vectors, url, space)
                yield Finding("vectors", "failure", message, f"{command} repairs that", fix)
    if server.database.distributed:  # in a cluster, vectors saved ahead look like orphans, so they are not reported
        return
    with contextlib.suppress(QueryTooSlow):
        if count := server.number(f"SELECT count(*) {_ORPHANS}"):  # a text can be recovered from its vector
            message = f"{count:,} vectors belong to no record"
            yield Finding("vectors", "note", message, f"{command} removes them", partial(_drop_orphans, url))


def _build_index(url: str, space: int, reporter: Reporter) -> None:
    reporter.announce("building the approximate index")
    index = f"vectors_{space}_near"
    invalid = f"SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('{index}') AND NOT indisvalid"
    _write(url, f"DO $$ BEGIN IF EXISTS ({invalid}) THEN DROP INDEX {index}; END IF; END $$")
    with contextlib.closing(PostgresStore(main_url(url))) as opened:
        opened.contents.finish(reporter.progress("indexing"))


def _attach_vectors(url: str, space: int, reporter: Reporter) -> None:
    reporter.announce("attaching vectors to their records")
    _write(
        url,
        "LOCK TABLE {locked} IN SHARE ROW EXCLUSIVE MODE",
        f"DELETE FROM vectors_{space} AS held WHERE NOT EXISTS (SELECT 1 FROM records"
        " WHERE records.row = held.row AND records.scope = held.scope AND forgotten_at IS NULL)",
        f"INSERT INTO vectors_{space} (row, scope, vector) SELECT row, records.scope, vector::halfvec FROM records"
        f" LEFT JOIN embeddings ON embeddings.passage = records.passage AND space = {space}{{beside}}"
        " WHERE forgotten_at IS NULL ON CONFLICT DO NOTHING",
    )


def _drop_orphans(url: str, reporter: Reporter) -> None:
    reporter.announce("removing vectors without a record")
    _write(url, f"SELECT drop_orphan(passage) FROM (SELECT DISTINCT passage {_ORPHANS}) AS orphans")
