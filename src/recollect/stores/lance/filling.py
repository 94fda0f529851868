"""How vectors get from the file into LanceDB: many in one commit, by one process at a time, and again after a crash.

First LanceDB commits, then the file notes how far it has read. What is killed in between leaves rows above the noted
number; nobody reads them, and the next flush removes them before it adds them again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recollect.errors import StoreError
from recollect.stores.lance.numbers import newest, tables
from recollect.stores.lance.place import Place
from recollect.stores.lance.shelf import Lost, Shelf, brief
from recollect.stores.lance.state import State, new_state, note, state_of
from recollect.stores.lance.waiting import Numbered, Table
from recollect.stores.sqlite.database import Database

MOST_AT_ONCE = 20_000
"""Vectors of one commit: 30 MB at 384 numbers each."""

TIDY_AFTER, TIDY_LEAST, TIDY_SHARE = 100, 10_000, 0.1
"""Small files are merged and the index is brought up to date after so many commits, or so many vectors that are this
share of all: what is not in the index is compared one by one, and merging writes much of the rest again."""

WORTH_A_COMMIT = 500
"""Vectors that are handed on when a model's work is done; fewer stay in the file, where a search compares them all."""

PATIENCE_SECONDS = 600
PAUSE_SECONDS = 30
"""How long nothing is tried after a commit failed: object storage that is out of reach must not slow every write."""

_log = logging.getLogger("recollect")


