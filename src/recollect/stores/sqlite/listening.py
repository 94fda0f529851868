"""Learning of changes: a file tells nobody, so it is looked at a few times a second."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import sequence
from recollect.types import Scope

LOOK_SECONDS = 0.1

_TOLD = """
    FROM history CROSS JOIN records ON records.row = history.row
    WHERE (user IS NULL OR user = ?) AND (agent IS NULL OR agent = ?) AND (session IS NULL OR session = ?)
    AND action <> 'supersedes' AND NOT (action = 'undo' AND EXISTS (
        SELECT 1 FROM history AS undone
        WHERE undone.seq = json_extract(history.detail, '$.undoes') AND undone.action = 'supersedes'))
    AND (passage = x'' OR seq > ifnull((
        SELECT max(seq) FROM history AS purge WHERE purge.row = history.row AND purge.action = 'purge'), 0))
"""
"""What a scope is told of: not that a record took the place of another, or no longer does, which the other record's own
line tells to who may see it; and nothing from before a purge where the id was used again, perhaps by another scope."""


class SqliteChanges:
    """What has happened to one file, by whichever process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        """Within it, True each time that something has happened since the last, False after each quiet while."""
        yield self._told(quiet, self.newest())

    def newest(self, scope: Scope | None = None) -> int:
        """The number of the newest line of history that tells a scope anything."""
        with self._database.read() as connection:
            if scope is None:
                return sequence(connection)
            found = connection.execute(f"SELECT seq {_TOLD} ORDER BY seq DESC LIMIT 1", _parts(scope)).get
        return int(found or 0)

    def count(self, upto: int, scope: Scope) -> int:
        """How many such lines there are up to a number."""
        with self._database.read() as connection:
            return int(connection.execute(f"SELECT count(*) {_TOLD} AND seq <= ?", (*_parts(scope), upto)).get)

    def since(self, seq: int, scope: Scope | None = None) -> tuple[list[int], int]:
        """The numbers of such lines after a number; one writes at a time, so none comes late."""
        with self._database.read() as connection:
            if scope is None:
                rows: Any = connection.execute("SELECT seq FROM history WHERE seq > ?", (seq,))
            else:
                rows = connection.execute(f"SELECT seq {_TOLD} AND seq > ?", (*_parts(scope), seq))
            return [number for (number,) in rows], max(seq, sequence(connection))

    def _told(self, quiet: float, seen: int) -> Iterator[bool]:
        while True:
            until = time.monotonic() + quiet
            while (newest := self.newest()) == seen and (left := until - time.monotonic()) > 0:
                time.sleep(min(LOOK_SECONDS, left))
            told, seen = newest != seen, newest
            yield told


def _parts(scope: Scope) -> tuple[str | None, ...]:
    return scope.user, scope.agent, scope.session
