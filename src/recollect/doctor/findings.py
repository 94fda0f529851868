"""What a check finds, as data: how it stands, what to do about it, and what would do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from recollect.types import Progress

State: TypeAlias = Literal["ok", "note", "warning", "failure"]

STATES: tuple[State, ...] = ("ok", "note", "warning", "failure")
"""From good to bad: fine · worth knowing · works, but less well than it should · broken."""


@dataclass(frozen=True, slots=True)
class Telling:
    """Whom a fix tells what it does, and where long work shows how far it is."""

    announce: Callable[[str], None]
    progress: Callable[[str], Progress | None] = lambda _: None


Fix: TypeAlias = Callable[[Telling], None]
"""Mends what was found, or raises why not. It can be repeated, and deletes nothing that is a user's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has to say. `fixed` is whether it was mended, where that was tried."""

    check: str
    state: State
    message: str
    mend: str = ""
    fix: Fix | None = None
    fixed: bool | None = None

    def as_dict(self) -> dict[str, str | bool]:
        """The finding as JSON."""
        said: dict[str, str | bool] = {name: getattr(self, name) for name in ("check", "state", "message", "mend")}
        return said if self.fixed is None else {**said, "fixed": self.fixed}


def worst(findings: Iterable[Finding]) -> State:
    """The worst state among them."""
    return max((finding.state for finding in findings), key=STATES.index, default="ok")
