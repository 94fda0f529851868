"""What is looked at: the settings as they stand, or as far as they can be read, and the store that they name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from recollect import config
from recollect.config.addresses import shown_place
from recollect.config.settings import Settings
from recollect.config.trust import PROJECT_FILE
from recollect.errors import ConfigError, RecollectError
from recollect.memory import Memory, default_store
from recollect.memory.opening import embedder_opener
from recollect.models.catalogue import MODELS
from recollect.models.embedders import EMBEDDERS
from recollect.stores import StoreKind, kind_of
from recollect.stores.health import Examination, Finding, Reporter, is_file

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
