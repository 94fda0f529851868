"""What is looked at: the settings as they stand, or as far as they can be read, and the store that they name."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from recollect import config
from recollect.config.places import shown_place
from recollect.config.settings import Settings
from recollect.config.trust import PROJECT_FILE
from recollect.doctor.findings import Finding
from recollect.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from recollect.stores.lance.place import Place

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

    def language_note(self, kept: str | None) -> list[Finding]:
        """A note where the settings name another language than the store has."""
        wanted = self.settings.language
        if kept is None or wanted in (None, kept):
            return []
        message = f"the settings say language = {wanted!r}, and the store keeps its own, {kept}"
        return [Finding("keywords", "note", message, f"recollect language {wanted}{self.flags}")]

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
