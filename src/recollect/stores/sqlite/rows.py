"""Between a `Record` and its row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import apsw

from recollect.ranking import fold_hash
from recollect.stores.rows import EPOCH, micros, moment, passage_hash
from recollect.types import Record, Scope

_COLUMNS = (
    "id", "kind", "text", "title", "category", "tags", "user", "agent", "session", "importance", "decay", "time",
    "created_at", "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path",
    "first_line", "last_line", "fold", "passage",
)  # fmt: skip

INSERT = f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
REPLACE = f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{column} = ?' for column in _COLUMNS)} WHERE row = ?"
SELECT = f"SELECT {', '.join(f'records.{column}' for column in _COLUMNS[:-2])} FROM records"


def to_row(record: Record) -> tuple[Any, ...]:
    """The values of `INSERT` and `REPLACE`."""
    first, last = record.lines or (None, None)
    return (
        record.id, record.kind, record.text, record.title, record.category, json.dumps(record.tags),
        record.scope.user, record.scope.agent, record.scope.session, record.importance, record.decay,
        micros(record.time), micros(record.created_at), micros(record.happened_at), micros(record.expires_at),
        micros(record.edited_at), record.superseded_by, micros(record.superseded_at), record.source, record.path,
        first, last, fold_hash(record.text), passage_hash(record.passage),
    )  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row that `SELECT` found."""
    (
        key, kind, text, title, category, tags, user, agent, session, importance, decay, _time, created, happened,
        expires, edited, superseded_by, superseded_at, source, path, first, last,
    ) = row  # fmt: skip
    return Record(
        id=key,
        text=text,
        kind=kind,
        title=title,
        category=category,
        tags=tuple(json.loads(tags)) if tags != "[]" else (),
        scope=Scope(user, agent, session),
        importance=importance,
        decay=decay,
        created_at=EPOCH + timedelta(microseconds=created),
        happened_at=moment(happened),
        expires_at=moment(expires),
        edited_at=moment(edited),
        superseded_by=superseded_by,
        superseded_at=moment(superseded_at),
        source=source,
        path=path,
        lines=None if first is None else (first, last),
    )


def fetch(connection: apsw.Connection, rows: Sequence[int]) -> list[Record]:
    """The records in these rows, in the order asked."""
    found = {
        row[0]: from_row(row[1:])
        for row in connection.execute(
            SELECT.replace("SELECT", "SELECT records.row,", 1)
            + " WHERE records.row IN (SELECT value FROM json_each(?))",
            (json.dumps(list(rows)),),
        )
    }
    return [found[row] for row in rows if row in found]


def sequence(connection: apsw.Connection) -> int:
    """The number of the last change."""
    return int(connection.execute("SELECT ifnull(max(seq), 0) FROM history").get)


def meta(connection: apsw.Connection, key: str) -> str | None:
    """One value of the store's own notes."""
    value = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return None if value is None else str(value)


def set_meta(connection: apsw.Connection, key: str, value: str) -> None:
    """Note a value."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
