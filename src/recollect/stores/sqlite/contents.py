"""All that the file holds, read and written part by part."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from recollect.errors import StoreError
from recollect.ranking import fold_hash
from recollect.stores.rows import meta, passage_hash, set_meta
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.types import Progress
from recollect.types.contents import FIELDS, MOVED_META, Part

_RECORD = (
    "id", "kind", "text", "title", "category", "tags", "user", "agent", "session", "importance", "decay", "created_at",
    "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "forgotten_at",
    "length(passage) = 0", "source", "path", "first_line", "last_line",
)  # fmt: skip
_COLUMNS = (*(name for name in _RECORD if "(" not in name), "time", "fold", "passage")

_SELECT: Mapping[str, str] = {
    "meta": f"SELECT key, value FROM meta WHERE key IN {MOVED_META}",
    "space": "SELECT fingerprint, embedder, dimension FROM spaces WHERE true",
    "record": f"SELECT {', '.join(_RECORD)} FROM records WHERE true",
    "history": "SELECT seq, id, action, at, detail FROM history WHERE true",
    "vector": "SELECT fingerprint, passage, vector FROM spaces CROSS JOIN embeddings USING (space) WHERE true",
    "file": "SELECT path, root, mtime_ns, size, digest FROM files WHERE true",
    "root": "SELECT root, told FROM roots WHERE true",
    "ingested": "SELECT digest, at FROM ingested WHERE true",
    "join": "SELECT source, id, scope, path FROM joins WHERE true",
    "note": "SELECT key, value, at FROM notes WHERE true",
}
_KEYS: Mapping[str, tuple[str, ...]] = {
    "meta": ("key",), "space": ("fingerprint",), "record": ("id",), "history": ("seq",),
    "vector": ("fingerprint", "passage"), "file": ("path",), "root": ("root",), "ingested": ("digest",),
    "join": ("source", "id", "scope"),
    "note": ("key",),
}  # fmt: skip

_INSERT: Mapping[str, str] = {
    "space": "INSERT OR IGNORE INTO spaces (fingerprint, embedder, dimension) VALUES (?, ?, ?)",
    "vector": (
        "INSERT OR IGNORE INTO embeddings (space, passage, vector)"
        " VALUES ((SELECT space FROM spaces WHERE fingerprint = ?), ?, ?)"
    ),
    "file": "INSERT OR IGNORE INTO files VALUES (?, ?, ?, ?, ?)",
    "root": "INSERT OR IGNORE INTO roots VALUES (?, ?)",
    "ingested": "INSERT OR IGNORE INTO ingested VALUES (?, ?)",
    "join": "INSERT OR IGNORE INTO joins (source, id, scope, path) VALUES (?, ?, ?, ?)",
    "note": "INSERT OR IGNORE INTO notes VALUES (?, ?, ?)",
}
_INSERT_RECORD = f"INSERT OR IGNORE INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_INSERT_TAG = "INSERT INTO tags SELECT ?, row FROM records WHERE id = ?"
_INSERT_EVENT = (
    "INSERT OR IGNORE INTO history (seq, row, id, action, at, detail)"
    " SELECT ?1, row, ?2, ?3, ?4, ?5 FROM records WHERE id = ?2"
)
_SAME_EVENT = " AND id = ? AND action = ? AND at = ? ORDER BY seq = ? DESC, seq LIMIT 1"


class SqliteContents:
    """Reads and writes all that one SQLite store holds."""

    def __init__(self, database: Database, keywords: SqliteKeywords) -> None:
        self._database = database
        self._keywords = keywords

    @property
    def identity(self) -> str:
        """The file itself, whatever its name."""
        state = self._database.path.stat()
        return f"sqlite {state.st_dev} {state.st_ino}"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """The file as it is now."""
        with self._database.read() as connection:
            yield SqliteSnapshot(connection)

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        """The parts with the keys of these parts."""
        if not parts:
            return []
        kind = parts[0].kind
        find = _SELECT[kind] + (_SAME_EVENT if kind == "history" else "".join(f" AND {key} = ?" for key in _KEYS[kind]))
        with self._database.read() as connection:
            rows: Iterator[Any] = (connection.execute(find, _key(part)).fetchone() for part in parts)
            return [None if row is None else _part(kind, row) for row in rows]

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts in one transaction; parts that exist stay as they are."""
        if not parts:
            return
        with self._database.write() as connection:
            match parts[0].kind:
                case "meta":
                    _set_meta(connection, dict(part.values for part in parts))
                case "record":
                    _add_records(connection, parts)
                case "history":
                    _add_events(connection, parts, renumber)
                case "vector":
                    _check_lengths(connection, parts)
                    connection.executemany(_INSERT["vector"], [part.values for part in parts])
                case kind:
                    connection.executemany(_INSERT[kind], [part.values for part in parts])

    def finish(self, progress: Progress | None = None) -> None:
        """Bring the keyword index up to date, in short transactions."""
        total = left = self._lag()
        while left:
            with self._database.write() as connection:
                self._keywords.follow(connection)
            left = self._lag()
            if progress:
                progress(total - left, total)

    def _lag(self) -> int:
        with self._database.read() as connection:
            return self._keywords.lag(connection)


