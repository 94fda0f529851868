"""What each change means, whatever keeps the records: a store brings the simple steps, this their order and rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from recollect.errors import Overtaken, SupersessionCycle, UnknownRecord, UsageError
from recollect.types import (
    Change,
    Forget,
    Ingested,
    Mirrors,
    Put,
    Record,
    Restore,
    SawFile,
    Still,
    Supersede,
    Undid,
    now,
)

REPLACED = (
    "text", "title", "kind", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
    "path", "lines",
)  # fmt: skip
"""What putting a record again under its id replaces."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as it stands in the store, forgotten or not; of one that was purged nothing but the id is left."""

    record: Record
    forgotten: bool = False
    purged: bool = False


class Table(Protocol):
    """The steps of one transaction. Those that change a record get their line of history by `note`."""

    def look(self, key: str) -> Kept | None:
        """What has this id; nobody else changes it before the transaction ends."""

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope and kind that says the same."""

    def insert(self, record: Record) -> None:
        """Keep a record whose id is new."""

    def replace(self, record: Record, before: Record) -> None:
        """Keep a record in the place of what had its id; it is not forgotten any more."""

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Note what stands in a record's place since when, or that nothing does any more."""

    def hide(self, key: str, *, purge: bool) -> None:
        """Take a record out of everything that answers; with `purge`, its content too."""

    def show(self, record: Record) -> None:
        """Put a record back that was hidden."""

    def saw(self, change: SawFile) -> None:
        """Note the state of a file."""

    def mirrors(self, change: Mirrors) -> None:
        """Note how a folder was told to be mirrored."""

    def ingested(self, digest: str) -> None:
        """Note what was read for facts."""

    def last(self, key: str) -> int | None:
        """The number of the last line of a record's history; nobody adds one before the transaction ends."""

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write a line of history."""


def apply(table: Table, change: Change) -> list[Record]:
    """Make one change; the record that was put comes back as it now stands."""
    match change:
        case Put():
            return [_put(table, change)]
        case Supersede():
            _supersede(table, change)
        case Forget():
            _forget(table, change)
        case Restore():
            _restore(table, change)
        case Still():
            _still(table, change)
        case Undid():
            table.note(change.id, "undo", {"undoes": change.seq})
        case Mirrors():
            table.mirrors(change)
        case SawFile():
            table.saw(change)
        case Ingested():
            table.ingested(change.digest)
    return []


def _put(table: Table, change: Put) -> Record:
    kept = table.look(change.record.id)
    if kept is not None:
        return _put_again(table, kept, change.record)
    twin = table.twin(change.record) if change.merge else None
    if twin is not None:
        return _put_again(table, Kept(twin), _merged(twin, change.record))
    table.insert(change.record)
    table.note(change.record.id, "add", {})
    return change.record


def _put_again(table: Table, kept: Kept, record: Record) -> Record:
    before = kept.record
    if before.scope != record.scope and not kept.purged:  # the history of an id, too, is for one scope only
        raise UsageError(
            f"the id {record.id!r} is taken by a record of another scope", hint="leave the id out, or use another"
        )
    if kept.forgotten:
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
    """What two tellings of the same fact know together: the later one's word, where it has one."""
    default = Record(id="", text="")
    told = {
        name: getattr(record, name)
        for name in ("title", "category", "importance", "decay", "happened_at", "expires_at", "source")
        if getattr(record, name) != getattr(default, name)
    }
    return replace(twin, tags=tuple(dict.fromkeys((*twin.tags, *record.tags))), **told)


def _supersede(table: Table, change: Supersede) -> None:
    old, new = _require(table, change.id), _require(table, change.by)
    if old.superseded_by == new.id:
        return
    if old.superseded_by is not None:
        raise UsageError(
            f"{old.id!r} is superseded already, by {old.superseded_by!r}",
            hint=f"supersede {old.superseded_by!r} instead",
        )
    if not old.scope.admits(new.scope):
        raise UsageError(
            f"{new.id!r} is not visible to all who see {old.id!r}, so it cannot take its place",
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
        kept = table.look(successor)
        successor = kept.record.superseded_by if kept else None
    if old in chain:
        raise SupersessionCycle(
            f"{old!r} would come to supersede itself: {' → '.join([old, *chain])}",
            hint="add a new record with the text that holds now, and supersede by that",
        )


def _forget(table: Table, change: Forget) -> None:
    kept = table.look(change.id)
    if kept is None or (kept.forgotten and not change.purge):
        raise UnknownRecord(change.id)
    table.hide(change.id, purge=change.purge)
    table.note(change.id, "purge" if change.purge else "forget", {})


def _restore(table: Table, change: Restore) -> None:
    kept = table.look(change.id)
    if kept is None or (change.owner is not None and not change.owner.owns(kept.record.scope)):
        raise UnknownRecord(change.id)
    if kept.purged:
        raise UsageError(f"{change.id!r} was purged: nothing of it is left", hint="add it again")
    if kept.forgotten:
        table.show(kept.record)
        table.note(change.id, "restore", {"undid": "forget"})
    elif kept.record.superseded_by is not None:
        table.supersede(change.id, None, None)
        table.note(change.id, "restore", {"undid": "supersede", "by": kept.record.superseded_by})
    else:
        raise UsageError(f"{change.id!r} is neither forgotten nor superseded", hint="there is nothing to put back")


def _still(table: Table, change: Still) -> None:
    if table.last(change.id) != change.seq:
        raise Overtaken(f"{change.id!r} was changed in the same moment", hint="try again")


def _require(table: Table, key: str) -> Record:
    kept = table.look(key)
    if kept is None or kept.forgotten:
        raise UnknownRecord(key)
    return kept.record
