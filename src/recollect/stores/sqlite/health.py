"""The health of a store in a file, which looking does not change: the file, both indexes, the room on its disk.

Copies of a store, for backups, are written and checked here, too.
"""

import contextlib
import math
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import numpy as np

from recollect.analysis import Analyzer
from recollect.errors import RecollectError, StoreError
from recollect.stores.database import TITLE_WEIGHT
from recollect.stores.health import (
    LONGEST_S,
    MOST_CHARACTERS,
    SAMPLE,
    Examination,
    Finding,
    NotExamined,
    Reporter,
    Space,
    altered,
    is_file,
    readable_by_others,
    restrict,
    worst,
)
from recollect.stores.rows import meta, refuse_newer
from recollect.stores.sqlite import SqliteStore
from recollect.stores.sqlite.database import (
    STEPS,
    WAL_LIMIT_BYTES,
    Database,
    check_owner,
    parts_of,
    translated,
)
from recollect.stores.sqlite.index import Index
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.rows import Connection, integers, open_to_read, sequence
from recollect.stores.sqlite.schema import MIGRATIONS

RESTORE = "restore it from a backup, or index the folders again into a new one: recollect index FOLDER --store NEW"
LIVE = "SELECT row FROM records WHERE forgotten_at IS NULL"
TEXTS = "SELECT id, kind, title, text, fold, passage FROM records WHERE passage <> x''"  # a purged one has no hash
COUNT = f"SELECT count(*) FROM ({LIVE})"


def examine(check: str, path: Path, examination: Examination) -> list[Finding]:
    """The findings of one check."""
    if check == "disk":
        return list(disk(path))
    if check != "store":
        require_readable(path)
        found = keywords if check == "keywords" else vectors
        return steadily(path, lambda: list(found(path, examination)))
    if path.is_dir():
        return [Finding("store", "failure", f"{path} is a folder", "name a file, for example memory.db")]
    if not path.exists():
        return [examination.no_store(str(path))]
    return steadily(path, lambda: [_file(path, examination)])


@contextlib.contextmanager
def looking(path: Path) -> Iterator[Connection]:
    """A connection that sees one snapshot of a store until the block ends, and leaves no trace."""
    with contextlib.closing(Database(path, read_only=True, untouched=True)) as database, database.read() as connection:
        yield connection


def require_readable(path: Path) -> None:
    """Raise NotExamined with the reason where the content of a store cannot be read."""
    try:
        if not path.exists():
            raise NotExamined("there is no store yet")
        with looking(path) as connection:
            version = connection.pragma("user_version")
    except (OSError, StoreError) as error:
        raise NotExamined("the store cannot be read") from error
    if version != len(MIGRATIONS):
        raise NotExamined(f"the store has schema {version}, this version {len(MIGRATIONS)}")


