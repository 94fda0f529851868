"""All that the schema holds, in and out: read through one snapshot, written by COPY."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import psycopg
from psycopg import errors as pg

from recollect.errors import StoreError
from recollect.stores.postgres.bulk import add_events, add_records, add_vectors
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.derived import ADDED_UP, Derived
from recollect.stores.postgres.failures import translated
from recollect.stores.postgres.keywords import PostgresKeywords, meta, set_meta
from recollect.stores.postgres.records import CHANNEL
from recollect.stores.postgres.snapshots import PostgresSnapshot, found_by_key, same_events, written
from recollect.stores.postgres.vectors import index_near, make_space
from recollect.types import Progress, Record, VectorSpace
from recollect.types.moving import Part

T = TypeVar("T")

SETTLING = 0x52434C56
"""The advisory lock of those who make indexes, one for each schema."""

_ROOM = """
    SET lock_timeout TO 0;
    SELECT set_config('maintenance_work_mem', greatest(262144, setting::integer) || 'kB', false)
    FROM pg_settings WHERE name = 'maintenance_work_mem'
"""
"""To make an approximate index: a graph that does not fit is slow. The server's own setting, if it is higher."""

_INSERT: Mapping[str, str] = {
    "file": "INSERT INTO files VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
    "root": "INSERT INTO roots VALUES (%s, %s) ON CONFLICT DO NOTHING",
    "ingested": "INSERT INTO ingested VALUES (%s, %s) ON CONFLICT DO NOTHING",
    "join": "INSERT INTO joins (source, id, scope, path) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
    "note": "INSERT INTO notes VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
}


class PostgresMoving:
    """Moves what one PostgreSQL store holds."""

    def __init__(self, database: Database, keywords: PostgresKeywords) -> None:
        self._database = database
        self._keywords = keywords
        self._derived = Derived(lambda: keywords.chain)

    @property
    def identity(self) -> str:
        """The server that runs now, the database and the schema."""
        find = (
            "SELECT extract(epoch FROM pg_postmaster_start_time()), oid, %s::regnamespace::oid"
            " FROM pg_database WHERE datname = current_database()"
        )
        found = self._look(lambda connection: connection.execute(find, (self._database.schema,)).fetchone())
        return f"postgresql {' '.join(map(str, found or ()))}"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """What the schema holds now, read on the main server: a replica may lag."""
        with self._database.alone() as connection, translated(self._database.shown):
            connection.execute("SET idle_in_transaction_session_timeout TO 0")  # the target may take its time
            connection.set_autocommit(False)
            connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            connection.set_read_only(True)
            self._refuse_narrowed(connection)
            yield PostgresSnapshot(connection)
            connection.rollback()

    def held(self, parts: Sequence[Part]) -> list[Part | None]:
        """What has the keys of these parts."""
        if not parts:
            return []
        if parts[0].sort == "history":
            return self._look(lambda connection: same_events(connection, parts))
        return self._look(lambda connection: found_by_key(connection, parts))

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts in one transaction; what is there stays."""
        if not parts:
            return
        match parts[0].sort:
            case "meta":
                self._settle_meta(dict(part.values for part in parts))
            case "space":
                self._database.write(lambda connection: _add_spaces(connection, parts))
            case "record":
                self._add_records(parts)
            case "history":
                self._database.write(lambda connection: self._add_events(connection, parts, renumber))
            case "vector":
                self._database.write(lambda connection: add_vectors(connection, _new(connection, parts)))
            case sort:
                self._database.write(lambda connection: _add_plain(connection, _INSERT[sort], parts))

    def settle(self, progress: Progress | None = None) -> None:
        """Make the indexes of the spaces that came without, and let the planner know what there is."""
        with self._database.alone() as connection, translated(self._database.shown):
            connection.execute(_ROOM)
            # A server goes on with an index whose client was killed; then it is waited for, not made twice.
            connection.execute("SELECT pg_advisory_lock(%s, current_schema()::regnamespace::oid::integer)", (SETTLING,))
            spaces = connection.execute("SELECT space, dimension FROM spaces ORDER BY space").fetchall()
            for done, (space, dimension) in enumerate(spaces):
                _index_near(connection, space, dimension)
                connection.execute(f"ANALYZE vectors_{space}")
                if progress:
                    progress(done + 1, len(spaces))
            connection.execute(ADDED_UP)
            connection.execute("ANALYZE records, history, postings, embeddings, tallies")

    def _look(self, work: Callable[[Connection], T]) -> T:
        """Read on the main server, where what was just written is."""
        if self._database.read_only:
            with self._database.read() as connection:
                return work(connection)
        return self._database.write(work)

    def _refuse_narrowed(self, connection: Connection) -> None:
        """A role behind row-level security would read a part and take it for the whole."""
        narrowed = connection.execute("SELECT row_security_active('records')").fetchone()
        if narrowed and narrowed[0]:
            raise StoreError(
                f"{self._database.shown}: this role sees the rows of one scope only",
                hint="move a store as the role that owns its tables",
            )

    def _settle_meta(self, said: Mapping[str, str]) -> None:
        with self._database.read() as connection:
            empty = connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None
            active = meta(connection, "space")
        if "language" in said and empty:
            self._keywords.change_language(said["language"])
        if "space" in said and active is None:
            self._database.write(lambda connection: set_meta(connection, "space", said["space"]))

    def _add_records(self, parts: Sequence[Part]) -> None:
        """The words are read before the transaction begins, so that it is short."""
        told = {part: Record("", part.values[2], title=part.values[3]) for part in parts}
        derived = self._derived.reading(told.values())

        def work(connection: Connection) -> None:
            heard = derived.by(self._keywords.follow(connection))
            add_records(connection, {part: heard.terms(told[part]) for part in _new(connection, parts)})
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))

        self._database.write(work)

    def _add_events(self, connection: Connection, parts: Sequence[Part], renumber: bool) -> None:
        add_events(connection, parts if renumber else _new(connection, parts), renumber=renumber)
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))


def has_store(url: str) -> bool:
    """Whether there is a store at a URL; nothing is made."""
    database = Database(url, read_only=True)
    try:
        with database.read() as connection:
            name = f"{database.schema}.migrations"
            found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
            return bool(found and found[0])
    finally:
        database.close()


def _new(connection: Connection, parts: Sequence[Part]) -> list[Part]:
    """Those whose keys nothing has."""
    return [part for part, there in zip(parts, found_by_key(connection, parts), strict=True) if there is None]


def _index_near(connection: Connection, space: int, dimension: int) -> None:
    """Make the approximate index by several workers, or by one where they find no memory to share."""
    try:
        index_near(connection, space, dimension)
    except (pg.DiskFull, pg.OutOfMemory):
        connection.execute("SET max_parallel_maintenance_workers TO 0")
        index_near(connection, space, dimension)


def _add_spaces(connection: Connection, parts: Sequence[Part]) -> None:
    """Spaces without their approximate index: it is made when the vectors are there."""
    for part in _new(connection, parts):
        number = make_space(connection, VectorSpace(*part.values))
        connection.execute(f"DROP INDEX IF EXISTS vectors_{number}_near")


def _add_plain(connection: Connection, insert: str, parts: Sequence[Part]) -> None:
    rows = [list(map(written, part.values)) for part in parts]
    with connection.cursor() as cursor:
        cursor.executemany(insert, rows)
