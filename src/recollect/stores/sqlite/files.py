"""What the store knows of the files it mirrors."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import SELECT, from_row, meta
from recollect.types import FileState, Record, Scope

_DIFFERING = """
    SELECT DISTINCT path FROM records WHERE path IN (SELECT value FROM json_each(?)) AND kind = 'chunk'
        AND forgotten_at IS NULL AND (user IS NOT ? OR agent IS NOT ? OR session IS NOT ? OR EXISTS (
            SELECT 1 FROM json_each(?) AS wanted
            WHERE NOT EXISTS (SELECT 1 FROM tags WHERE tags.tag = wanted.value AND tags.row = records.row)))
"""


class SqliteFiles:
    """Reads the files table and the chunks of a file; both are written as changes to the records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def known(self, root: str) -> dict[str, FileState]:
        """The files below a root, by path."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT path, root, mtime_ns, size, digest FROM files WHERE root = ?", (root,))
            return {row[0]: FileState(*row) for row in rows}

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        """What is known of these files."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT path, root, mtime_ns, size, digest FROM files WHERE path IN (SELECT value FROM json_each(?))",
                (json.dumps(list(paths)),),
            )
            return {row[0]: FileState(*row) for row in rows}

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        """The folders that are mirrored, and how each was told to be, where that is known."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT root, max(told) FROM (SELECT root, told FROM roots UNION ALL SELECT root, NULL FROM files)"
                " GROUP BY root ORDER BY root"
            )
            return {root: json.loads(told) if told else None for root, told in rows}

    def ingested(self, digests: Sequence[str]) -> set[str]:
        """Those of the digests that have been read for facts."""
        with self._database.read() as connection:
            rows: Any = connection.execute(
                "SELECT digest FROM ingested WHERE digest IN (SELECT value FROM json_each(?))",
                (json.dumps(list(digests)),),
            )
            return {digest for (digest,) in rows}

    def chunks(self, path: str) -> list[Record]:
        """The chunks of one file."""
        with self._database.read() as connection:
            rows = connection.execute(f"{SELECT} WHERE path = ? AND kind = 'chunk' AND forgotten_at IS NULL", (path,))
            return [from_row(row) for row in rows]

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        """Those of the files that have a chunk of another scope, or one that lacks one of the tags."""
        values = (json.dumps(list(paths)), scope.user, scope.agent, scope.session, json.dumps(list(tags)))
        with self._database.read() as connection:
            rows: Any = connection.execute(_DIFFERING, values)
            return {path for (path,) in rows}

    def chunk_key(self) -> bytes:
        """The store's key for the ids of chunks. Of two processes that make it at once, the first one's counts."""
        with self._database.read() as connection:
            key = meta(connection, "chunk_key")
        if key is None:
            with self._database.write() as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('chunk_key', ?)", (secrets.token_hex(32),))
                key = meta(connection, "chunk_key")
        return bytes.fromhex(key or "")
