"""A record's history as the callers of one scope see it: their lines only, numbered from 1.

The store numbers the lines of all histories in one sequence, which would tell how much others have written. Behind the
wall a line is known by its place in the record's history, and no number of the store is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.types import Event, Records, Scope


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
