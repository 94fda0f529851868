"""Detects that an open store's file was deleted, replaced or overwritten, which SQLite does not check."""

import contextlib
import math
import os
import threading
import time
from pathlib import Path
from typing import TypeAlias

import apsw

from recollect.errors import StoreError
from recollect.stores.rows import meta
from recollect.stores.sqlite.rows import open_to_read, sequence
from recollect.stores.sqlite.schema import APPLICATION_ID

Identity: TypeAlias = tuple[int, int]
"""Device and inode. No new file gets the inode of a deleted one while a process has that open."""

READ_SECONDS = 0.01  # how long one check of the path covers other reads: one search reads several times


class Presence:
    """The files of one open store, and the header of the main file when it was last read."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path = path
        self._name = os.fspath(path)
        self._identity = identity
        self._logs: dict[str, Identity | None] = {}
        self._id: str | None = None
        self._comparing = threading.Lock()
        self._schema, self._pages, self._modified_ns = 0, 0, -1
        self.highest = 0
        self._is_overwritten = False
        self._checked_at = -math.inf
        self._no_logs = f" and delete {path.name}-wal and {path.name}-shm"

    def begin(self, connection: apsw.Connection) -> None:
        """Remember the log files and the content. While a connection is open, SQLite keeps the same log files."""
        self._logs = {name: identity_of(name) for name in (f"{self._name}{end}" for end in ("-wal", "-shm"))}
        self._id, self.highest = meta(connection, "id"), sequence(connection)
        self.check(connection)

    def check(self, connection: apsw.Connection | None = None) -> None:
        """Refuse a store that is not at its path any more; with a connection, also one that was overwritten."""
        self._checked_at = -math.inf
        try:
            state = os.stat(self._name)  # noqa: PTH116  (Path.stat takes twice as long, and every read comes here)
        except OSError:
            raise self._changed("was deleted", "put the file back, or restore it from a backup") from None
        if (state.st_dev, state.st_ino) != self._identity:
            raise self._changed("was replaced", "restart this process to use the file that is there now")
        if not state.st_size:
            raise self._changed("was emptied", f"stop this process and restore the file from a backup{self._no_logs}")
        if self._is_overwritten:
            raise self._overwritten()
        if state.st_mtime_ns != self._modified_ns:
            if connection is None:
                return  # the next read compares it
            self._compare(connection, state.st_mtime_ns)
        self._checked_at = time.monotonic()

    def check_read(self, connection: apsw.Connection | None) -> None:
        """Refuse a store as `check` does, unless it was checked a moment ago."""
        if time.monotonic() - self._checked_at > READ_SECONDS:
            self.check(connection)

    def check_write(self, connection: apsw.Connection) -> None:
        """Refuse a store as `check` does, and log files that were deleted: what is written to those is lost."""
        self.check(connection)
        for name, known in self._logs.items():
            if identity_of(name) != known:
                raise StoreError(
                    f"{name} was deleted while the store was in use; nothing was written",
                    hint="stop this process before any other opens the store: it then saves what is in the log."
                    " Never delete this file while a process uses the store",
                )

    def check_sequence(self, connection: apsw.Connection) -> None:
        """Refuse a history that is shorter than before: the store was replaced by an older state of it."""
        if sequence(connection) < self.highest:
            raise self._overwritten()

    def may_checkpoint(self, connection: apsw.Connection) -> bool:
        """Whether closing may write the log into the file: not into another file, and not beside a newer log."""
        try:
            self.check(connection)
        except (StoreError, apsw.Error):
            return False
        return all(identity_of(name) in (known, None) for name, known in self._logs.items())

    def _compare(self, connection: apsw.Connection, modified_ns: int) -> None:
        """Compare the file with what it was before. It was written to, by a checkpoint or by another program.

        Other processes may be in the middle of a checkpoint, or were killed in it, so that pages do not fit together.
        Only what is certain even then is compared: the first page by itself, and the id of the store.
        """
        with self._comparing:
            whole, data = connection.read("main", 0, 0, 100)  # the header of the main file, without its log
            pages, schema, application = (int.from_bytes(data[at : at + 4], "big") for at in (28, 40, 68))
            # SQLite counts changes of the schema. VACUUM adds one; VACUUM INTO and the backup API give copies another.
            # Only VACUUM makes a file smaller.
            same = whole and application == APPLICATION_ID
            same = same and self._schema <= schema <= int(connection.pragma("schema_version"))
            if not same or (schema == self._schema and pages < self._pages) or _id(self._path) not in (None, self._id):
                raise self._overwritten()
            self._schema, self._pages, self._modified_ns = schema, pages, modified_ns

    def _overwritten(self) -> StoreError:
        self._is_overwritten = True  # for good: this process has pages of both
        hint = f"stop every process that uses the store, then put the right file in place{self._no_logs}"
        return self._changed("was overwritten", hint)

    def _changed(self, what: str, hint: str) -> StoreError:
        restart = "" if "process" in hint else ", and restart this process"
        return StoreError(f"{self._path} {what} while it was in use; nothing was written", hint=f"{hint}{restart}")


def identity_of(name: str | Path) -> Identity | None:
    """Device and inode of the file at a path; None where there is none."""
    try:
        state = os.stat(name)  # noqa: PTH116  (see above)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _id(path: Path) -> str | None:
    """The id of the store in the main file, without its log; None where it cannot be read now.

    Through SQLite: if this process opened and closed the file by itself, it would lose SQLite's locks on it.
    """
    with contextlib.suppress(apsw.Error), contextlib.closing(open_to_read(path)) as connection:
        return meta(connection, "id")
    return None
