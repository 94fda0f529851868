"""A settings document of another program, read key by key: what was taken, what was left, and what is wrong where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from recollect.errors import ConfigError

LONGEST = 60
"""Characters of a key or a value of somebody else's file that are shown."""

_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mapped:
    """One setting of ours. `key` is where the document says so; empty where it does not, and the default is meant."""

    key: str
    setting: str
    value: object
    why: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key that sets nothing here, and why. Its value is not kept: it may be a secret."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a document."""

    mapped: tuple[Mapped, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @property
    def settings(self) -> Mapping[str, object]:
        """Dotted name → value, as `config.load` would have them."""
        return MappingProxyType({line.setting: line.value for line in self.mapped})


@dataclass(frozen=True, slots=True)
class Notes:
    """What has been decided so far."""

    mapped: list[Mapped] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)

    def take(self, key: str, setting: str, value: object, why: str = "") -> None:
        """A setting of ours gets a value."""
        self.mapped.append(Mapped(key, setting, value, why))

    def leave(self, key: str, why: str) -> None:
        """A key sets nothing."""
        self.ignored.append(Ignored(key, why))

    def leave_rest(self, part: Part, known: tuple[str, ...], reasons: Mapping[str, str], otherwise: str) -> None:
        """Every key of an object that is not known sets nothing."""
        for key in part:
            if key not in known:
                self.leave(part.at(key), reasons.get(key, otherwise))


@dataclass(frozen=True, slots=True)
class Part:
    """An object of the document and its place there. What a key holds is checked when it is asked for."""

    values: Mapping[str, Any]
    place: str = ""

    @classmethod
    def whole(cls, document: object) -> Part:
        """The document itself."""
        if not isinstance(document, dict):
            raise ConfigError(
                f"the file must hold an object, not {brief(document)}", hint='it begins with { "agents": … }'
            )
        return cls(document)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def at(self, key: str) -> str:
        """The path of a key, as JSON paths are written."""
        if not _PLAIN.fullmatch(key) or len(key) > LONGEST:
            return f"{self.place}[{brief(key)}]"
        return f"{self.place}.{key}" if self.place else key

    def part(self, key: str) -> Part:
        """The object under a key; an empty one where there is none."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object, for example { }")
        return Part(value, self.at(key))

    def find(self, *keys: str) -> Part | None:
        """The object that a way of keys leads to, or None where the way ends."""
        here = self
        for key in keys:
            if key not in here:
                return None
            here = here.part(key)
        return here

    def flag(self, key: str) -> bool | None:
        """True or false, or None where it is not said."""
        value = self.values.get(key)
        if key in self and not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        """A number within bounds, or None where it is not said."""
        if key not in self:
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def whole_number(self, key: str, low: int, high: int) -> int | None:
        """A whole number within bounds, or None where it is not said."""
        if key not in self:
            return None
        value = self.values[key]
        fits = not isinstance(value, bool) and isinstance(value, int | float) and low <= value <= high
        if not fits or value != int(value):
            raise self._wrong(key, f"a whole number from {low} to {high}")
        return int(value)

    def text(self, key: str) -> str | None:
        """Text that says something, or None where there is none."""
        value = self.values.get(key)
        if key in self and not _says(value):
            raise self._wrong(key, "text that is not empty")
        return value.strip() if isinstance(value, str) else None

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or None where there is none."""
        value = self.values.get(key)
        if key in self and not (isinstance(value, list) and all(map(_says, value))):
            raise self._wrong(key, "a list of texts")
        return None if value is None else tuple(value)

    def _wrong(self, key: str, wanted: str) -> ConfigError:
        return ConfigError(
            f"{self.at(key)} must be {wanted}, not {brief(self.values[key])}",
            hint="correct it in the file, or remove it",
        )


def _says(value: object) -> bool:
    """Whether this is text that can be written down: no half of a character, and not only white space."""
    return (
        isinstance(value, str) and bool(value.strip()) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    )


def brief(value: object) -> str:
    """A value in a few characters, without any that could steer a terminal."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case int() if not isinstance(value, bool) and abs(value) > 10**LONGEST:
            return f"a number of more than {LONGEST} digits"
    shown = json.dumps(value)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
