"""One SQLite file: opening it safely, reading from snapshots, writing in short transactions.

Always through apsw, which brings its own SQLite: engines before 3.51.3 can lose acknowledged writes in WAL mode.
"""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recollect.disk import give_name, sync
from recollect.errors import StoreError
from recollect.stores.database import Reading, SqlDatabase
from recollect.stores.sqlite.presence import Identity, Presence, identity_of
from recollect.stores.sqlite.rows import DIALECT, Connection, open_to_read, sequence
from recollect.stores.sqlite.schema import APPLICATION_ID, mark, migrate, with_all_columns
from recollect.types import Scope

T = TypeVar("T")

OLDEST_ENGINE = (3, 51, 3)
BUSY_TIMEOUT_MS = 30_000
LOOKING_TIMEOUT_MS = 1_000  # how long a health check waits for a lock: it reports one
PATIENCE_MS = 50  # how long an optional write, such as a cached answer, waits for other writers
FIRST_PAUSES_S = (0.001, 0.002, 0.005)  # between the first tries of a writer that waits for others
PAUSE_S, SHORTER_PAUSE_S = 0.025, 0.01  # between later ones, and between those of a writer that has waited `LONG_S`
LONG_S = 0.3

WAL_LIMIT_BYTES = 64 * 1024 * 1024
CHECKPOINT_PAGES = 4_000  # of the log (16 MB) that are written into the file together: most changed more than once
STEPS = 20_000  # steps of the engine between two calls of a progress handler
READER_CACHE_KB = 500  # of each connection that reads; a server may have as many as it has threads
WRITER_CACHE_KB = 64_000  # for pages of the indexes, which a bulk load changes all over


class Patience:
    """How a writer waits for others: who has waited long tries more often, so that no writer waits for very long.

    SQLite's own way is the reverse: it tries every 100 ms in the end, and whoever has just come overtakes it. Many that
    try every few milliseconds would take the processor from the one that they wait for.
    """

    def __init__(self) -> None:
        self.most_ms = BUSY_TIMEOUT_MS
        self._began = 0.0

    def __call__(self, tries: int) -> bool:
        """Called by SQLite after each try that failed; whether to try again."""
        if not tries:
            self._began = time.monotonic()
        waited = time.monotonic() - self._began
        later = PAUSE_S if waited < LONG_S else SHORTER_PAUSE_S
        time.sleep(FIRST_PAUSES_S[tries] if tries < len(FIRST_PAUSES_S) else later)
        return waited * 1000 < self.most_ms


