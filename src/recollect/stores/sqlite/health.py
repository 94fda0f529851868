"""The health of a store in a file: the file itself, the keyword index, the vectors, and the room on its disk.

Nothing is changed by looking: not the file, and not what lies beside it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from recollect.analysis import Analyzer
from recollect.errors import RecollectError, StoreError
from recollect.stores.health import (
    LONGEST_S,
    MOST_CHARACTERS,
    SAMPLE,
    Examination,
    Finding,
    NotExamined,
    Reporter,
    altered,
    is_file,
    readable_by_others,
    worst,
)
from recollect.stores.sqlite.database import WAL_LIMIT_BYTES, Database, refuse_empty, translated
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.rows import VisibleSets, meta
from recollect.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS
from recollect.stores.sqlite.store import SqliteStore

PATIENCE_MS = 1000
STEPS = 20_000
"""Steps of the engine between two looks at the clock."""

MOST_SHOWN = 20

DERIVED = "terms"
"""The table of the keyword index: damage in it is no damage to what is stored."""

MAKE = "recollect index FOLDER{0}, or recollect add TEXT{0}"
RESTORE = "restore it from a backup, or index the folders again into a new one: recollect index FOLDER --store NEW"
LIVE = "SELECT row FROM records WHERE forgotten_at IS NULL"


def examine(check: str, path: Path, examination: Examination) -> list[Finding]:
    """The findings of one check."""
    if check == "disk":
        return list(disk(path))
    if check == "store":
        return list(store(path, examination.flags))
    checks: dict[str, Callable[[Path, Examination], Iterable[Finding]]] = {"keywords": keywords, "vectors": vectors}
    require_readable(path)
    return steadily(path, lambda: list(checks[check](path, examination)))


# -- reading without leaving a trace ------------------------------------------------------------------------


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


def require_readable(path: Path) -> None:
    """Raise NotExamined with the reason where the content of a store cannot be read."""
    try:
        if not path.exists():
            raise NotExamined("there is no store yet")
        refuse_empty(path)
        with looking(path) as connection:
            version = schema(connection)
    except (OSError, StoreError) as error:
        raise NotExamined("the store cannot be read") from error
    known = len(MIGRATIONS)
    if version != known:
        raise NotExamined(f"the store has schema {version}, this version {known}")


def schema(connection: apsw.Connection) -> int | None:
    """The number of a store's schema; None where the file is another program's database."""
    if connection.pragma("application_id") != APPLICATION_ID:
        return None
    return int(connection.pragma("user_version"))


def steadily(path: Path, look: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of a look; a failure is looked at again if somebody has begun to write in the meantime."""
    before = _stamp(path)
    findings = look()
    return look() if worst(findings) == "failure" and _stamp(path) != before else findings


def _stamp(path: Path) -> tuple[int, int, bool]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size, Path(f"{path}-wal").exists()


# -- the file -----------------------------------------------------------------------------------------------


def store(path: Path, flags: str) -> Iterator[Finding]:
    """Whether the store is there, is ours, has this version's schema and no damage."""
    if path.is_dir():
        yield Finding("store", "failure", f"{path} is a folder", "name a file, for example memory.db")
    elif not path.exists():
        yield Finding("store", "note", f"there is no store at {path} yet", MAKE.format(flags))
    else:
        yield from steadily(path, partial(_file, path))


def _file(path: Path) -> list[Finding]:
    try:
        refuse_empty(path)
        with looking(path) as connection:
            version = schema(connection)
        return [_version(path, version) or _whole(path)]
    except RecollectError as error:
        return [Finding("store", "failure", error.message, RESTORE if "damaged" in error.message else error.hint)]


def _version(path: Path, version: int | None) -> Finding | None:
    known = len(MIGRATIONS)
    if version is None:
        message = f"{path} is a database of another program"
        return Finding("store", "failure", message, "name another file: --store FILE")
    if version > known:
        newer = f"{path} has schema {version}, this version knows {known}"
        return Finding("store", "failure", newer, "pip install -U recollect")
    if version < known:
        older = f"{path} has schema {version} of {known}: the next command that opens it brings it up to date"
        return Finding("store", "note", older, "recollect status")
    return None


