"""Connections to one database: pools, snapshots and transactions in the name of a scope, and what errors mean."""

import contextlib
import functools
import logging
import os
import random
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown

from recollect.config import parameters, shown_place
from recollect.errors import StoreError, UsageError
from recollect.stores.database import Reading, SqlDatabase
from recollect.stores.rows import Condition, Dialect
from recollect.types import GLOBAL, Scope

Connection: TypeAlias = psycopg.Connection[TupleRow]
T = TypeVar("T")

WAIT_SECONDS = 30  # how long to wait for a free connection, and for a lock

MAX_CONNECTIONS = 16

CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

CONFLICTS = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.ExclusionViolation)
"""Errors that mean: another transaction was first. The transaction is tried again."""

_NOISE = re.compile(r"^connection (failed|is bad): |\s*Is the server running .*\?$")
"""What the driver adds before and after the server's text."""

CONNECTION_DEFAULTS = {  # parameters that apply unless the URL sets them
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
    "tcp_user_timeout": "40000", "application_name": "recollect", "client_encoding": "utf8",
}  # fmt: skip

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

_ESCAPE = "\x10"
_ESCAPED = re.compile(f"{_ESCAPE}([{_ESCAPE}0])")


DIALECT = Dialect(
    records="records JOIN scopes USING (scope)",
    in_scopes="records.scope IN (SELECT scope FROM scopes WHERE {})",
    tagged=lambda tags: ("tags @> %s::text[]", [list(tags)]),
    tag_facet="records, unnest(tags) AS tag WHERE {}",
    ends="right(path, length(%s)) = %s",
    like="LIKE",
    wildcards=str.maketrans({"*": "%", "\\": "\\\\", "%": "\\%", "_": "\\_"}),
    lock=" FOR UPDATE OF records",
)


class _TextDumper(StrDumperUnknown):
    """Writes NUL, which PostgreSQL's text type cannot hold, as two characters."""

    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or _ESCAPE in obj:
            obj = obj.replace(_ESCAPE, _ESCAPE * 2).replace("\0", f"{_ESCAPE}0")
        return obj.encode()


def unescaped(value: Any) -> Any:
    """What `_TextDumper` wrote, as it was: a string, or a list of strings."""
    if isinstance(value, list):
        return [unescaped(item) for item in value]
    if isinstance(value, str) and _ESCAPE in value:
        return _ESCAPED.sub(lambda match: "\0" if match[1] == "0" else _ESCAPE, value)
    return value


def _row(values: Sequence[Any]) -> TupleRow:
    for value in values:  # a loader in Python, called for each text, would take several times as long
        kind = value.__class__
        if (kind is str and _ESCAPE in value) or (kind is list and value):
            return tuple(map(unescaped, values))
    return tuple(values)


ADAPTERS = AdaptersMap(psycopg.adapters)  # how values travel: every string may hold every character
ADAPTERS.register_dumper(str, _TextDumper)


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
        explanation, hint = next(_explanations(error, message))
        raise StoreError(f"{address}{explanation}: {message}", hint=hint) from error


def _explanations(error: psycopg.Error, message: str) -> Iterator[tuple[str, str]]:
    table = files(__package__).joinpath("failures.toml").read_text(encoding="utf-8")
    for failure in tomllib.loads(table)["failure"]:
        kinds = tuple(getattr(pg, name) for name in failure.get("errors", ()))
        fits = isinstance(error, kinds) if kinds else error.sqlstate is None
        if fits and re.search(failure.get("text", ""), message, re.IGNORECASE):
            numbers = {"WAIT_SECONDS": WAIT_SECONDS, "MAX_CONNECTIONS": MAX_CONNECTIONS}
            yield f": {failure['explanation'].format(**numbers)}", failure["hint"].format(**numbers)
    if isinstance(error, CONNECTION_LOST):
        hint = "check that the server runs, and try again; a change that was not confirmed was not half-written"
        yield " cannot be reached", hint
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        hint = "postgresql://user@host/database; in a name or password write % @ / as %25 %40 %2F"
        yield " is not the address of a server", hint
    yield "", "`recollect doctor` may know more"


