"""PostgreSQL's errors in our words: what happened, where, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
from psycopg import errors as pg

from recollect.errors import StoreError
from recollect.stores.postgres.pool import WAIT_SECONDS, NoTurn

AGAIN = (
    pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.ExclusionViolation,
)  # fmt: skip
"""What another transaction's being first looks like."""

_NAME = "check the URL, or PGPASSWORD and ~/.pgpass"
_GRANTS = "docs/postgresql.md has the grants that it needs; tables are made by their owner, who opens the store first"
_ROOM = "make room on the server and try again; nothing was half-written"
_AGAIN = "try again; what was not acknowledged was not half-written"

_MEANINGS: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    (AGAIN, "another was in the way", "try again"),
    ((pg.InvalidPassword, pg.InvalidAuthorizationSpecification), "the name or password is wrong", _NAME),
    ((pg.InvalidCatalogName,), "there is no such database", "createdb NAME, or check the URL"),
    ((pg.ReadOnlySqlTransaction,), "it may only be read here",
     "a replica was named where the main server must be: put replicas into ?read=…"),
    ((pg.InsufficientPrivilege,), "this role may not do that", _GRANTS),
    ((pg.DiskFull,), "its disk is full", _ROOM),
    ((pg.OutOfMemory, pg.ConfigurationLimitExceeded), "it has no memory left", _AGAIN),
    ((pg.LockNotAvailable,), f"somebody has held a lock for {WAIT_SECONDS} seconds", "try again"),
    ((pg.QueryCanceled,), "it took longer than the server allows", "raise statement_timeout, or try again"),
    ((pg.TooManyConnections,), "it has no connection left", "raise max_connections, or use fewer processes"),
    ((pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName), "the store's tables are not there",
     "open the store again: what is missing is made when it is opened by a role that may"),
    ((pg.ProgramLimitExceeded,), "something is longer than PostgreSQL can index",
     "ids, tags and the names of a scope can have up to 2,000 letters"),
    ((pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.IdleInTransactionSessionTimeout),
     "the server ended the connection", _AGAIN),
)  # fmt: skip

_SIGNS = (
    ("closed the connection", "the server ended the connection", _AGAIN),
    ("connection is lost", "the server ended the connection", _AGAIN),
    ("the connection is closed", "the server ended the connection", _AGAIN),
    ("password authentication failed", "the name or password is wrong", _NAME),
    ("no password supplied", "a password is needed", "put it into PGPASSWORD or ~/.pgpass"),
    ("pg_hba.conf", "the server lets nobody in from here by that name", "see pg_hba.conf on the server"),
    ("too many connections", "it has no connection left", "raise max_connections, or use fewer processes"),
    ("too many clients", "it has no connection left", "raise max_connections, or use fewer processes"),
    ("remaining connection slots", "it has no connection left", "raise max_connections, or use fewer processes"),
    ('role "', "there is no such role", "CREATE ROLE …, or check the URL"),
    ('database "', "there is no such database", "createdb NAME, or check the URL"),
    ("no space left", "its disk is full", _ROOM),
)


@contextlib.contextmanager
def translated(place: str, but: tuple[type[psycopg.Error], ...] = ()) -> Iterator[None]:
    """Turn the driver's errors into ours; those that somebody else mends pass."""
    try:
        yield
    except but:
        raise
    except NoTurn as error:
        raise StoreError(
            f"{place}: all connections were in use for {WAIT_SECONDS} seconds", hint="try again"
        ) from error
    except psycopg.Error as error:
        raise _explained(place, error) from error


def busy(place: str) -> StoreError:
    """Others were first again and again."""
    return StoreError(f"{place} is being written to by many at once", hint="try again")


def _explained(place: str, error: psycopg.Error) -> StoreError:
    said = " ".join(str(error).split())[:300]
    for kinds, words, hint in _MEANINGS:
        if isinstance(error, kinds):
            return StoreError(f"{place}: {words}: {said}", hint=hint)
    lowered = said.lower()
    if error.sqlstate is None:  # the server refused the connection, and the driver has but its words
        for sign, words, hint in _SIGNS:
            if sign in lowered:
                return StoreError(f"{place}: {words}: {said}", hint=hint)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreError(f"{place} cannot be reached: {said}", hint=f"check that the server runs, and {_AGAIN}")
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return StoreError(f"{place} is not the address of a server: {said}", hint="postgresql://user@host/database")
    return StoreError(f"{place}: {said}", hint="`recollect doctor` may know more")