class Database(SqlDatabase):
    """A pool of reading connections and one writing connection to the same file.

    With `untouched`, for a health check, no file appears beside the store either. Without `prepare`, for a backup, the
    schema of an older version stays as it is.
    """

    dialect = DIALECT

    def __init__(self, path: Path, *, read_only: bool = False, untouched: bool = False, prepare: bool = True) -> None:
        super().__init__(str(path), read_only=_is_read_only(path) or read_only)
        self.path = path
        self.place = path.absolute()  # the current folder may change while the store is open
        self._timeout_ms = LOOKING_TIMEOUT_MS if untouched else BUSY_TIMEOUT_MS
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._write_lock = threading.Lock()
        self._writes = 0
        check_engine(apsw.sqlite_lib_version())
        # In WAL mode a reader makes log files that stay. A file without a log can be read as it lies there.
        self._frozen = untouched and not Path(f"{path}-wal").exists()
        with translated(path):
            if path.exists():
                if not path.stat().st_size:  # perhaps the rest of a store, which a new one in its place would hide
                    raise StoreError(
                        f"{path} is empty: there is no store in it",
                        hint="if there was one, restore it from a backup; to start a new one here, delete the file",
                    )
                self._refuse_foreign()
            elif not self.read_only:
                self._create()
            self._writer, identity = self._open_steadily()
            self._writer.execute(f"PRAGMA cache_size=-{WRITER_CACHE_KB}")
            self._patience = Patience()
            self._writer.set_busy_handler(self._patience)
            self._presence = Presence(self.place, identity)
            try:
                if not self.read_only:
                    if prepare:
                        _prepare(self._writer)
                    self._presence.begin(self._writer)
            except BaseException:
                self._writer.close()
                raise

    @contextlib.contextmanager
    def read(self, scope: Scope | None = None) -> Iterator[Connection]:  # noqa: ARG002  (a file has no roles)
        reading = self._reading or Reading(ended=True)
        with translated(self.path):
            try:
                with reading.lock:
                    reading.depth += 1
                    try:
                        yield self._shared(reading)
                    finally:
                        reading.depth -= 1
            finally:
                self._end_if_free(reading)

    def _shared(self, reading: Reading) -> Connection:
        """Its connection, in a snapshot that holds all that this process wrote before."""
        begun, connection = reading.snapshots.popitem() if reading.snapshots else (-1, self._take())
        writes = self._writes if reading.depth == 1 else begun
        reading.snapshots[writes] = connection
        if writes != begun or not connection.in_transaction:  # SQLite ends one itself after an I/O error
            self._roll_back(connection)
            connection.execute("BEGIN")
            connection.state = None
            self._presence.check_read(None if self.read_only else connection)
        return connection

    def _end(self, reading: Reading) -> None:
        while reading.snapshots and not reading.depth:
            connection = reading.snapshots.popitem()[1]
            self._roll_back(connection)
            self._idle.append(connection)

    @staticmethod
    def _roll_back(connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def write(self, patience_ms: int = BUSY_TIMEOUT_MS) -> Iterator[Connection]:
        """The writing connection inside a transaction: committed and synced when the block ends, or rolled back.

        `patience_ms` is how long to wait for other writers.
        """
        super().check()
        if self.read_only:
            raise StoreError(f"{self.path} is read-only", hint="check the permissions of the file and its folder")
        with translated(self.path):
            if not self._write_lock.acquire(timeout=-1 if patience_ms >= BUSY_TIMEOUT_MS else patience_ms / 1000):
                raise StoreError(f"{self.path} is being written to by another thread", hint="try again")
            try:
                self._presence.check(self._writer)
                self._patience.most_ms = patience_ms
                self._writer.execute("BEGIN IMMEDIATE")
                self._presence.check_sequence(self._writer)
                yield self._writer
                self._presence.check_write(self._writer)
                last = sequence(self._writer)
                self._writer.execute("COMMIT")
                self._writes += 1
                # Once more, so that an acknowledged write is in the file at the path.
                self._presence.check_write(self._writer)
                self._presence.highest = max(self._presence.highest, last)
            finally:
                self._roll_back(self._writer)
                self._write_lock.release()

    def transact(self, work: Callable[[Any], T]) -> T:
        with self.write() as connection:
            return work(connection)

    def try_write(self, work: Callable[[Any], None], scope: Scope | None = None) -> None:  # noqa: ARG002
        if not self.read_only:
            with contextlib.suppress(StoreError), self.write(PATIENCE_MS) as connection:
                work(connection)

    def empty_log(self) -> None:
        """Move the write-ahead log into the file, as far as readers allow, and truncate it."""
        with translated(self.path), self._write_lock:
            self._presence.check_write(self._writer)
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            # SQLite does not sync the truncated log: after a power loss the old one would be there again.
            sync(parts_of(self.place.resolve())[1])

    def copy_into(self, target: Path) -> None:
        """Write one committed state of the store into an empty file, while others write to the store and search it.

        Nothing of what was deleted is in the copy, neither in free pages nor between rows.
        """
        with translated(target), contextlib.closing(self._connect()) as connection:
            connection.execute("PRAGMA secure_delete=ON")  # the pages of the copy inherit it
            connection.set_progress_handler(lambda: False, STEPS)  # Python notices Ctrl-C while it is called
            connection.execute("VACUUM INTO ?", (str(target),))

    def files(self) -> list[Path]:
        """The file, those that SQLite keeps beside it, and those of the index."""
        return [part for part in (*parts_of(self.place), *files_in(self.index_folder)) if part.exists()]

    @property
    def index_folder(self) -> Path:
        """The folder of the derived index."""
        return index_folder(self.place)

    def newest(self) -> int:
        """The number of the last change now, whatever snapshot this thread reads."""
        connection = self._take()
        try:
            return sequence(connection)
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        keep_log = not self.read_only and not self._presence.may_checkpoint(self._writer)
        for connection in (*self._all, self._writer):
            if keep_log:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()

    def _take(self) -> Connection:
        super().check()
        try:
            return self._idle.pop()
        except IndexError:
            self._presence.check()
            connection = self._connect()
            try:
                self._presence.check()  # the connection must have the same file open
            except BaseException:
                connection.close()
                raise
            connection.execute(f"PRAGMA cache_size=-{READER_CACHE_KB}")
            self._all.append(connection)
            return connection

    def check(self) -> None:
        """Raise StoreError after closing, in another process, and when the file is no longer at its path."""
        super().check()
        self._presence.check()

    def _open_steadily(self) -> tuple[Connection, Identity]:
        for _ in range(3):
            before = identity_of(self.place)
            connection = self._connect()
            if before is not None and identity_of(self.place) == before:
                return connection, before
            connection.close()
        raise StoreError(f"{self.path} was replaced while it was being opened", hint="try again")

    def _create(self) -> None:
        """Make a new store in a temporary file, readable by its owner only, and rename it when it is complete.

        So nobody ever finds half a store at the path. If another process was first, its store stays.
        """
        target = self.place.resolve()  # a link may name a file that is not there yet
        try:
            number, name = tempfile.mkstemp(prefix=".recollect-", suffix=".new", dir=target.parent)  # mode 0600
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be made: {error.strerror}", hint="check the permissions of its folder"
            ) from error
        try:
            with os.fdopen(number, "r+b") as file:
                with contextlib.closing(self._connect(name)) as connection:
                    connection.execute("PRAGMA synchronous=OFF")  # synced once, when it is complete
                    _prepare(connection)
                os.fsync(file)
            give_name(Path(name), target)
        finally:
            for part in parts_of(name):
                part.unlink(missing_ok=True)

    def _connect(self, name: str | None = None) -> Connection:
        if self.read_only:
            return with_all_columns(self._open_to_read())
        connection = Connection(name or str(self.place), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Deleted data is overwritten: a purge must leave nothing in free pages.
        connection.execute(
            f"PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; PRAGMA journal_size_limit={WAL_LIMIT_BYTES};"
            f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}"
        )
        return connection

    def _open_to_read(self) -> Connection:
        connection = open_to_read(self.place, immutable=self._frozen)
        connection.set_busy_timeout(self._timeout_ms)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection

    def _refuse_foreign(self) -> None:
        """Refuse the database of another program before anything is written to it."""
        try:
            with contextlib.closing(self._open_to_read()) as connection:
                check_owner(connection, self.path)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            if self._frozen:
                raise
            # A file in WAL mode needs an index file beside it; where that cannot be made, the file is read as it is.
            self._frozen = True
            self._refuse_foreign()


