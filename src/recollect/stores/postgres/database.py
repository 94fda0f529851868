"""Connections that are used again. A new one is made when none is idle, so that a server's error is told at once."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from recollect.config import parameters, shown_place
from recollect.errors import StoreError, UsageError
from recollect.stores.postgres.failures import AGAIN, LOST, MOST_CONNECTIONS, WAIT_SECONDS, NoTurn, busy, translated
from recollect.types import Scope

Connection: TypeAlias = psycopg.Connection[TupleRow]

PATIENCE = {
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
    "tcp_user_timeout": "40000", "application_name": "recollect", "client_encoding": "utf8",
}  # fmt: skip
"""How long a server may be silent, and how texts are written, where the URL does not say."""

logging.getLogger("psycopg").addHandler(logging.NullHandler())
"""What the driver says beside its errors is for who asks for it, not for the terminal."""


class Pool:
    """Connections to one server. Safe to use from many threads; none runs in the background."""

    def __init__(self, place: str, prepare: str) -> None:
        self._place: dict[str, Any] = {**PATIENCE, **conninfo_to_dict(place)}
        self._prepare = prepare
        self._idle: list[Connection] = []
        self._turns = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._closed = False

    @contextlib.contextmanager
    def transaction(self, begin: str) -> Iterator[Connection]:
        """A connection in a transaction that was begun with these words: committed at the end, or undone."""
        with self._turn():
            connection, _ = self._first(begin)
            try:
                yield connection
                if connection.execute("COMMIT").statusmessage != "COMMIT":
                    raise psycopg.OperationalError("the transaction was undone by the server")
            finally:
                self._give(connection)

    def glance(self, sql: str) -> Any:
        """The first row that one statement finds, in one round trip."""
        with self._turn():
            connection, cursor = self._first(sql)
            try:
                return cursor.fetchone()
            finally:
                self._give(connection)

    def connect(self) -> Connection:
        """A connection of one's own, outside transactions."""
        connection = psycopg.connect(**self._place, autocommit=True)
        try:
            connection.execute(self._prepare)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close what is idle, and the rest when it is given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=WAIT_SECONDS):
            raise NoTurn
        try:
            yield
        finally:
            self._turns.release()

    def _first(self, sql: str) -> tuple[Connection, psycopg.Cursor[TupleRow]]:
        """A connection, and what it answered to the first words. Where an idle one was lost, another is taken."""
        while True:
            try:
                connection, fresh = self._idle.pop(), False
            except IndexError:
                connection, fresh = self.connect(), True
            try:
                return connection, connection.execute(sql)
            except LOST:
                connection.close()
                if fresh:
                    raise
            except BaseException:
                self._give(connection)
                raise

    def _give(self, connection: Connection) -> None:
        """Back to the others, if it is as it was; a transaction that is still open is undone."""
        with contextlib.suppress(psycopg.Error):
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
            if connection.info.transaction_status == TransactionStatus.IDLE and not self._closed:
                self._idle.append(connection)
                return
        connection.close()