class ConnectionPool:
    """Connections to one server that are reused. Safe to use from many threads; it has no thread of its own.

    A new connection is made when none is idle, so that an error of the server is raised at once.
    """

    def __init__(self, url: str, prepare: str, address: str) -> None:
        self._address = address
        self._parameters: dict[str, Any] = {**CONNECTION_DEFAULTS, **conninfo_to_dict(url)}
        self._prepare = prepare
        self._idle: list[Connection] = []
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._closed = False

    @contextlib.contextmanager
    def transaction(self, begin: str) -> Iterator[Connection]:
        """A connection in a transaction that `begin` has started; committed at the end, rolled back on an error."""
        with self._begun((begin, ())) as (connection, _):
            yield connection
            if _run(connection, [("COMMIT", ())])[0].statusmessage != "COMMIT":
                raise psycopg.OperationalError("the server rolled the transaction back")

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement's result, in one round trip."""
        with self._begun((statement, values)) as (_, cursor):
            return cursor.fetchone()

    def at_once(self, statements: Sequence[Condition]) -> None:
        """Run statements in one transaction and one round trip."""
        with self._begun(*statements):
            pass

    def connect(self) -> Connection:
        """A new connection outside the pool and outside transactions."""
        connection = psycopg.connect(**self._parameters, autocommit=True, context=ADAPTERS, row_factory=lambda _: _row)
        try:
            connection.execute(self._prepare)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def _begun(self, *statements: Condition) -> Iterator[tuple[Connection, psycopg.Cursor[TupleRow]]]:
        if not self._slots.acquire(timeout=WAIT_SECONDS):
            message = f"{self._address}: all connections were in use for {WAIT_SECONDS} seconds"
            raise StoreError(message, hint="try again")
        try:
            connection, cursor = self._first(*statements)
            try:
                yield connection, cursor
            finally:
                self._return(connection)
        finally:
            self._slots.release()

    def _first(self, *statements: Condition) -> tuple[Connection, psycopg.Cursor[TupleRow]]:
        """An idle connection that was lost is replaced."""
        while True:
            try:
                connection, fresh = self._idle.pop(), False
            except IndexError:
                connection, fresh = self.connect(), True
            try:
                return connection, _run(connection, statements)[-1]
            except CONNECTION_LOST:
                connection.close()
                if fresh:
                    raise
            except BaseException:
                self._return(connection)
                raise

    def _return(self, connection: Connection) -> None:
        with contextlib.suppress(psycopg.Error):
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
            if connection.info.transaction_status == TransactionStatus.IDLE and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _run(connection: Connection, statements: Sequence[Condition]) -> list[psycopg.Cursor[TupleRow]]:
    """The results of statements, of which several go to the server at once."""
    with connection.pipeline() if len(statements) > 1 else contextlib.nullcontext():
        return [connection.execute(statement, values or None) for statement, values in statements]


@dataclass(slots=True)
class _Snapshot:
    """A read transaction that several reads use, and the scope that it acts as now."""

    stack: contextlib.ExitStack
    connection: Connection
    scope: Scope
    begun: float


class PostgresDatabase(SqlDatabase):
    """One PostgreSQL database, reached through pools. Safe to use from many threads."""

    dialect = DIALECT

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.url, own = _split(url)
        super().__init__(shown_place(url), read_only=read_only)
        self.schema = own.get("schema", "recollect")
        if not self.schema.replace("_", "a").isalnum() or not self.schema.isascii() or self.schema[0].isdigit():
            raise UsageError(f"{self.schema!r} is not a valid schema name", hint="use letters, digits and _")
        self._row_security: bool | None = None
        self._no_replica_until = 0.0
        with translated(self.address):
            self._main = ConnectionPool(self.url, self._prepare(), self.address)
            self._replica = ConnectionPool(own["read"], self._prepare(), self.address) if "read" in own else self._main
            self._main.one("SELECT 1")

    @contextlib.contextmanager
    def read(self, scope: Scope | None = None, *, replica: bool = False) -> Iterator[Connection]:
        """A read-only snapshot; row-level security shows it as that scope. With `replica` it may be a little old.

        Inside `reading` it is the shared one.
        """
        self.check()
        scope, replica = scope or GLOBAL, replica and self._replica is not self._main
        reading = self._reading or Reading(ended=True)
        with translated(self.address):
            try:
                with reading.lock:
                    yield from self._shared(reading, scope, replica=replica)
            finally:
                self._end_if_free(reading)

    def _shared(self, reading: Reading, scope: Scope, *, replica: bool) -> Iterator[Connection]:
        """Its snapshot, ended if the block fails; an old one is begun again."""
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
                snapshot.connection.execute(set_scope(scope))
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

    def write(self, work: Callable[[Connection], T], scope: Scope | None = None, *, notify: str = "") -> T:
        """Run `work` in one transaction; again if it conflicts with another. A channel may be told of the commit."""
        begin = f"{_BEGIN_WRITE}; {set_scope(scope)}"
        if notify:
            begin += f"; SELECT pg_notify('{notify}', '{self.schema}')"

        def attempt() -> T:
            with translated(self.address, CONFLICTS), self._main.transaction(begin) as connection:
                return work(connection)

        return self._written(attempt)

    def write_at_once(self, statements: Sequence[Condition]) -> None:
        """Run statements that return nothing, and that may run twice, in one transaction and one round trip."""

        def attempt() -> None:
            with translated(self.address, CONFLICTS):
                self._main.at_once(statements)

        self._written(attempt)

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
        if isinstance(failure, pg.UniqueViolation) and failure.diag.constraint_name == "records_id_key":
            # It exists at every attempt, but is not visible.
            hint = "leave the id out, or use another"
            raise UsageError("the id is taken by a record of another scope", hint=hint) from failure
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

    def row_security(self, connection: Connection) -> bool:
        """Whether row-level security applies to our role."""
        if self._row_security is None:
            row = connection.execute("SELECT row_security_active('records')").fetchone()
            self._row_security = bool(row and row[0])
        return self._row_security

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
        begin = f"{BEGIN_READ}; {set_scope(scope)}"
        if replica and time.monotonic() > self._no_replica_until:
            try:
                return stack.enter_context(self._replica.transaction(begin))
            except CONNECTION_LOST:
                self._no_replica_until = time.monotonic() + REPLICA_PAUSE_SECONDS
                _log.warning("the replica does not answer; using the main server for %.0f s", REPLICA_PAUSE_SECONDS)
        return stack.enter_context(self._main.transaction(begin))

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
