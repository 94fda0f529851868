"""A process that changes a store and records everything that is written to its files (test_power.py).

`recorder.py STORE LOG SEED SYNCHRONOUS` writes the files at the start and the events, pickled, to LOG. Besides those of
`support.disk` these are:

    ("commit", digest)          a transaction of the store was committed; a digest of all its tables
    ("begin", ids)              a change to these records begins; None: to others
    ("done", {id: text})        it was acknowledged; None is the text of a record that is forgotten
    ("purged", text)            a purge was acknowledged
    ("index", {name: content})  the files of the derived index now
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from recollect import Memory
from recollect.config import Settings
from recollect.stores.sqlite import database as databases
from recollect.stores.sqlite import index as indexes
from recollect.stores.sqlite.database import Database, parts_of

OPERATIONS = 60
SYSTEM = "unix"  # SQLite's own way to use files

events: list[tuple[Any, ...]] = []


class RecordingFile(apsw.VFSFile):
    """A file whose changes are recorded."""

    def __init__(self, place: str | apsw.URIFilename, flags: list[int]) -> None:
        path = Path(place.filename() if isinstance(place, apsw.URIFilename) else place)
        self.name = path.name
        if flags[0] & apsw.SQLITE_OPEN_CREATE and not path.exists():
            events.append(("create", self.name))
        super().__init__(SYSTEM, place, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        events.append(("write", self.name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        events.append(("truncate", self.name, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        events.append(("sync", self.name))


class RecordingFiles(apsw.VFS):
    """SQLite's files, with a record of every change to them."""

    def __init__(self) -> None:
        super().__init__("recording", SYSTEM, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return RecordingFile(name, flags) if name else apsw.VFSFile(SYSTEM, name, flags)

    def xDelete(self, place: str, sync_folder: bool) -> None:  # noqa: N802
        super().xDelete(place, sync_folder)
        events.append(("delete", Path(place).name))


def recorded_fsync(number: int, fsync: Any = os.fsync) -> None:
    """Sync a file and record it, where it is one of those that are recorded."""
    fsync(number)
    name = Path(f"/proc/self/fd/{number}").readlink().name
    if any(event[0] == "write" and event[1] == name for event in events):
        events.append(("sync", name))


def digest(place: Path) -> str:
    """A digest of all rows of all tables."""
    with contextlib.closing(apsw.Connection(str(place), vfs=SYSTEM)) as connection:
        return digest_of(connection)


def digest_of(connection: apsw.Connection) -> str:
    """The same, of an open connection."""
    connection.execute("BEGIN")
    names = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    ]
    rows = [list(connection.execute(f'SELECT * FROM "{name}"')) for name in names]
    connection.execute("COMMIT")
    return hashlib.blake2b(repr(rows).encode(), digest_size=8).hexdigest()


class Workload:
    """Random changes of every kind to one store."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.numbers = itertools.count()
        self.alive: dict[str, str] = {}
        self.memory = self.open()

    def open(self, embedder: str = "hashing:8") -> Memory:
        return Memory.open(self.place, embedder=embedder, settings=Settings())

    def run(self) -> None:
        """Make changes until there have been enough of them."""
        kinds = [self.add, self.add, self.add_many, self.edit, self.supersede, self.forget, self.purge, self.search]
        kinds += [self.checkpoint, self.reopen, self.change_model]
        for work in kinds[:4] + self.chance.choices(kinds, k=OPERATIONS):
            work()
            self.record_index()
        self.memory.close()

    def text(self) -> str:
        """A new text, some of them longer than a page."""
        words = self.chance.choices(
            ["spare", "key", "blue", "pot", "garden", "door"], k=self.chance.choice((3, 12, 900))
        )
        return f"mark{next(self.numbers)}mark {' '.join(words)}"

    def any(self) -> str:
        return self.chance.choice(sorted(self.alive))

    @contextlib.contextmanager
    def change(self, *ids: str) -> Iterator[dict[str, str | None]]:
        """A change that is acknowledged when the block ends; the block fills in what is true then."""
        state: dict[str, str | None] = {}
        events.append(("begin", ids))
        yield state
        events.append(("done", state))
        self.alive |= {key: text for key, text in state.items() if text is not None}
        for key in [key for key, text in state.items() if text is None]:
            self.alive.pop(key, None)

    def add(self) -> None:
        key = f"r{next(self.numbers)}"
        with self.change(key) as state:
            state[key] = self.memory.add(self.text(), id=key, tags=["power"]).text

    def add_many(self) -> None:
        texts = {f"r{next(self.numbers)}": self.text() for _ in range(4)}
        with self.change(*texts) as state:
            state |= {one.id: one.text for one in self.memory.add_many({"id": k, "text": t} for k, t in texts.items())}

    def edit(self) -> None:
        key = self.any()
        with self.change(key) as state:
            state[key] = self.memory.edit(key, text=self.text(), tags=["edited"]).text

    def supersede(self) -> None:
        key = self.any()
        if self.memory.require(key).superseded_by is None:
            with self.change(key) as state:
                new = self.memory.supersede(key, text=self.text())
                state |= {new.id: new.text, key: self.alive[key]}

    def forget(self) -> None:
        key = self.any()
        with self.change(key) as state:
            self.memory.forget(key)
            state[key] = None

    def purge(self) -> None:
        key = self.any()
        before = self.alive[key]
        with self.change(key) as state:
            self.memory.forget(key, purge=True)
            state[key] = None
        events.append(("purged", before.split()[0]))

    def search(self) -> None:
        assert self.memory.search("blue garden key", limit=3, superseded=True).results

    def checkpoint(self) -> None:
        self.memory.store._database.empty_log()

    def reopen(self) -> None:
        self.memory.close()
        self.memory = self.open()

    def change_model(self) -> None:
        self.memory.close()
        self.memory = self.open(f"hashing:{self.chance.choice((8, 12, 16))}")
        self.memory.embed()

    def record_index(self) -> None:
        folder = self.memory.store._database.index_folder
        files = {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}
        events.append(("index", files))


def watch_commits(place: Path) -> None:
    """Record the content of the store after each of its transactions."""
    write = Database.write

    @contextlib.contextmanager
    def recorded(self: Database, *arguments: Any) -> Iterator[Any]:
        with write(self, *arguments) as connection:
            yield connection
        events.append(("commit", digest(place)))

    Database.write = recorded


def sync_less(mode: str) -> None:
    """Let every connection sync less than the product does."""
    connect = Database._connect

    def careless(self: Database, name: str | None = None) -> Any:
        connection = connect(self, name)
        connection.execute(f"PRAGMA synchronous={mode}")
        return connection

    Database._connect = careless


if __name__ == "__main__":
    # So that a small store does what a large one does.
    databases.CHECKPOINT_PAGES = 60
    indexes.COLD_ROWS, indexes.WRITTEN_ROWS = 12, 40
    store, log, seed, synchronous = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    Memory.open(store, embedder="hashing:8", settings=Settings()).close()
    before = {part.name: part.read_bytes() for part in parts_of(store) if part.exists()}
    events.append(("commit", digest(store)))
    files = RecordingFiles()
    watch_commits(store)
    os.fsync = recorded_fsync
    if synchronous != "FULL":
        sync_less(synchronous)
    Workload(store, seed).run()
    log.write_bytes(pickle.dumps((before, events)))
