"""Many rows at once: what is moved into a store goes in by COPY, with what is derived from it."""

from __future__ import annotations

import contextlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import psycopg
from psycopg import errors as pg

from recollect.errors import StoreError
from recollect.ranking import fold_hash
from recollect.stores.postgres.database import Connection, Database, plain, text
from recollect.stores.postgres.failures import translated
from recollect.stores.postgres.keywords import ADDED_UP, Derived, PostgresKeywords, Terms, spaces
from recollect.stores.postgres.records import CHANNEL
from recollect.stores.postgres.rows import meta, scope_number, set_meta
from recollect.stores.postgres.vectors import index_near, make_space
from recollect.stores.rows import passage_hash
from recollect.types import Progress, Record, Scope, VectorSpace
from recollect.types.contents import FIELDS, MOVED_META, Part

_SCOPE = ("user", "agent", "session")
_SAID = tuple(name for name in FIELDS["record"] if name not in (*_SCOPE, "purged"))
_COPIED = (*_SAID, "time", "fold", "passage", "scope", "length")

_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
"""How PostgreSQL's binary COPY begins and ends."""


def add_records(connection: Connection, parts: Mapping[Part, Terms]) -> None:
    """New records with their terms, their scopes' tallies, and the vectors that are there for them."""
    if not parts:
        return
    scopes = _scopes(connection, parts)
    with connection.cursor().copy(f"COPY records ({', '.join(_COPIED)}) FROM STDIN") as copy:
        for part, terms in parts.items():
            copy.write_row(_row(part, scopes[_scope(part)], terms))
    keys = [text(part.values[0]) for part in parts]
    rows: dict[str, int] = dict(
        connection.execute("SELECT id, row FROM records WHERE id = ANY(%s)", (keys,)).fetchall()
    )
    live = {rows[text(part.values[0])]: (scopes[_scope(part)], terms) for part, terms in parts.items() if _lives(part)}
    _add_postings(connection, live)
    for space in spaces(connection):
        connection.execute(
            f"INSERT INTO vectors_{space} (row, scope, vector)"
            " SELECT row, scope, (SELECT vector::halfvec FROM embeddings WHERE space = %s"
            " AND embeddings.passage = records.passage FOR KEY SHARE)"  # it must not go before we are there
            " FROM records WHERE row = ANY(%s) ON CONFLICT DO NOTHING",
            (space, list(live)),
        )


def add_events(connection: Connection, parts: Sequence[Part], *, renumber: bool) -> None:
    """New lines of history, with their own numbers or the next ones."""
    if not parts:
        return
    keys = list({text(part.values[1]) for part in parts})
    known = connection.execute("SELECT id, row, scope FROM records WHERE id = ANY(%s)", (keys,))
    places = {key: (row, scope) for key, row, scope in known}
    numbered = "" if renumber else ", seq"
    with connection.cursor().copy(f"COPY history (row, scope, id, action, at, detail{numbered}) FROM STDIN") as copy:
        for part in parts:
            seq, key, action, at, detail = part.values
            if text(key) not in places:
                raise StoreError(f"line {seq} of the history is of {key!r}, which there is no record of")
            line = [*places[text(key)], text(key), action, at, json.dumps(detail)]
            copy.write_row(line if renumber else [*line, seq])
    if not renumber:
        last = max(part.values[0] for part in parts)
        connection.execute(
            "SELECT setval(numbers::regclass, greatest(%s, nextval(numbers::regclass) - 1))"
            " FROM pg_get_serial_sequence('history', 'seq') AS numbers",
            (last,),
        )


