"""What is looked at: the settings as they stand, or as far as they can be read, and the store that they name."""

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
from recollect.config.addresses import shown_place
from recollect.config.settings import ENVIRONMENT, OTHER_VARIABLES, Settings, names
from recollect.config.trust import PROJECT_FILE
from recollect.errors import ConfigError, RecollectError
from recollect.memory import Memory, default_store
from recollect.memory.opening import embedder_opener
from recollect.models.catalogue import MODELS
from recollect.models.embedders import EMBEDDERS
from recollect.stores import STORES, StoreKind, kind_of, scheme_of
from recollect.stores.health import Examination, Finding, Reporter, is_file, readable_by_others

SERVICES = ("openai", "ollama")
"""Embedders that send texts to a server."""

NOWHERE = Path(os.devnull)
"""A folder that holds no project's file."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One user's setup. `wrong` is what keeps settings from being read; then those of the places before it count.

    `notes` says why a project's file was not used.
    `flags` are those that a command to mend it must be given as well, so that it is done to the same store.
    """

    settings: Settings = field(default_factory=Settings)
    read: tuple[Path, ...] = ()
    wrong: tuple[Finding, ...] = ()
    flags: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, *, named: Path | None = None, flags: Mapping[str, object] | None = None) -> Self:
        """The settings of all places, with whatever is wrong with them found instead of raised."""
        flags = {name: value for name, value in (flags or {}).items() if value is not None}
        chosen = named or (Path(said) if (said := os.environ.get("RECOLLECT_CONFIG")) else None)
        files = (chosen,) if chosen else (config.user_file(), Path.cwd() / PROJECT_FILE)
        loaded, wrong = _settings(chosen, flags)
        if loaded.notes:
            files = (config.user_file(),)
        same = [("--store", flags.get("store")), ("--config", named)]
        again = "".join(f" {flag} {shlex.quote(shown_place(str(value)))}" for flag, value in same if value)
        return cls(loaded.settings, tuple(filter(is_file, files)), tuple(wrong), again, loaded.notes)

    @property
    def place(self) -> str:
        """Where the store is, as it was said."""
        return self.settings.store or str(default_store())

    @property
    def kind(self) -> StoreKind:
        """The kind of the store. Raises UsageError where nothing has it, or a package that it needs is missing."""
        return kind_of(self.place)

    @property
    def examination(self) -> Examination:
        """What the checks of a store need to know."""
        settings = self.settings
        # Texts are not sent to a service, which may charge for it, unless a person runs the command for it.
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
    """The fingerprint of the embedder in the settings, where it can be told without loading a model; else ""."""
    name = settings.embedder.partition(":")[0]
    try:
        if name in MODELS:
            return EMBEDDERS.load(name)(settings.embedder).fingerprint
        if name in ("hashing", *SERVICES):
            return embedder_opener(settings, lambda _: None, None)(settings.embedder).fingerprint
    except RecollectError:
        pass  # the check of the model reports what is wrong with it
    return ""


def embed(place: str, settings: Settings, reporter: Reporter) -> None:
    """Compute the vectors that are missing, and let the embedder in the settings answer."""
    reporter.announce(f"computing the vectors of {settings.embedder} that are missing")
    with Memory.open(
        place, settings=settings, announce=reporter.announce, fetching=reporter.progress("fetching")
    ) as memory:
        memory.embed(progress=reporter.progress("embedding"))


def _settings(chosen: Path | None, flags: Mapping[str, object]) -> tuple[config.Loaded, list[Finding]]:
    """The settings as far as they can be read, and why no further."""
    try:
        own = config.load(config=chosen, flags=flags, folder=NOWHERE)
    except (ConfigError, OSError) as error:
        place = flags.get("store") or os.environ.get("RECOLLECT_STORE") or None
        fallen = replace(Settings(), store=None if place is None else str(place))
        return config.Loaded(fallen, {}), [_unread(error, "nothing works before; what follows is of the defaults")]
    if chosen is not None:
        return own, []
    try:
        return config.load(flags=flags), []
    except (ConfigError, OSError) as error:
        return own, [_unread(error, "nothing works in this folder before")]


def _unread(error: ConfigError | OSError, what: str) -> Finding:
    if isinstance(error, ConfigError):
        return Finding("settings", "failure", f"{error.message} ({what})", error.hint)
    said = f"{error.filename} cannot be read: {error.strerror} ({what})"
    return Finding("settings", "failure", said, "give yourself the right to read it, or name another with --config")


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
