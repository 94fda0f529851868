"""The chain of supersession that a record stands in."""

from __future__ import annotations

from recollect.memory.facade import Memory
from recollect.types import Record

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
