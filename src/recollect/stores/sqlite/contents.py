"""All that the file holds, in and out, row by row."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from recollect.errors import StoreError
from recollect.ranking import fold_hash
from recollect.stores.rows import passage_hash
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.rows import meta, set_meta
from recollect.types import Progress
from recollect.types.contents import FIELDS, MOVED_META, Part

_RECORD = (
    "id", "kind", "text", "title", "category", "tags", "user", "agent", "session", "importance", "decay", "created_at",
    "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "forgotten_at",
    "length(passage) = 0", "source", "path", "first_line", "last_line",
)  # fmt: skip
_KEPT = (*(name for name in _RECORD if "(" not in name), "time", "fold", "passage")

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
_KEY: Mapping[str, tuple[str, ...]] = {
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
_INSERT_RECORD = f"INSERT OR IGNORE INTO records ({', '.join(_KEPT)}) VALUES ({', '.join('?' * len(_KEPT))})"
_INSERT_TAG = "INSERT INTO tags SELECT ?, row FROM records WHERE id = ?"
_INSERT_EVENT = (
    "INSERT OR IGNORE INTO history (seq, row, id, action, at, detail)"
    " SELECT ?1, row, ?2, ?3, ?4, ?5 FROM records WHERE id = ?2"
)
_SAME_EVENT = " AND id = ? AND action = ? AND at = ? ORDER BY seq = ? DESC, seq LIMIT 1"


class SqliteContents:
    """Moves what one SQLite store holds."""

    def __init__(self, database: Database, keywords: SqliteKeywords) -> None:
        self._database = database
        self._keywords = keywords

    @property
    def identity(self) -> str:
        """The file itself, whatever it is called."""
        state = self._database.path.stat()
        return f"sqlite {state.st_dev} {state.st_ino}"

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """What the file holds now."""
        with self._database.read() as connection:
            yield SqliteSnapshot(connection)

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        """What has the keys of these parts."""
        if not parts:
            return []
        sort = parts[0].kind
        find = _SELECT[sort] + (_SAME_EVENT if sort == "history" else "".join(f" AND {key} = ?" for key in _KEY[sort]))
        with self._database.read() as connection:
            found: Iterator[Any] = (connection.execute(find, _asked(part)).fetchone() for part in parts)
            return [None if row is None else _part(sort, row) for row in found]

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts in one transaction; what is there stays."""
        if not parts:
            return
        with self._database.write() as connection:
            match parts[0].kind:
                case "meta":
                    _settle_meta(connection, dict(part.values for part in parts))
                case "record":
                    _add_records(connection, parts)
                case "history":
                    _add_events(connection, parts, renumber)
                case "vector":
                    _check_lengths(connection, parts)
                    connection.executemany(_INSERT["vector"], [part.values for part in parts])
                case sort:
                    connection.executemany(_INSERT[sort], [part.values for part in parts])

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
    """Reads through one connection that sees one moment."""

    connection: apsw.Connection

    def counts(self) -> Mapping[str, int]:
        """How many parts of each sort."""
        return {sort: int(self.connection.execute(f"SELECT count(*) FROM ({_SELECT[sort]})").get) for sort in FIELDS}

    def parts(self) -> Iterator[Part]:
        """All parts, by sort and rising key."""
        for sort in FIELDS:
            for row in self.connection.execute(f"{_SELECT[sort]} ORDER BY {', '.join(_KEY[sort])}"):
                yield _part(sort, row)


def _asked(part: Part) -> tuple[Any, ...]:
    if part.kind != "history":
        return part.key
    seq, key, action, at, _ = part.values
    return (key, action, at, seq)


def _part(sort: str, row: Sequence[Any]) -> Part:
    values = list(row)
    if sort == "record":
        values[5] = tuple(json.loads(values[5]))
        values[18] = bool(values[18])
    elif sort == "history":
        values[4] = json.loads(values[4])
    return Part(sort, tuple(values))


def _settle_meta(connection: apsw.Connection, said: Mapping[str, str]) -> None:
    if "language" in said and not connection.execute("SELECT EXISTS (SELECT 1 FROM records)").get:
        set_meta(connection, "language", said["language"])
    if "space" in said and meta(connection, "space") is None:
        set_meta(connection, "space", said["space"])


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
        said = dict(zip(FIELDS["record"], part.values, strict=True))
        time = said["created_at"] if said["happened_at"] is None else said["happened_at"]
        folds = (b"", b"") if said["purged"] else (fold_hash(said["text"]), passage_hash(_passage(said)))
        told = {**said, "tags": json.dumps(said["tags"]), "time": time, "fold": folds[0], "passage": folds[1]}
        before = connection.total_changes()
        connection.execute(_INSERT_RECORD, [told[name] for name in _KEPT])
        if connection.total_changes() > before and said["forgotten_at"] is None:
            tags = [(tag, said["id"]) for tag in dict.fromkeys(said["tags"])]
            connection.executemany(_INSERT_TAG, tags)


def _passage(said: Mapping[str, Any]) -> str:
    return f"{said['title']}\n{said['text']}" if said["title"] else str(said["text"])


def _add_events(connection: apsw.Connection, parts: Sequence[Part], renumber: bool) -> None:
    """Write lines of history. One whose number is lower than others' comes late: then all words are read again."""
    newest = int(connection.execute("SELECT ifnull(max(seq), 0) FROM history").get)
    for part in parts:
        seq, key, action, at, detail = part.values
        told = json.dumps(detail, ensure_ascii=False)
        connection.execute(_INSERT_EVENT, (None if renumber else seq, key, action, at, told))
        if not connection.changes() and not connection.execute("SELECT 1 FROM records WHERE id = ?", (key,)).get:
            raise StoreError(f"line {seq} of the history is of {key!r}, which there is no record of")
    if not renumber and parts[0].values[0] <= newest:
        connection.execute("DELETE FROM meta WHERE key = 'keywords'")