__all__ = ["Connection", "Database"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

TRIES = 10
"""Of a transaction that met another one: deadlocks and races are mended by trying again."""

REST_SECONDS = 30.0
"""For a replica that could not be reached."""

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Said, since a server may be set otherwise: of two who add the same text the second must see the first's."""

OURS = ("read", "schema")
"""What a URL may say to us; the rest is for PostgreSQL's own library."""


class Database:
    """One PostgreSQL database, reached through pools. Safe to use from many threads."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.place, said = _split(url)
        self.shown = shown_place(url)
        self.read_only = read_only
        self.schema = said.get("schema", "recollect")
        if not self.schema.replace("_", "a").isalnum() or not self.schema.isascii() or self.schema[0].isdigit():
            raise UsageError(f"{self.schema!r} cannot be the name of a schema", hint="letters, digits and _")
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._walled: bool | None = None
        self._replica_rests_until = 0.0
        with translated(self.shown):
            self._main = Pool(self.place, self._prepare())
            self._replica = Pool(said["read"], self._prepare()) if "read" in said else self._main
            self._main.glance("SELECT 1")

    @contextlib.contextmanager
    def read(self, scope: Scope | None = None, *, replica: bool = False) -> Iterator[Connection]:
        """A snapshot to read in; with row-level security, seen as that scope. A `replica` may lag behind."""
        self.check()
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_named(scope)}"
        with translated(self.shown), contextlib.ExitStack() as stack:
            yield self._snapshot(stack, begin, replica and self._replica is not self._main)

    def write(self, work: Callable[[Connection], T], scope: Scope | None = None) -> T:
        """Do work in one transaction: all of it holds, or none. It is tried again where another was first."""
        self.check()
        if self.read_only:
            raise StoreError(f"{self.shown} was opened to be read only", hint="open it without read_only")
        for turn in range(TRIES):
            try:
                with translated(self.shown, AGAIN), self._main.transaction(f"{_BEGIN}; {_named(scope)}") as connection:
                    return work(connection)
            except AGAIN as error:
                if turn == TRIES - 1:
                    raise _taken(error) or busy(self.shown) from error
                time.sleep(random.uniform(0, 0.01 * 2**turn))  # noqa: S311  (no secret, only out of step)
        raise busy(self.shown)

    def glance(self, statement: str) -> Any:
        """The first row that a statement finds, as things stand now."""
        self.check()
        with translated(self.shown):
            return self._main.glance(statement)

    @staticmethod
    def be(connection: Connection, scope: Scope | None) -> None:
        """Whose the transaction is from here on."""
        connection.execute(_named(scope))

    def walled(self, connection: Connection) -> bool:
        """Whether row-level security holds for the role that we are."""
        if self._walled is None:
            found = connection.execute("SELECT row_security_active('records')").fetchone()
            self._walled = bool(found and found[0])
        return self._walled

    def check(self) -> None:
        """Refuse use after closing, and in a process that did not open it."""
        if self._closed:
            raise StoreError(f"{self.shown} has been closed", hint="open it again with Memory.open(…)")
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.shown} was opened by another process",
                hint="a connection does not survive a fork: call Memory.open(…) in the child",
            )

    def close(self) -> None:
        """Give the connections back; closing twice is harmless."""
        with self._lock:
            if not self._closed and self._pid == os.getpid():
                self._closed = True
                for pool in (self._main, self._replica):
                    pool.close()

    def alone(self) -> Connection:
        """A connection of one's own, outside the pool and outside transactions: for LISTEN."""
        self.check()
        with translated(self.shown):
            return self._main.connect()

    def _snapshot(self, stack: contextlib.ExitStack, begin: str, replica: bool) -> Connection:
        """On the replica, if that answers; if not, on the main server, and the replica is left alone for a while."""
        if replica and time.monotonic() > self._replica_rests_until:
            try:
                return stack.enter_context(self._replica.transaction(begin))
            except LOST:
                self._replica_rests_until = time.monotonic() + REST_SECONDS
                _log.warning("the replica does not answer: searches go to the main server for %.0f s", REST_SECONDS)
        return stack.enter_context(self._main.transaction(begin))

    def _prepare(self) -> str:
        """What every connection is told first."""
        return (
            f"SET lock_timeout TO '{WAIT_SECONDS}s'; SET idle_in_transaction_session_timeout TO '60s';"
            " SET client_min_messages TO warning; SELECT set_config('search_path', concat_ws(', ',"
            f" '{self.schema}', 'public', (SELECT quote_ident(nspname) FROM pg_extension"
            " JOIN pg_namespace ON pg_namespace.oid = extnamespace"
            " WHERE extname = 'vector' AND nspname <> 'public')), false)"
        )


def _named(scope: Scope | None) -> str:
    """Whose transaction it is, for row-level security; nobody's where no scope is given."""
    said = scope or Scope()
    parts = {"user": said.user, "agent": said.agent, "session": said.session}
    parts["scope"] = said.key  # all parts at once, for what belongs to this scope and to no wider one
    values = (f"set_config('recollect.{part}', {literal(value or '')}, true)" for part, value in parts.items())
    return f"SELECT {', '.join(values)}"


_SIGN = "\x10"
_WRITTEN = re.compile(f"{_SIGN}([{_SIGN}0])")


def text(value: Any) -> Any:
    """A text as PostgreSQL can hold it; None stays None."""
    if value is None or ("\0" not in value and _SIGN not in value):
        return value
    return value.replace(_SIGN, _SIGN * 2).replace("\0", f"{_SIGN}0")


def plain(value: Any) -> Any:
    """A text as it was."""
    return _WRITTEN.sub(lambda found: "\0" if found[1] == "0" else _SIGN, value) if value and _SIGN in value else value


def literal(value: str) -> str:
    """A text inside a statement."""
    return sql.Literal(text(value)).as_string(None)


def _taken(error: psycopg.Error) -> UsageError | None:
    """An id that is there whenever it is put, though it is not seen, is somebody else's."""
    if isinstance(error, pg.UniqueViolation) and error.diag.constraint_name == "records_id_key":
        return UsageError("the id is taken by a record of another scope", hint="leave the id out, or use another")
    return None


def _split(url: str) -> tuple[str, Mapping[str, str]]:
    """The URL for PostgreSQL's library, and what it says to us."""
    try:
        urlsplit(url)
    except ValueError as error:
        raise UsageError(f"not the address of a server: {error}", hint="postgresql://user@host/database") from error
    pairs = parameters(url)
    theirs = urlencode([pair for pair in pairs if pair[0] not in OURS], quote_via=quote)
    place = url.partition("?")[0]
    return f"{place}?{theirs}" if theirs else place, {name: value for name, value in pairs if name in OURS}
