"""Watching a store: that something changed which the caller may see."""

import contextlib
from collections.abc import Iterator, Sequence

from recollect.types import Changes, Scope, Store


@contextlib.contextmanager
def changes(store: Store, caller: Scope | None, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
    """Yield True when `caller` may see a change, False after `quiet` seconds without one."""
    with store.changes.listen(quiet) as ticks:
        if caller is None:
            yield ticks
        else:
            visible = VisibleChanges(store.changes, caller)
            yield (changed and visible.refresh() for changed in ticks)


class VisibleChanges:
    """The changes that a scope can see; with None, all of them.

    `newest` is the number of the newest change; for a scope, the count of changes that it can see. They are counted
    once, and later changes are added.
    """

    def __init__(self, changes: Changes, scope: Scope | None) -> None:
        self._changes, self._scope = changes, scope
        self._known: Sequence[int] = ()
        newest = changes.newest(scope)
        _, self._from = changes.since(newest, scope)
        self.newest = newest if scope is None else changes.count(self._from, scope)
        self.refresh()

    def refresh(self) -> bool:
        """Whether there is a new change since the last call."""
        known = set(self._known)
        self._known, self._from = self._changes.since(self._from, self._scope)
        new = set(self._known) - known
        self.newest = max([self.newest, *new]) if self._scope is None else self.newest + len(new)
        return bool(new)
