"""Copy vectors from the file to LanceDB: many in one commit, by one process at a time.

LanceDB commits first, then the file records the last number that LanceDB has. A process that is killed in between
leaves rows above that number. Nobody reads them, and the next commit removes them before it adds them again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.stores.lance.table import LanceTable, LanceUrl, NumberedVectors, TableLost, short_message
from recollect.stores.rows import meta, set_meta
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.index import state_of

MAX_COMMIT = 20_000  # vectors in one commit: 30 MB with 384 dimensions
# The table is optimized after this many commits, or when this many vectors (at least this share of all) are not in
# the index. Vectors outside the index are scanned, and optimizing rewrites much of the table.
OPTIMIZE_COMMITS, OPTIMIZE_VECTORS, OPTIMIZE_SHARE = 100, 10_000, 0.1
MIN_COMMIT = 500  # vectors that are committed when an embedding run ends; a search compares fewer in the file
LOCK_SECONDS = 600
RETRY_SECONDS = 30  # pause after a failed commit, so that unreachable object storage does not slow down every write

_log = logging.getLogger("recollect")


@dataclass(frozen=True, slots=True)
class TableState:
    """What the file records about the table of one space: the table has all vectors up to `number` at `version`.

    `indexed` is the number of rows in the approximate index. `tidied` is the version that was optimized last, and
    `settled` the value of `number` at that time. It is stored as JSON, so the names must not change.
    """

    table: str = ""
    dataset: str = ""
    number: int = 0
    version: int = 0
    indexed: int = 0
    tidied: int = 0
    settled: int = 0

    @classmethod
    def load(cls, connection: apsw.Connection, space: int) -> TableState:
        """The state of a space; one without a table name if there is no table yet."""
        value = meta(connection, f"lance {space}")
        return cls() if value is None else cls(**json.loads(value))


class TableUpdater:
    """Keeps the LanceDB table of one space up to date with the file."""

    def __init__(self, database: Database, url: LanceUrl, space: int, dimension: int) -> None:
        self.url, self._database, self._space, self._dimension = url, database, space, dimension
        self._lock = threading.Lock()
        self._table: LanceTable | None = None
        self._retry_at = 0.0

    def table(self, state: TableState) -> LanceTable:
        with self._lock:
            if self._table is None or self._table.name != state.table:
                self._table = LanceTable(self.url, state.table, self._dimension)
            return self._table

    def state(self) -> TableState:
        with self._database.read() as connection:
            return TableState.load(connection, self._space)

    def pending(self) -> int:
        """How many vectors are not in LanceDB yet, at most."""
        with self._database.read() as connection:
            return state_of(connection).number - TableState.load(connection, self._space).number

    def update_if_due(self) -> None:
        """Commit pending vectors if a batch is full. If the commit fails nothing is lost: the file has them."""
        if self.pending() >= self.url.batch and time.monotonic() >= self._retry_at:
            self._update(0, optimize=False)

    def complete(self) -> None:
        """Commit pending vectors and optimize the table after an embedding run, if there is enough to do."""
        if self._database.read_only:
            return
        state = self.state()
        if self.pending() >= min(self.url.batch, MIN_COMMIT) or state.version != state.tidied:
            self._update(LOCK_SECONDS, optimize=True)

    def rebuild(self) -> None:
        with self._locked(LOCK_SECONDS):
            self._replace_incomplete()
        self._update(LOCK_SECONDS, optimize=True)

    def start_again(self) -> None:
        """Start an empty table after all vectors were deleted; every process that reads the old one notices."""
        with self._locked(LOCK_SECONDS):
            self._start_new_table(self.state())

    def scrub(self) -> None:
        """Write a new table if the present one has vectors without a record. Deleting rows would leave their bytes."""
        with contextlib.suppress(TableLost), self._locked(LOCK_SECONDS):  # a lost table has nothing to remove
            state = self.state()
            if state.number and len(np.setdiff1d(self.table(state).numbers(state.version), self._file_numbers())):
                self._start_new_table(state)
                self._commit_all(optimize=True)

    def _update(self, patience: float, *, optimize: bool) -> None:
        try:
            with self._locked(patience):
                try:
                    self._commit_all(optimize=optimize)
                except TableLost:
                    self._replace_incomplete()
                    self._commit_all(optimize=optimize)
        except (TableLost, StoreError) as error:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            reason = str(error) or short_message(error.__cause__)
            _log.warning("LanceDB was not updated; searches read the vectors in %s: %s", self._database.path, reason)

    def _commit_all(self, *, optimize: bool) -> None:
        state = self.state()
        if not state.table:  # its name is written before it exists, so that a crash leaves no orphan
            state = self._save(self._new_state())
        while True:
            with self._database.read() as connection:
                last = state_of(connection).number
                vectors = NumberedVectors.above(connection, self._space, self._dimension, state.number, MAX_COMMIT)
            if not len(vectors.numbers):
                break
            version = self.table(state).append(vectors, state.number, state.version)
            state = self._save(replace(state, number=int(vectors.numbers[-1]), version=version))
        if last - state.number >= self.url.batch:  # all of these belong to other spaces
            state = self._save(replace(state, number=last))
        commits, unindexed = state.version - state.tidied, state.number - state.settled
        due = commits >= OPTIMIZE_COMMITS or unindexed >= max(OPTIMIZE_VECTORS, OPTIMIZE_SHARE * state.number)
        if commits and (optimize or due):
            version, indexed = self.table(state).optimize()
            self._save(replace(state, version=version, indexed=indexed, tidied=version, settled=state.number))

    def _save(self, state: TableState) -> TableState:
        with self._database.write() as connection:
            set_meta(connection, f"lance {self._space}", json.dumps(asdict(state)))
        return state

    def _new_state(self) -> TableState:
        """A table with a unique name: several stores may share a prefix in a bucket."""
        return TableState(f"vectors_{uuid.uuid4().hex[:16]}", self.url.dataset)

    def _replace_incomplete(self) -> None:
        """Start a new table if the present one lacks vectors, unless another process has done so already."""
        state = self.state()
        if not state.number:
            return
        with contextlib.suppress(TableLost):
            if not len(np.setdiff1d(self._file_numbers(state.number), self.table(state).numbers(state.version))):
                return
        if self.url.remote and state.dataset != self.url.dataset:  # probably a mistyped address
            message = f"the vectors of {self._database.path} are at {state.dataset}, not at {self.url.dataset}"
            raise StoreError(message, hint="use that address, or move the data there and try again")
        _log.warning("the LanceDB table at %s is missing or damaged; building it again", self.url.dataset)
        self._start_new_table(state)

    def _start_new_table(self, old: TableState) -> None:
        self._save(self._new_state())
        if old.table:
            self.table(old).drop()

    def _file_numbers(self, up_to: int = sys.maxsize) -> NDArray[np.int64]:
        with self._database.read() as connection:
            find = "SELECT number FROM embeddings WHERE space = ? AND number <= ?"
            rows: Any = connection.execute(find, (self._space, up_to)).fetchall()
        return np.array([number for (number,) in rows], dtype=np.int64)

    @contextlib.contextmanager
    def _locked(self, patience: float) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            with FileLock(f"{self._database.path}.lance-lock", timeout=patience):
                yield
        except Timeout as error:
            raise StoreError("another process is writing to LanceDB", hint="try again") from error