@dataclass(frozen=True, slots=True)
class SqliteSnapshot:
    """Reads through one connection that sees one state."""

    connection: apsw.Connection

    def counts(self) -> Mapping[str, int]:
        """The number of parts of each kind."""
        return {kind: int(self.connection.execute(f"SELECT count(*) FROM ({_SELECT[kind]})").get) for kind in FIELDS}

    def parts(self) -> Iterator[Part]:
        """All parts, by kind and rising key."""
        for kind in FIELDS:
            for row in self.connection.execute(f"{_SELECT[kind]} ORDER BY {', '.join(_KEYS[kind])}"):
                yield _part(kind, row)


def _key(part: Part) -> tuple[Any, ...]:
    if part.kind != "history":
        return part.key
    seq, key, action, at, _ = part.values
    return (key, action, at, seq)


def _part(kind: str, row: Sequence[Any]) -> Part:
    values = list(row)
    if kind == "record":
        values[5] = tuple(json.loads(values[5]))
        values[18] = bool(values[18])
    elif kind == "history":
        values[4] = json.loads(values[4])
    return Part(kind, tuple(values))


def _set_meta(connection: apsw.Connection, fields: Mapping[str, str]) -> None:
    if "language" in fields and not connection.execute("SELECT EXISTS (SELECT 1 FROM records)").get:
        set_meta(connection, "language", fields["language"])
    if "space" in fields and meta(connection, "space") is None:
        set_meta(connection, "space", fields["space"])


def _check_lengths(connection: apsw.Connection, parts: Sequence[Part]) -> None:
    spaces: Any = connection.execute("SELECT fingerprint, dimension FROM spaces")
    dimensions = dict(spaces)
    for fingerprint, _, vector in (part.values for part in parts):
        if len(vector) != 4 * dimensions.get(fingerprint, 0):
            raise StoreError(
                f"a vector of {fingerprint} has {len(vector) // 4} numbers, its space {dimensions.get(fingerprint)}"
            )


def _add_records(connection: apsw.Connection, parts: Sequence[Part]) -> None:
    for part in parts:
        fields = dict(zip(FIELDS["record"], part.values, strict=True))
        time = fields["created_at"] if fields["happened_at"] is None else fields["happened_at"]
        folds = (b"", b"") if fields["purged"] else (fold_hash(fields["text"]), passage_hash(_passage(fields)))
        row = {**fields, "tags": json.dumps(fields["tags"]), "time": time, "fold": folds[0], "passage": folds[1]}
        before = connection.total_changes()
        connection.execute(_INSERT_RECORD, [row[name] for name in _COLUMNS])
        if connection.total_changes() > before and fields["forgotten_at"] is None:
            tags = [(tag, fields["id"]) for tag in dict.fromkeys(fields["tags"])]
            connection.executemany(_INSERT_TAG, tags)


def _passage(fields: Mapping[str, Any]) -> str:
    return f"{fields['title']}\n{fields['text']}" if fields["title"] else str(fields["text"])


def _add_events(connection: apsw.Connection, parts: Sequence[Part], renumber: bool) -> None:
    """Write events. One with a lower number than others comes late: then all texts are indexed again."""
    newest = int(connection.execute("SELECT ifnull(max(seq), 0) FROM history").get)
    for part in parts:
        seq, key, action, at, detail = part.values
        encoded = json.dumps(detail, ensure_ascii=False)
        connection.execute(_INSERT_EVENT, (None if renumber else seq, key, action, at, encoded))
        if not connection.changes() and not connection.execute("SELECT 1 FROM records WHERE id = ?", (key,)).get:
            raise StoreError(f"event {seq} is of the record {key!r}, which does not exist")
    if not renumber and parts[0].values[0] <= newest:
        connection.execute("DELETE FROM meta WHERE key = 'keywords'")
