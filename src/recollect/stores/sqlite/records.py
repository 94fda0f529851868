"""The truth: records and their history, changed in short transactions, each change with its line of history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import apsw

from recollect.errors import Overtaken, SupersessionCycle, UnknownRecord, UsageError
from recollect.ranking import fold_hash
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import INSERT, REPLACE, SELECT, from_row, micros, moment, passage_hash, to_row
from recollect.stores.sqlite.visible import condition
from recollect.types import (
    Change,
    Event,
    Filter,
    Forget,
    Ingested,
    Mirrors,
    Put,
    Record,
    Restore,
    SawFile,
    Scope,
    Still,
    Supersede,
    Undid,
    now,
)

TRANSACTION_SECONDS = 0.1
"""When a transaction is this old it is committed and the rest goes on in a new one, so that nobody waits long."""

_REPLACED = (
    "text", "title", "kind", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
    "path", "lines",
)  # fmt: skip
"""What putting a record again under its id replaces."""


class SqliteRecords:
    """Reads and writes the records of one SQLite store."""

    def __init__(self, database: Database, follow: Callable[[apsw.Connection], None]) -> None:
        self._database = database
        self._follow = follow

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, each group as one; the records put come back as they now stand."""
        waiting = iter(groups)
        group = next(waiting, None)
        stored: list[Record] = []
        while group is not None:
            with self._database.write() as connection:
                deadline = time.monotonic() + TRANSACTION_SECONDS
                done: list[Record] = []
                while group is not None and time.monotonic() < deadline:
                    done += [record for change in group for record in _apply(connection, change)]
                    self._follow(connection)
                    group = next(waiting, None)
            stored += done
        return stored

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), in the order asked."""
        sql, values = condition(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT} WHERE {sql} AND id IN (SELECT value FROM json_each(?))", (*values, json.dumps(list(ids)))
            )
            found = {record.id: record for record in map(from_row, rows)}
        return [found[key] for key in ids if key in found]

    def history(self, record_id: str) -> list[Event]:
        """All that happened to one record, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT seq, id, action, at, detail FROM history WHERE id = ? ORDER BY seq", (record_id,)
            )
            return [
                Event(seq, key, action, moment(at) or now(), json.loads(detail))
                for seq, key, action, at, detail in rows
            ]

    def scope_of(self, record_id: str) -> Scope | None:
        """Whose a record is, forgotten or not; of one that was purged nothing is told."""
        with self._database.read() as connection:
            found: Any = connection.execute(
                "SELECT user, agent, session FROM records WHERE id = ? AND passage <> x''", (record_id,)
            ).fetchone()
        return None if found is None else Scope(*found)

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""
        sql, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT} WHERE {sql} ORDER BY time DESC, id LIMIT ? OFFSET ?", (*values, limit, offset)
            )
            return [from_row(row) for row in rows]


def _apply(connection: apsw.Connection, change: Change) -> list[Record]:
    match change:
        case Put():
            return [_put(connection, change)]
        case Supersede():
            _supersede(connection, change)
        case Forget():
            _forget(connection, change)
        case Restore():
            _restore(connection, change)
        case Still():
            _still(connection, change)
        case Undid():
            _note(connection, _row_of(connection, change.id), change.id, "undo", {"undoes": change.seq})
        case SawFile():
            _saw_file(connection, change)
        case Mirrors():
            told = json.dumps(change.told, ensure_ascii=False)
            connection.execute("INSERT OR REPLACE INTO roots VALUES (?, ?)", (change.root, told))
        case Ingested():
            connection.execute("INSERT OR REPLACE INTO ingested VALUES (?, ?)", (change.digest, micros(now())))
    return []


def _put(connection: apsw.Connection, change: Put) -> Record:
    record = change.record
    row = connection.execute("SELECT row FROM records WHERE id = ?", (record.id,)).get
    if row is not None:
        return _put_again(connection, int(row), record)
    twin = _twin(connection, record) if change.merge else None
    if twin is not None:
        return _put_again(connection, _row_of(connection, twin.id), _merged(twin, record))
    connection.execute(INSERT, to_row(record))
    _after_change(connection, connection.last_insert_rowid(), record, "add", {})
    return record


