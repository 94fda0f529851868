"""All that the schema holds, in and out: read through one snapshot, written by COPY."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg

from recollect.errors import StoreError
from recollect.stores.postgres.bulk import add_events, add_records, add_vectors, little
from recollect.stores.postgres.database import Connection, Database, translated
from recollect.stores.postgres.derived import Derived
from recollect.stores.postgres.keywords import PostgresKeywords, meta, set_meta
from recollect.stores.postgres.records import CHANNEL
from recollect.stores.postgres.rows import plain, text
from recollect.stores.postgres.vectors import index_near, make_space
from recollect.types import Progress, Record, VectorSpace
from recollect.types.moving import FIELDS, MOVED_META, Part

T = TypeVar("T")

FETCHED = 100
"""Rows that a reading cursor brings at once: a text may be a megabyte."""

BUILD_MEMORY = "256MB"
"""For making an approximate index; a graph that does not fit is made slowly."""

_RECORD = (
    "id", "kind", "text", "title", "category", "tags", '"user"', "agent", "session", "importance", "decay",
    "created_at", "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "forgotten_at",
    "length(passage) = 0", "source", "path", "first_line", "last_line",
)  # fmt: skip

_SELECT: Mapping[str, str] = {
    "meta": f"SELECT key, value FROM meta WHERE key IN {MOVED_META}",
    "space": "SELECT fingerprint, embedder, dimension FROM spaces WHERE true",
    "record": f"SELECT {', '.join(_RECORD)} FROM records JOIN scopes USING (scope) WHERE true",
    "history": "SELECT seq, id, action, at, detail FROM history WHERE true",
    "vector": "SELECT fingerprint, passage, vector FROM embeddings JOIN spaces USING (space) WHERE true",
    "file": "SELECT path, root, mtime_ns, size, digest FROM files WHERE true",
    "ingested": "SELECT digest, at FROM ingested WHERE true",
    "join": "SELECT source, id, path FROM joins WHERE true",
    "note": "SELECT key, value, at FROM notes WHERE true",
}
_KEY: Mapping[str, Mapping[str, str]] = {
    "meta": {"key": "text"}, "space": {"fingerprint": "text"}, "record": {"id": "text"}, "history": {"seq": "bigint"},
    "vector": {"fingerprint": "text", "passage": "bytea"}, "file": {"path": "text"}, "ingested": {"digest": "text"},
    "join": {"source": "text", "id": "text"}, "note": {"key": "text"},
}  # fmt: skip

_SAME_EVENT = (
    "SELECT DISTINCT ON (n) n, held.seq, held.id, held.action, held.at, held.detail"
    " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS asked (seq, id, action, at, n)"
    " JOIN history AS held USING (id, action, at) ORDER BY n, held.seq = asked.seq DESC, held.seq"
)
_INSERT: Mapping[str, str] = {
    "file": "INSERT INTO files VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
    "ingested": "INSERT INTO ingested VALUES (%s, %s) ON CONFLICT DO NOTHING",
    "join": "INSERT INTO joins (source, id, path) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
    "note": "INSERT INTO notes VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
}


class PostgresMoving:
    """Moves what one PostgreSQL store holds."""

    def __init__(self, database: Database, keywords: PostgresKeywords) -> None:
        self._database = database
        self._keywords = keywords
        self._derived = Derived(lambda: keywords.analyzer)

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
            connection.execute(f"SET search_path TO {self._database.schema}, public")
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
            return self._look(lambda connection: _same_events(connection, parts))
        return self._look(lambda connection: _found(connection, parts))

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
            connection.execute(f"SET search_path TO {self._database.schema}, public")
            connection.execute(f"SET maintenance_work_mem TO '{BUILD_MEMORY}'")
            spaces = connection.execute("SELECT space, dimension FROM spaces ORDER BY space").fetchall()
            for done, (space, dimension) in enumerate(spaces):
                index_near(connection, space, dimension)
                connection.execute(f"ANALYZE vectors_{space}")
                if progress:
                    progress(done + 1, len(spaces))
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
            self._keywords.speak(said["language"])
        if "space" in said and active is None:
            self._database.write(lambda connection: set_meta(connection, "space", said["space"]))

    def _add_records(self, parts: Sequence[Part]) -> None:
        """The words are read before the transaction begins, so that it is short."""
        read = {part: self._derived.terms(Record("", part.values[2], title=part.values[3])) for part in parts}

        def work(connection: Connection) -> None:
            add_records(connection, {part: read[part] for part in _new(connection, parts)})
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))

        self._database.write(work)

    def _add_events(self, connection: Connection, parts: Sequence[Part], renumber: bool) -> None:
        add_events(connection, parts if renumber else _new(connection, parts), renumber=renumber)
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))


@dataclass(frozen=True, slots=True)
class PostgresSnapshot:
    """Reads through one connection that sees one moment."""

    connection: Connection

    def counts(self) -> Mapping[str, int]:
        """How many parts of each sort."""
        numbers = ", ".join(f"(SELECT count(*) FROM ({_SELECT[sort]}) AS every)" for sort in FIELDS)
        found = self.connection.execute(f"SELECT {numbers}").fetchone() or ()
        return dict(zip(FIELDS, map(int, found), strict=True))

    def parts(self) -> Iterator[Part]:
        """All parts, by sort and rising key."""
        for sort in FIELDS:
            yield from self._sorted(sort)

    def _sorted(self, sort: str) -> Iterator[Part]:
        order = ", ".join(_rising(key, kind) for key, kind in _KEY[sort].items())
        with self.connection.cursor(f"moving_{sort}", binary=True) as cursor:
            cursor.itersize = FETCHED
            cursor.execute(f"{_SELECT[sort]} ORDER BY {order}")
            for row in cursor:
                yield _part(sort, row)


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


_BACK = ((r"\x01", r"\x01\x02"), (r"\x10\x10", r"\x01\x03"), (r"\x100", r"\x01\x01"), (r"\x01\x03", r"\x10"))
"""From the way we write NUL to an order in which it comes before all others: 0 as 1 1, and 1 as 1 2."""


def _rising(column: str, kind: str) -> str:
    """What to order by, so that texts rise as they do in any other store: NUL, too, in its place."""
    if kind != "text":
        return column
    for old, new in _BACK:
        column = f"replace({column}, E'{old}', E'{new}')"
    return f'{column} COLLATE "C"'


def _part(sort: str, row: Sequence[Any]) -> Part:
    values = [plain(value) if isinstance(value, str) else value for value in row]
    if sort == "record":
        values[5] = tuple(map(plain, values[5]))
    elif sort == "history":
        values[4] = json.loads(row[4])
    elif sort == "vector":
        values[1:] = bytes(values[1]), little(values[2])
    return Part(sort, tuple(values))


def _found(connection: Connection, parts: Sequence[Part]) -> list[Part | None]:
    sort = parts[0].sort
    names, kinds = ", ".join(_KEY[sort]), _KEY[sort].values()
    wanted = ", ".join(f"%s::{kind}[]" for kind in kinds)
    rows = connection.cursor(binary=True).execute(
        f"{_SELECT[sort]} AND ({names}) IN (SELECT * FROM unnest({wanted}))", _columns([part.key for part in parts])
    )
    found = {part.key: part for part in (_part(sort, row) for row in rows)}
    return [found.get(part.key) for part in parts]


def _same_events(connection: Connection, parts: Sequence[Part]) -> list[Part | None]:
    asked = _columns([part.values[:4] for part in parts])
    found = {row[0]: _part("history", row[1:]) for row in connection.execute(_SAME_EVENT, asked)}
    return [found.get(number) for number in range(1, len(parts) + 1)]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as columns, texts as PostgreSQL can hold them."""
    return [list(map(_written, column)) for column in zip(*rows, strict=True)]


def _written(value: Any) -> Any:
    return text(value) if isinstance(value, str) else value


def _new(connection: Connection, parts: Sequence[Part]) -> list[Part]:
    """Those whose keys nothing has."""
    return [part for part, there in zip(parts, _found(connection, parts), strict=True) if there is None]


def _add_spaces(connection: Connection, parts: Sequence[Part]) -> None:
    """Spaces without their approximate index: it is made when the vectors are there."""
    for part in _new(connection, parts):
        number = make_space(connection, VectorSpace(*part.values))
        connection.execute(f"DROP INDEX IF EXISTS vectors_{number}_near")


def _add_plain(connection: Connection, insert: str, parts: Sequence[Part]) -> None:
    rows = [list(map(_written, part.values)) for part in parts]
    with connection.cursor() as cursor:
        cursor.executemany(insert, rows)
