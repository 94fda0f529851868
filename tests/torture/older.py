"""Stores as earlier versions left them: the first migrations, and the rows that those versions wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from recollect.models.hashing import HashingEmbedder
from recollect.ranking import fold_hash
from recollect.stores.rows import passage_hash
from recollect.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS
from recollect.types.records import passage_of

VERSIONS = tuple(range(1, len(MIGRATIONS)))
"""Every schema before this one; number 1 is the first."""

JOINS, ROOTS, SCOPED_JOINS, FOLDER_INDEX = 5, 6, 7, 10
"""The schemas that began to have these."""

START = 1_760_000_000_000_000
DIMENSION = 64
FTS = """
    CREATE VIRTUAL TABLE terms USING fts5(title, text, content='', contentless_delete=1);
    CREATE VIRTUAL TABLE terms_instance USING fts5vocab(terms, instance);
    CREATE TABLE lengths (row INTEGER PRIMARY KEY, length INTEGER NOT NULL) STRICT;
    INSERT INTO meta VALUES ('keywords', '{"format": 3}');
"""
LASTING = {
    "records": "row, id, kind, text, title, category, tags, user, agent, session, importance, decay, time, created_at,"
    " happened_at, expires_at, edited_at, superseded_by, superseded_at, forgotten_at, source, path, first_line,"
    " last_line, fold, passage",
    "tags": "tag, row",
    "history": "seq, row, id, action, at, detail",
    "embeddings": "number, space, passage, vector",
    "files": "path, root, mtime_ns, size, digest",
}
"""The tables and columns of the first schema, whose rows no migration changes."""


def word(number: int) -> str:
    """A word that only one record has."""
    return "w" + "".join("bcfghjkmpq"[int(digit)] for digit in f"{number:06}") + "x"


def make_store(path: Path, version: int, *, records: int) -> None:
    """A store of an earlier schema with facts, chunks, tombstones, supersessions, vectors and files."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL)")
    for number, (name, sql) in enumerate(MIGRATIONS[:version], 1):
        connection.execute(sql)
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, START))
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={version}")
    with connection:
        _fill(connection, version, records)
    connection.close()


def _fill(connection: apsw.Connection, version: int, count: int) -> None:
    embedder = HashingEmbedder(DIMENSION)
    connection.execute("INSERT INTO meta VALUES ('language', 'english'), ('space', ?)", (embedder.fingerprint,))
    space = (1, embedder.fingerprint, embedder.name, DIMENSION)
    connection.execute("INSERT INTO spaces VALUES (?, ?, ?, ?)", space)
    if version < FOLDER_INDEX:
        connection.execute(FTS)
    rows = list(_records(count))
    columns = LASTING["records"]
    values = ", ".join(f":{name}" for name in columns.split(", "))
    connection.executemany(f"INSERT INTO records ({columns}) VALUES ({values})", rows)
    vectors = embedder.passages([passage_of(row["title"], row["text"]) for row in rows])
    for row, vector in zip(rows, vectors, strict=True):
        if row["passage"]:
            save = "INSERT OR IGNORE INTO embeddings (space, passage, vector) VALUES (1, ?, ?)"
            connection.execute(save, (row["passage"], vector.astype("<f4").tobytes()))
    for row in rows:
        _follow(connection, row, version)
    _fill_later_tables(connection, version)


def _records(count: int) -> Iterator[dict[str, Any]]:
    for n in range(1, count + 1):
        title, text = ("Diary", f"the heron {word(n)} by the lake") if n % 5 else ("", f"a note {word(n)}")
        forgotten = n % 11 == 0
        yield {
            "row": n, "id": f"r{n}", "kind": "chunk" if n % 7 == 0 and not forgotten else "fact",
            "text": "" if forgotten else text, "title": "" if forgotten else title, "category": "birds",
            "tags": json.dumps(["lake", f"t{n % 9}"]), "user": [None, "ada", "bob"][n % 3],
            "agent": "planner" if n % 6 == 1 else None, "session": None, "importance": 0.5, "decay": None,
            "time": START + n, "created_at": START + n, "happened_at": None, "expires_at": None, "edited_at": None,
            "superseded_by": None, "superseded_at": None, "forgotten_at": START + 2 * n if forgotten else None,
            "source": "index" if n % 7 == 0 else None, "path": f"/notes/{n}.md" if n % 7 == 0 else None,
            "first_line": 1 if n % 7 == 0 else None, "last_line": 3 if n % 7 == 0 else None,
            "fold": b"" if forgotten else fold_hash(text),
            "passage": b"" if forgotten else passage_hash(passage_of(title, text)),
        }  # fmt: skip


def _follow(connection: apsw.Connection, row: dict[str, Any], version: int) -> None:
    """What a version stored beside each record."""
    n, key = row["row"], row["id"]
    note = "INSERT INTO history (row, id, action, at, detail) VALUES (?, ?, ?, ?, '{}')"
    connection.execute(note, (n, key, "add", row["created_at"]))
    if row["forgotten_at"]:
        connection.execute(note, (n, key, "purge", row["forgotten_at"]))
        return
    for tag in json.loads(row["tags"]):
        connection.execute("INSERT INTO tags VALUES (?, ?)", (tag, n))
    if row["path"]:
        connection.execute("INSERT INTO files VALUES (?, '/notes', 1, 2, 'digest')", (row["path"],))
    if version < FOLDER_INDEX:
        insert = "INSERT INTO terms (rowid, title, text) VALUES (?, ?, ?)"
        connection.execute(insert, (n, row["title"], row["text"]))
        connection.execute("INSERT INTO lengths VALUES (?, ?)", (n, len(row["text"].split())))


def _fill_later_tables(connection: apsw.Connection, version: int) -> None:
    if JOINS <= version < SCOPED_JOINS:
        connection.execute("INSERT INTO joins (source, id, path) VALUES ('wiki', '1', '/notes/7.md')")
    if version >= ROOTS:
        told = {"scope": {}, "force": False, "tags": [], "include": [], "exclude": []}
        connection.execute("INSERT INTO roots VALUES ('/notes', ?)", (json.dumps(told),))


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows that no migration may change, by table; the file must be whole."""
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    rows = {table: connection.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2").fetchall()
            for table, names in LASTING.items()}  # fmt: skip
    connection.close()
    return rows


def version_of(path: Path) -> int:
    """The number of the last migration; each up to it has its own line."""
    connection = apsw.Connection(str(path))
    version = int(connection.pragma("user_version"))
    numbers = [number for (number,) in connection.execute("SELECT number FROM migrations ORDER BY 1")]
    connection.close()
    assert numbers == list(range(1, version + 1))
    return version
