"""What takes back the last line of a record's history, unless something else happens in the same moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import Forbidden, UnknownRecord, UsageError
from recollect.memory.parsing import parse_time
from recollect.types import Change, Event, Forget, Put, Record, Records, Restore, Scope, Still

MADE_FOR_IT = ["add", "supersedes"]
"""All that happened to a record which was stored only to take another's place."""


def reversal(records: Records, key: str, owner: Scope | None) -> tuple[str, Sequence[Change]]:
    """What the last thing that happened was, and the changes that take it back; `owner` changes its own alone."""
    events = records.history(key)
    if not events or (owner is not None and events[-1].action == "purge"):
        raise UnknownRecord(key)
    last = events[-1]
    undone, changes = _reversed(records, last, owner)
    return undone, [Still(key, last.seq), *changes]


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
            return "supersede", _lifted(records, key, str(last.detail["by"]), owner)
        case "supersedes" if _last(records, str(last.detail["id"])) == ("supersede", key):
            return "supersede", _lifted(records, str(last.detail["id"]), key, owner)
    raise UsageError(f"the last that happened to {key!r} ({last.action}) cannot be undone", hint="see its history")


def _lifted(records: Records, old: str, new: str, owner: Scope | None) -> list[Change]:
    """The old record holds again; the new one goes, where it was made for nothing else and is the caller's too."""
    if owner is not None and not owner.owns(_alive(records, old).scope):
        raise Forbidden("it took the place of another's record, which is not the caller's to bring back")
    events = records.history(new)
    made = [event.action for event in events] == MADE_FOR_IT and bool(events[-1].detail.get("made"))
    if not made or (owner is not None and not owner.owns(_alive(records, new).scope)):
        return [Restore(old, owner)]
    return [Still(new, events[-1].seq), Restore(old, owner), Forget(new)]


def _last(records: Records, key: str) -> tuple[str, str]:
    events: list[Event] = records.history(key)
    return (events[-1].action, str(events[-1].detail.get("by", ""))) if events else ("", "")


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
