"""Histories and changes as a caller may see them.

The store numbers the changes of all records in one sequence, which would reveal how much others write. A scoped caller
therefore sees only changes that concern its scope, numbered from 1 in each record's history.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.types import Changes, Event, Record, Records, Scope, Store

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

LONGEST_CHAIN = 1_000
"""Superseded records that are followed in each direction."""


def since_purge(events: Sequence[Event]) -> Sequence[Event]:
    """The events after the last purge. Those before it may belong to another scope's record."""
    purged = max((place for place, event in enumerate(events, 1) if event.action == "purge"), default=0)
    return events[purged:]


def line_numbers(records: Records, events: Sequence[Event], scope: Scope) -> dict[int, int]:
    """The store's number of each event that the scope may see → its number in the record's history.

    Events about records of other scopes are left out: that this record superseded one, or that this was undone. A
    record's scope does not change, so an event keeps its number.
    """
    numbers: dict[int, int] = {}
    hidden: set[int] = set()
    for event in since_purge(events):
        other = records.scope_of(str(event.detail.get("id"))) if event.action == "supersedes" else scope
        if other is None or not scope.admits(other) or event.detail.get("undoes") in hidden:
            hidden.add(event.seq)
        else:
            numbers[event.seq] = len(numbers) + 1
    return numbers


def visible_history(records: Records, events: Sequence[Event], scope: Scope) -> list[Event]:
    """The events that a scope may see, numbered from 1; so is the event that an undo names."""
    numbers = line_numbers(records, events, scope)
    superseded = [str(event.detail.get("id")) for event in events if event.action == "supersedes"]
    alive = {record.id for record in records.get(superseded)}
    visible = []
    for event in events:
        if event.seq in numbers and (event.action != "supersedes" or event.detail.get("id") in alive):
            detail = dict(event.detail)
            if (undone := detail.pop("undoes", None)) in numbers:
                detail["undoes"] = numbers[undone]
            visible.append(replace(event, seq=numbers[event.seq], detail=detail))
    return visible


def chain(memory: Memory, record: Record) -> list[str]:
    """The ids of the records that this one superseded, its own, and those that superseded it, oldest first.

    Only visible records are listed.
    """
    older: list[str] = []
    newer: list[str] = []
    other: Record | None = record
    while other is not None and len(older) < LONGEST_CHAIN and (other := _predecessor(memory, other)):
        older.append(other.id)
    other = record
    while other.superseded_by and len(newer) < LONGEST_CHAIN and (other := memory.get(other.superseded_by)):
        newer.append(other.id)
    return [*reversed(older), record.id, *newer]


def _predecessor(memory: Memory, record: Record) -> Record | None:
    """The record that this one superseded last, if it still does."""
    for event in reversed(memory.history(record.id)):
        old = memory.get(str(event.detail.get("id"))) if event.action == "supersedes" else None
        if old is not None and old.superseded_by == record.id:
            return old
    return None


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
        self._changes = changes
        self._scope = scope
        newest = changes.newest(scope)
        _, self._from = changes.since(newest, scope)
        self._known, _ = changes.since(self._from, scope)
        if scope is None:
            self.newest = max([newest, *self._known])
        else:
            self.newest = changes.count(self._from, scope) + len(self._known)

    def refresh(self) -> bool:
        """Whether there is a new change since the last call."""
        known = set(self._known)
        self._known, self._from = self._changes.since(self._from, self._scope)
        new = set(self._known) - known
        self.newest = max([self.newest, *new]) if self._scope is None else self.newest + len(new)
        return bool(new)
