"""Checks of what is stored: the file, the keyword index, the vectors, and the files that it mirrors."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import apsw

from recollect.config import Settings
from recollect.doctor.findings import Finding
from recollect.doctor.keywords import disagreements, rebuild, state_of
from recollect.doctor.looking import DERIVED, LONGEST_S, damage, looking, schema, steadily, unreadable
from recollect.doctor.setup import Setup
from recollect.doctor.vectors import ahead, fill
from recollect.errors import RecollectError
from recollect.stages.freshness import freshness
from recollect.stores.sqlite.schema import MIGRATIONS
from recollect.types import FileState

MAKE = "recollect index FOLDER{flags}, or recollect add TEXT{flags}"
RESTORE = "restore it from a backup, or index the folders again into a new one: recollect index FOLDER --store NEW"
NAMED = 3
"""Folders that are named one by one."""

FLAGGED = """
    SELECT EXISTS (SELECT 1 FROM records WHERE kind = 'chunk' AND forgotten_at IS NULL
        AND (tags != '[]' OR coalesce(user, agent, session) IS NOT NULL))
"""
"""Whether some files are somebody's or tagged: without the same flags they would be indexed as others."""


def store(setup: Setup) -> Iterator[Finding]:
    """Whether the store is there, is ours, is of this version and whole."""
    path = setup.store
    if path is None:
        kept = "in memory alone" if setup.place == ":memory:" else f"at {setup.place.partition('://')[0]}://…"
        yield Finding("store", "note", f"kept {kept}; only a store in a file of SQLite is looked into")
    elif path.is_dir():
        yield Finding("store", "failure", f"{path} is a folder", "name a file, for example memory.db")
    elif not path.exists() or not path.stat().st_size:
        yield Finding("store", "note", f"there is no store at {path} yet", MAKE.format(flags=setup.flags))
    else:
        yield from steadily(path, partial(_opened, path))


def _opened(path: Path) -> list[Finding]:
    try:
        return list(_of_version(path))
    except RecollectError as error:
        return [Finding("store", "failure", error.message, RESTORE if "damaged" in error.message else error.hint)]


def _of_version(path: Path) -> Iterator[Finding]:
    with looking(path) as connection:
        version = schema(connection)
    known = len(MIGRATIONS)
    if version is None:
        yield Finding("store", "failure", f"{path} is a database of another program", "name another file: --store FILE")
    elif version > known:
        newer = f"{path} has schema {version}, this version knows {known}"
        yield Finding("store", "failure", newer, "pip install -U recollect")
    elif version < known:
        older = f"{path} has schema {version} of {known}: the next command that opens it brings it up to date"
        yield Finding("store", "note", older, "recollect status")
    else:
        yield _whole(path)


def _whole(path: Path) -> Finding:
    found, finished = damage(path)
    found = [line for line in found if DERIVED not in line]
    if found:
        return Finding("store", "failure", f"{path} is damaged: {found[0]}", RESTORE)
    with looking(path) as connection:
        count = connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NULL").get
    said = f"{path}: {count:,} records, schema {len(MIGRATIONS)}"
    if finished:
        return Finding("store", "ok", f"{said}, no damage")
    hint = f'sqlite3 {shlex.quote(str(path))} "PRAGMA quick_check" reads all of it'
    return Finding("store", "note", f"{said}, no damage seen in {LONGEST_S:g} s; there is more of it", hint)


@dataclass(frozen=True, slots=True)
class Look:
    """A look into a store that can be read."""

    path: Path
    connection: apsw.Connection
    settings: Settings
    flags: str


def _inside(check: Callable[[Look], Iterable[Finding]]) -> Callable[[Setup], list[Finding]]:
    """A check of what is in the store: where that cannot be read, `store` says why, and this one says no more."""

    @wraps(check)
    def run(setup: Setup) -> list[Finding]:
        reason = unreadable(setup)
        if reason or setup.store is None:
            return [Finding(check.__name__, "note", f"not looked at: {reason}")]
        return steadily(setup.store, partial(look, setup, setup.store))

    def look(setup: Setup, path: Path) -> list[Finding]:
        try:
            with looking(path) as connection:
                return list(check(Look(path, connection, setup.settings, setup.flags)))
        except RecollectError as error:
            return [Finding(check.__name__, "failure", error.message, error.hint)]

    return run


@_inside
def keywords(look: Look) -> Iterator[Finding]:
    """How far the keyword index is behind, and whether it holds what is stored."""
    mend, lag = f"recollect doctor --fix{look.flags}", state_of(look.connection)
    if lag is None:
        missing = "there is no keyword index of this version's analysis; the next search builds it"
        yield Finding("keywords", "note", missing, mend, partial(rebuild, look.path, anew=False))
    elif lag:
        behind = f"{lag:,} changes behind; it catches up before it answers"
        yield Finding("keywords", "note", behind, mend, partial(rebuild, look.path, anew=False))
    elif wrong := disagreements(look.path, look.connection):
        said = f"the keyword index is not what is stored: {wrong[0]}"
        yield Finding("keywords", "failure", said, f"{mend} builds it again", partial(rebuild, look.path, anew=True))
    else:
        yield Finding("keywords", "ok", "up to date, and agrees with what is stored")


@_inside
def vectors(look: Look) -> Iterator[Finding]:
    """Whether every record has a vector of the model that is set."""
    wanted = look.settings.embedder
    if wanted == "none":
        yield Finding("vectors", "ok", "none wanted: keyword search only")
        return
    stand = ahead(look.settings, look.connection)
    # What a service on another machine would be sent, and would charge for, is for a person to say.
    fix = None if wanted.partition(":")[0] in ("openai", "ollama") else partial(fill, look.path, look.settings)
    mend = f"recollect embed --embedder {shlex.quote(wanted)}{look.flags}"
    if stand.serving and not stand.same:
        other = f"{stand.serving} answers, {wanted} is set: {stand.missing:,} records have no vector of it"
        yield Finding("vectors", "warning", other, mend, fix)
    elif stand.missing:
        yield Finding("vectors", "warning", f"{stand.missing:,} of {stand.total:,} records have none", mend, fix)
    else:
        yield Finding("vectors", "ok", f"all {stand.total:,} records have one of {wanted}")


@_inside
def files(look: Look) -> Iterator[Finding]:
    """Whether the files that were indexed are still as they were."""
    select = "SELECT path, root, mtime_ns, size, digest FROM files ORDER BY root"
    rows: list[Any] = look.connection.execute(select).fetchall()
    if not rows:
        yield Finding("files", "ok", "no folder is mirrored")
        return
    marks = [(freshness(row[0], FileState(*row)), str(row[1])) for row in rows]
    stale = [(mark, root) for mark, root in marks if mark != "fresh"]
    if not stale:
        yield Finding("files", "ok", f"all {len(rows):,} are as they were indexed")
        return
    counts = Counter(mark for mark, _ in stale)
    said = " and ".join(f"{count:,} {mark}" for mark, count in sorted(counts.items()))
    roots = list(dict.fromkeys(root for _, root in stale))
    where = shlex.join(roots[:NAMED]) + (" …" if len(roots) > NAMED else "")
    same = ", with the flags that it was indexed with" if look.connection.execute(FLAGGED).get else ""
    mend = f"recollect index {where}{look.flags}{same}"
    yield Finding("files", "warning", f"{said} since they were indexed, of {len(rows):,}", mend)
