"""Looks into a store in PostgreSQL: transactions that only read, and no question that takes long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from recollect.config import parameters, shown_place
from recollect.doctor.looking import LONGEST_S
from recollect.registry import missing_package

if TYPE_CHECKING:
    from recollect.stores.postgres.database import Database

WAIT_S = 5
"""For a server that does not answer, where the URL does not say."""


class TooLong(Exception):
    """A question takes longer than anybody should wait for."""


@dataclass(frozen=True, slots=True)
class Server:
    """A store in PostgreSQL that can be reached."""

    database: Database
    shown: str

    def rows(self, sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """What a question finds, in a moment of its own."""
        from psycopg.errors import QueryCanceled

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
    try:
        from recollect.stores.postgres.database import Database
    except ImportError as error:
        raise missing_package(error, "a store in PostgreSQL", "postgres") from error
    main = main_of(url)
    database = Database(_told(main, connect_timeout=str(WAIT_S)), read_only=True)
    try:
        yield Server(database, shown_place(main))
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
