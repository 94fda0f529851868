"""Connections to one server: how values travel, a pool, statements in one round trip, and the commit."""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown

from recollect.errors import Offline, StoreError
from recollect.network.addresses import GO_ONLINE, check_host, offline
from recollect.network.calls import record
from recollect.stores.rows import Condition

Connection: TypeAlias = psycopg.Connection[TupleRow]
Cursors: TypeAlias = Sequence[psycopg.Cursor[TupleRow]]

WAIT_SECONDS = 30  # how long to wait for a free connection, and for a lock

MAX_CONNECTIONS = 16

PURPOSE = "store"  # of connections, where calls are counted

CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

CONNECTION_DEFAULTS = {  # parameters that apply unless the URL sets them
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
    "tcp_user_timeout": "40000", "application_name": "recollect", "client_encoding": "utf8",
}  # fmt: skip

_log = logging.getLogger(__name__)

_ESCAPE = "\x10"
_ESCAPED = re.compile(f"{_ESCAPE}([{_ESCAPE}0])")


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


def hosts_of(parameters: Mapping[str, Any]) -> list[str]:
    """The servers that these parameters and the environment name; none for a socket of this machine.

    A service file may name any server, and only the driver reads it: while offline it is refused.
    """
    around = os.environ.get
    values = (parameters.get("hostaddr"), around("PGHOSTADDR"), parameters.get("host"), around("PGHOST"))
    named = next((str(value) for value in values if value), "")
    service = parameters.get("service") or around("PGSERVICE")
    if not named and service and offline():
        message = f"offline: the service {service!r} may be on another machine, and is not contacted ({PURPOSE})"
        raise Offline(message, hint=f"name the host in the URL; or {GO_ONLINE}")
    return [host for host in named.split(",") if host and not host.startswith(("/", "@"))]


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
    def transaction(self, *begin: Condition, then: Sequence[Condition] = ()) -> Iterator[tuple[Connection, Cursors]]:
        """A connection in a transaction that `begin` has started, with the results of these statements.

        It is committed at the end, rolled back on an error. The statements of `then` follow the commit.
        """
        with self._begun(*begin) as (connection, cursors):
            yield connection, cursors
            _commit(connection, (), then)

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement's result, in one round trip."""
        with self._begun((statement, values)) as (_, (cursor,)):
            return cursor.fetchone()

    def at_once(self, statements: Sequence[Condition], then: Sequence[Condition] | None = None) -> Cursors:
        """The results of statements, in one transaction and one round trip. Other statements may follow the commit."""
        with self._begun(*statements, then=then) as (_, cursors):
            return cursors

    def connect(self) -> Connection:
        """A new connection outside the pool and outside transactions."""
        for host in hosts_of(self._parameters):
            check_host(host, PURPOSE)
        connection = psycopg.connect(**self._parameters, autocommit=True, context=ADAPTERS, row_factory=lambda _: _row)
        try:
            connection.execute(self._prepare)
        except BaseException:
            connection.close()
            raise
        if connection.info.host and not connection.info.host.startswith(("/", "@")):
            record(connection.info.host, PURPOSE, calls=1, sent=None, received=None)
        return connection

    def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def _begun(
        self, *statements: Condition, then: Sequence[Condition] | None = None
    ) -> Iterator[tuple[Connection, Cursors]]:
        if not self._slots.acquire(timeout=WAIT_SECONDS):
            message = f"{self._address}: all connections were in use for {WAIT_SECONDS} seconds"
            raise StoreError(message, hint="try again")
        try:
            connection, cursors = self._first(statements, then)
            try:
                yield connection, cursors
            finally:
                self._return(connection)
        finally:
            self._slots.release()

    def _first(self, statements: Sequence[Condition], then: Sequence[Condition] | None) -> tuple[Connection, Cursors]:
        """An idle connection that was lost is replaced."""
        while True:
            try:
                connection, fresh = self._idle.pop(), False
            except IndexError:
                connection, fresh = self.connect(), True
            try:
                return connection, run(connection, statements, then)
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


def integer(connection: Connection, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> int:
    """The number that a statement selects; 0 where it selects none."""
    row = connection.execute(statement, values or None).fetchone()
    return int(row[0] or 0) if row else 0


def copy_rows(
    connection: Connection, into: str, rows: Iterable[Sequence[Any]], types: Sequence[str] | None = None
) -> None:
    """Write rows with COPY; `into` is a table with its columns. With their `types`, values travel in binary form."""
    with connection.cursor().copy(f"COPY {into} FROM STDIN{' (FORMAT BINARY)' if types else ''}") as copy:
        if types:
            copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def run(connection: Connection, statements: Sequence[Condition], then: Sequence[Condition] | None = None) -> Cursors:
    """The results of statements, of which several go to the server at once; with `then` they are committed."""
    if then is not None:
        return _commit(connection, statements, then)
    with connection.pipeline() if len(statements) > 1 else contextlib.nullcontext():
        return _executed(connection, statements)


def _executed(connection: Connection, statements: Sequence[Condition]) -> Cursors:
    return [connection.execute(statement, values or None) for statement, values in statements]


def _commit(connection: Connection, statements: Sequence[Condition], then: Sequence[Condition]) -> Cursors:
    """Run statements, commit, and run other statements after that in the same round trip.

    Those are in no transaction with what is committed, so none of their locks is held while the disk is written. What
    is committed stays if one of them fails.
    """
    commit, cursors = connection.cursor(), list[psycopg.Cursor[TupleRow]]()
    try:
        with connection.pipeline() if statements or then else contextlib.nullcontext():
            cursors += _executed(connection, statements)
            commit.execute("COMMIT")
            _executed(connection, then)
    except psycopg.Error as error:
        if commit.statusmessage != "COMMIT":
            raise
        _log.warning("committed, but other processes were not told: %s", error)
    if commit.statusmessage != "COMMIT":
        raise psycopg.OperationalError("the server rolled the transaction back")
    return cursors
