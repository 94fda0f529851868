"""The derived index of a file: segments in the folder beside it, and in memory what changed after them.

The folder follows the history by sequence number. Its manifest names the segments and is replaced, by a rename, only
after their files were synced; a file that it does not name is left over and removed. All of it can be built again.
"""

import contextlib
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from recollect.analysis import Analyzer
from recollect.dataclass import dataclass
from recollect.errors import StoreError
from recollect.stores.sqlite.blocks import Stack, cores
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.manifest import WRITTEN_ROWS, Folder, Key, Manifest, SpaceFiles, due
from recollect.stores.sqlite.rows import Connection, integers
from recollect.stores.sqlite.segments import SELECTED, Ints, Segment, build, merged
from recollect.stores.sqlite.views import View, stacked
from recollect.stores.sqlite.visible import Visible, VisibleSets
from recollect.types import Filter, Progress

COLD_ROWS = 256  # rows read at once at which they are written too, so that the next process need not read them
COLD_BYTES = 2**19  # bytes of text in such rows at which a few of them are written, too
BATCH_ROWS = 32_768  # rows of a segment that is built at once
SHARED_ROWS = 8_192  # rows from which on a second process is worth its start
START_ROWS = 3_000  # rows that one process reads until another has started

LARGEST_ROWS = 262_144  # rows of segments that are not merged any more

RETRY_S = 30.0  # pause after a failed write: a full disk should not slow down every search
SCRUB_WAIT_S = 30.0  # how long removing the bytes of purged records waits for another process that writes
RECENT_VIEWS = 8  # views in memory, for threads whose snapshot is a little older

NOT_SCRUBBED = "{} could not be rewritten: words or vectors of purged texts stay in it until the next purge"


@dataclass(slots=True)
class State:
    """What determines the view of a snapshot: the last change, the last vector, the store, its language, its epoch.

    The epoch rises when the history is changed before its end.
    """

    seq: int
    number: int
    store: str
    language: str | None
    epoch: str
    view: View | None = None


def state_of(connection: Connection) -> State:
    """The state of a connection's snapshot, read once."""
    if connection.state is None:
        seq, number, store, language, epoch = connection.execute(
            "SELECT (SELECT ifnull(max(seq), 0) FROM history),"
            " (SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'embeddings'),"
            " (SELECT value FROM meta WHERE key = 'id'), (SELECT value FROM meta WHERE key = 'language'),"
            " (SELECT value FROM meta WHERE key = 'epoch')"
        ).get
        connection.state = State(seq, number, store or "", language, epoch or "")
    state: State = connection.state
    return state


def raise_epoch(connection: Connection) -> None:
    """Note that the history has changed before its end: every index is built again."""
    connection.execute(
        "INSERT INTO meta VALUES ('epoch', '1')"
        " ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)"
    )


