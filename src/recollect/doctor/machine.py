"""Checks of what is around the store: settings, versions, packages, disk, and who may read what."""

from __future__ import annotations

import difflib
import importlib.util
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from recollect import __version__
from recollect.config import has_secret, unknown_variables, user_file
from recollect.config.loading import ENVIRONMENT, OTHER_VARIABLES, names
from recollect.doctor.findings import Finding, Telling
from recollect.doctor.setup import Setup, is_file
from recollect.errors import RecollectError
from recollect.stores.sqlite.database import WAL_LIMIT_BYTES

TOKENS = "tokens.json"
OTHERS, ANYONE_ELSE = 0o004, 0o077
PASS = 0o001

STORES = {"postgresql": ("postgres", "psycopg"), "lancedb": ("lancedb", "lancedb")}
"""The extra that a kind of store needs, and the package that shows whether it is there."""


def settings(setup: Setup) -> Iterator[Finding]:
    """Whether every settings file is read, and every variable is a setting."""
    unused = [Finding("settings", "note", note, "recollect trust") for note in setup.notes]
    wrong = [*setup.wrong, *unused, *_variables(), *_named_sources(setup)]
    yield from wrong
    if not wrong:
        read = ", ".join(map(str, setup.read))
        yield Finding("settings", "ok", f"read from {read}" if read else "the defaults; no settings file is there")


def _variables() -> Iterator[Finding]:
    known = [*OTHER_VARIABLES, *(ENVIRONMENT + name.replace(".", "_").upper() for name in names() if name != "sources")]
    for variable in unknown_variables(os.environ):
        near = difflib.get_close_matches(variable, known, n=1)
        hint = f"did you mean {near[0]}? else: " if near else ""
        yield Finding("settings", "warning", f"{variable} is no setting and is ignored", f"{hint}unset {variable}")


def _named_sources(setup: Setup) -> Iterator[Finding]:
    there = ("keyword", "vector", *(source.name for source in setup.settings.sources))
    for name in setup.settings.search.sources or ():
        if name not in there:
            said = f"search.sources names {name!r}, and there is no such source: no search is answered"
            yield Finding("settings", "failure", said, f"there are {', '.join(there)}")


def versions(setup: Setup) -> Iterator[Finding]:  # noqa: ARG001  (a check's form)
    """Whether the engine is one that keeps what it acknowledged."""
    import apsw

    from recollect.stores.sqlite.database import check_engine

    try:
        check_engine(apsw.sqlite_lib_version())
    except RecollectError as error:
        yield Finding("versions", "failure", error.message, error.hint)
        return
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("versions", "ok", f"recollect {__version__}, {python}, SQLite {apsw.sqlite_lib_version()}")


def extras(setup: Setup) -> Iterator[Finding]:
    """Whether the packages are there that a setting needs."""
    from recollect.models.embedders import EMBEDDERS

    entry = EMBEDDERS.builtin.get(setup.settings.embedder.partition(":")[0])
    needed = [(f"embedder = {setup.settings.embedder!r}", entry.extra, entry.extra)] if entry and entry.extra else []
    if setup.kind in STORES:
        needed.append((f"a store at {setup.kind}://…", *STORES[setup.kind]))
    missing = [part for part in needed if importlib.util.find_spec(part[2].replace("-", "_")) is None]
    for what, extra, _ in missing:
        said = f"{what} needs a package that is not installed"
        yield Finding("extras", "failure", said, f"pip install 'recollect[{extra}]'")
    if not missing:
        told = f"the settings need {', '.join(extra for _, extra, _ in needed) or 'none'}"
        there = [name for name, whole in _extras().items() if whole and name != "dev"]
        yield Finding("extras", "ok", f"{told}; installed: {', '.join(there) or 'none'}")


