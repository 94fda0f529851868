"""Reading settings from their places, later places over earlier ones, each value with where it came from."""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from recollect.config.lines import lines
from recollect.config.places import shown_place
from recollect.config.settings import CHECKS, SearchSettings, Settings
from recollect.config.sources import read_sources
from recollect.errors import ConfigError

PROJECT_FILE = "recollect.toml"
ENVIRONMENT = "RECOLLECT_"
OTHER_VARIABLES = (
    "RECOLLECT_CONFIG", "RECOLLECT_MODELS", "RECOLLECT_OFFLINE", "RECOLLECT_THREADS", "RECOLLECT_DATA",
    "RECOLLECT_TEST_POSTGRES", "RECOLLECT_TEST_OLD_POSTGRES", "RECOLLECT_TOKEN",
)  # fmt: skip
"""Read by other parts than the settings."""

PROJECT_MAY_SET = ("language", "search.", "scope.")
"""A project's file may come with a cloned repository: it may tune search, not say where data is kept or sent."""

SENDS = ("search.hyde", "search.rerank_model")
"""Settings of search that send the question to a language model, or could name a part that does."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and for each dotted name where its value came from."""

    settings: Settings
    origins: Mapping[str, str]

    def value(self, name: str) -> Any:
        """The value of a setting by its dotted name."""
        value: Any = self.settings
        for part in name.split("."):
            value = getattr(value, part)
        return value


def load(
    *,
    config: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Loaded:
    """Read all places. A named `config` file stands in for the user's and the project's."""
    environment = os.environ if environment is None else environment
    named = config or (Path(environment["RECOLLECT_CONFIG"]) if environment.get("RECOLLECT_CONFIG") else None)
    values: dict[str, tuple[object, str]] = {}
    if named is not None:
        if not named.is_file():
            raise ConfigError(f"there is no settings file {named}", hint="check --config or RECOLLECT_CONFIG")
        values |= _from_file(named)
    else:
        values |= _from_file(user_file())
        values |= _from_project((folder or Path.cwd()) / PROJECT_FILE)
    values |= _from_environment(environment)
    values |= {_known(name, "a flag"): (value, "a flag") for name, value in (flags or {}).items() if value is not None}
    checked = {name: (_fitting(name, value, origin), origin) for name, (value, origin) in values.items()}
    origins = dict.fromkeys(names(), "default") | {name: origin for name, (_, origin) in checked.items()}
    return Loaded(_built({name: value for name, (value, _) in checked.items()}), origins)


def override(search: SearchSettings, values: Mapping[str, object]) -> SearchSettings:
    """Search settings with some values replaced, checked as if they came from a file."""
    origin = "the call"
    checked = {name: _fitting(_known(f"search.{name}", origin), value, origin) for name, value in values.items()}
    return dataclasses.replace(search, **checked)  # type: ignore[arg-type]


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none: misspelt, most likely."""
    settable = (name for name in names() if name != "sources")
    known = {ENVIRONMENT + name.replace(".", "_").upper() for name in settable} | set(OTHER_VARIABLES)
    return sorted(name for name in environment if name.startswith(ENVIRONMENT) and name not in known)


def user_file() -> Path:
    """Where the user's own settings are."""
    import platformdirs

    return Path(platformdirs.user_config_dir("recollect")) / "config.toml"


@cache
def names() -> Mapping[str, Any]:
    """Every setting's dotted name and its type."""
    return dict(_walk(Settings, ""))


def _walk(table: type, prefix: str) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(table)
    for entry in dataclasses.fields(table):
        hint = hints[entry.name]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _walk(hint, f"{prefix}{entry.name}.")
        else:
            yield f"{prefix}{entry.name}", hint


def _from_file(path: Path) -> dict[str, tuple[object, str]]:
    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, ValueError) as error:  # not text, not TOML, or a number of thousands of digits
        raise ConfigError(f"{path} cannot be read: {error}", hint="settings are TOML: name = value") from error
    found = lines(text)
    values: dict[str, tuple[object, str]] = {}
    if "sources" in tables:
        values["sources"] = (read_sources(tables.pop("sources"), str(path), found), str(path))
    for name, value in _flat(tables, ""):
        place = f"{path}, line {found[name]}" if name in found else str(path)
        values[name] = (_fitting(_known(name, place), value, place), str(path))
    return values


def _from_project(path: Path) -> dict[str, tuple[object, str]]:
    values = _from_file(path)
    for name in values:
        if not name.startswith(PROJECT_MAY_SET) or name.startswith(SENDS):
            raise ConfigError(
                f"{path} may not set {name}: a project's settings can come from someone else",
                hint=f"put it into {user_file()}, or name this file with --config if you trust it",
            )
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    for name in names():
        variable = ENVIRONMENT + name.replace(".", "_").upper()
        if environment.get(variable) and name != "sources":
            found[name] = (environment[variable], variable)
    return found


def _flat(tables: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _known(name: str, origin: str) -> str:
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"unknown setting {name!r} in {origin}", hint=f"{hint}`recollect config show` lists them all")
    return name


def _fitting(name: str, value: object, origin: str) -> object:
    if name == "sources":
        return value  # checked table by table when the file was read
    converted = _converted(names()[name], value)
    passes, words = CHECKS.get(name, (lambda _: True, ""))
    if converted is _MISFIT or not passes(converted):
        wanted = words or _type_words(names()[name])
        said = shown_place(value) if name == "store" and isinstance(value, str) else value
        raise ConfigError(f"{name} from {origin} must be {wanted}, not {said!r}", hint="`recollect config show`")
    return converted


_MISFIT = object()
HUGE = 10**300
"""No setting is a number of this size, and a float could hardly hold it."""


def _converted(hint: Any, value: object) -> object:
    """The value as the type asked for; text from the environment is read as TOML would be."""
    if tuple in (typing.get_origin(hint), *map(typing.get_origin, typing.get_args(hint))):
        items = value.split(",") if isinstance(value, str) else value
        fits = isinstance(items, list | tuple) and all(isinstance(item, str) for item in items)
        return tuple(item.strip() for item in items) if fits else _MISFIT  # type: ignore[attr-defined]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if kinds == (bool, str) and isinstance(value, str):
        known = _from_text(bool, value)
        return value if known is _MISFIT else known
    kind = kinds[0]
    match value:
        case bool():
            return value if kind is bool else _MISFIT
        case str() if kind is not str:
            return _from_text(kind, value)
        case int() if kind is float:
            return float(value) if abs(value) < HUGE else _MISFIT
    return value if isinstance(value, kind) else _MISFIT


def _from_text(kind: type, text: str) -> object:
    if kind is bool:
        return {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}.get(
            text.lower(), _MISFIT
        )
    try:
        return kind(text)
    except ValueError:
        return _MISFIT


def _type_words(hint: Any) -> str:
    kind = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(kind, "a list of names")


def _built(values: Mapping[str, object]) -> Settings:
    top: dict[str, Any] = {}
    tables: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        (tables.setdefault(table, {}) if table else top)[key] = value
    hints = typing.get_type_hints(Settings)
    return Settings(**top, **{table: hints[table](**keys) for table, keys in tables.items()})
