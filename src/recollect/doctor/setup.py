"""The setup that is checked: settings, versions, installed packages, tokens, and the store that the settings name."""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from recollect import __version__, config
from recollect.config import has_secret, unknown_variables, user_file
from recollect.config.settings import ENVIRONMENT, OTHER_VARIABLES, Settings, names
from recollect.config.trust import PROJECT_FILE
from recollect.config.values import shown_place
from recollect.errors import ConfigError, RecollectError
from recollect.memory import Memory, default_store
from recollect.models.catalogue import MODELS
from recollect.models.embedders import EMBEDDERS, open_embedder
from recollect.stores import STORES, StoreKind, kind_of, scheme_of
from recollect.stores.health import Examination, Finding, Reporter, is_file, readable_by_others

SERVICES = ("openai", "ollama")
"""Embedders that send texts to a server."""

NOWHERE = Path(os.devnull)
"""A folder that holds no project's file."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One user's setup. `wrong` says why settings cannot be read; then only those before them in order are used.

    `notes` says why a project's file was not used. `flags` are the command-line flags that make a suggested command act
    on the same store.
    """

    settings: Settings = field(default_factory=Settings)
    read: tuple[Path, ...] = ()
    wrong: tuple[Finding, ...] = ()
    flags: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, *, named: Path | None = None, flags: Mapping[str, object] | None = None) -> Self:
        """The settings from all sources; errors in them become findings."""
        flags = {name: value for name, value in (flags or {}).items() if value is not None}
        chosen = named or (Path(file) if (file := os.environ.get("RECOLLECT_CONFIG")) else None)
        files = (chosen,) if chosen else (config.user_file(), Path.cwd() / PROJECT_FILE)
        loaded, wrong = _settings(chosen, flags)
        if loaded.notes:
            files = (config.user_file(),)
        same = [("--store", flags.get("store")), ("--config", named)]
        again = "".join(f" {flag} {shlex.quote(shown_place(str(value)))}" for flag, value in same if value)
        return cls(loaded.settings, tuple(filter(is_file, files)), tuple(wrong), again, loaded.notes)

    @property
    def place(self) -> str:
        """The path or URL of the store, as the user wrote it."""
        return self.settings.store or str(default_store())

    @property
    def kind(self) -> StoreKind:
        """The kind of the store. Raises UsageError where nothing has it, or a package that it needs is missing."""
        return kind_of(self.place)

    @property
    def examination(self) -> Examination:
        """The part of the setup that the checks of a store need."""
        settings = self.settings
        # Sending texts to a service, which may charge for them, is left to a person who runs the command.
        remote = settings.embedder.partition(":")[0] in (*SERVICES, "none")
        return Examination(
            self.place,
            self.flags,
            settings.language,
            settings.embedder,
            partial(fingerprint, settings),
            None if remote else partial(embed, self.place, settings),
        )


def fingerprint(settings: Settings) -> str:
    """The fingerprint of the embedder in the settings; "" where only loading a model would tell it."""
    name = settings.embedder.partition(":")[0]
    try:
        if name in MODELS:
            return EMBEDDERS.load(name)(settings.embedder).fingerprint
        if name in ("hashing", *SERVICES):
            return open_embedder(settings.embedder, settings=settings).fingerprint
    except RecollectError:
        pass  # the check of the model reports what is wrong with it
    return ""


def embed(place: str, settings: Settings, reporter: Reporter) -> None:
    """Compute the missing vectors, and use the embedder in the settings for searches."""
    reporter.announce(f"computing the missing vectors of {settings.embedder}")
    with Memory.open(
        place, settings=settings, announce=reporter.announce, fetching=reporter.progress("fetching")
    ) as memory:
        memory.embed(progress=reporter.progress("embedding"))


def _settings(chosen: Path | None, flags: Mapping[str, object]) -> tuple[config.Loaded, list[Finding]]:
    """The settings as far as they can be read, and the reason why no further."""
    try:
        own = config.load(config=chosen, flags=flags, folder=NOWHERE)
    except (ConfigError, OSError) as error:
        place = flags.get("store") or os.environ.get("RECOLLECT_STORE") or None
        fallen = replace(Settings(), store=None if place is None else str(place))
        return config.Loaded(fallen, {}), [_unread(error, "until then the defaults are checked")]
    if chosen is not None:
        return own, []
    try:
        return config.load(flags=flags), []
    except (ConfigError, OSError) as error:
        return own, [_unread(error, "no command works in this folder until then")]


def _unread(error: ConfigError | OSError, effect: str) -> Finding:
    if isinstance(error, ConfigError):
        return Finding("settings", "failure", f"{error.message} ({effect})", error.hint)
    message = f"{error.filename} cannot be read: {error.strerror} ({effect})"
    return Finding("settings", "failure", message, "give yourself permission to read it, or name another with --config")


