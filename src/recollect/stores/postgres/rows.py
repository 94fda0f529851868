"""Between a `Record` and its row. PostgreSQL's text cannot hold NUL, so that is written with a sign of our own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from recollect.ranking import fold_hash
from recollect.stores.rows import EPOCH, micros, moment, passage_hash
from recollect.types import Record, Scope

COLUMNS = (
    "id", "kind", "text", "title", "category", "tags", "importance", "decay", "time", "created_at", "happened_at",
    "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path", "first_line", "last_line", "fold",
    "passage",
)  # fmt: skip
"""What a record itself says; its scope and length are beside it."""

SELECT = (
    f'SELECT {", ".join(f"records.{column}" for column in COLUMNS[:-2])}, "user", agent, session'
    " FROM records JOIN scopes USING (scope)"
)

_SIGN = "\x10"
_WRITTEN = re.compile(f"{_SIGN}([{_SIGN}0])")


def text(value: Any) -> Any:
    """A text as PostgreSQL can hold it; None stays None."""
    if value is None or ("\0" not in value and _SIGN not in value):
        return value
    return value.replace(_SIGN, _SIGN * 2).replace("\0", f"{_SIGN}0")


def plain(value: Any) -> Any:
    """A text as it was."""
    return _WRITTEN.sub(lambda found: "\0" if found[1] == "0" else _SIGN, value) if value and _SIGN in value else value


def to_row(record: Record) -> list[Any]:
    """The values of `COLUMNS`."""
    first, last = record.lines or (None, None)
    return [
        text(record.id), record.kind, text(record.text), text(record.title), text(record.category),
        [text(tag) for tag in record.tags], record.importance, record.decay, micros(record.time),
        micros(record.created_at), micros(record.happened_at), micros(record.expires_at), micros(record.edited_at),
        text(record.superseded_by), micros(record.superseded_at), text(record.source), text(record.path), first, last,
        fold_hash(record.text), passage_hash(record.passage),
    ]  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row that `SELECT` found."""
    (
        key, kind, words, title, category, tags, importance, decay, _time, created, happened, expires, edited,
        superseded_by, superseded_at, source, path, first, last, user, agent, session,
    ) = row  # fmt: skip
    return Record(
        id=plain(key),
        text=plain(words),
        kind=kind,
        title=plain(title),
        category=plain(category),
        tags=tuple(map(plain, tags)),
        scope=Scope(plain(user), plain(agent), plain(session)),
        importance=importance,
        decay=decay,
        created_at=moment(created) or EPOCH,
        happened_at=moment(happened),
        expires_at=moment(expires),
        edited_at=moment(edited),
        superseded_by=plain(superseded_by),
        superseded_at=moment(superseded_at),
        source=plain(source),
        path=plain(path),
        lines=None if first is None else (first, last),
    )


def time_of(value: int | None) -> datetime:
    """A kept time that is always there."""
    return moment(value) or EPOCH
