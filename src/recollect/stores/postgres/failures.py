"""Translate errors of PostgreSQL and its driver into `StoreError`: what happened, where, and what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import psycopg
from psycopg import errors as pg

from recollect.errors import StoreError

WAIT_SECONDS = 30
"""How long to wait for a free connection, and for a lock."""

MAX_CONNECTIONS = 16

CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

CONFLICTS = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation, pg.ExclusionViolation)
"""Errors that mean: another transaction was first. The transaction is tried again."""

_CHECK_LOGIN = "check the URL, or PGPASSWORD and ~/.pgpass"
_GRANTS = (
    "docs/postgresql.md lists the grants that it needs; tables (also those of a new model) are created by their owner:"
    " run `recollect embed` as that role"
)
_FEWER = (
    "raise max_connections or the role's CONNECTION LIMIT, or use fewer processes:"
    f" each may open {MAX_CONNECTIONS} connections"
)
_FREE_SPACE = "make room on the server and try again; nothing was half-written"
_ADDRESS = "postgresql://user@host/database; in a name or password write % @ / as %25 %40 %2F"
_TRY_AGAIN = "try again; a change that was not confirmed was not half-written"

_ENDED = "the server ended the connection"
_WRONG_LOGIN = "the name or password is wrong"
_NO_FREE = "it has no free connection"

_BY_CLASS: tuple[tuple[tuple[type[Exception], ...], str, str, str], ...] = (
    ((pg.DiskFull,), "shared memory", "it has too little shared memory",
     "give its container more (shm_size), or lower max_parallel_maintenance_workers; nothing was half-written"),
    ((pg.InsufficientPrivilege,), '"roots"', "this role may not index files",
     "use the role that owns the tables, because indexed folders are visible to everybody: docs/postgresql.md"),
    ((pg.InsufficientPrivilege,), "extension", "pgvector is not in this database yet",
     "an administrator of the server must run once: CREATE EXTENSION vector"),
    (CONFLICTS, "", "another transaction was first", "try again"),
    ((pg.InvalidPassword, pg.InvalidAuthorizationSpecification), "", _WRONG_LOGIN, _CHECK_LOGIN),
    ((pg.InvalidCatalogName,), "", "there is no such database", "createdb NAME, or check the URL"),
    ((pg.ReadOnlySqlTransaction,), "", "this server may only be read",
     "name the main server in the URL and replicas in ?read=…; or default_transaction_read_only is on for this role"),
    ((pg.InsufficientPrivilege,), "", "this role may not do that", _GRANTS),
    ((pg.DiskFull,), "", "its disk is full", _FREE_SPACE),
    ((pg.OutOfMemory, pg.ConfigurationLimitExceeded), "", "it is out of memory", _TRY_AGAIN),
    ((pg.LockNotAvailable,), "", f"another process has held a lock for {WAIT_SECONDS} seconds", "try again"),
    ((pg.QueryCanceled,), "", "it took longer than the server allows", "raise statement_timeout, or try again"),
    ((pg.TooManyConnections,), "", _NO_FREE, _FEWER),
    ((pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName), "", "the store's tables are not there",
     "open the store again as a role that may create tables: missing tables are created then"),
    ((pg.ProgramLimitExceeded,), "", "a value is longer than PostgreSQL can index",
     "ids, tags and the names of a scope can have up to 2,000 letters"),
    ((pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.IdleInTransactionSessionTimeout), "", _ENDED,
     _TRY_AGAIN),
)  # fmt: skip
"""(error classes, a word of the message, explanation, hint); the first that fits counts."""

_BY_TEXT = (
    ("closed the connection|connection is lost|the connection is closed", _ENDED, _TRY_AGAIN),
    ("the database system is", "the server is starting or stopping", _TRY_AGAIN),
    ("password authentication failed", _WRONG_LOGIN, _CHECK_LOGIN),
    ("no password supplied", "a password is needed", "put it into PGPASSWORD or ~/.pgpass"),
    ("pg_hba.conf", "the server does not accept this role from this machine",
     "see pg_hba.conf on the server; if it requires encryption, add sslmode=require to the URL"),
    ("client certificate", "the server requires a client certificate", "add sslcert=FILE and sslkey=FILE to the URL"),
    ("certificate", "the server's certificate cannot be verified",
     "add sslrootcert=FILE of its authority to the URL, or sslrootcert=system for those that this machine trusts"),
    ("servname not supported", "the port in the address is not a number", _ADDRESS),
    ("too many connections|too many clients|remaining connection slots", _NO_FREE, _FEWER),
    ("not permitted to log in", "this role may not log in", "ALTER ROLE … LOGIN, or check the URL"),
    ("permission denied for database", "this role may not use the database", "GRANT CONNECT ON DATABASE … TO …"),
    ("not currently accepting connections", "the database accepts no connections",
     "ALTER DATABASE … ALLOW_CONNECTIONS true"),
    ('role "', "there is no such role", "CREATE ROLE …, or check the URL"),
    ('database "', "there is no such database", "createdb NAME, or check the URL"),
    ("no space left", "its disk is full", _FREE_SPACE),
)  # fmt: skip
"""(pattern, explanation, hint) for refused connections: the driver has only the server's text for them, no code."""

_NOISE = re.compile(r"^connection (failed|is bad): |\s*Is the server running .*\?$")
"""What the driver adds before and after the server's text."""


class NoFreeConnection(Exception):
    """All connections of the pool are in use, and none was returned in time."""


@contextlib.contextmanager
def translated(address: str, but: tuple[type[psycopg.Error], ...] = ()) -> Iterator[None]:
    """Raise errors of the driver as StoreError, except those of `but`, which the caller handles."""
    try:
        yield
    except but:
        raise
    except NoFreeConnection as error:
        raise StoreError(
            f"{address}: all connections were in use for {WAIT_SECONDS} seconds", hint="try again"
        ) from error
    except psycopg.Error as error:
        raise _explained(address, error) from error


def _explained(address: str, error: psycopg.Error) -> StoreError:
    message = _NOISE.sub("", " ".join(str(error).split()))[:300]
    for kinds, word, explanation, hint in _BY_CLASS:
        if isinstance(error, kinds) and word in message:
            return StoreError(f"{address}: {explanation}: {message}", hint=hint)
    for pattern, explanation, hint in _BY_TEXT if error.sqlstate is None else ():
        if re.search(pattern, message, re.IGNORECASE):
            return StoreError(f"{address}: {explanation}: {message}", hint=hint)
    if isinstance(error, CONNECTION_LOST):
        return StoreError(
            f"{address} cannot be reached: {message}", hint=f"check that the server runs, and {_TRY_AGAIN}"
        )
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        # Without the quoted part of the address, which may be a password.
        harmless = "query parameter" in message and "@" not in message
        shown = message if harmless else re.sub('".*"', "a part of it", message)
        return StoreError(f"{address} is not the address of a server: {shown}", hint=_ADDRESS)
    return StoreError(f"{address}: {message}", hint="`recollect doctor` may know more")