def parts_of(path: str | Path) -> list[Path]:
    """The file of a store and its log files, in this order, whether they exist or not."""
    return [Path(f"{path}{end}") for end in ("", "-wal", "-shm")]


def index_folder(path: Path) -> Path:
    """The folder of the index of a store, beside its file."""
    return Path(f"{path.resolve()}-index")


def name_of(identifier: str | None, path: Path) -> str:
    """The name of a store: its own id and its place, because a copy of the file has the same id."""
    return f"sqlite {identifier} {index_folder(path)}"


def files_in(folder: Path) -> list[Path]:
    """The files of a folder; none where it cannot be read."""
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if path.is_file()]
    return []


def check_engine(version: str) -> None:
    """Refuse a version of SQLite that can lose acknowledged writes."""
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_ENGINE:
        oldest = ".".join(map(str, OLDEST_ENGINE))
        raise StoreError(
            f"SQLite {version} can lose acknowledged writes; {oldest} or newer is needed",
            hint=f"pip install --upgrade 'apsw>={oldest}.0'",
        )


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into StoreErrors with a hint."""
    try:
        yield
    except apsw.Error as error:
        message, hint = next(texts for kinds, *texts in _EXPLAINED if isinstance(error, kinds))
        if isinstance(error, apsw.FullError) and _numbers_used_up(path):
            message, hint = _USED_UP
        raise StoreError(message.format(path=path, error=error), hint=hint) from error


_EXPLAINED: tuple[tuple[type[apsw.Error] | tuple[type[apsw.Error], ...], str, str], ...] = (
    (apsw.NotADBError, "{path} is not a Recollect store", "name another file; this one was left untouched"),
    (apsw.CorruptError, "{path} is damaged: {error}", "restore it from a backup; nothing was changed"),
    ((apsw.BusyError, apsw.LockedError), "{path} is locked by another process",
     "try again; if it stays locked, look for a process that is stuck in the middle of a write"),
    ((apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError), "{path} cannot be opened for writing",
     "check the permissions of the file and its folder"),
    (apsw.FullError, "the disk is full: nothing more was written to {path}", "free some space"),
    (apsw.Error, "{path}: {error}", "check the disk; nothing of this write was kept"),
)  # fmt: skip
"""(errors, message, hint); the first that fits counts."""

_USED_UP = (
    "{path}: the highest number that a change can have is used up; nothing was written",
    "`recollect copy --merge` it into a store that has a record: its history gets new numbers there",
)


def _numbers_used_up(path: Path) -> bool:
    """SQLite reports that like a full disk."""
    with contextlib.suppress(apsw.Error), contextlib.closing(Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as file:
        return bool(file.execute("SELECT max(seq) = ? FROM sqlite_sequence", (2**63 - 1,)).get)
    return False


def _is_read_only(path: Path) -> bool:
    if "\0" in str(path):
        raise StoreError(
            f"{str(path)!a} cannot be a path: it holds a NUL", hint="name a file in a folder you may write to"
        )
    try:
        str(path).encode()  # a name that is not text cannot name a store, though it may name a file
        if path.is_dir():
            raise StoreError(f"{path} is a folder", hint="a store is one file: name a file, for example memory.db")
        if not path.exists():
            _make_folder(path.parent)
            return False
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{str(path)!a} cannot be opened: {error}", hint="name a file in a folder you may write to"
        ) from error
    return not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _make_folder(path: Path) -> None:
    """Make the folder of a new store, and those above it."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def _prepare(connection: apsw.Connection) -> None:
    # Two processes that open a new file at once both switch it to WAL, and the switch itself does not wait.
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    migrate(connection)
    mark(connection)


def check_owner(connection: apsw.Connection, path: Path) -> None:
    """Refuse the database of another program."""
    # In one snapshot: between two, another process may have made the store.
    connection.execute("BEGIN")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    owner = connection.pragma("application_id")
    connection.execute("COMMIT")
    if tables and owner != APPLICATION_ID:
        raise StoreError(
            f"{path} is a database of another program", hint="name another file; this one was left untouched"
        )
