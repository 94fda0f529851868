"""Lazy tables of named parts: a part is imported when it is loaded by name. Packages add parts by entry points.

Built-in parts come first: a package cannot replace one by being installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from recollect.dataclass import dataclass
from recollect.errors import DISTRIBUTION, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Part = TypeVar("Part")
OURS = __name__.partition(".")[0]


class Entry(NamedTuple):
    """Where a built-in part is, and the extra of this project that installs what it needs.

    `self_contained` says that the part sends no text anywhere and loads nothing but files that this project pins by
    hash. Only such a part may be opened because a store names it; any other must be named by the user's own settings.
    `package` is the package that shows whether the extra is installed, where its name is not that of the extra.
    """

    target: str
    extra: str | None = None
    self_contained: bool = False
    package: str | None = None

    @property
    def installed(self) -> bool:
        """Whether the package that shows that its extra is installed can be imported."""
        package = self.package or self.extra
        return package is None or importlib.util.find_spec(package.replace("-", "_")) is not None


@dataclass(frozen=True, slots=True)
class Registry(Generic[Part]):
    """Parts of one kind by name: `builtin` ones, and those of the entry point `group`."""

    kind: str
    builtin: Mapping[str, Entry]
    group: str

    def load(self, name: str) -> Part:
        """Import and return the part with this name."""
        entry = self.builtin.get(name)
        try:
            if entry is None:
                return cast("Part", self._foreign(name).load())
            module, _, attribute = entry.target.partition(":")
            return cast("Part", reduce(getattr, attribute.split("."), import_module(module)))
        except ImportError as error:
            raise missing_package(error, f"the {self.kind} {name!r}", entry.extra if entry else None) from error

    def check(self, name: str) -> None:
        """Raise an error if there is no part with this name, without importing anything."""
        if name not in self.builtin:
            self._foreign(name)

    def self_contained(self, name: str) -> bool:
        """Whether a part is declared as self-contained; a part of another package never is."""
        entry = self.builtin.get(name)
        return entry is not None and entry.self_contained

    def names(self) -> list[str]:
        """Every name that can be loaded, or could be if its extra were installed; built-in names first."""
        return [*self.builtin, *sorted(self._entry_points().keys() - self.builtin.keys())]

    def _entry_points(self) -> dict[str, EntryPoint]:
        """The entry points of other packages. Reading them is slow, so built-in names are looked up first."""
        from importlib.metadata import entry_points

        return {point.name: point for point in reversed([*entry_points(group=self.group)])}

    def _foreign(self, name: str) -> EntryPoint:
        if (point := self._entry_points().get(name)) is not None:
            return point
        raise UsageError(
            f"unknown {self.kind} {name!r}; available: {', '.join(self.names())}",
            hint=f"a package can add one with an entry point in the group {self.group!r}",
        )


def missing_package(error: ImportError, what: str, extra: str | None) -> Exception:
    """The error for a part whose package is not installed; a broken import of Recollect itself is returned as is."""
    package = (error.name or "").partition(".")[0]
    if package == OURS:
        return error
    hint = f"pip install {package}" if package else "reinstall the package that provides it"
    reason = f"needs the package {package!r}, which cannot be imported" if package else "cannot be loaded"
    return UsageError(f"{what} {reason}: {error}", hint=f"pip install '{DISTRIBUTION}[{extra}]'" if extra else hint)
