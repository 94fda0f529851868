"""Checks of what is stored: the file, the keyword index, the vectors, and the files that it mirrors."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import apsw

from recollect.doctor import mirrored, texts
from recollect.doctor.findings import Finding
from recollect.doctor.keywords import disagreements, rebuild, state_of
from recollect.doctor.looking import DERIVED, LONGEST_S, damage, looking, schema, steadily, unreadable
from recollect.doctor.server import Server, TooLong
from recollect.doctor.server import looking as reached
from recollect.doctor.setup import Setup
from recollect.doctor.vectors import ahead, told
from recollect.errors import RecollectError
from recollect.stores.lance.place import read_place
from recollect.stores.sqlite.database import refuse_empty
from recollect.stores.sqlite.rows import meta
from recollect.stores.sqlite.schema import MIGRATIONS

MAKE = "recollect index FOLDER{flags}, or recollect add TEXT{flags}"
RESTORE = "restore it from a backup, or index the folders again into a new one: recollect index FOLDER --store NEW"
FLAGGED = """
    SELECT EXISTS (SELECT 1 FROM records WHERE kind = 'chunk' AND forgotten_at IS NULL
        AND (tags != '[]' OR coalesce(user, agent, session) IS NOT NULL))
"""
"""Whether some files are somebody's or tagged: without the same flags they would be indexed as others."""


def store(setup: Setup) -> Iterator[Finding]:
    """Whether the store is there, is ours, is of this version and whole."""
    path = setup.store
    if setup.kind == "postgresql":
        yield from _at_server("store", setup)
    elif setup.kind == "memory":
        yield Finding("store", "note", "kept in memory alone: there is nothing to look into")
    elif path is None:
        yield _misnamed(setup)
    elif path.is_dir():
        yield Finding("store", "failure", f"{path} is a folder", "name a file, for example memory.db")
    elif not path.exists():
        yield Finding("store", "note", f"there is no store at {path} yet", MAKE.format(flags=setup.flags))
    else:
        yield from steadily(path, partial(_opened, path))


def _misnamed(setup: Setup) -> Finding:
    """A place that no store can be at."""
    try:
        if setup.kind == "lancedb":
            read_place(setup.place)
    except RecollectError as error:
        return Finding("store", "failure", error.message, error.hint)
    return Finding(
        "store", "failure", f"unknown kind of store {setup.kind!r}", "name a file, postgresql://… or lancedb://…"
    )


def _at_server(check: str, setup: Setup) -> list[Finding]:
    """What a check finds in PostgreSQL; where that cannot be reached, `store` says why, and the others say no more."""
    try:
        with reached(setup.place) as server:
            return _asked(check, server, setup)
    except RecollectError as error:
        if check == "store":
            return [Finding("store", "failure", error.message, error.hint)]
        return [Finding(check, "note", "not looked at: the store cannot be read")]


def _asked(check: str, server: Server, setup: Setup) -> list[Finding]:
    from recollect.doctor import postings, roles, spaces

    checks = {"keywords": postings.keywords, "vectors": spaces.vectors, "files": mirrored.files, "store": roles.store}
    try:
        reason = "" if check == "store" else roles.unready(server)
        return [Finding(check, "note", f"not looked at: {reason}")] if reason else list(checks[check](server, setup))
    except TooLong:
        return [Finding(check, "note", f"not looked at: it takes longer than {LONGEST_S:g} s")]
    except RecollectError as error:
        return [Finding(check, "failure", error.message, error.hint)]


def _opened(path: Path) -> list[Finding]:
    try:
        return list(_of_version(path))
    except RecollectError as error:
        return [Finding("store", "failure", error.message, RESTORE if "damaged" in error.message else error.hint)]


def _of_version(path: Path) -> Iterator[Finding]:
    refuse_empty(path)
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
        altered = texts.in_file(connection)
    if altered.records:
        return Finding("store", "failure", f"{path}: {altered.message}", altered.mend)
    said = f"{path}: {count:,} records, schema {len(MIGRATIONS)}"
    if finished and altered.finished:
        return Finding("store", "ok", f"{said}, no damage")
    hint = f'sqlite3 {shlex.quote(str(path))} "PRAGMA quick_check" reads all of it'
    return Finding("store", "note", f"{said}, no damage seen in {LONGEST_S:g} s; there is more of it", hint)


@dataclass(frozen=True, slots=True)
class Look:
    """A look into a store's file that can be read."""

    path: Path
    connection: apsw.Connection
    setup: Setup


def _inside(check: Callable[[Look], Iterable[Finding]]) -> Callable[[Setup], list[Finding]]:
    """A check of what is in the store: where that cannot be read, `store` says why, and this one says no more."""

    @wraps(check)
    def run(setup: Setup) -> list[Finding]:
        if setup.kind == "postgresql":
            return _at_server(check.__name__, setup)
        reason = unreadable(setup)
        if reason or setup.store is None:
            return [Finding(check.__name__, "note", f"not looked at: {reason}")]
        return steadily(setup.store, partial(look, setup, setup.store))

    def look(setup: Setup, path: Path) -> list[Finding]:
        try:
            with looking(path) as connection:
                return list(check(Look(path, connection, setup)))
        except RecollectError as error:
            return [Finding(check.__name__, "failure", error.message, error.hint)]

    return run


@_inside
def keywords(look: Look) -> Iterator[Finding]:
    """How far the keyword index is behind, and whether it holds what is stored."""
    yield from look.setup.language_note(meta(look.connection, "language"))
    mend, lag = f"recollect doctor --fix{look.setup.flags}", state_of(look.connection)
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
    if look.setup.settings.embedder == "none":
        yield Finding("vectors", "ok", "none wanted: keyword search only")
    else:
        yield told(ahead(look.setup.settings, look.connection), look.setup)
    if place := look.setup.lance:
        from recollect.doctor.lance import lance

        yield from lance(place, look.setup, look.connection)


@_inside
def files(look: Look) -> Iterator[Finding]:
    """Whether the files that were indexed are still as they were."""
    rows: list[Any] = look.connection.execute(mirrored.SELECT).fetchall()
    yield from mirrored.compared(rows, look.setup.flags, lambda: look.connection.execute(FLAGGED).get)