def _put_again(connection: apsw.Connection, row: int, record: Record) -> Record:
    before, forgotten, purged = _any(connection, row)
    if before.scope != record.scope and not purged:  # the history of an id, too, is for one scope only
        raise UsageError(
            f"the id {record.id!r} is taken by a record of another scope", hint="leave the id out, or use another"
        )
    if forgotten:
        connection.execute(REPLACE, (*to_row(record), row))
        _after_change(connection, row, record, "add", {})
        return record
    changed = {name: getattr(before, name) for name in _REPLACED if getattr(before, name) != getattr(record, name)}
    if not changed:
        return before
    edited = now() if {"text", "title"} & changed.keys() else before.edited_at
    after = replace(before, edited_at=edited, **{name: getattr(record, name) for name in changed})
    connection.execute(REPLACE, (*to_row(after), row))
    _drop_orphan(connection, passage_hash(before.passage))
    _after_change(connection, row, after, "update", {"before": changed})
    return after


def _twin(connection: apsw.Connection, record: Record) -> Record | None:
    """The live fact of the same scope that says the same."""
    sql, values = condition(Filter(scope=record.scope, kinds=(record.kind,)))
    rows = connection.execute(f"{SELECT} WHERE {sql} AND fold = ?", (*values, fold_hash(record.text)))
    return next((twin for twin in map(from_row, rows) if twin.scope == record.scope), None)


def _merged(twin: Record, record: Record) -> Record:
    """What two tellings of the same fact know together: the later one's word, where it has one."""
    default = Record(id="", text="")
    told = {
        name: getattr(record, name)
        for name in ("title", "category", "importance", "decay", "happened_at", "expires_at", "source")
        if getattr(record, name) != getattr(default, name)
    }
    return replace(twin, tags=tuple(dict.fromkeys((*twin.tags, *record.tags))), **told)


def _supersede(connection: apsw.Connection, change: Supersede) -> None:
    old, new = _require(connection, change.id), _require(connection, change.by)
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
    _refuse_cycle(connection, old.id, new)
    at = change.at or min(max(new.time, old.time), now())
    connection.execute(
        "UPDATE records SET superseded_by = ?, superseded_at = ? WHERE id = ?", (new.id, micros(at), old.id)
    )
    detail = {"by": new.id, "from": at.isoformat()}
    _note(connection, _row_of(connection, old.id), old.id, "supersede", detail)
    made = {"made": True} if change.made else {}
    _note(connection, _row_of(connection, new.id), new.id, "supersedes", {"id": old.id, **made})


def _refuse_cycle(connection: apsw.Connection, old: str, new: Record) -> None:
    chain = [new.id]
    successor = new.superseded_by
    while chain[-1] != old and successor is not None and successor not in chain:
        chain.append(successor)
        successor = connection.execute("SELECT superseded_by FROM records WHERE id = ?", (successor,)).get
    if old in chain:
        raise SupersessionCycle(
            f"{old!r} would come to supersede itself: {' → '.join([old, *chain])}",
            hint="add a new record with the text that holds now, and supersede by that",
        )


def _forget(connection: apsw.Connection, change: Forget) -> None:
    row = connection.execute("SELECT row FROM records WHERE id = ?", (change.id,)).get
    if row is None or (not change.purge and _find(connection, change.id) is None):
        raise UnknownRecord(change.id)
    connection.execute("UPDATE records SET forgotten_at = ? WHERE row = ?", (micros(now()), row))
    connection.execute("DELETE FROM tags WHERE row = ?", (row,))
    if change.purge:
        _wipe(connection, int(row))
    _note(connection, int(row), change.id, "purge" if change.purge else "forget", {})


