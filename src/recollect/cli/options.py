"""Flags that mean the same in every command, and what they open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.cli.flags import add_flags
from recollect.cli.terminal import notice, progress
from recollect.options import SCOPE

if TYPE_CHECKING:
    from recollect.config import Loaded
    from recollect.memory import Memory

F = TypeVar("F", bound=Callable[..., Any])


_NOTES = "recollect.notes"
"""The notes that a command has shown, in its context."""

_COMMON = ("store", "config", "user", "agent", "session", "embedder")


def common(command: F) -> F:
    """The flags of every command; given before the command or after it."""
    for option in (
        click.option("--embedder", metavar="NAME", help="The embedding model; `none` is keyword search only."),
        partial(add_flags, SCOPE),
        click.option("--config", metavar="FILE", help="A settings file instead of the user's and the project's."),
        click.option(
            "--store",
            metavar="PLACE",
            help="A file, or a URL such as postgresql://user@host/database (or RECOLLECT_STORE).",
        ),
    ):
        command = option(command)
    return command


def json_flag(command: F) -> F:
    """`--json`, the same everywhere."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The common flags, those after the command over those before it."""
    before = click.get_current_context().find_root().obj or {}
    return {name: options.get(name) if options.get(name) is not None else before.get(name) for name in _COMMON}


def settings_flags(options: Mapping[str, Any]) -> tuple[Path | None, dict[str, Any]]:
    """The settings file named by --config, and the other common flags as settings."""
    values = given(options)
    flags = {name: values[name] for name in ("store", "embedder")}
    flags |= {f"scope.{name}": values[name] for name in ("user", "agent", "session")}
    return Path(values["config"]) if values["config"] else None, flags


def load_settings(options: Mapping[str, Any], search: Mapping[str, Any] | None = None) -> Loaded:
    """All settings, with the flags on top."""
    from recollect import config

    file, flags = settings_flags(options)
    flags |= {f"search.{name}": value for name, value in (search or {}).items()}
    loaded = config.load(config=file, flags=flags)
    shown = click.get_current_context().find_root().meta.setdefault(_NOTES, set())
    for note in loaded.notes:
        if note not in shown:  # some commands load the settings twice
            notice(note)
            shown.add(note)
    return loaded


def open_memory(
    options: Mapping[str, Any], search: Mapping[str, Any] | None = None, *, reads: bool = False, fetch: bool = True
) -> Memory:
    """The memory that the flags and settings name. One who only `reads` does not make a store that is not there."""
    from recollect.memory import Memory, default_store
    from recollect.stores import kind_of

    settings = load_settings(options, search).settings
    place = settings.store or str(default_store())
    if reads and place != ":memory:" and not (kind := kind_of(place)).exists(place):
        notice(f"there is no store at {kind.describe(place)} yet; `recollect index` or `recollect add` makes one")
        place = ":memory:"
    return Memory.open(place, settings=settings, announce=notice, fetching=progress("fetching"), fetch=fetch)


def read_input(file: str, hint: str) -> bytes:
    """The content of a file, or of standard input for `-`; `hint` says what to name instead of a wrong file."""
    from recollect.errors import FailedError, UsageError

    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        problem = "is a folder" if isinstance(error, IsADirectoryError) else "does not exist"
        raise UsageError(f"{file} {problem}", hint=hint) from error
    except OSError as error:
        reason = error.strerror or error
        raise FailedError(f"{file} cannot be read: {reason}", hint="check the permissions of the file") from error
