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
    """What a scope (or, with None, anybody) has been told of; `newest` is the number of the newest line of history."""

    def __init__(self, changes: Changes, scope: Scope | None) -> None:
        self._changes = changes
        self._scope = scope
        self.newest = changes.newest(scope)
        _, self._from = changes.since(self.newest, scope)
        self._known, _ = changes.since(self._from, scope)
        self.newest = max([self.newest, *self._known])

    def look(self) -> bool:
        """Whether anything has happened since the last look."""
        known = set(self._known)
        self._known, self._from = self._changes.since(self._from, self._scope)
        self.newest = max([self.newest, *self._known])
        return not known.issuperset(self._known)