def _restore(connection: apsw.Connection, change: Restore) -> None:
    row = connection.execute("SELECT row FROM records WHERE id = ?", (change.id,)).get
    record, forgotten, purged = _any(connection, int(row)) if row is not None else (None, False, False)
    if record is None or (change.owner is not None and not change.owner.owns(record.scope)):
        raise UnknownRecord(change.id)
    if purged:
        raise UsageError(f"{change.id!r} was purged: nothing of it is left", hint="add it again")
    if forgotten:
        connection.execute("UPDATE records SET forgotten_at = NULL WHERE row = ?", (row,))
        _after_change(connection, int(row), record, "restore", {"undid": "forget"})
    elif record.superseded_by is not None:
        connection.execute("UPDATE records SET superseded_by = NULL, superseded_at = NULL WHERE row = ?", (row,))
        _note(connection, int(row), record.id, "restore", {"undid": "supersede", "by": record.superseded_by})
    else:
        raise UsageError(f"{change.id!r} is neither forgotten nor superseded", hint="there is nothing to put back")


def _still(connection: apsw.Connection, change: Still) -> None:
    if connection.execute("SELECT max(seq) FROM history WHERE id = ?", (change.id,)).get != change.seq:
        raise Overtaken(f"{change.id!r} was changed in the same moment", hint="try again")


def _wipe(connection: apsw.Connection, row: int) -> None:
    """Nothing of the content stays: not in the record, not in its history, not as a vector."""
    passage = connection.execute("SELECT passage FROM records WHERE row = ?", (row,)).get
    connection.execute(
        "UPDATE records SET text = '', title = '', category = NULL, tags = '[]', source = NULL, path = NULL,"
        " first_line = NULL, last_line = NULL, fold = x'', passage = x'' WHERE row = ?",
        (row,),
    )
    connection.execute("UPDATE history SET detail = '{}' WHERE row = ?", (row,))
    _drop_orphan(connection, passage)


def _drop_orphan(connection: apsw.Connection, passage: object) -> None:
    """Delete the vectors of a passage that no record has any more: a vector can be turned back into words."""
    connection.execute(
        "DELETE FROM embeddings WHERE passage = ?1 AND NOT EXISTS (SELECT 1 FROM records WHERE passage = ?1)",
        (passage,),
    )


def _saw_file(connection: apsw.Connection, change: SawFile) -> None:
    connection.execute("DELETE FROM files WHERE path = ?", (change.path,))
    if change.state is not None:
        state = change.state
        connection.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?)",
            (state.path, state.root, state.mtime_ns, state.size, state.digest),
        )


def _after_change(
    connection: apsw.Connection, row: int, record: Record, action: str, detail: Mapping[str, Any]
) -> None:
    connection.execute("DELETE FROM tags WHERE row = ?", (row,))
    connection.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, row) for tag in dict.fromkeys(record.tags)])
    _note(connection, row, record.id, action, detail)


def _note(connection: apsw.Connection, row: int, key: str, action: str, detail: Mapping[str, Any]) -> None:
    connection.execute(
        "INSERT INTO history (row, id, action, at, detail) VALUES (?, ?, ?, ?, ?)",
        (row, key, action, micros(now()), json.dumps(detail, default=_as_text, ensure_ascii=False)),
    )


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _find(connection: apsw.Connection, key: str) -> Record | None:
    row = connection.execute(f"{SELECT} WHERE id = ? AND forgotten_at IS NULL", (key,)).get
    return None if row is None else from_row(row)


def _any(connection: apsw.Connection, row: int) -> tuple[Record, bool, bool]:
    """The record of a row, whether it is forgotten, and whether its content is gone for good."""
    *found, forgotten, passage = connection.execute(
        f"{SELECT.replace(' FROM records', ', forgotten_at, passage FROM records')} WHERE row = ?", (row,)
    ).get
    return from_row(found), forgotten is not None, not passage


def _require(connection: apsw.Connection, key: str) -> Record:
    record = _find(connection, key)
    if record is None:
        raise UnknownRecord(key)
    return record


def _row_of(connection: apsw.Connection, key: str) -> int:
    return int(connection.execute("SELECT row FROM records WHERE id = ?", (key,)).get)
