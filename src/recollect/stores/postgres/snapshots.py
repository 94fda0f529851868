"""What the schema holds, read part by part: in one snapshot, or by key."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from recollect.stores.postgres.bulk import little
from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import plain, text
from recollect.types.moving import FIELDS, MOVED_META, Part

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
    sort = parts[0].sort
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
