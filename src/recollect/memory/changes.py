"""Learning of changes: of all of them or, behind a wall, of those that can be seen from there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from recollect.types import Changes, Scope, Store


@contextlib.contextmanager
def changes(store: Store, within: Scope | None, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
    """Within it, True each time that something has happened that `within` may see, False after each quiet while."""
    with store.changes.listen(quiet) as ticks:
        if within is None:
            yield ticks
        else:
            sight = Sight(store.changes, within)
            yield (told and sight.look() for told in ticks)


class Sight:
    """What a scope (or, with None, anybody) has been told of.

    `newest` is the number of the newest line of history. For a scope it is the number of lines that this scope may see:
    the store's own numbers would tell how much others write. The lines are counted once; then what is new is added.
    """

    def __init__(self, changes: Changes, scope: Scope | None) -> None:
        self._changes = changes
        self._scope = scope
        newest = changes.newest(scope)
        _, self._from = changes.since(newest, scope)
        self._known, _ = changes.since(self._from, scope)
        if scope is None:
            self.newest = max([newest, *self._known])
        else:
            self.newest = changes.count(self._from, scope) + len(self._known)

    def look(self) -> bool:
        """Whether anything has happened since the last look."""
        known = set(self._known)
        self._known, self._from = self._changes.since(self._from, self._scope)
        new = set(self._known) - known
        self.newest = max([self.newest, *new]) if self._scope is None else self.newest + len(new)
        return bool(new)
