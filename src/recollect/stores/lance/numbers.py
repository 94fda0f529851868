"""Which vector each record has: an array in memory that follows the file by sequence number.

A vector is kept under the hash of what was embedded, and has a number that is never given twice. Records come and go,
move and change hands without a vector being touched; LanceDB knows numbers and vectors, nothing else.
"""

from __future__ import annotations

import json
import threading

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.stores.lance.state import state_of
from recollect.stores.sqlite.visible import integers

HELD = """
    -- Vectors that are on object storage and no longer in this file, by what was embedded.
    CREATE TABLE IF NOT EXISTS lance_held (
        number INTEGER PRIMARY KEY,
        space INTEGER NOT NULL,
        passage BLOB NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS lance_held_passage ON lance_held (passage);
"""

GONE, WITHOUT = -1, 0


def tables(connection: apsw.Connection) -> list[str]:
    """The tables that say which vectors there are."""
    held = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'lance_held'").get
    return ["lance_held", "embeddings"] if held else ["embeddings"]


def newest(connection: apsw.Connection) -> int:
    """The last number that was given to a vector, whether it still is there or not."""
    return int(connection.execute("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'embeddings'").get)


class Numbers:
    """For each row of `records` the number of its vector, `WITHOUT` one, or `GONE`."""

    def __init__(self, space: int) -> None:
        self._space = space
        self._lock = threading.Lock()
        self._numbers: NDArray[np.int64] = np.full(1, GONE, dtype=np.int64)
        self._read_to = (-1, -1)
        self._table = ""

    def at(self, connection: apsw.Connection, last: int) -> tuple[NDArray[np.int64], bool]:
        """The array as of this connection's snapshot, whose last change is `last`; and whether it is of a later one.

        What was handed out is never changed.
        """
        with self._lock:
            table = state_of(connection, self._space).table
            if table != self._table:  # it was made again, and vectors that were in it alone may be gone
                self._table, self._read_to = table, (-1, -1)
            seq, number = self._read_to
            latest = newest(connection)
            ahead = seq > last or number > latest
            if not ahead and (seq, number) != (last, latest):
                self._numbers = self._followed(connection, seq, number)
                self._read_to = (last, latest)
            return self._numbers, ahead

    def _followed(self, connection: apsw.Connection, seq: int, number: int) -> NDArray[np.int64]:
        rows = None if seq < 0 else self._changed(connection, seq, number)
        size = int(connection.execute("SELECT ifnull(max(row), 0) FROM records").get) + 1
        numbers = np.full(max(size, len(self._numbers)), GONE, dtype=np.int64)
        if rows is not None:
            numbers[: len(self._numbers)] = self._numbers
            numbers[rows] = GONE
        only, values = ("", ()) if rows is None else (_ONLY, (json.dumps(rows),))
        live = connection.execute(f"SELECT group_concat(row) FROM records WHERE forgotten_at IS NULL{only}", values).get
        numbers[integers(live)] = WITHOUT
        for table in tables(connection):
            found = connection.execute(
                f"SELECT group_concat(row), group_concat(number) FROM records JOIN {table} USING (passage)"
                f" WHERE space = ? AND forgotten_at IS NULL{only}",
                (self._space, *values),
            ).get
            held, theirs = map(integers, found)
            numbers[held] = theirs
        return numbers

    def _changed(self, connection: apsw.Connection, seq: int, number: int) -> list[int]:
        """Rows that something happened to, and rows whose vectors came later."""
        rows = set(
            integers(
                connection.execute("SELECT group_concat(DISTINCT row) FROM history WHERE seq > ?", (seq,)).get
            ).tolist()
        )
        for table in tables(connection):
            arrived = connection.execute(
                f"SELECT group_concat(row) FROM {table} JOIN records USING (passage) WHERE number > ? AND +space = ?",
                (number, self._space),
            ).get
            rows.update(integers(arrived).tolist())
        return list(rows)


_ONLY = " AND row IN (SELECT value FROM json_each(?))"
