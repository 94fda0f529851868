"""What the store knows of the files it mirrors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import SELECT, from_row
from recollect.types import FileState, Record


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
