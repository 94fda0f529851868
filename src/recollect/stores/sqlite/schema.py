"""The tables, as numbered migrations: each runs once, in its own transaction, with its own record."""

import os
import time
from typing import TypeVar

import apsw

from recollect.stores.rows import refuse_newer

APPLICATION_ID = 0x52434C54
"""'RCLT' in the file's header, which distinguishes a store from the database of another program."""

C = TypeVar("C", bound=apsw.Connection)

_SQL = {
    "records, history, vectors, files": """
    CREATE TABLE records (
        row INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice, so that indexes in memory cannot confuse two
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        title TEXT NOT NULL,
        category TEXT,
        tags TEXT NOT NULL,                     -- a JSON list; the table `tags` is its index
        user TEXT, agent TEXT, session TEXT,
        importance REAL NOT NULL,
        decay TEXT,
        time INTEGER NOT NULL,                  -- happened_at or created_at; times are microseconds of UTC
        created_at INTEGER NOT NULL,
        happened_at INTEGER,
        expires_at INTEGER,
        edited_at INTEGER,
        superseded_by TEXT,
        superseded_at INTEGER,
        forgotten_at INTEGER,                   -- a tombstone: the id stays taken, the record answers nothing
        source TEXT,
        path TEXT, first_line INTEGER, last_line INTEGER,
        fold BLOB NOT NULL,                     -- hash of the folded text
        passage BLOB NOT NULL                   -- hash of what is embedded
    ) STRICT;
    CREATE INDEX records_scope ON records (user, agent, session);
    CREATE INDEX records_fold ON records (fold);
    CREATE INDEX records_passage ON records (passage);
    CREATE INDEX records_time ON records (time);
    CREATE INDEX records_path ON records (path) WHERE path IS NOT NULL;
    CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX records_supersession ON records (superseded_at) WHERE superseded_at IS NOT NULL;
    CREATE TABLE tags (tag TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY (tag, row)) STRICT, WITHOUT ROWID;

    -- Append-only. Its sequence number is the clock that every derived index follows.
    CREATE TABLE history (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        row INTEGER NOT NULL,
        id TEXT NOT NULL,
        action TEXT NOT NULL,
        at INTEGER NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
    CREATE INDEX history_id ON history (id);

    CREATE TABLE spaces (
        space INTEGER PRIMARY KEY,
        fingerprint TEXT NOT NULL UNIQUE,
        embedder TEXT NOT NULL,
        dimension INTEGER NOT NULL
    ) STRICT;
    -- Vectors and embedding cache in one: keyed by what was embedded, so that moving text costs nothing.
    CREATE TABLE embeddings (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        space INTEGER NOT NULL,
        passage BLOB NOT NULL,
        vector BLOB NOT NULL,                   -- float32, little endian, unit length
        UNIQUE (space, passage)
    ) STRICT;

    CREATE TABLE files (
        path TEXT PRIMARY KEY,
        root TEXT NOT NULL,
        mtime_ns INTEGER NOT NULL,
        size INTEGER NOT NULL,
        digest TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
""",
    "what was read for facts": """
    -- What has been read for facts already, by hash, so that a second run sends nothing.
    CREATE TABLE ingested (digest TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
""",
    "kept answers": """
    CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE INDEX notes_at ON notes (at);
""",
    "indexes for what is forgotten": """
    -- Forgetting looks for a row's history and tags, and for others that share its passage.
    CREATE INDEX history_row ON history (row);
    CREATE INDEX tags_row ON tags (row);
    CREATE INDEX embeddings_passage ON embeddings (passage);
""",
    "what outside ids stand for": """
    -- Which path an outside system's id stands for; the number rises with every change, so that readers can follow.
    CREATE TABLE joins (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        source TEXT NOT NULL,
        id TEXT NOT NULL,
        path TEXT NOT NULL,
        UNIQUE (source, id)
    ) STRICT;
""",
    "how folders are mirrored": """
    -- How a folder was told to be mirrored, as JSON, so that it can be mirrored again in the same way.
    CREATE TABLE roots (root TEXT PRIMARY KEY, told TEXT NOT NULL) STRICT, WITHOUT ROWID;
""",
    "what outside ids stand for, by scope": """
    -- An id stands for a path in the scope whose query learnt it. Older rows do not say whose they are, and may be
    -- private, so they are dropped: they are a cache, and searches learn them again.
    DROP TABLE joins;
    CREATE TABLE joins (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        source TEXT NOT NULL,
        id TEXT NOT NULL,
        scope TEXT NOT NULL,
        path TEXT NOT NULL,
        UNIQUE (source, id, scope)
    ) STRICT;
""",
    "an index of purges": """
    -- Where a purged id was used again, what happened before the purge is not the new record's history.
    CREATE INDEX history_purges ON history (row, seq) WHERE action = 'purge';
""",
    "two indexes less to write": """
    -- An id has one row, so history_row finds its events; every vector is found by its space and passage.
    DROP INDEX history_id;
    DROP INDEX embeddings_passage;
""",
    "the index has a folder of its own": """
    -- The keyword index was made of FTS5 tables. It is a folder of segments beside the file now.
    DROP TABLE IF EXISTS terms_instance;
    DROP TABLE IF EXISTS terms;
    DROP TABLE IF EXISTS lengths;
    DELETE FROM meta WHERE key = 'keywords';
""",
    "who wrote a record": """
    -- NULL is the usual origin of a kind: `file` of chunks, `user` of all others. So older rows need no change.
    ALTER TABLE records ADD COLUMN origin TEXT;
    ALTER TABLE records ADD COLUMN author TEXT;
    ALTER TABLE records ADD COLUMN author_session TEXT;
    -- An answer that leaves out some origins says how many records these are; this index alone gives the number.
    CREATE INDEX records_origin ON records (
        origin, user, agent, session, forgotten_at, superseded_at, expires_at, kind
    ) WHERE origin IS NOT NULL;
""",
    "where in its file a chunk is": """
    ALTER TABLE records ADD COLUMN place TEXT;  -- `page 12`, of documents whose lines nobody sees
""",
    "short ids": """
    -- A record is also found by the end of its id: the beginning is the time, which is alike for many.
    CREATE INDEX records_short ON records (substr(id, -8));
""",
    "short ids without an index": """
    -- Its keys are random: one more page for each add. Reading all ids, which people type few of, is quick enough.
    DROP INDEX IF EXISTS records_short;
""",
}
ADDED = ("origin", "author", "author_session", "place")  # columns of records that came with later migrations
MIGRATIONS: tuple[tuple[str, str], ...] = tuple(_SQL.items())
"""(name, SQL), in order; number 1 is the first. Never edit one that has been released."""


