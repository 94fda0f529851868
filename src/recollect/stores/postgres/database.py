"""Connections to one database: pools, snapshots and transactions in the name of a scope, and what errors mean."""

import contextlib
import functools
import logging
import os
import random
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import psycopg
from psycopg import errors as pg
from psycopg import sql

from recollect.config import parameters, shown_place
from recollect.errors import NotContacted, StoreError, Unreachable, UsageError
from recollect.stores.database import Reading, SqlDatabase
from recollect.stores.postgres.connections import (
    ADAPTERS,
    CONNECTION_LOST,
    MAX_CONNECTIONS,
    WAIT_SECONDS,
    Connection,
    ConnectionPool,
    Cursors,
    hosts_of,
    run,
)
from recollect.stores.rows import Condition, Dialect
from recollect.types import GLOBAL, Filter, Scope

T = TypeVar("T")

CONFLICTS = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.ExclusionViolation)
"""Errors that mean: another transaction was first. The transaction is tried again."""

_NOISE = re.compile(r"^connection (failed|is bad): |\s*Is the server running .*\?$")
"""What the driver adds before and after the server's text."""

MAX_TRIES = 10
"""Attempts of a transaction that conflicts with others, and of a search that does with a change of the language."""

REPLICA_PAUSE_SECONDS = 30.0  # how long a replica that could not be reached is not used

MAX_SNAPSHOT_SECONDS = 20.0
"""A shared snapshot that is older is replaced: the server ends transactions that are idle for 60 s."""

OWN_PARAMETERS = ("read", "schema")  # parameters of the URL that are ours; the others are for libpq

BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Explicit because the server's default may differ: of two that add the same text, the second must see the first's."""

_log = logging.getLogger(__name__)
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # keeps its warnings off the terminal

DIALECT = Dialect(
    records="records JOIN scopes USING (scope)",
    in_scopes="records.scope IN (SELECT scope FROM scopes WHERE {})",
    tagged=lambda tags: ("tags @> %s::text[]", [list(tags)]),
    tag_facet="records, unnest(tags) AS tag WHERE {}",
    ends="right(path, length(%s)) = %s",
    like="LIKE",
    wildcards=str.maketrans({"*": "%", "\\": "\\\\", "%": "\\%", "_": "\\_"}),
    short='right(id, 8) COLLATE "C" >= %s AND right(id, 8) COLLATE "C" < %s',
    lock=" FOR UPDATE OF records",
)


@contextlib.contextmanager
def translated(address: str, but: tuple[type[psycopg.Error], ...] = ()) -> Iterator[None]:
    """Raise errors of the driver as StoreError, except those of `but`, which the caller handles."""
    try:
        yield
    except but:
        raise
    except psycopg.Error as error:
        message = _NOISE.sub("", " ".join(str(error).split()))[:300]
        if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None and '"' in message:
            # The quoted part of an address may be a password.
            harmless = "query parameter" in message and "@" not in message
            message = message if harmless else re.sub('".*"', "a part of it", message)
        kind, explanation, hint = _explain(error, message)
        raise kind(f"{address}{explanation}: {message}", hint=hint) from error


def _explain(error: psycopg.Error, message: str) -> tuple[type[StoreError], str, str]:
    """What an error of the driver means: ours, the words after the address, and what to do."""
    table = files(__package__).joinpath("failures.toml").read_text(encoding="utf-8")
    for failure in tomllib.loads(table)["failure"]:
        kinds = tuple(getattr(pg, name) for name in failure.get("errors", ()))
        fits = isinstance(error, kinds) if kinds else error.sqlstate is None
        if fits and re.search(failure.get("text", ""), message, re.IGNORECASE):
            numbers = {"WAIT_SECONDS": WAIT_SECONDS, "MAX_CONNECTIONS": MAX_CONNECTIONS}
            kind = Unreachable if failure.get("unreachable") else StoreError
            return kind, f": {failure['explanation'].format(**numbers)}", failure["hint"].format(**numbers)
    if isinstance(error, CONNECTION_LOST):
        hint = "check that the server runs, and try again; a change that was not confirmed was not half-written"
        return StoreError, " cannot be reached", hint
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        hint = "postgresql://user@host/database; in a name or password write % @ / as %25 %40 %2F"
        return StoreError, " is not the address of a server", hint
    return StoreError, "", "`recollect doctor` may know more"


@dataclass(slots=True)
class _Snapshot:
    """A read transaction that several reads use, and the scope that it acts as now."""

    stack: contextlib.ExitStack
    connection: Connection
    scope: Scope
    begun: float


def server_hosts(url: str) -> list[str]:
    """The hosts of the server and of its replica."""
    main, own = _split(url)
    urls = [main, *([own["read"]] if "read" in own else [])]
    with translated(shown_place(url)):
        return [host for each in urls for host in hosts_of(psycopg.conninfo.conninfo_to_dict(each))]


class PostgresDatabase(SqlDatabase):
    """One PostgreSQL database, reached through pools. Safe to use from many threads."""

    dialect: Dialect = DIALECT
    locked = "records"  # the table that every writer locks
    ids = "records"  # the table with the row and the scope of each id; locking its rows locks records
    TABLE_SIZE = "SELECT pg_total_relation_size(%s)"
    SIZE = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
        " WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'r'"
    )

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.url, own = _split(url)
        super().__init__(shown_place(url), read_only=read_only)
        self.schema = own.get("schema", "recollect")
        if not self.schema.replace("_", "a").isalnum() or not self.schema.isascii() or self.schema[0].isdigit():
            raise UsageError(f"{self.schema!r} is not a valid schema name", hint="use letters, digits and _")
        self._row_security: bool | None = None
        self._no_replica_until = 0.0
        self._whole: Connection | None = None
        with translated(self.address):
            self._main = ConnectionPool(self.url, self._prepare(), self.address)
            self._replica = ConnectionPool(own["read"], self._prepare(), self.address) if "read" in own else self._main
            (self.distributed,) = self._main.one("SELECT to_regclass(%s) IS NOT NULL", (f"{self.schema}.ids",))

    @contextlib.contextmanager
    def read(self, scope: Scope | None = None, *, replica: bool = False) -> Iterator[Connection]:
        """A read-only snapshot; row-level security shows it as that scope. With `replica` it may be a little old.

        Inside `reading` it is the shared one.
        """
        self.check()
        if self._whole is not None:
            yield self._whole
            return
        scope, replica = scope or GLOBAL, replica and self._replica is not self._main
        reading = self._reading or Reading(ended=True)
        with translated(self.address):
            try:
                with reading.lock:
                    yield from self._shared(reading, scope, replica=replica)
            finally:
                self._end_if_free(reading)

    def _shared(self, reading: Reading, scope: Scope, *, replica: bool) -> Iterator[Connection]:
        """The snapshot of a reading. An old one is replaced, and one whose block fails is ended."""
        snapshot: _Snapshot | None = reading.snapshots.get(replica)
        if snapshot is not None and not reading.depth and time.monotonic() - snapshot.begun > MAX_SNAPSHOT_SECONDS:
            self._end(reading)
            snapshot = None
        if snapshot is None:
            stack = contextlib.ExitStack()
            snapshot = _Snapshot(stack, self._begin(stack, scope, replica), scope, time.monotonic())
            reading.snapshots[replica] = snapshot
        reading.depth += 1
        failed = True
        try:
            if snapshot.scope != scope:
                run(snapshot.connection, self.naming(scope, snapshot.connection))
                snapshot.scope = scope
            yield snapshot.connection
            failed = False
        finally:
            reading.depth -= 1
            if failed:
                self._end(reading)

    def renew(self) -> None:
        """Inside `reading`: later reads see a new snapshot. The connection is returned until then."""
        if (reading := self._reading) is not None:
            with reading.lock:
                self._end(reading)

    def write(
        self,
        work: Callable[..., T],
        scope: Scope | None = None,
        *,
        first: Sequence[Condition] = (),
        notify: str = "",
    ) -> T:
        """Run `work` in one transaction; again if it conflicts with another.

        It gets the connection, and the results of the statements `first`, which are sent together with BEGIN. A channel
        may be notified of the commit. That is done after it: a commit that notifies holds a lock of the whole database
        while it waits for the disk, so no two writers could share a flush.
        """
        if self._whole is not None:
            if notify:
                self._whole.execute("SELECT pg_notify(%s, %s)", (notify, self.schema))
            return work(self._whole, *run(self._whole, first))
        # Not needed without row-level security.
        scope_statements = [] if self._row_security is False else self.naming(scope)
        begin: list[Condition] = [(_BEGIN_WRITE, ()), *scope_statements, *first]

        def attempt() -> T:
            then = [("SELECT pg_notify(%s, %s)", (notify, self.schema))] if notify else []
            with (
                translated(self.address, CONFLICTS),
                self._main.transaction(*begin, then=then) as (connection, cursors),
            ):
                return work(connection, *cursors[len(begin) - len(first) :])

        return self._written(attempt)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let the reads and writes of the block be one transaction. Others read what was there, and write after it.

        Only one thread may use the database meanwhile.
        """
        lock = f"LOCK {self.locked} IN EXCLUSIVE MODE"
        begin = (_BEGIN_WRITE, "SET LOCAL idle_in_transaction_session_timeout TO 0", lock)
        with translated(self.address), self._main.transaction(*((each, ()) for each in begin)) as (connection, _):
            self._whole = connection
            try:
                yield
            finally:
                self._whole = None

    @property
    def is_at_once(self) -> bool:
        """Whether a block of `at_once` has begun."""
        return self._whole is not None

    def write_at_once(self, statements: Sequence[Condition], then: Sequence[Condition] | None = None) -> Cursors:
        """The results of statements that may run twice, in one transaction and one round trip.

        The statements of `then` follow the commit, as the notification of `write` does.
        """
        begin: list[Condition] = [] if then is None else [(_BEGIN_WRITE, ())]

        def attempt() -> Cursors:
            with translated(self.address, CONFLICTS):
                return self._main.at_once([*begin, *statements], then)

        return self._written(attempt)

    def _written(self, attempt: Callable[[], T]) -> T:
        self.check()
        if self.read_only:
            raise StoreError(f"{self.address} was opened read only", hint="open it without read_only")
        self.renew()  # reads that follow see what is written, and no connection is held while waiting for another
        failure: psycopg.Error | None = None
        for number in range(MAX_TRIES):
            if number:
                time.sleep(random.uniform(0, 0.005 * 2**number))  # noqa: S311  (not a secret)
            try:
                return attempt()
            except CONFLICTS as error:
                failure = error
        raise StoreError(f"{self.address}: too many writers at once", hint="try again") from failure

    transact = write

    def try_write(self, work: Callable[[Connection], None], scope: Scope | None = None) -> None:
        if not self.read_only:
            with contextlib.suppress(StoreError):
                self.write(work, scope)

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        self.check()
        if self._reading is not None:
            with self.read() as connection:
                return connection.execute(statement, values or None).fetchone()
        with translated(self.address):
            return self._main.one(statement, values)

    def row_security(self, connection: Connection | None = None) -> bool:
        """Whether row-level security applies to our role."""
        if self._row_security is None:
            active = "SELECT row_security_active('records')"
            row = connection.execute(active).fetchone() if connection else self.one(active)
            self._row_security = bool(row and row[0])
        return self._row_security

    def naming(self, scope: Scope | None, connection: Connection | None = None) -> list[Condition]:  # noqa: ARG002
        """Statements that name the scope of a transaction; its connection, if it has begun."""
        return [(set_scope(scope), ())]

    def with_scope_numbers(self, where: Filter) -> Filter:
        """A filter that knows the numbers of its scopes, where statements must name them."""
        return where

    def close(self) -> None:
        if not self._closed and self._pid == os.getpid():
            self._closed = True
            for pool in (self._main, self._replica):
                pool.close()

    def connect(self) -> Connection:
        """A connection outside the pool and outside transactions, for LISTEN and for maintenance."""
        self.check()
        with translated(self.address):
            return self._main.connect()

    def _end(self, reading: Reading) -> None:
        while reading.snapshots and not reading.depth:
            with contextlib.suppress(psycopg.Error):  # nothing was written
                reading.snapshots.popitem()[1].stack.close()

    def _begin(self, stack: contextlib.ExitStack, scope: Scope | None, replica: bool) -> Connection:
        """Begin a snapshot on the replica if it answers, else on the main server; then the replica pauses."""
        begin = (f"{BEGIN_READ}; {set_scope(scope)}", ())
        if replica and time.monotonic() > self._no_replica_until:
            try:
                return stack.enter_context(self._replica.transaction(begin))[0]
            except (*CONNECTION_LOST, NotContacted):
                self._no_replica_until = time.monotonic() + REPLICA_PAUSE_SECONDS
                _log.warning("the replica does not answer; using the main server for %.0f s", REPLICA_PAUSE_SECONDS)
        return stack.enter_context(self._main.transaction(begin))[0]

    def _prepare(self) -> str:
        return (
            f"SET lock_timeout TO '{WAIT_SECONDS}s'; SET idle_in_transaction_session_timeout TO '60s';"
            " SET client_min_messages TO warning; SELECT set_config('search_path', concat_ws(', ',"
            f" '{self.schema}', 'public', (SELECT quote_ident(nspname) FROM pg_extension"
            " JOIN pg_namespace ON pg_namespace.oid = extnamespace"
            " WHERE extname = 'vector' AND nspname <> 'public')), false)"
        )


@functools.lru_cache(maxsize=1_000)
def set_scope(scope: Scope | None) -> str:
    """The statement that names the transaction's scope to row-level security; without a scope it names none."""
    caller = scope or GLOBAL
    parts = {"user": caller.user, "agent": caller.agent, "session": caller.session}
    parts["scope"] = caller.key  # for rows that belong to exactly this scope
    values = (
        f"set_config('recollect.{part}', {sql.Literal(value or '').as_string(ADAPTERS)}, true)"
        for part, value in parts.items()
    )
    return f"SELECT {', '.join(values)}"


def _split(url: str) -> tuple[str, Mapping[str, str]]:
    """The URL for libpq, and our own parameters."""
    try:
        urlsplit(url)
    except ValueError as error:
        raise UsageError(f"not the address of a server: {error}", hint="postgresql://user@host/database") from error
    pairs = parameters(url)
    others = urlencode([pair for pair in pairs if pair[0] not in OWN_PARAMETERS], quote_via=quote)
    address = url.partition("?")[0]
    own = {name: value for name, value in pairs if name in OWN_PARAMETERS}
    return f"{address}?{others}" if others else address, own