def _extras() -> dict[str, bool]:
    """Every extra of ours, and whether all that it brings is installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    def there(package: str) -> bool:
        try:
            return bool(version(package))
        except PackageNotFoundError:
            return False

    found: dict[str, bool] = {}
    try:
        listed = requires("recollect") or []
    except PackageNotFoundError:  # run from its source
        return found
    for line in listed:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)", line)
        if package and extra:
            found[extra[1]] = found.get(extra[1], True) and there(package[0])
    return found


def disk(setup: Setup) -> Iterator[Finding]:
    """Whether there is room, whether the store can be written, and who else may read what is kept."""
    path = setup.store
    if path is not None:
        yield from _room(path)
        yield from _writable(path)
        if _readable_by_others(path):
            said = f"every user of this machine may read {path}, and so all that is remembered"
            yield Finding("disk", "warning", said, f"chmod 600 {_quoted(path)}", partial(_close_store, path))
    if _readable_by_others(user_file()):
        secret = has_secret(setup.place)
        password = ", with the password of the store" if secret else ""
        said = f"every user of this machine may read {user_file()}{password}"
        yield Finding("disk", "warning" if secret else "note", said, f"chmod 600 {_quoted(user_file())}")


def _close_store(path: Path, telling: Telling) -> None:
    for end in ("", "-wal", "-shm"):
        if is_file(part := Path(f"{path}{end}")):
            _close(part, telling)


def _room(path: Path) -> Iterator[Finding]:
    parts = {end: Path(f"{path}{end}") for end in ("", "-wal", "-shm")}
    sizes = {end: part.stat().st_size if is_file(part) else 0 for end, part in parts.items()}
    free, size = shutil.disk_usage(_first_there(path)).free, sum(sizes.values())
    yield room(free, size)
    if sizes["-wal"] > 2 * WAL_LIMIT_BYTES:
        said = f"the log {parts['-wal']} has grown to {_megabytes(sizes['-wal'])}: a process holds on to an old state"
        yield Finding("disk", "warning", said, "end the process that has had the store open for long")


def room(free: int, size: int) -> Finding:
    """What so many free bytes are for a store of that size: building its indexes anew writes as much again."""
    said = f"{_megabytes(free)} free beside a store of {_megabytes(size)}"
    if free < WAL_LIMIT_BYTES:
        return Finding("disk", "failure", f"{said}: writing will fail soon", "free some space")
    if free < size + WAL_LIMIT_BYTES:
        return Finding("disk", "warning", f"{said}: too little to write it anew", "free some space")
    return Finding("disk", "ok", said)


def _writable(path: Path) -> Iterator[Finding]:
    """A log is kept beside the file, so that its folder counts too."""
    if not path.exists():
        folder = _first_there(path)
        if not os.access(folder, os.W_OK):
            yield Finding("disk", "failure", f"no store can be made in {folder}", "name another place: --store FILE")
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        said = f"{path} can be searched but not written: the file or its folder is read-only"
        yield Finding("disk", "warning", said, f"give yourself the right to write to {path.parent} and the file in it")


def _first_there(path: Path) -> Path:
    """The folder of a path, or the nearest one above it that exists."""
    return next((folder for folder in path.absolute().parents if folder.is_dir()), Path(path.anchor or "."))


def _readable_by_others(path: Path) -> bool:
    """Whether its own mode and every folder above let anyone through to it."""
    if os.name != "posix" or not is_file(path):
        return False
    return bool(path.stat().st_mode & OTHERS) and all(
        folder.stat().st_mode & PASS for folder in path.absolute().parents
    )


def tokens(setup: Setup) -> Iterator[Finding]:  # noqa: ARG001  (a check's form)
    """Whether the tokens of `recollect serve` are the user's alone."""
    path = user_file().parent / TOKENS
    if not is_file(path):
        yield Finding("tokens", "ok", "none are kept")
    elif os.name == "posix" and path.stat().st_mode & ANYONE_ELSE:
        mode = f"{path.stat().st_mode & 0o777:o}"
        said = f"others may use {path}: its mode is {mode}, not 600"
        yield Finding("tokens", "warning", said, f"chmod 600 {_quoted(path)}", partial(_close, path))
    else:
        yield Finding("tokens", "ok", f"{path} is yours alone")


def _close(path: Path, telling: Telling) -> None:
    telling.announce(f"taking {path} from everyone but you")
    path.chmod(0o600)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _megabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"  # noqa: PLR2004
