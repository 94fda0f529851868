"""Connections that are used again. A new one is made when none is idle, so that a server's error is told at once."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

Connection: TypeAlias = psycopg.Connection[TupleRow]

WAIT_SECONDS = 30
"""For a turn, and for a lock."""

MOST_CONNECTIONS = 16

PATIENCE = {
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3",
    "tcp_user_timeout": "40000", "application_name": "recollect", "client_encoding": "utf8",
}  # fmt: skip
"""How long a server may be silent, and how texts are written, where the URL does not say."""

logging.getLogger("psycopg").addHandler(logging.NullHandler())
"""What the driver says beside its errors is for who asks for it, not for the terminal."""

LOST = (psycopg.OperationalError, psycopg.InterfaceError)


class NoTurn(Exception):
    """All connections are in use, and none was given back in time."""


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
