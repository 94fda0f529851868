"""What keeps a record from being seen, part by part of a filter, and what would have to be asked instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from recollect.memory.shape import iso
from recollect.sources.joining import below
from recollect.types import Filter, Record


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One part of a filter that a record does not pass, and the options of `search` that would let it pass."""

    stage: str
    reason: str
    change: Mapping[str, Any] = field(default_factory=dict)


def obstacles(record: Record, where: Filter) -> list[Obstacle]:
    """Every part of the filter that hides the record; none where it may be seen."""
    if walls(record, where):
        return [*_of_scope(record, where)]  # what else hides it would tell what it is
    return [*_of_scope(record, where), *_of_moment(record, where), *_of_wishes(record, where)]


def _of_scope(record: Record, where: Filter) -> Iterator[Obstacle]:
    if where.any_scope or where.scope.admits(record.scope):
        return
    if others := walls(record, where):
        yield Obstacle("scope", f"out of scope: it belongs to another {' and another '.join(others)}")
        return
    theirs = {part: name for part, name in record.scope.as_dict().items() if part not in where.scope.as_dict()}
    owner = " and ".join(f"{part} {name!r}" for part, name in theirs.items())
    yield Obstacle("scope", f"out of scope: it belongs to {owner}, which the question does not name", theirs)


def walls(record: Record, where: Filter) -> list[str]:
    """The parts of the asker's scope that are set and not the record's: what lies behind them is not to be told."""
    asked, theirs = where.scope.as_dict(), record.scope.as_dict()
    return [part for part in theirs if asked.get(part, theirs[part]) != theirs[part] and not where.any_scope]


def _of_moment(record: Record, where: Filter) -> Iterator[Obstacle]:
    moment = where.moment
    if where.as_of and record.time > moment:
        yield Obstacle("as_of", f"it is from {iso(record.time)}, after the moment asked about", {"as_of": None})
    elif where.as_of and _passed(moment, record.edited_at):
        yield Obstacle(
            "as_of", f"its text was changed on {iso(record.edited_at)}, after the moment asked about", {"as_of": None}
        )
    if not where.superseded and record.superseded_at and record.superseded_at <= moment:
        by, at = record.superseded_by, iso(record.superseded_at)
        yield Obstacle("superseded", f"superseded by {by} on {at}", {"superseded": True})
    if record.expires_at and record.expires_at <= moment:
        before = record.expires_at - timedelta(microseconds=1)
        yield Obstacle("expired", f"it expired on {iso(record.expires_at)}", {"as_of": iso(before)})


def _of_wishes(record: Record, where: Filter) -> Iterator[Obstacle]:
    if where.categories and record.category not in where.categories:
        is_ = f"is {record.category!r}" if record.category else "is not set"
        yield Obstacle("category", f"filtered by category: its own {is_}", {"category": ()})
    if where.kinds and record.kind not in where.kinds:
        yield Obstacle("kind", f"filtered by kind: it is a {record.kind}", {"kind": None})
    if missing := [tag for tag in where.tags if tag not in record.tags]:
        kept = tuple(tag for tag in where.tags if tag in record.tags)
        yield Obstacle("tag", f"filtered by tag: it has no {', '.join(map(repr, missing))}", {"tags": kept})
    if where.path is not None and (record.path is None or not below(record.path, where.path)):
        yield Obstacle("path", f"filtered by path: it is {record.path or 'of no file'}", {"path": None})
    if where.since and record.time < where.since:
        yield Obstacle("since", f"filtered by time: it is from {iso(record.time)}", {"since": None})
    if where.until and record.time >= where.until:
        yield Obstacle("until", f"filtered by time: it is from {iso(record.time)}", {"until": None})


def _passed(moment: datetime, at: datetime | None) -> bool:
    return at is not None and at > moment
