"""PostgreSQL's errors in our words: what happened, where, and what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import psycopg
from psycopg import errors as pg

from recollect.errors import StoreError

WAIT_SECONDS = 30
"""For a turn, and for a lock."""

MOST_CONNECTIONS = 16

LOST = (psycopg.OperationalError, psycopg.InterfaceError)

AGAIN = (
    pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.ExclusionViolation,
)  # fmt: skip
"""What another transaction's being first looks like."""

_NAME = "check the URL, or PGPASSWORD and ~/.pgpass"
_GRANTS = (
    "docs/postgresql.md has the grants that it needs; tables, and those of a new model, are made by their owner:"
    " `recollect embed` in that role's name"
)
_FEWER = (
    "raise max_connections or the role's CONNECTION LIMIT, or use fewer processes:"
    f" each may hold {MOST_CONNECTIONS} connections"
)
_ROOM = "make room on the server and try again; nothing was half-written"
_ADDRESS = "postgresql://user@host/database; signs like % @ / in a name or password are written %25 %40 %2F"
_AGAIN = "try again; what was not acknowledged was not half-written"

_CLOSER = (
    (pg.DiskFull, "shared memory", "it has too little shared memory",
     "give its container more (shm_size), or lower max_parallel_maintenance_workers; nothing was half-written"),
    (pg.InsufficientPrivilege, '"roots"', "this role does not index files",
     "the role that owns the tables does, since folders are everybody's: docs/postgresql.md"),
    (pg.InsufficientPrivilege, "extension", "pgvector is not in this database yet",
     "an administrator of the server puts it there, once: CREATE EXTENSION vector"),
)  # fmt: skip
"""What one kind of error means where it has this word."""

_MEANINGS: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    (AGAIN, "another was in the way", "try again"),
    ((pg.InvalidPassword, pg.InvalidAuthorizationSpecification), "the name or password is wrong", _NAME),
    ((pg.InvalidCatalogName,), "there is no such database", "createdb NAME, or check the URL"),
    ((pg.ReadOnlySqlTransaction,), "it may only be read here",
     "put replicas into ?read=… and name the main server here; or default_transaction_read_only is on for this role"),
    ((pg.InsufficientPrivilege,), "this role may not do that", _GRANTS),
    ((pg.DiskFull,), "its disk is full", _ROOM),
    ((pg.OutOfMemory, pg.ConfigurationLimitExceeded), "it has no memory left", _AGAIN),
    ((pg.LockNotAvailable,), f"somebody has held a lock for {WAIT_SECONDS} seconds", "try again"),
    ((pg.QueryCanceled,), "it took longer than the server allows", "raise statement_timeout, or try again"),
    ((pg.TooManyConnections,), "it has no connection left", _FEWER),
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
    ("the database system is", "the server is starting or stopping", _AGAIN),
    ("password authentication failed", "the name or password is wrong", _NAME),
    ("no password supplied", "a password is needed", "put it into PGPASSWORD or ~/.pgpass"),
    ("pg_hba.conf", "the server lets nobody in from here by that name",
     "see pg_hba.conf on the server; where it asks for encryption, sslmode=require in the URL"),
    ("client certificate", "the server asks for a certificate of ours", "sslcert=FILE and sslkey=FILE in the URL"),
    ("certificate", "the server's certificate cannot be trusted",
     "sslrootcert=FILE in the URL names who vouches for it, sslrootcert=system those whom this machine trusts"),
    ("servname not supported", "the port in the address is not a number", _ADDRESS),
    ("too many connections", "it has no connection left", _FEWER),
    ("too many clients", "it has no connection left", _FEWER),
    ("remaining connection slots", "it has no connection left", _FEWER),
    ("not permitted to log in", "this role may not log in", "ALTER ROLE … LOGIN, or check the URL"),
    ("permission denied for database", "this role may not use the database", "GRANT CONNECT ON DATABASE … TO …"),
    ("not currently accepting connections", "the database lets nobody in", "ALTER DATABASE … ALLOW_CONNECTIONS true"),
    ('role "', "there is no such role", "CREATE ROLE …, or check the URL"),
    ('database "', "there is no such database", "createdb NAME, or check the URL"),
    ("no space left", "its disk is full", _ROOM),
)  # fmt: skip
"""Of a connection that was refused, and for which the driver has but the server's words."""

_NOISE = re.compile(r"^connection (failed|is bad): |\s*Is the server running .*\?$")
"""What the driver says before and after each of them."""


class NoTurn(Exception):
    """All connections are in use, and none was given back in time."""


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
    said = _NOISE.sub("", " ".join(str(error).split()))[:300]
    for kind, sign, words, hint in _CLOSER:
        if isinstance(error, kind) and sign in said:
            return StoreError(f"{place}: {words}: {said}", hint=hint)
    for kinds, words, hint in _MEANINGS:
        if isinstance(error, kinds):
            return StoreError(f"{place}: {words}: {said}", hint=hint)
    lowered = said.lower()
    if error.sqlstate is None:
        for sign, words, hint in _SIGNS:
            if sign in lowered:
                return StoreError(f"{place}: {words}: {said}", hint=hint)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreError(f"{place} cannot be reached: {said}", hint=f"check that the server runs, and {_AGAIN}")
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return StoreError(f"{place} is not the address of a server: {_unquoted(said)}", hint=_ADDRESS)
    return StoreError(f"{place}: {said}", hint="`recollect doctor` may know more")


def _unquoted(said: str) -> str:
    """Words about an address without the part of it that they quote, which may be a password."""
    return said if "query parameter" in said and "@" not in said else re.sub('".*"', "a part of it", said)
