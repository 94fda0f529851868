"""What is looked at: the settings as they stand, or as far as they can be read, and the store that they name."""

from __future__ import annotations

import contextlib
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from recollect import config
from recollect.config.lines import lines
from recollect.config.loading import PROJECT_FILE, PROJECT_MAY_SET, SENDS
from recollect.config.places import shown_place
from recollect.config.settings import Settings
from recollect.doctor.findings import Finding
from recollect.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from recollect.stores.lance.place import Place

NOWHERE = Path(os.devnull)
"""A folder that holds no project's file."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One user's setup. `wrong` is what keeps settings from being read; then those of the places before it count.

    `flags` are those that a command to mend it must be given as well, so that it is done to the same store.
    """

    settings: Settings = field(default_factory=Settings)
    read: tuple[Path, ...] = ()
    wrong: tuple[Finding, ...] = ()
    flags: str = ""

    @classmethod
    def load(cls, *, named: Path | None = None, flags: Mapping[str, object] | None = None) -> Self:
        """The settings of all places, with whatever is wrong with them found instead of raised."""
        flags = {name: value for name, value in (flags or {}).items() if value is not None}
        chosen = named or (Path(said) if (said := os.environ.get("RECOLLECT_CONFIG")) else None)
        files = (chosen,) if chosen else (config.user_file(), Path.cwd() / PROJECT_FILE)
        settings, wrong = _settings(chosen, flags)
        same = [("--store", flags.get("store")), ("--config", named)]
        again = "".join(f" {flag} {shlex.quote(shown_place(str(value)))}" for flag, value in same if value)
        return cls(settings, tuple(filter(is_file, files)), tuple(wrong), again)

    @property
    def place(self) -> str:
        """Where the store is, as it was said."""
        from recollect.memory import default_store

        return self.settings.store or str(default_store())

    @property
    def kind(self) -> str:
        """What keeps the store: `sqlite`, `postgresql`, `lancedb`, `memory`, or a scheme that nothing has."""
        scheme, separator, _ = self.place.partition("://")
        if not separator:
            return "memory" if self.place == ":memory:" else "sqlite"
        return "postgresql" if scheme == "postgres" else scheme

    @property
    def lance(self) -> Place | None:
        """Where a store with LanceDB has its file and its vectors; None where it is not one, or not named rightly."""
        from recollect.stores.lance.place import read_place

        with contextlib.suppress(UsageError):
            return read_place(self.place) if self.kind == "lancedb" else None
        return None

    @property
    def store(self) -> Path | None:
        """The store's file; None where it has none."""
        if self.kind == "sqlite":
            said = self.place
            return Path(unquote(urlsplit(said).path) if "://" in said else said).expanduser()
        return self.lance.truth if self.lance else None


def _settings(chosen: Path | None, flags: Mapping[str, object]) -> tuple[Settings, list[Finding]]:
    """The settings as far as they can be read, and why no further."""
    try:
        own = config.load(config=chosen, flags=flags, folder=NOWHERE).settings
    except (ConfigError, OSError) as error:
        place = flags.get("store") or os.environ.get("RECOLLECT_STORE") or None
        fallen = replace(Settings(), store=None if place is None else str(place))
        return fallen, [_unread(error, "nothing works before; what follows is of the defaults")]
    if chosen is not None:
        return own, []
    try:
        return config.load(flags=flags).settings, []
    except (ConfigError, OSError) as error:
        misplaced = list(_misplaced(Path.cwd() / PROJECT_FILE))
        return own, misplaced or [_unread(error, "nothing works in this folder before")]


def is_file(path: Path) -> bool:
    """Whether there is such a file; one behind a closed door is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _unread(error: ConfigError | OSError, what: str) -> Finding:
    if isinstance(error, ConfigError):
        return Finding("settings", "failure", f"{error.message} ({what})", error.hint)
    said = f"{error.filename} cannot be read: {error.strerror} ({what})"
    return Finding("settings", "failure", said, "give yourself the right to read it, or name another with --config")


def _misplaced(path: Path) -> Iterator[Finding]:
    """What a project's file may not set, each with its line."""
    try:
        text = path.read_text(encoding="utf-8")
        said = [*_names(tomllib.loads(text))]
    except (OSError, ValueError):
        return
    places = lines(text)
    for name in said:
        if not name.startswith(PROJECT_MAY_SET) or name.startswith(SENDS):
            line = f", line {places[name]}" if name in places else ""
            yield Finding(
                "settings",
                "failure",
                f"{path}{line} may not set {name}: a project's settings can come from someone else",
                f"move it to {config.user_file()}, or name this file with --config if you trust it",
            )


def _names(tables: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