def _whole(path: Path) -> Finding:
    lines, finished = damage(path)
    lines = [line for line in lines if DERIVED not in line]
    if lines:
        return Finding("store", "failure", f"{path} is damaged: {lines[0]}", RESTORE)
    with looking(path) as connection:
        count = connection.execute(f"SELECT count(*) FROM ({LIVE})").get
        # A purged record has an empty hash.
        texts = altered(
            connection.execute("SELECT id, kind, title, text, fold, passage FROM records WHERE passage <> x''")
        )
    if texts.records:
        return Finding("store", "failure", f"{path}: {texts.message}", texts.mend)
    summary = f"{path}: {count:,} records, schema {len(MIGRATIONS)}"
    if finished and texts.finished:
        return Finding("store", "ok", f"{summary}, no damage")
    hint = f'sqlite3 {shlex.quote(str(path))} "PRAGMA quick_check" reads all of it'
    return Finding("store", "note", f"{summary}, no damage found in {LONGEST_S:g} s; the rest was not read", hint)


def damage(path: Path, table: str | None = None) -> tuple[list[str], bool]:
    """What the engine finds wrong with a store or one of its tables, and whether there was time to read it all."""
    end = time.monotonic() + LONGEST_S
    with looking(path) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
        try:
            lines = [str(line) for (line,) in connection.execute(f"PRAGMA quick_check({table or MOST_SHOWN})")]
        except apsw.InterruptError:
            return [], False
    return [line for line in lines if line != "ok"], True


# -- the keyword index --------------------------------------------------------------------------------------


def keywords(path: Path, examination: Examination) -> Iterator[Finding]:
    """How far the keyword index is behind, and whether it holds what is stored."""
    mend = f"recollect doctor --fix{examination.flags}"
    with contextlib.closing(Database(path, read_only=True, untouched=True)) as database:
        index = SqliteKeywords(database, VisibleSets(), None)
        yield from examination.language_note(index.analyzer.language)
        with database.read() as connection:
            lag, indexed = index.lag(connection), index.indexed_to(connection)
            wrong = "" if lag or not indexed else _disagreement(path, connection, index.analyzer)
    if lag and indexed is None:
        missing = "there is no keyword index of this version's analysis; the next search builds it"
        yield Finding("keywords", "note", missing, mend, partial(rebuild, path, anew=False))
    elif lag:
        behind = f"{lag:,} changes behind; the next search catches up"
        yield Finding("keywords", "note", behind, mend, partial(rebuild, path, anew=False))
    elif wrong:
        message = f"the keyword index differs from the records: {wrong}"
        yield Finding("keywords", "failure", message, f"{mend} builds it again", partial(rebuild, path, anew=True))
    else:
        yield Finding("keywords", "ok", "up to date, and agrees with the records")


def _disagreement(path: Path, connection: apsw.Connection, analyzer: Analyzer) -> str:
    """Where an index that has read everything is not what is stored; "" where it agrees."""
    lines = damage(path, DERIVED)[0] or list(_counted(connection)) or list(_sampled(connection, analyzer))
    return lines[0] if lines else ""


def _counted(connection: apsw.Connection) -> Iterator[str]:
    """Records that it does not hold, and what it holds beyond them."""
    indexed = "SELECT id FROM terms_docsize INTERSECT SELECT row FROM lengths"
    either = "SELECT id FROM terms_docsize UNION SELECT row FROM lengths"
    for words, sql in (
        ("records are not in it", f"{LIVE} EXCEPT SELECT * FROM ({indexed})"),
        ("of its rows belong to no record", f"SELECT * FROM ({either}) EXCEPT {LIVE}"),
    ):
        count = connection.execute(f"SELECT count(*) FROM ({sql})").get
        if count:
            yield f"{count:,} {words}"


