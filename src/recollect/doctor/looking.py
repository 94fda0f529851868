"""Looks into a store's file without changing anything: not the file, and not what lies beside it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import apsw

from recollect.doctor.findings import Finding, worst
from recollect.doctor.setup import Setup
from recollect.errors import StoreError
from recollect.stores.sqlite.database import refuse_empty, translated
from recollect.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS

PATIENCE_MS = 1000
LONGEST_S = 5.0
"""How long a store is read for damage; one of gigabytes would keep a person waiting for minutes."""

STEPS = 20_000
"""Of the engine, between two looks at the clock."""

MOST_SHOWN = 20

DERIVED = "terms"
"""The table of the keyword index: damage in it is no damage to what is stored."""


@contextlib.contextmanager
def looking(path: Path) -> Iterator[apsw.Connection]:
    """A connection that sees one snapshot of a store until the block ends."""
    with translated(path):
        connection = _opened(path)
        try:
            yield connection
        finally:
            connection.close()


def _opened(path: Path) -> apsw.Connection:
    # A store in WAL mode that nobody has open has no log, and a reader would make one that stays: so it is read as it
    # lies there. Where there is a log it belongs to what is stored, unless it cannot be read from here.
    if Path(f"{path}-wal").exists():
        with contextlib.suppress(apsw.CantOpenError, apsw.ReadOnlyError):
            return _connected(path, "")
    return _connected(path, "?immutable=1")


def _connected(path: Path, how: str) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(path.absolute()))}{how}", flags=flags)
    try:
        connection.set_busy_timeout(PATIENCE_MS)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018  (a snapshot begins at the first read)
    except BaseException:
        connection.close()
        raise
    return connection


def unreadable(setup: Setup) -> str:
    """Why what is in the store cannot be looked at; nothing, where it can."""
    path = setup.store
    if path is None:
        return "it is kept in memory alone" if setup.kind == "memory" else "the store cannot be read"
    try:
        if not path.exists():
            return "there is no store yet"
        refuse_empty(path)
        with looking(path) as connection:
            version = schema(connection)
    except (OSError, StoreError):
        return "the store cannot be read"
    known = len(MIGRATIONS)
    return "" if version == known else f"the store has schema {version}, this version {known}"


def schema(connection: apsw.Connection) -> int | None:
    """The number of a store's schema; None where it is another program's database."""
    if connection.pragma("application_id") != APPLICATION_ID:
        return None
    return int(connection.pragma("user_version"))


def steadily(path: Path, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What a look finds. What looks broken is looked at again if somebody has begun to write in the meantime."""
    before = _stamp(path)
    found = look()
    return look() if worst(found) == "failure" and _stamp(path) != before else found


def _stamp(path: Path) -> tuple[int, int, bool]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size, Path(f"{path}-wal").exists()


def damage(path: Path, table: str | None = None) -> tuple[list[str], bool]:
    """What the engine finds wrong with a store or one table of it, and whether there was time to look at it all."""
    end = time.monotonic() + LONGEST_S
    with looking(path) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
        try:
            lines = [str(line) for (line,) in connection.execute(f"PRAGMA quick_check({table or MOST_SHOWN})")]
        except apsw.InterruptError:
            return [], False
    return [line for line in lines if line != "ok"], True
