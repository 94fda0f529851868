"""Connections: a pool for writing, another for reading where replicas are named, and every error in our words."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from recollect.errors import StoreError, UsageError
from recollect.types import Scope

Connection: TypeAlias = psycopg.Connection[TupleRow]
T = TypeVar("T")

CONNECT_SECONDS = 10
WAIT_SECONDS = 30.0
"""For a connection of the pool, and for a lock."""

MOST_CONNECTIONS = 16
TRIES = 8
"""Of a transaction that met another one: deadlocks and races are mended by trying again."""

AGAIN = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)
"""What another transaction's being first looks like."""

OURS = ("read", "schema")
"""What a URL may say to us; the rest is for PostgreSQL's own library."""


class Database:
    """One PostgreSQL database, reached through pools. Safe to use from many threads."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.place, said = _split(url)
        self.shown = _shown(self.place)
        self.read_only = read_only
        self.schema = said.get("schema", "recollect")
        if not self.schema.replace("_", "a").isalnum() or not self.schema.isascii():
            raise UsageError(f"{self.schema!r} cannot be the name of a schema", hint="letters, digits and _")
        self._closed = False
        self._writers = self._pool(self.place)
        self._readers = self._pool(said["read"]) if "read" in said else self._writers
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def read(self, scope: Scope | None = None) -> Iterator[Connection]:
        """A snapshot to read in, from a replica where there is one; with row-level security, seen as that scope."""
        with self._connection(self._readers) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _be(connection, scope)
            yield connection

    def write(self, work: Callable[[Connection], T], scope: Scope | None = None) -> T:
        """Do work in one transaction: all of it holds, or none. It is tried again where another was first."""
        if self.read_only:
            raise StoreError(f"{self.shown} was opened to be read only", hint="open it without read_only")
        for turn in range(TRIES):
            try:
                with self._connection(self._writers) as connection, connection.transaction():
                    _be(connection, scope)
                    return work(connection)
            except AGAIN:
                if turn == TRIES - 1:
                    raise _busy(self.shown) from None
                time.sleep(random.uniform(0, 0.01 * 2**turn))  # noqa: S311  (no secret, only out of step)
        raise _busy(self.shown)

    @staticmethod
    def be(connection: Connection, scope: Scope | None) -> None:
        """Whose the transaction is from here on."""
        _be(connection, scope)

    def check(self) -> None:
        """Refuse use after closing."""
        if self._closed:
            raise StoreError(f"{self.shown} has been closed", hint="open it again with Memory.open(…)")

    def close(self) -> None:
        """Give the connections back; closing twice is harmless."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for pool in {self._writers, self._readers}:
                    pool.close(timeout=2)

    def alone(self) -> psycopg.Connection[TupleRow]:
        """A connection of one's own, outside the pool and outside transactions: for LISTEN."""
        with translated(self.shown):
            return psycopg.connect(self.place, autocommit=True, connect_timeout=CONNECT_SECONDS)

    @contextlib.contextmanager
    def _connection(self, pool: ConnectionPool[Connection]) -> Iterator[Connection]:
        self.check()
        with translated(self.shown), pool.connection() as connection:
            yield connection

    def _pool(self, place: str) -> ConnectionPool[Connection]:
        """A pool that has been seen to work: the first connection is made here, so that its error is told at once."""
        with translated(_shown(place)):
            psycopg.connect(place, connect_timeout=CONNECT_SECONDS).close()
        return ConnectionPool(
            place, min_size=1, max_size=MOST_CONNECTIONS, timeout=WAIT_SECONDS, open=True, configure=self._prepare,
            check=ConnectionPool.check_connection, kwargs={"connect_timeout": CONNECT_SECONDS}, name="recollect",
        )  # fmt: skip

    def _prepare(self, connection: Connection) -> None:
        connection.execute(f"SET search_path TO {self.schema}, public")
        connection.execute(f"SET lock_timeout TO '{int(WAIT_SECONDS)}s'")
        connection.execute("SET idle_in_transaction_session_timeout TO '60s'")
        connection.commit()


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    """PostgreSQL's errors in our words: what happened, where, and what to do."""
    try:
        yield
    except AGAIN:
        raise
    except (psycopg.Error, PoolTimeout) as error:
        raise _explained(place, error) from error


def _explained(place: str, error: Exception) -> StoreError:
    said = " ".join(str(error).split())[:300]
    for kinds, words, hint in _MEANINGS:
        if isinstance(error, kinds):
            return StoreError(f"{place}: {words}: {said}", hint=hint)
    lowered = said.lower()
    for sign, words, hint in _SIGNS:
        if sign in lowered:
            return StoreError(f"{place}: {words}: {said}", hint=hint)
    if isinstance(error, psycopg.OperationalError | PoolTimeout | pg.AdminShutdown):
        hint = "nothing was half-written; try again, and check that the server runs"
        return StoreError(f"{place} cannot be reached: {said}", hint=hint)
    return StoreError(f"{place}: {said}", hint="`recollect doctor` may know more")


_MEANINGS: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    ((pg.InvalidPassword, pg.InvalidAuthorizationSpecification), "the name or password is wrong",
     "check the URL, or PGPASSWORD and ~/.pgpass"),
    ((pg.InvalidCatalogName,), "there is no such database", "createdb NAME, or check the URL"),
    ((pg.ReadOnlySqlTransaction,), "it may only be read here",
     "a replica was named where the main server must be: put replicas into ?read=…"),
    ((pg.InsufficientPrivilege,), "this role may not do that", "docs/postgresql.md has the grants that it needs"),
    ((pg.DiskFull,), "its disk is full", "make room on the server; nothing was half-written"),
    ((pg.LockNotAvailable,), "it is busy", "try again"),
    ((pg.TooManyConnections,), "it has no connection left", "raise max_connections, or use fewer processes"),
)  # fmt: skip

_SIGNS = (
    ("password authentication failed", "the name or password is wrong", "check the URL, or PGPASSWORD and ~/.pgpass"),
    ("no password supplied", "a password is needed", "put it into PGPASSWORD or ~/.pgpass"),
    ("does not exist", "something named there does not exist", "check the URL"),
    ("no space left", "its disk is full", "make room on the server; nothing was half-written"),
)


def _busy(place: str) -> StoreError:
    return StoreError(f"{place} is being written to by many at once", hint="try again")


def _be(connection: Connection, scope: Scope | None) -> None:
    """Whose transaction it is, for row-level security; nobody's where no scope is given."""
    parts = {"user": None, "agent": None, "session": None} | (scope.as_dict() if scope else {})
    connection.execute(
        "SELECT set_config('recollect.user', %s, true), set_config('recollect.agent', %s, true),"
        " set_config('recollect.session', %s, true)",
        [parts["user"] or "", parts["agent"] or "", parts["session"] or ""],
    )


def _split(url: str) -> tuple[str, Mapping[str, str]]:
    """The URL for PostgreSQL's library, and what it says to us."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    theirs = urlencode([pair for pair in pairs if pair[0] not in OURS], quote_via=quote)
    return urlunsplit(parts._replace(query=theirs)), {name: value for name, value in pairs if name in OURS}


def _shown(url: str) -> str:
    """The place without its password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username
    return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host, query=""))