def _sampled(connection: apsw.Connection, analyzer: Analyzer) -> Iterator[str]:
    """Records, spread over all, whose words are not the ones that it has of them."""
    step = max(1, int(connection.execute(f"SELECT count(*) FROM ({LIVE})").get) // SAMPLE)
    rows = connection.execute(
        "SELECT row, id, title, text, length FROM records JOIN lengths USING (row) WHERE forgotten_at IS NULL"
        " AND row % ? = 0 AND length(text) <= ? LIMIT ?",
        (step, MOST_CHARACTERS, SAMPLE),
    ).fetchall()
    for row, name, title, text, length in rows:
        tokens = [token for part in (title, text) for token in analyzer.tokens(str(part))]
        if max(1, sum(not token.stop for token in tokens)) != length:
            yield f"it has another number of words for the record {name}"
        elif tokens and not _holds(connection, max((token.term for token in tokens), key=len), int(str(row))):
            yield f"it does not have the words of the record {name}"


def _holds(connection: apsw.Connection, term: str, row: int) -> bool:
    find = "SELECT EXISTS (SELECT 1 FROM terms_instance WHERE term = ? AND doc = ?)"
    return bool(connection.execute(find, (term, row)).get)


def rebuild(path: Path, reporter: Reporter, *, anew: bool) -> None:
    """Let the index catch up; `anew` from the first change on, as if there had never been one."""
    reporter.announce(f"building the keyword index of {path}" if anew else "letting the keyword index catch up")
    if anew:
        with contextlib.closing(Database(path)) as database, database.write() as connection:
            connection.execute("DELETE FROM meta WHERE key = 'keywords'")
    with contextlib.closing(SqliteStore(path)) as opened:
        opened.keywords.catch_up()


# -- vectors ------------------------------------------------------------------------------------------------


def vectors(
    path: Path, examination: Examination, tables: Callable[[apsw.Connection], Iterable[str]] = lambda _: ("embeddings",)
) -> Iterator[Finding]:
    """Whether every record has a vector of the model in the settings; `tables` are those that hold passages."""
    if examination.embedder == "none":
        yield Finding("vectors", "ok", "none needed: keyword search only")
        return
    with looking(path) as connection:
        spaces: Any = connection.execute(
            "SELECT space, fingerprint, embedder FROM spaces ORDER BY space DESC"
        ).fetchall()
        active, own = examination.spaces(spaces, meta(connection, "space"))
        total = int(connection.execute(f"SELECT count(*) FROM ({LIVE})").get)
        without = "".join(
            f" AND NOT EXISTS (SELECT 1 FROM {table} WHERE space = ?1 AND {table}.passage = records.passage)"
            for table in tables(connection)
        )
        missing = connection.execute(f"SELECT count(*) FROM ({LIVE}{without})", (own[0] if own else None,)).get
    same = own is not None and active == own
    yield examination.vectors(active[2] if active else None, same=same, missing=int(missing), total=total)


# -- the disk -----------------------------------------------------------------------------------------------


def disk(path: Path) -> Iterator[Finding]:
    """Whether there is room, whether the store can be written, and who else may read it."""
    yield from _room(path)
    yield from _writable(path)
    if readable_by_others(path):
        message = f"every user of this machine can read {path}, and so every record"
        yield Finding("disk", "warning", message, f"chmod 600 {shlex.quote(str(path))}", partial(_close, path))


def _close(path: Path, reporter: Reporter) -> None:
    for part in _parts(path).values():
        if is_file(part):
            reporter.announce(f"removing access to {part} for everyone but you")
            part.chmod(0o600)


def _parts(path: Path) -> dict[str, Path]:
    return {end: Path(f"{path}{end}") for end in ("", "-wal", "-shm")}


def _room(path: Path) -> Iterator[Finding]:
    parts = _parts(path)
    sizes = {end: part.stat().st_size if is_file(part) else 0 for end, part in parts.items()}
    free, size = shutil.disk_usage(_nearest_folder(path)).free, sum(sizes.values())
    yield room(free, size)
    if sizes["-wal"] > 2 * WAL_LIMIT_BYTES:
        message = f"the log {parts['-wal']} has grown to {_megabytes(sizes['-wal'])}: a process reads an old state"
        yield Finding("disk", "warning", message, "end the process that has had the store open for a long time")


def room(free: int, size: int) -> Finding:
    """Whether so many free bytes are enough for a store of that size: rebuilding its indexes writes as much again."""
    message = f"{_megabytes(free)} free beside a store of {_megabytes(size)}"
    if free < WAL_LIMIT_BYTES:
        return Finding("disk", "failure", f"{message}: writing will fail soon", "free some space")
    if free < size + WAL_LIMIT_BYTES:
        return Finding("disk", "warning", f"{message}: too little to rebuild its indexes", "free some space")
    return Finding("disk", "ok", message)


def _writable(path: Path) -> Iterator[Finding]:
    """SQLite writes a log beside the file, so its folder must be writable too."""
    if not path.exists():
        folder = _nearest_folder(path)
        if not os.access(folder, os.W_OK):
            yield Finding("disk", "failure", f"no store can be made in {folder}", "name another place: --store FILE")
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        message = f"{path} can be searched but not written: the file or its folder is read-only"
        yield Finding(
            "disk", "warning", message, f"give yourself permission to write to {path.parent} and the file in it"
        )


def _nearest_folder(path: Path) -> Path:
    """The folder of a path, or the nearest one above it that exists."""
    return next((folder for folder in path.absolute().parents if folder.is_dir()), Path(path.anchor or "."))


def _megabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"  # noqa: PLR2004
