"""The tables as numbered migrations. Each runs once, in its own transaction, under a lock for all machines."""

from functools import partial

from recollect.errors import StoreError
from recollect.stores.postgres.connections import Connection, integer
from recollect.stores.postgres.database import PostgresDatabase
from recollect.stores.postgres.migrations import MIGRATIONS
from recollect.stores.rows import refuse_newer

LOCK = 0x52434C54  # the advisory lock for migrations: 'RCLT'

OLDEST_SERVER = 150_000
OLDEST_VECTOR = (0, 8, 0)  # pgvector 0.8 is the first with iterative index scans, which filters need


def migrate(database: PostgresDatabase) -> None:
    """Bring the schema up to date. If several machines do so at once, one migrates and the others wait."""
    done = version(database)
    if done < len(MIGRATIONS):
        for number in range(1, len(MIGRATIONS) + 1):
            database.write(partial(_apply, schema=database.schema, number=number))
    refuse_newer(done, len(MIGRATIONS))


def version(database: PostgresDatabase) -> int:
    """How many migrations have been applied."""
    with database.read() as connection:
        _check_server(connection)
        if not integer(connection, "SELECT to_regclass(%s)::oid", (f"{database.schema}.migrations",)):
            return 0
        return integer(connection, "SELECT max(number) FROM migrations")


def _check_server(connection: Connection) -> None:
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise StoreError(
            f"the server is PostgreSQL {version // 10_000}, which is too old",
            hint=f"PostgreSQL {OLDEST_SERVER // 10_000} or newer is needed",
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise StoreError(
            f"the database has the encoding {encoding}, which cannot store every text",
            hint="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    row = connection.execute(
        "SELECT default_version, installed_version FROM pg_available_extensions WHERE name = 'vector'"
    ).fetchone()
    if row is None:
        raise StoreError("the server has no pgvector", hint="install its package on the server: postgresql-XX-pgvector")
    available, used = row[0], row[1] or row[0]
    usable = [tuple(int(part) for part in text.split(".")[:3]) >= OLDEST_VECTOR for text in (used, available)]
    if not usable[0]:
        how = "ALTER EXTENSION vector UPDATE" if usable[1] else "install it on the server"
        raise StoreError(f"the server's pgvector is {used}, which is too old", hint=f"0.8.0 or newer is needed: {how}")


def _apply(connection: Connection, schema: str, number: int) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    connection.execute(
        f"CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE IF NOT EXISTS migrations"
        " (number integer PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL)"
    )
    if connection.execute("SELECT 1 FROM migrations WHERE number = %s", (number,)).fetchone():
        return  # another machine has applied it while this one waited
    name, sql = MIGRATIONS[number - 1]
    connection.execute(sql)
    connection.execute("INSERT INTO migrations VALUES (%s, %s, now())", (number, name))
