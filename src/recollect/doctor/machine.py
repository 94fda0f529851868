"""Checks of what is around the store: settings, versions, packages, disk, and who may read what."""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from recollect import __version__
from recollect.config import has_secret, unknown_variables, user_file
from recollect.config.settings import ENVIRONMENT, OTHER_VARIABLES, names
from recollect.doctor.setup import Setup
from recollect.errors import RecollectError
from recollect.memory import default_store
from recollect.models.embedders import EMBEDDERS
from recollect.stores import STORES, kind_of, scheme_of
from recollect.stores.health import Finding, Reporter, is_file, readable_by_others

TOKENS = "tokens.json"
ANYONE_ELSE = 0o077


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
    """Whether the engine of the default store is one that keeps what it acknowledged."""
    try:
        engine = kind_of(str(default_store())).engine()
    except RecollectError as error:
        yield Finding("versions", "failure", error.message, error.hint)
        return
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("versions", "ok", f"recollect {__version__}, {python}, {engine}")


def extras(setup: Setup) -> Iterator[Finding]:
    """Whether the packages are there that a setting needs."""
    scheme = scheme_of(setup.place)
    parts = {
        f"embedder = {setup.settings.embedder!r}": EMBEDDERS.builtin.get(setup.settings.embedder.partition(":")[0]),
        f"a store at {scheme}://…": STORES.builtin.get(scheme),
    }
    needed = {what: entry for what, entry in parts.items() if entry and entry.extra}
    missing = {what: entry.extra for what, entry in needed.items() if not entry.installed}
    for what, extra in missing.items():
        said = f"{what} needs a package that is not installed"
        yield Finding("extras", "failure", said, f"pip install 'recollect[{extra}]'")
    if not missing:
        names = ", ".join(entry.extra or "" for entry in needed.values())
        there = [name for name, whole in _extras().items() if whole and name != "dev"]
        yield Finding("extras", "ok", f"the settings need {names or 'none'}; installed: {', '.join(there) or 'none'}")


def _extras() -> dict[str, bool]:
    """Every extra of this project, and whether everything it brings is installed."""
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


def own_files(setup: Setup) -> Iterator[Finding]:
    """Who else may read the user's settings, which may hold a password."""
    if readable_by_others(user_file()):
        secret = has_secret(setup.place)
        password = ", with the password of the store" if secret else ""
        said = f"every user of this machine may read {user_file()}{password}"
        yield Finding("disk", "warning" if secret else "note", said, f"chmod 600 {_quoted(user_file())}")


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


def _close(path: Path, reporter: Reporter) -> None:
    reporter.announce(f"taking {path} from everyone but you")
    path.chmod(0o600)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