TOKENS = "tokens.json"
ANYONE_ELSE = 0o077


def settings(setup: Setup) -> Iterator[Finding]:
    """Whether every settings file can be read, and every environment variable is a setting."""
    unused = [Finding("settings", "note", note, "recollect trust") for note in setup.notes]
    wrong = [*setup.wrong, *unused, *_variables(), *_named_sources(setup)]
    yield from wrong
    if not wrong:
        read = ", ".join(map(str, setup.read))
        yield Finding("settings", "ok", f"read from {read}" if read else "defaults; there is no settings file")


def _variables() -> Iterator[Finding]:
    known = [*OTHER_VARIABLES, *(ENVIRONMENT + name.replace(".", "_").upper() for name in names() if name != "sources")]
    for variable in unknown_variables(os.environ):
        near = difflib.get_close_matches(variable, known, n=1)
        hint = f"did you mean {near[0]}? else: " if near else ""
        yield Finding("settings", "warning", f"{variable} is not a setting and is ignored", f"{hint}unset {variable}")


def _named_sources(setup: Setup) -> Iterator[Finding]:
    available = ("keyword", "vector", *(source.name for source in setup.settings.sources))
    for name in setup.settings.search.sources or ():
        if name not in available:
            message = f"search.sources names {name!r}, and there is no such source: every search fails"
            yield Finding("settings", "failure", message, f"available: {', '.join(available)}")


def versions(setup: Setup) -> Iterator[Finding]:  # noqa: ARG001  (a check's form)
    """Whether the engine of the default store is safe to use."""
    try:
        engine = kind_of(str(default_store())).engine()
    except RecollectError as error:
        yield Finding("versions", "failure", error.message, error.hint)
        return
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("versions", "ok", f"recollect {__version__}, {python}, {engine}")


def extras(setup: Setup) -> Iterator[Finding]:
    """Whether the packages that the settings need are installed."""
    scheme = scheme_of(setup.place)
    parts = {
        f"embedder = {setup.settings.embedder!r}": EMBEDDERS.builtin.get(setup.settings.embedder.partition(":")[0]),
        f"a store at {scheme}://…": STORES.builtin.get(scheme),
    }
    needed = {what: entry for what, entry in parts.items() if entry and entry.extra}
    missing = {what: entry.extra for what, entry in needed.items() if not entry.installed}
    for what, extra in missing.items():
        message = f"{what} needs a package that is not installed"
        yield Finding("extras", "failure", message, f"pip install 'recollect[{extra}]'")
    if not missing:
        names = ", ".join(entry.extra or "" for entry in needed.values())
        present = [name for name, complete in _extras().items() if complete and name != "dev"]
        message = f"the settings need {names or 'none'}; installed: {', '.join(present) or 'none'}"
        yield Finding("extras", "ok", message)


def _extras() -> dict[str, bool]:
    """Every extra of this project, and whether everything it brings is installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    def installed(package: str) -> bool:
        try:
            return bool(version(package))
        except PackageNotFoundError:
            return False

    extras: dict[str, bool] = {}
    try:
        requirements = requires("recollect") or []
    except PackageNotFoundError:  # run from its source
        return extras
    for line in requirements:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)", line)
        if package and extra:
            extras[extra[1]] = extras.get(extra[1], True) and installed(package[0])
    return extras


def own_files(setup: Setup) -> Iterator[Finding]:
    """Whether other users can read the settings file, which may hold a password."""
    if readable_by_others(user_file()):
        secret = has_secret(setup.place)
        password = ", with the password of the store" if secret else ""
        message = f"every user of this machine can read {user_file()}{password}"
        yield Finding("disk", "warning" if secret else "note", message, f"chmod 600 {_quoted(user_file())}")


def tokens(setup: Setup) -> Iterator[Finding]:  # noqa: ARG001  (a check's form)
    """Whether only the user can read the tokens of `recollect serve`."""
    path = user_file().parent / TOKENS
    if not is_file(path):
        yield Finding("tokens", "ok", "there are none")
    elif os.name == "posix" and path.stat().st_mode & ANYONE_ELSE:
        mode = f"{path.stat().st_mode & 0o777:o}"
        message = f"others can use {path}: its mode is {mode}, not 600"
        yield Finding("tokens", "warning", message, f"chmod 600 {_quoted(path)}", partial(_close, path))
    else:
        yield Finding("tokens", "ok", f"{path} can be read only by you")


def _close(path: Path, reporter: Reporter) -> None:
    reporter.announce(f"removing access to {path} for everyone but you")
    path.chmod(0o600)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
