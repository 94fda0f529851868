"""The rules of every change, for all stores: a store brings the simple steps, this module their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from recollect.errors import Overtaken, SupersessionCycle, UnknownRecord, UsageError
from recollect.types import (
    Change,
    ExpectUnchanged,
    Forget,
    MarkIngested,
    MarkUndo,
    Put,
    Record,
    Restore,
    SetFileState,
    SetFolderOptions,
    Supersede,
    now,
)

REPLACED = (
    "text", "title", "kind", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
    "path", "lines",
)  # fmt: skip
"""The fields that are replaced when a record is put again under its id."""


@dataclass(frozen=True, slots=True)
class RecordState:
    """A record in the store, forgotten or not; of a purged one only the id is left."""

    record: Record
    forgotten: bool = False
    purged: bool = False


class Table(Protocol):
    """The steps of one transaction. `note` writes the history; the other steps do not."""

    def look(self, key: str) -> RecordState | None:
        """The record with this id, locked until the transaction ends."""

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope and kind with the same text."""

    def insert(self, record: Record) -> None:
        """Store a record whose id is new."""

    def replace(self, record: Record, before: Record) -> None:
        """Replace the record that has this id; it is no longer forgotten."""

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Set which record supersedes this one and since when; None for neither."""

    def hide(self, key: str, *, purge: bool) -> None:
        """Remove a record from every answer; with `purge`, delete its content."""

    def show(self, record: Record) -> None:
        """Restore a record that was hidden."""

    def saw(self, change: SetFileState) -> None:
        """Store the state of a file."""

    def mirrors(self, change: SetFolderOptions) -> None:
        """Store how a folder is mirrored."""

    def ingested(self, digest: str) -> None:
        """Store that a text was read for facts."""

    def last(self, key: str) -> int | None:
        """The number of the last event of a record, locked until the transaction ends."""

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write an event to the history."""


def apply(table: Table, change: Change) -> list[Record]:
    """Make one change. Returns the record that was put, as it is now stored."""
    match change:
        case Put():
            return [_put(table, change)]
        case Supersede():
            _supersede(table, change)
        case Forget():
            _forget(table, change)
        case Restore():
            _restore(table, change)
        case ExpectUnchanged():
            _still(table, change)
        case MarkUndo():
            table.note(change.id, "undo", {"undoes": change.seq})
        case SetFolderOptions():
            table.mirrors(change)
        case SetFileState():
            table.saw(change)
        case MarkIngested():
            table.ingested(change.digest)
    return []


def _put(table: Table, change: Put) -> Record:
    stored = table.look(change.record.id)
    if stored is not None:
        return _put_again(table, stored, change.record)
    twin = table.twin(change.record) if change.merge else None
    if twin is not None:
        return _put_again(table, RecordState(twin), _merged(twin, change.record))
    table.insert(change.record)
    table.note(change.record.id, "add", {})
    return change.record


def _put_again(table: Table, stored: RecordState, record: Record) -> Record:
    before = stored.record
    if before.scope != record.scope and not stored.purged:  # the history of an id, too, belongs to one scope
        raise UsageError(
            f"the id {record.id!r} is taken by a record of another scope", hint="leave the id out, or use another"
        )
    if stored.forgotten:
        table.replace(record, before)
        table.note(record.id, "add", {})
        return record
    changed = {name: getattr(before, name) for name in REPLACED if getattr(before, name) != getattr(record, name)}
    if not changed:
        return before
    edited = now() if {"text", "title"} & changed.keys() else before.edited_at
    after = replace(before, edited_at=edited, **{name: getattr(record, name) for name in changed})
    table.replace(after, before)
    table.note(after.id, "update", {"before": changed})
    return after


def _merged(twin: Record, record: Record) -> Record:
    """Two records of the same fact as one: fields that the later one sets win, and tags are joined."""
    default = Record(id="", text="")
    fields = {
        name: getattr(record, name)
        for name in ("title", "category", "importance", "decay", "happened_at", "expires_at", "source")
        if getattr(record, name) != getattr(default, name)
    }
    return replace(twin, tags=tuple(dict.fromkeys((*twin.tags, *record.tags))), **fields)


def _supersede(table: Table, change: Supersede) -> None:
    old, new = _require(table, change.id), _require(table, change.by)
    if old.superseded_by == new.id:
        return
    if old.superseded_by is not None:
        raise UsageError(
            f"{old.id!r} is already superseded by {old.superseded_by!r}",
            hint=f"supersede {old.superseded_by!r} instead",
        )
    if not old.scope.admits(new.scope):
        raise UsageError(
            f"{new.id!r} is not visible to everyone who can see {old.id!r}, so it cannot supersede it",
            hint="give the new record the scope of the old one, or a wider one",
        )
    _refuse_cycle(table, old.id, new)
    at = change.at or min(max(new.time, old.time), now())
    table.supersede(old.id, new.id, at)
    table.note(old.id, "supersede", {"by": new.id, "from": at.isoformat()})
    table.note(new.id, "supersedes", {"id": old.id, **({"made": True} if change.made else {})})


def _refuse_cycle(table: Table, old: str, new: Record) -> None:
    chain = [new.id]
    successor = new.superseded_by
    while chain[-1] != old and successor is not None and successor not in chain:
        chain.append(successor)
        stored = table.look(successor)
        successor = stored.record.superseded_by if stored else None
    if old in chain:
        raise SupersessionCycle(
            f"{old!r} would come to supersede itself: {' → '.join([old, *chain])}",
            hint="add a new record with the text that holds now, and supersede by that",
        )


def _forget(table: Table, change: Forget) -> None:
    stored = table.look(change.id)
    if stored is None or (stored.forgotten and not change.purge):
        raise UnknownRecord(change.id)
    table.hide(change.id, purge=change.purge)
    table.note(change.id, "purge" if change.purge else "forget", {})


def _restore(table: Table, change: Restore) -> None:
    stored = table.look(change.id)
    if stored is None or (change.owner is not None and not change.owner.owns(stored.record.scope)):
        raise UnknownRecord(change.id)
    if stored.purged:
        raise UsageError(f"{change.id!r} was purged: nothing of it is left", hint="add it again")
    if stored.forgotten:
        table.show(stored.record)
        table.note(change.id, "restore", {"undid": "forget"})
    elif stored.record.superseded_by is not None:
        table.supersede(change.id, None, None)
        table.note(change.id, "restore", {"undid": "supersede", "by": stored.record.superseded_by})
    else:
        raise UsageError(f"{change.id!r} is neither forgotten nor superseded", hint="there is nothing to restore")


def _still(table: Table, change: ExpectUnchanged) -> None:
    if table.last(change.id) != change.seq:
        raise Overtaken(f"{change.id!r} was changed at the same time", hint="try again")


def _require(table: Table, key: str) -> Record:
    stored = table.look(key)
    if stored is None or stored.forgotten:
        raise UnknownRecord(key)
    return stored.record