def migrate(connection: apsw.Connection) -> None:
    """Bring the file to this version's schema. Safe with many processes at once and after a crash."""
    while (done := int(connection.pragma("user_version"))) < len(MIGRATIONS):
        name, sql = MIGRATIONS[done]
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been first while this one waited for the lock.
            if connection.pragma("user_version") == done:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS migrations"
                    " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL)"
                )
                connection.execute(sql)
                connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (done + 1, name, int(time.time() * 1e6)))
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={done + 1}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    refuse_newer(done, len(MIGRATIONS))


def with_all_columns(connection: C) -> C:
    """Let a file of an earlier schema that is only read answer as a migrated one: columns that it lacks are NULL."""
    columns = {name for _, name, *_ in connection.execute("PRAGMA main.table_info(records)")}
    if columns and (lacking := [name for name in ADDED if name not in columns]):
        nulls = ", ".join(f"NULL AS {name}" for name in lacking)
        connection.execute(f"CREATE TEMP VIEW records AS SELECT *, {nulls} FROM main.records")
    return connection


def mark(connection: apsw.Connection) -> None:
    """Give the store an id where it has none, so that another store in its place is recognised."""
    if connection.execute("SELECT count(*) FROM meta WHERE key = 'id'").get == 0:
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('id', ?)", (os.urandom(16).hex(),))
