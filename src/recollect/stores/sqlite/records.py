"""Records and their history, changed in short transactions; counts of records; and listening for changes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import apsw

from recollect.errors import RecollectError
from recollect.stores import ledger
from recollect.stores.rows import micros, moment, passage_hash
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.rows import INSERT, REPLACE, SELECT, condition, from_row, sequence, to_row
from recollect.types import EVERYTHING, Change, Event, Filter, Record, Scope, SetFileState, SetFolderOptions, now

TRANSACTION_SECONDS = 0.1
"""A transaction that has taken this long is committed, and a new one goes on, so that other writers need not wait."""


class SqliteRecords:
    """Reads and writes the records of one SQLite store."""

    def __init__(self, database: Database, follow: Callable[[apsw.Connection], None]) -> None:
        self._database = database
        self._follow = follow

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, each group atomically. Returns the records that were put, as they are now stored.

        Many groups take several transactions. An error tells by `applied` how many groups were stored before it.
        """
        waiting, stored, applied = iter(groups), list[Record](), 0
        group = next(waiting, None)
        try:
            while group is not None:
                with self._database.write() as connection:
                    deadline, done, count = time.monotonic() + TRANSACTION_SECONDS, list[Record](), 0
                    while group is not None and time.monotonic() < deadline:
                        done += [record for change in group for record in ledger.apply(_Rows(connection), change)]
                        self._follow(connection)
                        group, count = next(waiting, None), count + 1
                stored += done
                applied += count
        except RecollectError as error:
            error.applied = applied
            raise
        return stored

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), in the order of the ids."""
        sql, values = condition(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT} WHERE {sql} AND id IN (SELECT value FROM json_each(?))", (*values, json.dumps(list(ids)))
            )
            records = {record.id: record for record in map(from_row, rows)}
        return [records[key] for key in ids if key in records]

    def history(self, record_id: str) -> list[Event]:
        """The events of one record, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT seq, id, action, at, detail FROM history WHERE id = ? ORDER BY seq", (record_id,)
            )
            return [
                Event(seq, key, action, moment(at) or now(), json.loads(detail))
                for seq, key, action, at, detail in rows
            ]

    def scope_of(self, record_id: str) -> Scope | None:
        """The scope of a record, forgotten or not; None for a purged one."""
        with self._database.read() as connection:
            row: Any = connection.execute(
                "SELECT user, agent, session FROM records WHERE id = ? AND passage <> x''", (record_id,)
            ).fetchone()
        return None if row is None else Scope(*row)

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""
        sql, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SELECT} WHERE {sql} ORDER BY time DESC, id LIMIT ? OFFSET ?", (*values, limit, offset)
            )
            return [from_row(row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The steps of a change, in an open transaction: SQLite has one writer, so nothing else changes meanwhile."""

    connection: apsw.Connection

    def look(self, key: str) -> ledger.RecordState | None:
        """The record with this id."""
        columns: Any = self.connection.execute(
            f"{SELECT.replace(' FROM records', ', forgotten_at, passage FROM records')} WHERE id = ?", (key,)
        ).fetchone()
        if columns is None:
            return None
        *row, forgotten, passage = columns
        return ledger.RecordState(from_row(row), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope with the same text."""
        sql, values = condition(Filter(scope=record.scope, kinds=(record.kind,)))
        rows = self.connection.execute(f"{SELECT} WHERE {sql} AND fold = ?", (*values, record.text_hash))
        return next((twin for twin in map(from_row, rows) if twin.scope == record.scope), None)

    def insert(self, record: Record) -> None:
        """Store a new record."""
        self.connection.execute(INSERT, to_row(record))
        self._tag(self.connection.last_insert_rowid(), record)

    def replace(self, record: Record, before: Record) -> None:
        """Replace a record; vectors of a text that no record has any more are deleted."""
        row = self._row(record.id)
        self.connection.execute(REPLACE, (*to_row(record), row))
        self._drop_orphan(passage_hash(before.passage))
        self._tag(row, record)

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Set which record supersedes this one."""
        self.connection.execute(
            "UPDATE records SET superseded_by = ?, superseded_at = ? WHERE id = ?", (by, micros(at), key)
        )

    def hide(self, key: str, *, purge: bool) -> None:
        """Mark a record as forgotten; its id stays in use."""
        row = self._row(key)
        self.connection.execute("UPDATE records SET forgotten_at = ? WHERE row = ?", (micros(now()), row))
        self.connection.execute("DELETE FROM tags WHERE row = ?", (row,))
        if purge:
            self._wipe(row)

    def show(self, record: Record) -> None:
        """Remove the mark."""
        row = self._row(record.id)
        self.connection.execute("UPDATE records SET forgotten_at = NULL WHERE row = ?", (row,))
        self._tag(row, record)

    def saw(self, change: SetFileState) -> None:
        """Store the state of a file."""
        self.connection.execute("DELETE FROM files WHERE path = ?", (change.path,))
        if (state := change.state) is not None:
            values = (state.path, state.root, state.mtime_ns, state.size, state.digest)
            self.connection.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", values)

    def mirrors(self, change: SetFolderOptions) -> None:
        """Store how a folder is mirrored."""
        options = json.dumps(change.options, ensure_ascii=False)
        self.connection.execute("INSERT OR REPLACE INTO roots VALUES (?, ?)", (change.root, options))

    def ingested(self, digest: str) -> None:
        """Store that a text was read for facts."""
        self.connection.execute("INSERT OR REPLACE INTO ingested VALUES (?, ?)", (digest, micros(now())))

    def last(self, key: str) -> int | None:
        """The number of the last event of a record."""
        last: int | None = self.connection.execute("SELECT max(seq) FROM history WHERE id = ?", (key,)).get
        return last

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write an event to the history."""
        encoded = json.dumps(detail, default=_as_text, ensure_ascii=False)
        self.connection.execute(
            "INSERT INTO history (row, id, action, at, detail) VALUES (?, ?, ?, ?, ?)",
            (self._row(key), key, action, micros(now()), encoded),
        )

    def _row(self, key: str) -> int:
        return int(self.connection.execute("SELECT row FROM records WHERE id = ?", (key,)).get)

    def _tag(self, row: int, record: Record) -> None:
        self.connection.execute("DELETE FROM tags WHERE row = ?", (row,))
        tags = [(tag, row) for tag in dict.fromkeys(record.tags)]
        self.connection.executemany("INSERT INTO tags VALUES (?, ?)", tags)

    def _wipe(self, row: int) -> None:
        """Delete the content: of the record, of its history, and its vectors."""
        passage = self.connection.execute("SELECT passage FROM records WHERE row = ?", (row,)).get
        self.connection.execute(
            "UPDATE records SET text = '', title = '', category = NULL, tags = '[]', source = NULL, path = NULL,"
            " first_line = NULL, last_line = NULL, fold = x'', passage = x'' WHERE row = ?",
            (row,),
        )
        self.connection.execute("UPDATE history SET detail = '{}' WHERE row = ?", (row,))
        self._drop_orphan(passage)

    def _drop_orphan(self, passage: object) -> None:
        """Delete the vectors of a text that no record has any more, because a vector can be turned back into words."""
        self.connection.execute(
            "DELETE FROM embeddings WHERE passage = ?1 AND NOT EXISTS (SELECT 1 FROM records WHERE passage = ?1)",
            (passage,),
        )


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


MOST_NAMES = 500
"""The most tags, categories and scopes that are listed, each; those with the most records come first."""

_COUNTS = ("total", "facts", "chunks", "superseded")


def counts(connection: apsw.Connection, where: Filter = EVERYTHING) -> dict[str, int]:
    """How many records there are, and of which kind."""
    sql, values = condition(where)
    numbers = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
        f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {sql}",
        values,
    ).get
    return dict(zip(_COUNTS, numbers, strict=True))


def forgotten(connection: apsw.Connection) -> int:
    """The number of forgotten records."""
    return int(connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL").get)


def facets(connection: apsw.Connection, where: Filter) -> dict[str, list[Any]]:
    """The categories, tags and scopes of the records that the filter admits, those with the most records first."""
    sql, values = condition(where)
    categories = connection.execute(
        f"SELECT category FROM records WHERE {sql} AND category IS NOT NULL"
        " GROUP BY category ORDER BY count(*) DESC, category LIMIT ?",
        (*values, MOST_NAMES),
    )
    tags = connection.execute(
        f"SELECT tag FROM tags WHERE row IN (SELECT row FROM records WHERE {sql})"
        " GROUP BY tag ORDER BY count(*) DESC, tag LIMIT ?",
        (*values, MOST_NAMES),
    )
    scopes = connection.execute(
        f"SELECT user, agent, session FROM records WHERE {sql} GROUP BY user, agent, session"
        " ORDER BY count(*) DESC, user, agent, session LIMIT ?",
        (*values, MOST_NAMES),
    )
    parts = ("user", "agent", "session")
    return {
        "categories": [name for (name,) in categories],
        "tags": [name for (name,) in tags],
        "scopes": [{part: name for part, name in zip(parts, row, strict=True) if name is not None} for row in scopes],
    }


POLL_SECONDS = 0.1

_EVENTS = """
    FROM history CROSS JOIN records ON records.row = history.row
    WHERE (user IS NULL OR user = ?) AND (agent IS NULL OR agent = ?) AND (session IS NULL OR session = ?)
    AND action <> 'supersedes' AND NOT (action = 'undo' AND EXISTS (
        SELECT 1 FROM history AS undone
        WHERE undone.seq = json_extract(history.detail, '$.undoes') AND undone.action = 'supersedes'))
    AND (passage = x'' OR seq > ifnull((
        SELECT max(seq) FROM history AS purge WHERE purge.row = history.row AND purge.action = 'purge'), 0))
"""
"""The events that a scope can see. Events of the superseding record are left out: those of the superseded record tell
the same to whoever can see it. So are events before a purge where the id was used again, perhaps by another scope."""


class SqliteChanges:
    """The changes to one file, by any process. A file sends no notifications, so it is polled."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        """Yields True when something has changed, False after `quiet` seconds without a change."""
        yield self._poll(quiet, self.newest())

    def newest(self, scope: Scope | None = None) -> int:
        """The number of the newest event that a scope can see."""
        with self._database.read() as connection:
            if scope is None:
                return sequence(connection)
            newest = connection.execute(f"SELECT seq {_EVENTS} ORDER BY seq DESC LIMIT 1", _parts(scope)).get
        return int(newest or 0)

    def count(self, upto: int, scope: Scope) -> int:
        """The number of such events up to a number."""
        with self._database.read() as connection:
            return int(connection.execute(f"SELECT count(*) {_EVENTS} AND seq <= ?", (*_parts(scope), upto)).get)

    def since(self, seq: int, scope: Scope | None = None) -> tuple[list[int], int]:
        """The numbers of such events after a number. There is one writer at a time, so none comes late."""
        with self._database.read() as connection:
            if scope is None:
                rows: Any = connection.execute("SELECT seq FROM history WHERE seq > ?", (seq,))
            else:
                rows = connection.execute(f"SELECT seq {_EVENTS} AND seq > ?", (*_parts(scope), seq))
            return [number for (number,) in rows], max(seq, sequence(connection))

    def _poll(self, quiet: float, last: int) -> Iterator[bool]:
        while True:
            until = time.monotonic() + quiet
            while (newest := self.newest()) == last and (left := until - time.monotonic()) > 0:
                time.sleep(min(POLL_SECONDS, left))
            changed, last = newest != last, newest
            yield changed


def _parts(scope: Scope) -> tuple[str | None, ...]:
    return scope.user, scope.agent, scope.session