class Index:
    """The index of one store. `view` returns what belongs to a snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.folder = Folder(database.index_folder)
        self.analyzer = Analyzer()
        self._lock = threading.RLock()
        self._key = Key()
        self._base: View | None = None
        self._views: OrderedDict[int, View] = OrderedDict()
        self._outdated = False
        self._retry_at = 0.0
        self._sets = VisibleSets()
        # Read before any snapshot begins, so that it is not newer than that.
        self._manifest = self.folder.read()

    def view(self, connection: Connection, progress: Progress | None = None) -> View:
        """The view of a connection's snapshot. What it lacks is read from the file."""
        state = state_of(connection)
        if state.view is None:
            with self._lock:
                self._follow_key(state)
                view = self._views.get(state.seq)
                state.view = self._advance(connection, state, progress) if view is None else view
                self._outdated = False
        return state.view

    def visible(self, connection: Connection, where: Filter) -> Visible:
        """The records that a filter admits in a connection's snapshot."""
        view = self.view(connection)  # which may change the analyzer
        return self._sets.get(connection, where, view, self.analyzer)

    def lag(self, connection: Connection) -> int:
        """How many changes are not indexed. A few that the next search reads by itself do not count."""
        state = state_of(connection)
        with self._lock:
            self._follow_key(state)
            behind = state.seq - max([*self._views, self._files(connection, state).seq])
            return behind if self._outdated or behind >= COLD_ROWS else 0

    def files_of(self, connection: Connection, space: int) -> SpaceFiles | None:
        """The files of a space's vectors that belong to this store and are not newer than the snapshot."""
        with self._lock:
            state, manifest = state_of(connection), self._manifest
            files = None if manifest is None else manifest.spaces.get(str(space))
            if manifest is None or files is None or manifest.key.history != (state.store, state.epoch):
                return None
            fits = files.seq <= state.seq and files.number <= state.number
            fits = fits and files.entry == _entry(connection, files.seq)
            return files if fits and _last(connection, files.number) in ("", files.last) else None

    def has_files(self, space: int) -> bool:
        """Whether there are files of a space's vectors, also some that do not fit."""
        with self._lock:
            return self._manifest is not None and str(space) in self._manifest.spaces

    @contextlib.contextmanager
    def settled(self, connection: Connection, wait_s: float = 0.0) -> Iterator[bool]:
        """Write all of a snapshot's view to files. While the block lasts no other process writes; False if one does."""
        state = state_of(connection)
        with self._lock, self._writing(wait_s) as writing:
            self._follow_key(state)
            if writing and self._adopt(connection, state):
                view = self._with_changes_applied(connection, state, self._nearest(connection, state), writing=True)
                if view is not self._base or any(map(self.folder.missing, view.segments)):
                    view = self._settle(connection, state, view)
                state.view = self._remember(state, view)
                yield view is self._base
            else:
                yield False

    def publish(self, connection: Connection, space: int, stack: Stack) -> bool:
        """Let new files of a space's vectors count; False where that failed. Inside `settled` only."""
        if self._manifest is not None:
            files = SpaceFiles(
                stack.seq, stack.number, _entry(connection, stack.seq), _last(connection, stack.number), stack.blocks
            )
            manifest = replace(self._manifest, spaces={**self._manifest.spaces, str(space): files})
            with self.tolerated():
                self.folder.commit(manifest)
                self._manifest = manifest
                return True
        return False

    def scrub(self) -> str | None:
        """Rewrite the files that hold anything of records that were changed or forgotten; a warning if that failed."""
        if not self.folder.path.exists():
            return None
        with self._database.read() as connection, self._lock, self._writing(SCRUB_WAIT_S) as writing:
            state = state_of(connection)
            self._follow_key(state)
            if writing and self._adopt(connection, state):
                view = self._with_changes_applied(connection, state, self._nearest(connection, state))
                view = self._remember(state, self._settle(connection, state, view, scrub=True))
                if view is self._base and all(mask is None for mask in view.live):
                    return None
        return NOT_SCRUBBED.format(self.folder.path)

    def discard(self) -> None:
        """Forget all that is indexed, in memory and in the folder."""
        with self._lock, self._writing(SCRUB_WAIT_S) as writing:
            if not writing:
                raise StoreError(f"{self.folder.path} cannot be written to", hint="check its permissions")
            self.folder.clear()
            self._manifest, self._base = None, None
            self._views.clear()

    # -- following the history ----------------------------------------------------------------------------

    def _follow_key(self, state: State) -> None:
        """Another process may have changed the language, or put a part of the history in."""
        if state.language is not None and state.language != self.analyzer.language:
            self.analyzer = Analyzer(state.language)
        key = Key(state.store, self.analyzer.fingerprint, state.epoch)
        if key != self._key:
            self._outdated = self._key != Key()
            self._key, self._base = key, None
            self._views.clear()

    def _files(self, connection: Connection, state: State) -> View:
        """The view of the files as they were read; an empty one where they belong to another store or language."""
        if self._base is None:
            manifest = self._manifest
            if manifest is None or not self._fits(connection, state, manifest):
                return View()
            self._base = stacked(manifest.segments, manifest.seq)
        return self._base if self._base.seq <= state.seq else View()

    def _fits(self, connection: Connection, state: State, manifest: Manifest) -> bool:
        return (
            manifest.key == self._key
            and manifest.seq <= state.seq
            and manifest.entry == _entry(connection, manifest.seq)
        )

    def _adopt(self, connection: Connection, state: State) -> bool:
        """Use what another process has written since. False if that is newer than this snapshot: nothing is written."""
        manifest = self.folder.read()
        if manifest is None or manifest.key != self._key:
            return True
        if manifest.seq > state.seq and manifest.seq <= self._database.newest():
            return False
        known = self._files(connection, state)
        other = [part.file for part in manifest.segments] != [part.file for part in known.segments]
        if other and manifest.seq >= known.seq and self._fits(connection, state, manifest):
            self._manifest, self._base = manifest, None
            self._views.clear()  # they stand on files that were replaced
        elif self._manifest is not None:
            self._manifest = replace(self._manifest, spaces=manifest.spaces)
        return True

    def _advance(self, connection: Connection, state: State, progress: Progress | None) -> View:
        """The view of a new snapshot."""
        start = self._nearest(connection, state)
        behind = state.seq - start.seq
        many = behind >= COLD_ROWS or behind + start.unwritten >= WRITTEN_ROWS
        due = many or (behind > 0 and _bytes_after(connection, start.seq) >= COLD_BYTES)
        with self._writing() if due else contextlib.nullcontext(enter_result=False) as writing:
            writable = due and self._adopt(connection, state) and writing  # a read-only store adopts, too
            start = self._nearest(connection, state)
            view = self._with_changes_applied(connection, state, start, progress, writing=writable)
            if writable:
                view = self._settle(connection, state, view)
        return self._remember(state, view)

    def _remember(self, state: State, view: View) -> View:
        if not state.seq:  # while a copy is under way, records come before their history
            return view
        self._views[state.seq] = view
        while len(self._views) > RECENT_VIEWS:
            self._views.popitem(last=False)
        return view

    def _nearest(self, connection: Connection, state: State) -> View:
        """The newest view that is not newer than a snapshot."""
        views = [*self._views.values(), self._files(connection, state)]
        return max((view for view in views if view.seq <= state.seq), key=lambda view: view.seq, default=View())

    def _with_changes_applied(
        self,
        connection: Connection,
        state: State,
        view: View,
        progress: Progress | None = None,
        *,
        writing: bool = False,
    ) -> View:
        """A view with the changes after it; large segments go to files at once."""
        rows, done = rows_after(connection, view.seq), 0
        for part, built in _built(connection, rows, self.analyzer):
            # Rows that were forgotten are gone.
            segment = replace(built, gone=np.delete(part, np.searchsorted(part, built.rows)))
            if writing and len(part) >= WRITTEN_ROWS:
                with self.tolerated():
                    segment = self.folder.write(segment)
            view = view.plus(segment).condensed()
            done += len(part)
            if progress:
                progress(done, len(rows))
        return view if view.seq == state.seq else replace(view, seq=state.seq)

    # -- writing files ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self, wait_s: float = 0.0) -> Iterator[bool]:
        """Whether files may be written until the block ends."""
        if self._database.read_only or time.monotonic() < self._retry_at:
            yield False
            return
        with self.folder.writing(wait_s) as writing:
            yield writing

    @contextlib.contextmanager
    def tolerated(self) -> Iterator[None]:
        """Do without files for a while after one could not be written."""
        try:
            yield
        except OSError:
            self._retry_at = time.monotonic() + RETRY_S

    def _settle(self, connection: Connection, state: State, view: View, *, scrub: bool = False) -> View:
        """Write what is in memory, merge segments of about the same size, and let a new manifest count."""
        with self.tolerated():
            while span := due(view.segments, view.live, largest=LARGEST_ROWS, scrub=scrub):
                view = view.with_merged(*span, self.folder.write)
            # Somebody may have deleted the folder.
            present = (self.folder.write(each) if self.folder.missing(each) else each for each in view.segments)
            view = View(tuple(present), view.live, state.seq, state.seq)
            before = self._manifest
            spaces = {
                name: files
                for name, files in (before.spaces if before and before.key.history == self._key.history else {}).items()
                if not any(map(self.folder.missing, files.blocks))
            }
            manifest = Manifest(self._key, state.seq, _entry(connection, state.seq), view.segments, spaces)
            self.folder.commit(manifest)
            self._manifest, self._base = manifest, view
        return view