def add_vectors(connection: Connection, parts: Sequence[Part]) -> None:
    """New vectors, every bit of them; and beside the rows of live records, where searches look for them."""
    known = connection.execute("SELECT fingerprint, space, dimension FROM spaces").fetchall()
    numbers = {fingerprint: (space, dimension) for fingerprint, space, dimension in known}
    if not parts:
        return
    with connection.cursor().copy("COPY embeddings (space, passage, vector) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(_BEGIN)
        copy.write(b"".join(_packed(part, *numbers.get(part.values[0], (0, 0))) for part in parts))
        copy.write(_END)
    for fingerprint in {part.values[0] for part in parts}:
        passages = [part.values[1] for part in parts if part.values[0] == fingerprint]
        connection.execute("SELECT attach_vectors(%s, %s)", (numbers[fingerprint][0], passages))


def little(vector: bytes) -> bytes:
    """A vector as pgvector sends it, two short numbers and big-endian floats, as little-endian floats alone."""
    return np.frombuffer(bytes(vector)[4:], dtype=">f4").astype("<f4").tobytes()


def _packed(part: Part, space: int, dimension: int) -> bytes:
    """A row of `embeddings` as binary COPY reads it: the fields' number, then each with its length before it."""
    fingerprint, passage, vector = part.values
    if len(vector) != 4 * dimension:
        raise StoreError(f"a vector of {fingerprint} has {len(vector) // 4} numbers, the space has {dimension}")
    numbers = np.frombuffer(vector, dtype="<f4").astype(">f4").tobytes()
    head: bytes = struct.pack("!hiii", 3, 4, space, len(passage))
    return head + bytes(passage) + struct.pack("!ihh", 4 + len(numbers), dimension, 0) + numbers


def _lives(part: Part) -> bool:
    return part.values[FIELDS["record"].index("forgotten_at")] is None


def _scope(part: Part) -> Scope:
    return Scope(*part.values[6:9])


def _scopes(connection: Connection, parts: Mapping[Part, Terms]) -> dict[Scope, int]:
    """In a fixed order, so that two who make the same scopes do not wait for each other."""
    wanted = sorted({_scope(part) for part in parts}, key=lambda scope: sorted(scope.as_dict().items()))
    return {scope: scope_number(connection, scope) for scope in wanted}


def _row(part: Part, scope: int, terms: Terms) -> list[Any]:
    said: dict[str, Any] = dict(zip(FIELDS["record"], part.values, strict=True))
    passage = f"{said['title']}\n{said['text']}" if said["title"] else said["text"]
    said["time"] = said["created_at"] if said["happened_at"] is None else said["happened_at"]
    said["fold"], said["passage"] = (b"", b"") if said["purged"] else (fold_hash(said["text"]), passage_hash(passage))
    said["tags"] = [text(tag) for tag in said["tags"]]
    said["scope"], said["length"] = scope, terms.length
    return [text(said[name]) if isinstance(said[name], str) else said[name] for name in _COPIED]


def _add_postings(connection: Connection, live: Mapping[int, tuple[int, Terms]]) -> None:
    postings = [
        (name, scope, row, often, terms.length)
        for row, (scope, terms) in live.items()
        for name, often in zip(terms.names, terms.often, strict=True)
    ]
    with connection.cursor().copy("COPY postings (term, scope, row, often, length) FROM STDIN") as copy:
        for posting in sorted(postings):  # as the index has them, so that neighbours go into one page
            copy.write_row(posting)
    records: Counter[int] = Counter(scope for scope, _ in live.values())
    lengths: Counter[int] = Counter()
    for scope, terms in live.values():
        lengths[scope] += terms.length
    with connection.cursor() as cursor:
        tallies = [(scope, count, lengths[scope]) for scope, count in sorted(records.items())]
        cursor.executemany("INSERT INTO tallies (scope, records, length) VALUES (%s, %s, %s)", tallies)


FETCHED = 100
"""Rows that a reading cursor brings at once: a text may be a megabyte."""

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
    "root": "SELECT root, told FROM roots WHERE true",
    "ingested": "SELECT digest, at FROM ingested WHERE true",
    "join": "SELECT source, id, scope, path FROM joins WHERE true",
    "note": "SELECT key, value, at FROM notes WHERE true",
}
_KEY: Mapping[str, Mapping[str, str]] = {
    "meta": {"key": "text"}, "space": {"fingerprint": "text"}, "record": {"id": "text"}, "history": {"seq": "bigint"},
    "vector": {"fingerprint": "text", "passage": "bytea"}, "file": {"path": "text"},
    "root": {"root": "text"}, "ingested": {"digest": "text"},
    "join": {"source": "text", "id": "text", "scope": "text"}, "note": {"key": "text"},
}  # fmt: skip

_SAME_EVENT = (
    "SELECT DISTINCT ON (n) n, held.seq, held.id, held.action, held.at, held.detail"
    " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS asked (seq, id, action, at, n)"
    " JOIN history AS held USING (id, action, at) ORDER BY n, held.seq = asked.seq DESC, held.seq"
)


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
        order = ", ".join(rising(key, kind) for key, kind in _KEY[sort].items())
        cursor = self.connection.cursor(binary=True)
        cursor.execute(f"DECLARE moving NO SCROLL CURSOR FOR {_SELECT[sort]} ORDER BY {order}")
        try:
            while rows := cursor.execute(f"FETCH {FETCHED} FROM moving", prepare=False).fetchall():
                for row in rows:
                    yield _part(sort, row)
        finally:
            with contextlib.suppress(psycopg.Error):  # where the connection is lost, the cursor is too
                cursor.execute("CLOSE moving")


_BACK = ((r"\x01", r"\x01\x02"), (r"\x10\x10", r"\x10\x11"), (r"\x100", r"\x01\x01"))
"""From the way we write NUL to one that rises with what is meant: 0 as 1 1, 1 as 1 2, 16 as 16 17."""


def rising(column: str, kind: str) -> str:
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


def found_by_key(connection: Connection, parts: Sequence[Part]) -> list[Part | None]:
    """What has the keys of these parts of one sort."""
    sort = parts[0].kind
    names, kinds = ", ".join(_KEY[sort]), _KEY[sort].values()
    wanted = ", ".join(f"%s::{kind}[]" for kind in kinds)
    rows = connection.cursor(binary=True).execute(
        f"{_SELECT[sort]} AND ({names}) IN (SELECT * FROM unnest({wanted}))", _columns([part.key for part in parts])
    )
    found = {part.key: part for part in (_part(sort, row) for row in rows)}
    return [found.get(part.key) for part in parts]


def same_events(connection: Connection, parts: Sequence[Part]) -> list[Part | None]:
    """The lines of history that tell of the same; of several, the one with the same number."""
    asked = _columns([part.values[:4] for part in parts])
    found = {row[0]: _part("history", row[1:]) for row in connection.execute(_SAME_EVENT, asked)}
    return [found.get(number) for number in range(1, len(parts) + 1)]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as columns, texts as PostgreSQL can hold them."""
    return [list(map(written, column)) for column in zip(*rows, strict=True)]


def written(value: Any) -> Any:
    """A value as PostgreSQL can hold it."""
    return text(value) if isinstance(value, str) else value


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


class PostgresContents:
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

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        """What has the keys of these parts."""
        if not parts:
            return []
        if parts[0].kind == "history":
            return self._look(lambda connection: same_events(connection, parts))
        return self._look(lambda connection: found_by_key(connection, parts))

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts in one transaction; what is there stays."""
        if not parts:
            return
        match parts[0].kind:
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

    def finish(self, progress: Progress | None = None) -> None:
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