class Filling:
    """The way of one space's vectors."""

    def __init__(self, database: Database, place: Place, table: Table) -> None:
        self.place = place
        self.table = table
        self._database = database
        self._lock = threading.Lock()
        self._shelf: Shelf | None = None
        self._again_at = 0.0

    def shelf(self, state: State) -> Shelf:
        """LanceDB's side of it."""
        with self._lock:
            if self._shelf is None or self._shelf.name != state.table:
                self._shelf = Shelf(self.place, state.table, self.table.dimension)
            return self._shelf

    def waiting(self) -> int:
        """How many vectors are in the file alone, at the most."""
        with self._database.read() as connection:
            return newest(connection) - state_of(connection, self.table.space).number

    def if_due(self) -> None:
        """Commit what waits, where it is many. The file has it all the same, so nothing is lost where that fails."""
        if self.waiting() >= self.place.batch and time.monotonic() >= self._again_at:
            self._try(0)

    def complete(self) -> None:
        """Commit what waits and tidy up, after a model's work is done and where there is enough of either."""
        if self._database.read_only:
            return
        with self._database.read() as connection:
            state = state_of(connection, self.table.space)
            waiting = newest(connection) - state.number
        if waiting >= min(self.place.batch, WORTH_A_COMMIT) or state.version != state.tidied:
            self._try(PATIENCE_SECONDS, thorough=True)

    def restore(self) -> None:
        """Make the table again from the file. Vectors that were in LanceDB alone are given up, to be made anew."""
        with self._turn(PATIENCE_SECONDS):
            self._mend()
        self._try(PATIENCE_SECONDS, thorough=True)

    def scrub(self) -> None:
        """Leave no vector in LanceDB that no record has, in no version: what stays is written anew."""
        with self._turn(PATIENCE_SECONDS), contextlib.suppress(Lost):  # what is lost is not there
            state = self._without_orphans()
            if not state.number:
                return
            old = self.shelf(state)
            dead = np.setdiff1d(self._there(state), self._known())
            if not len(dead):
                return
            fresh = new_state(self.place.dataset)
            version = Shelf(self.place, fresh.table, self.table.dimension).copy(old, dead)
            with self._database.write() as connection:
                state = note(connection, self.table.space, fresh.reached(state.number, version))
            old.drop()
            self._tidy(state)

    def _try(self, patience: float, *, thorough: bool = False) -> None:
        try:
            with self._turn(patience):
                try:
                    self._flush(thorough=thorough)
                except Lost:
                    self._mend()
                    self._flush(thorough=thorough)
        except (Lost, StoreError) as error:
            self._again_at = time.monotonic() + PAUSE_SECONDS
            told = str(error) or brief(error.__cause__)
            _log.warning("vectors wait in %s, where they are searched: %s", self._database.path, told)

    def _mend(self) -> None:
        """Begin again where LanceDB has not what the file says it has, and another was not first to see that."""
        with self._database.read() as connection:
            state = state_of(connection, self.table.space)
        if not self._whole(state):
            self._refuse_elsewhere(state)
            self._begin_again(state)

    def _flush(self, *, thorough: bool) -> None:
        state = self._named()
        while True:
            with self._database.read() as connection:
                latest = newest(connection)
                waiting = self.table.after(connection, state.number, MOST_AT_ONCE)
            if not len(waiting.numbers):
                break
            state = self._commit(state, waiting)
        if latest - state.number >= self.place.batch:  # of another space: nothing of ours is among them
            with self._database.write() as connection:
                state = note(connection, self.table.space, replace(state, number=latest))
        if state.version != state.tidied and (thorough or self._untidy(state)):
            self._tidy(state)

    def _commit(self, state: State, waiting: Numbered) -> State:
        version = self.shelf(state).append(waiting, state.number, state.version)
        last = int(waiting.numbers[-1])
        with self._database.write() as connection:
            if self.place.remote:
                span = (self.table.space, state.number, last)
                connection.execute(
                    "INSERT OR REPLACE INTO lance_held SELECT number, space, passage FROM embeddings"
                    " WHERE +space = ? AND number > ? AND number <= ?",
                    span,
                )
                connection.execute("DELETE FROM embeddings WHERE +space = ? AND number > ? AND number <= ?", span)
            return note(connection, self.table.space, state.reached(last, version))

    def _untidy(self, state: State) -> bool:
        fresh = state.number - state.settled
        return state.version - state.tidied >= TIDY_AFTER or fresh >= max(TIDY_LEAST, TIDY_SHARE * state.number)

    def _tidy(self, state: State) -> None:
        version, indexed = self.shelf(state).tidy()
        with self._database.write() as connection:
            after = replace(state, version=version, indexed=indexed, tidied=version, settled=state.number)
            note(connection, self.table.space, after)

    def _named(self) -> State:
        """The state, with the table's name written down before the table is made: a crash leaves no nameless one."""
        with self._database.write() as connection:
            state = state_of(connection, self.table.space)
            return state if state.table else note(connection, self.table.space, new_state(self.place.dataset))

    def _whole(self, state: State) -> bool:
        """Whether the table has every vector that the file says it has."""
        try:
            return not (state.number and len(np.setdiff1d(self._known(state.number), self._there(state))))
        except Lost:
            return False

    def _there(self, state: State) -> NDArray[np.int64]:
        return self.shelf(state).numbers(state.version)

    def _refuse_elsewhere(self, state: State) -> None:
        """Give up nothing for an address that was mistyped."""
        if self.place.remote and state.dataset != self.place.dataset:
            raise StoreError(
                f"the vectors of {self._database.path} are at {state.dataset}, and not at {self.place.dataset}",
                hint="name that place; or move what is there, and try again",
            )

    def _begin_again(self, state: State) -> None:
        _log.warning("the vectors at %s are gone or damaged, and are made again", self.place.dataset)
        with self._database.write() as connection:
            if "lance_held" in tables(connection):
                connection.execute("DELETE FROM lance_held WHERE space = ?", (self.table.space,))
            note(connection, self.table.space, new_state(self.place.dataset))
        self.shelf(state).drop()

    def _known(self, up_to: int | None = None) -> NDArray[np.int64]:
        """The numbers of all vectors that the file knows."""
        sql = "SELECT number FROM {} WHERE space = ?1 AND (number <= ?2 OR ?2 IS NULL)"
        with self._database.read() as connection:
            found = [
                number
                for table in tables(connection)
                for (number,) in connection.execute(sql.format(table), (self.table.space, up_to))
            ]
        return np.array(found, dtype=np.int64)

    def _without_orphans(self) -> State:
        with self._database.write() as connection:
            if "lance_held" in tables(connection):
                connection.execute(
                    "DELETE FROM lance_held WHERE space = ? AND passage NOT IN (SELECT passage FROM records)",
                    (self.table.space,),
                )
            return state_of(connection, self.table.space)

    @contextlib.contextmanager
    def _turn(self, patience: float) -> Iterator[None]:
        """One process at a time, as far as they share the file; a name beside it says whose turn it is."""
        from filelock import FileLock, Timeout

        lock = FileLock(f"{self._database.path}.lance-lock", timeout=patience)
        try:
            lock.acquire()
        except Timeout as error:
            raise StoreError("another process is filling LanceDB", hint="try again") from error
        try:
            yield
        finally:
            lock.release()
