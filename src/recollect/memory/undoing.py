"""What takes back the last line of a record's history that still stands, unless something else happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import Forbidden, Overtaken, UnknownRecord, UsageError
from recollect.memory.histories import since_purge
from recollect.memory.parsing import parse_time
from recollect.types import Change, Event, Forget, Put, Record, Records, Restore, Scope, Still, Undid

MADE_FOR_IT = ["add", "supersedes"]
"""All that happened to a record which was stored only to take another's place."""


def reversal(records: Records, key: str, owner: Scope | None, seq: int | None = None) -> tuple[str, Sequence[Change]]:
    """What happened last and was not taken back, and the changes that do so; `owner` changes its own alone.

    With `seq`, only that line of the history: where another has come after it, that is an error.
    """
    events = _lines(records, key, owner)
    if not events:
        raise UnknownRecord(key)
    target = standing(events)
    if target is None:
        raise UsageError(f"nothing that happened to {key!r} is left to undo", hint="see its history")
    if seq is not None and target.seq != seq:
        raise Overtaken(f"something else has happened to {key!r} since", hint="see its history")
    undone, changes = _reversed(records, target, owner)
    return undone, [Still(key, events[-1].seq), *changes, Undid(key, target.seq)]


def _lines(records: Records, key: str, owner: Scope | None) -> Sequence[Event]:
    """A record's history; what came before a purge is no part of it for an `owner`, who may not have been the same."""
    events = records.history(key)
    return events if owner is None else since_purge(events)


def standing(events: Sequence[Event]) -> Event | None:
    """The last event that was not taken back, and is not itself the taking back of another."""
    past: set[int] = set()
    for before, event in zip([None, *events][-2::-1], reversed(events), strict=False):
        if event.action == "undo":
            past |= {int(event.detail["undoes"]), before.seq if before else 0}
        elif event.seq not in past:
            return event
    return None


def _reversed(records: Records, last: Event, owner: Scope | None) -> tuple[str, Sequence[Change]]:
    key = last.id
    match last.action:
        case "add" | "update" if _alive(records, key).kind != "fact":
            raise UsageError(f"{key!r} is part of a file, which it mirrors", hint="edit the file, and index it")
        case "add":
            return "add", [Forget(key)]
        case "update":
            return "update", [Put(replace(_alive(records, key), **_before(last.detail.get("before", {}))))]
        case "forget":
            return "forget", [Restore(key, owner)]
        case "supersede":
            new = str(last.detail["by"])
            lifted, forgotten = _lifted(records, key, new, owner)
            return "supersede", [*lifted, *forgotten]
        case "supersedes" if _last(records, str(last.detail["id"])) == ("supersede", key):
            old = str(last.detail["id"])
            lifted, forgotten = _lifted(records, old, key, owner)
            lines = [event.seq for event in records.history(old) if event.action == "supersede"]
            return "supersede", [*lifted, Undid(old, lines[-1]), *forgotten[:-1]]
    raise UsageError(f"the last that happened to {key!r} ({last.action}) cannot be undone", hint="see its history")


def _lifted(records: Records, old: str, new: str, owner: Scope | None) -> tuple[list[Change], list[Change]]:
    """The old record holds again; the new one goes, where it was made for nothing else and is the caller's too."""
    if owner is not None and not owner.owns(_alive(records, old).scope):
        raise Forbidden("it took the place of another's record, which is not the caller's to bring back")
    events = _lines(records, new, owner)
    made = [event.action for event in events] == MADE_FOR_IT and bool(events[-1].detail.get("made"))
    if not made or (owner is not None and not owner.owns(_alive(records, new).scope)):
        return [Restore(old, owner)], []
    line = events[-1].seq
    return [Still(new, line), Restore(old, owner)], [Forget(new), Undid(new, line)]


def _last(records: Records, key: str) -> tuple[str, str]:
    last = standing(records.history(key))
    return (last.action, str(last.detail.get("by", ""))) if last else ("", "")


def _alive(records: Records, key: str) -> Record:
    found = records.get([key])
    if not found:
        raise UnknownRecord(key)
    return found[0]


def _before(values: Mapping[str, Any]) -> dict[str, Any]:
    """What an edit replaced, as a record has it; history keeps it as JSON."""
    read: dict[str, Callable[[Any], Any]] = {
        "tags": tuple, "lines": tuple, "happened_at": parse_time, "expires_at": parse_time,
    }  # fmt: skip
    return {name: read[name](value) if value is not None and name in read else value for name, value in values.items()}