def rows_after(connection: Connection, seq: int) -> Ints:
    """The rows that changed after a number of the history, rising; all rows after none."""
    # By the index on `row`, SQLite would read the whole history.
    after = "SELECT DISTINCT row FROM history NOT INDEXED WHERE seq > ?" if seq else "SELECT row FROM records"
    rows = integers(connection.execute(f"SELECT group_concat(row) FROM ({after})", (seq,) if seq else ()).get)
    return np.sort(rows)


def _bytes_after(connection: Connection, seq: int) -> int:
    """The bytes of all texts that changed after a number of the history."""
    changed = "SELECT row FROM history NOT INDEXED WHERE seq > ?"
    sql = f"SELECT ifnull(sum(octet_length(text)), 0) FROM records WHERE row IN ({changed})"
    return int(connection.execute(sql, (seq,)).get)


def _built(connection: Connection, rows: Ints, analyzer: Analyzer) -> Iterator[tuple[Ints, Segment]]:
    """Rows in parts, in their order, and the segment of the records of each part, as they are now."""
    select = partial(_select, connection)
    if len(rows) < SHARED_ROWS or cores() == 1:
        for start in range(0, len(rows), BATCH_ROWS):
            part = rows[start : start + BATCH_ROWS]
            yield part, build(select(part), analyzer)
        return
    from recollect.stores.sqlite.builder import segments

    if len(rows) > BATCH_ROWS:
        pairs = -(-len(rows) // (2 * BATCH_ROWS))
        yield from segments(np.array_split(rows, 2 * pairs), select, analyzer)
    else:
        halves = np.split(rows, [(len(rows) + START_ROWS) // 2])
        yield rows, merged([segment for _, segment in segments(halves, select, analyzer)], [None, None], first=True)


def _select(connection: Connection, rows: Ints) -> Iterator[Sequence[Any]]:
    only, values = condition_of(rows)
    sql = f"SELECT {SELECTED} FROM records WHERE {only} AND forgotten_at IS NULL ORDER BY row"
    return connection.execute(sql, values)


def condition_of(rows: Ints) -> tuple[str, list[str]]:
    """A condition in SQL for rising rows, and its parameters."""
    first, last = int(rows[0]), int(rows[-1])
    if len(rows) == last - first + 1:
        return f"row BETWEEN {first} AND {last}", []
    return "row IN (SELECT value FROM json_each(?))", [json.dumps(rows.tolist())]


def _entry(connection: Connection, seq: int) -> str:
    """A hash of one change, which a store that was restored from a backup and continued has not."""
    row = connection.execute("SELECT row, id, at FROM history WHERE seq = ?", (seq,)).get
    return hashlib.blake2b(repr(row).encode(), digest_size=16).hexdigest()


def _last(connection: Connection, number: int) -> str:
    """A hash of the vector with a number, by what it is of; empty where it was deleted."""
    passage = connection.execute("SELECT passage FROM embeddings WHERE number = ?", (number,)).get
    return "" if passage is None else hashlib.blake2b(passage, digest_size=16).hexdigest()