def steadily(path: Path, look: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of a look; a failure is looked at again if somebody has begun to write in the meantime."""

    def stamp() -> tuple[int, int, bool]:
        state = path.stat()
        return state.st_mtime_ns, state.st_size, Path(f"{path}-wal").exists()

    before = stamp()
    findings = look()
    return look() if worst(findings) == "failure" and stamp() != before else findings


def _file(path: Path, examination: Examination) -> Finding:
    try:
        with looking(path) as connection:
            version = int(connection.pragma("user_version"))
            if other := examination.schema(str(path), version, len(MIGRATIONS)):
                return other
            lines, finished = _damage(connection)
            if lines:
                return Finding("store", "failure", f"{path} is damaged: {lines[0]}", RESTORE)
            count = connection.execute(COUNT).get
            failure, compared = altered(connection.execute(TEXTS), f"{path}: ")
    except RecollectError as error:
        return Finding("store", "failure", error.message, RESTORE if "damaged" in error.message else error.hint)
    if failure:
        return failure
    summary = f"{path}: {count:,} records, schema {version}"
    if finished and compared:
        return Finding("store", "ok", f"{summary}, no damage")
    hint = f'sqlite3 {shlex.quote(str(path))} "PRAGMA quick_check" reads all of it'
    return Finding("store", "note", f"{summary}, no damage found in {LONGEST_S:g} s; the rest was not read", hint)


def _damage(connection: Connection) -> tuple[list[str], bool]:
    """What the engine finds wrong, and whether there was time to read it all."""
    end = time.monotonic() + LONGEST_S
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        lines = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)")]
    except apsw.InterruptError:
        return [], False
    finally:
        connection.set_progress_handler(None)
    return [line for line in lines if line != "ok"], True


def keywords(path: Path, examination: Examination) -> Iterator[Finding]:
    """How far the keyword index is behind, and whether it holds what is stored."""
    with contextlib.closing(Database(path, read_only=True, untouched=True)) as database:
        index = Index(database)
        analyzer = SqliteKeywords(database, index, None).analyzer
        yield from examination.language_note(analyzer.language)
        with database.read() as connection:
            lag = index.lag(connection)
            behind = lag < sequence(connection)
            problem = "" if lag else next(_problems(connection, index, analyzer), "")
    if lag:
        missing = "there is no index of this version's analysis; the next search builds it"
        message = f"{lag:,} changes behind; the next search catches up" if behind else missing
        yield Finding("keywords", "note", message, examination.fix_command, partial(rebuild, path, anew=False))
    else:
        yield examination.keywords(problem, partial(rebuild, path, anew=True))


def _problems(connection: Connection, index: Index, analyzer: Analyzer) -> Iterator[str]:
    """Where the index is not what is stored: damage, wrong rows, wrong words in a sample."""
    yield from (f"{name} is damaged" for name in index.folder.damaged())
    view = index.view(connection)
    indexed = view.rows if view.mask is None else view.rows[view.mask]
    live = integers(connection.execute(f"SELECT group_concat(row) FROM ({LIVE})").get)
    for words, rows in (
        ("records are not in it", np.setdiff1d(live, indexed)),
        ("of its rows belong to no record", np.setdiff1d(indexed, live)),
    ):
        if len(rows):
            yield f"{len(rows):,} {words}"
    sample: Any = connection.execute(
        "SELECT row, id, title, text FROM records WHERE forgotten_at IS NULL AND row % ? = 0 AND length(text) <= ?"
        " LIMIT ?",
        (max(1, len(live) // SAMPLE), MOST_CHARACTERS, SAMPLE),
    ).fetchall()
    for row, name, title, text in sample:
        (titles, first), (texts, second) = analyzer.hashed(title), analyzer.hashed(text)
        segment, place = view.place(row)
        if max(1, int(TITLE_WEIGHT) * first + second) != segment.length[place]:
            yield f"it has another number of words for the record {name}"
        hashes = np.unique(np.array([*titles, *texts], dtype=np.uint64))
        if not all(place in segment.places[start:end] for start, end in segment.postings(hashes)):
            yield f"it does not have the words of the record {name}"


def rebuild(path: Path, reporter: Reporter, *, anew: bool) -> None:
    """Let the index catch up; `anew` from the first change on, as if there had never been one."""
    reporter.announce(f"building the keyword index of {path}" if anew else "letting the keyword index catch up")
    with contextlib.closing(SqliteStore(path)) as opened:
        if anew:
            opened.keywords.index.discard()
        opened.keywords.catch_up()


def vectors(path: Path, examination: Examination) -> Iterator[Finding]:
    """Whether every record has a vector of the model in the settings."""
    without = " AND NOT EXISTS (SELECT 1 FROM embeddings WHERE space = ?1 AND embeddings.passage = records.passage)"
    with looking(path) as connection:

        def missing(own: Space | None) -> int:
            return int(connection.execute(f"SELECT count(*) FROM ({LIVE}{without})", (own[0] if own else None,)).get)

        spaces: Any = connection.execute("SELECT space, fingerprint, embedder FROM spaces ORDER BY space DESC")
        total = int(connection.execute(COUNT).get)
        yield examination.vectors(spaces.fetchall(), meta(connection, "space"), total, missing)


def disk(path: Path) -> Iterator[Finding]:
    """Whether there is room, whether the store can be written, and who else may read it."""
    sizes = [part.stat().st_size if is_file(part) else 0 for part in parts_of(path)]
    folder = next((folder for folder in path.absolute().parents if folder.is_dir()), Path(path.anchor or "."))
    yield room(shutil.disk_usage(folder).free, sum(sizes))
    if sizes[1] > 2 * WAL_LIMIT_BYTES:
        message = f"the log {path}-wal has grown to {_megabytes(sizes[1])}: a process reads an old state"
        yield Finding("disk", "warning", message, "end the process that has had the store open for a long time")
    if not path.exists():
        if not os.access(folder, os.W_OK):
            yield Finding("disk", "failure", f"no store can be made in {folder}", "name another place: --store FILE")
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):  # SQLite writes a log beside the file
        message = f"{path} can be searched but not written: the file or its folder is read-only"
        mend = f"give yourself permission to write to {path.parent} and the file in it"
        yield Finding("disk", "warning", message, mend)
    if readable_by_others(path):
        message = f"every user of this machine can read {path}, and so every record"
        fix = partial(restrict, parts_of(path))
        yield Finding("disk", "warning", message, f"chmod 600 {shlex.quote(str(path))}", fix)


def room(free: int, size: int) -> Finding:
    """Whether so many free bytes are enough for a store of that size: rebuilding its indexes writes as much again."""
    message = f"{_megabytes(free)} free beside a store of {_megabytes(size)}"
    if free < WAL_LIMIT_BYTES:
        return Finding("disk", "failure", f"{message}: writing will fail soon", "free some space")
    if free < size + WAL_LIMIT_BYTES:
        return Finding("disk", "warning", f"{message}: too little to rebuild its indexes", "free some space")
    return Finding("disk", "ok", message)


def _megabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"  # noqa: PLR2004


COUNTED = {"record": "records", "history": "history", "vector": "embeddings", "file": "files"}  # since schema 1


class CheckedFile(NamedTuple):
    """What a file holds that passed all checks: the id of its store, and how many parts of each kind."""

    identifier: str | None
    counts: dict[str, int]


def write_snapshot(store: Path, target: Path) -> None:
    """Write one committed state of a store into the empty file `target`. The store is not migrated."""
    with contextlib.closing(Database(store, prepare=False)) as database:
        database.copy_into(target)


def check_snapshot(file: Path, shown: Path) -> CheckedFile:
    """Read a file that nobody writes to. StoreError says why it is not a whole store of a version that is known.

    `shown` is the path that errors name.
    """
    with translated(shown), contextlib.closing(open_to_read(file)) as connection:
        check_owner(connection, shown)
        refuse_newer(int(connection.pragma("user_version")), len(MIGRATIONS))
        _refuse_damage(connection, shown)
        counts = {kind: connection.execute(f"SELECT count(*) FROM {table}").get for kind, table in COUNTED.items()}
        return CheckedFile(meta(connection, "id"), counts)


def _refuse_damage(connection: Connection, shown: Path) -> None:
    """Raise StoreError for damaged pages or indexes, SQL that would run by itself, and texts that lost their hash."""
    rows: Any = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if rows != [("ok",)]:
        raise StoreError(f"{shown} is damaged: {rows[0][0]}", hint="recollect doctor")
    if name := connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1").get:
        raise StoreError(f"{shown} has a trigger or view {name!r}, which no store has", hint="use another backup")
    failure, _ = altered(connection.execute(TEXTS), f"{shown}: ", seconds=math.inf)
    if failure:
        raise StoreError(failure.message, hint=failure.mend)
