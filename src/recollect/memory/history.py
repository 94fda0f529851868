"""A record's history as the callers of one scope see it: their lines only, numbered from 1.

The store numbers the lines of all histories in one sequence, which would tell how much others have written. Behind the
wall a line is known by its place in the record's history, and no number of the store is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recollect.types import Changes, Event, Record, Records, Scope, Store

if TYPE_CHECKING:
    from recollect.memory.memory import Memory


def since_purge(events: Sequence[Event]) -> Sequence[Event]:
    """What happened after the last purge. What came before it may have been another scope's record."""
    purged = max((place for place, event in enumerate(events, 1) if event.action == "purge"), default=0)
    return events[purged:]


def line_numbers(records: Records, events: Sequence[Event], scope: Scope) -> dict[int, int]:
    """The store's number of each line that the scope may know of → its line number in the record's history.

    Left out are lines about records of other scopes: that this record took the place of one, or that this was undone.
    A record's scope does not change, so that a line keeps its number.
    """
    numbers: dict[int, int] = {}
    hidden: set[int] = set()
    for event in since_purge(events):
        if _concerns_others(records, event, scope) or _undone(event.detail) in hidden:
            hidden.add(event.seq)
        else:
            numbers[event.seq] = len(numbers) + 1
    return numbers


def visible_history(records: Records, events: Sequence[Event], scope: Scope) -> list[Event]:
    """The lines that a scope may read now, with line numbers in place of the store's numbers."""
    numbers = line_numbers(records, events, scope)
    replaced = [str(event.detail.get("id")) for event in events if event.action == "supersedes"]
    alive = {record.id for record in records.get(replaced)}
    return [
        replace(event, seq=numbers[event.seq], detail=_translated(event.detail, numbers))
        for event in events
        if event.seq in numbers and (event.action != "supersedes" or event.detail.get("id") in alive)
    ]


def _concerns_others(records: Records, event: Event, scope: Scope) -> bool:
    if event.action != "supersedes":
        return False
    whose = records.scope_of(str(event.detail.get("id")))
    return whose is None or not scope.admits(whose)


def _translated(detail: Mapping[str, Any], numbers: Mapping[int, int]) -> Mapping[str, Any]:
    """A line's detail; a number of the store that stands for no line of this history is left out."""
    rest = {name: value for name, value in detail.items() if name != "undoes"}
    undone = _undone(detail)
    return {**rest, "undoes": numbers[undone]} if undone in numbers else rest


def _undone(detail: Mapping[str, Any]) -> int:
    """The store's number of the line that a line undoes; 0 where there is none."""
    undone = detail.get("undoes")
    return undone if isinstance(undone, int) else 0


LONGEST = 1_000
"""Records on either side that are looked up."""


def chain(memory: Memory, record: Record) -> list[str]:
    """What the record superseded, itself, and what superseded it, as far as that may be seen."""
    older: list[str] = []
    before: Record | None = record
    while before is not None and len(older) < LONGEST:
        before = _predecessor(memory, before)
        if before is not None:
            older.insert(0, before.id)
    newer: list[str] = []
    after: Record | None = record
    while after is not None and after.superseded_by and len(newer) < LONGEST:
        after = memory.get(after.superseded_by)
        if after is not None:
            newer.append(after.id)
    return [*older, record.id, *newer]


def _predecessor(memory: Memory, record: Record) -> Record | None:
    """The record whose place this one took last, if it still does."""
    for event in reversed(memory.history(record.id)):
        old = memory.get(str(event.detail.get("id"))) if event.action == "supersedes" else None
        if old is not None and old.superseded_by == record.id:
            return old
    return None


@contextlib.contextmanager
def changes(store: Store, caller: Scope | None, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
    """Within it, True each time that something has happened that `caller` may see, False after each quiet while."""
    with store.changes.listen(quiet) as ticks:
        if caller is None:
            yield ticks
        else:
            sight = Sight(store.changes, caller)
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
