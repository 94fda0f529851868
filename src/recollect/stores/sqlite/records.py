"""The truth: records and their history, changed in short transactions, each change with its line of history."""

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
"""When a transaction is this old it is committed and the rest goes on in a new one, so that nobody waits long."""


class SqliteRecords:
    """Reads and writes the records of one SQLite store."""

    def __init__(self, database: Database, follow: Callable[[apsw.Connection], None]) -> None:
        self._database = database
        self._follow = follow

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, each group as one; the records put come back as they now stand.

        Many groups take several transactions. An error says by `applied` how many groups were stored before it.
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """The steps of a change, in a transaction that is open: SQLite has one writer, so nothing moves meanwhile."""

    connection: apsw.Connection

    def look(self, key: str) -> ledger.StoredRecord | None:
        """What has this id."""
        found: Any = self.connection.execute(
            f"{SELECT.replace(' FROM records', ', forgotten_at, passage FROM records')} WHERE id = ?", (key,)
        ).fetchone()
        if found is None:
            return None
        *row, forgotten, passage = found
        return ledger.StoredRecord(from_row(row), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope that says the same."""
        sql, values = condition(Filter(scope=record.scope, kinds=(record.kind,)))
        rows = self.connection.execute(f"{SELECT} WHERE {sql} AND fold = ?", (*values, record.text_hash))
        return next((twin for twin in map(from_row, rows) if twin.scope == record.scope), None)

    def insert(self, record: Record) -> None:
        """Keep a new record."""
        self.connection.execute(INSERT, to_row(record))
        self._tag(self.connection.last_insert_rowid(), record)

    def replace(self, record: Record, before: Record) -> None:
        """Keep a record in the place of another; vectors of a passage that nobody has any more go."""
        row = self._row(record.id)
        self.connection.execute(REPLACE, (*to_row(record), row))
        self._drop_orphan(passage_hash(before.passage))
        self._tag(row, record)

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Note what stands in a record's place."""
        self.connection.execute(
            "UPDATE records SET superseded_by = ?, superseded_at = ? WHERE id = ?", (by, micros(at), key)
        )

    def hide(self, key: str, *, purge: bool) -> None:
        """A tombstone; the id stays taken."""
        row = self._row(key)
        self.connection.execute("UPDATE records SET forgotten_at = ? WHERE row = ?", (micros(now()), row))
        self.connection.execute("DELETE FROM tags WHERE row = ?", (row,))
        if purge:
            self._wipe(row)

    def show(self, record: Record) -> None:
        """Away with the tombstone."""
        row = self._row(record.id)
        self.connection.execute("UPDATE records SET forgotten_at = NULL WHERE row = ?", (row,))
        self._tag(row, record)

    def saw(self, change: SetFileState) -> None:
        """Note the state of a file."""
        self.connection.execute("DELETE FROM files WHERE path = ?", (change.path,))
        if (state := change.state) is not None:
            values = (state.path, state.root, state.mtime_ns, state.size, state.digest)
            self.connection.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", values)

    def mirrors(self, change: SetFolderOptions) -> None:
        """Note how a folder was told to be mirrored."""
        told = json.dumps(change.options, ensure_ascii=False)
        self.connection.execute("INSERT OR REPLACE INTO roots VALUES (?, ?)", (change.root, told))

    def ingested(self, digest: str) -> None:
        """Note what was read for facts."""
        self.connection.execute("INSERT OR REPLACE INTO ingested VALUES (?, ?)", (digest, micros(now())))

    def last(self, key: str) -> int | None:
        """The number of the last line of a record's history."""
        found: int | None = self.connection.execute("SELECT max(seq) FROM history WHERE id = ?", (key,)).get
        return found

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write a line of history."""
        told = json.dumps(detail, default=_as_text, ensure_ascii=False)
        self.connection.execute(
            "INSERT INTO history (row, id, action, at, detail) VALUES (?, ?, ?, ?, ?)",
            (self._row(key), key, action, micros(now()), told),
        )

    def _row(self, key: str) -> int:
        return int(self.connection.execute("SELECT row FROM records WHERE id = ?", (key,)).get)

    def _tag(self, row: int, record: Record) -> None:
        self.connection.execute("DELETE FROM tags WHERE row = ?", (row,))
        tags = [(tag, row) for tag in dict.fromkeys(record.tags)]
        self.connection.executemany("INSERT INTO tags VALUES (?, ?)", tags)

    def _wipe(self, row: int) -> None:
        """Nothing of the content stays: not in the record, not in its history, not as a vector."""
        passage = self.connection.execute("SELECT passage FROM records WHERE row = ?", (row,)).get
        self.connection.execute(
            "UPDATE records SET text = '', title = '', category = NULL, tags = '[]', source = NULL, path = NULL,"
            " first_line = NULL, last_line = NULL, fold = x'', passage = x'' WHERE row = ?",
            (row,),
        )
        self.connection.execute("UPDATE history SET detail = '{}' WHERE row = ?", (row,))
        self._drop_orphan(passage)

    def _drop_orphan(self, passage: object) -> None:
        """Delete the vectors of a passage that no record has any more: a vector can be turned back into words."""
        self.connection.execute(
            "DELETE FROM embeddings WHERE passage = ?1 AND NOT EXISTS (SELECT 1 FROM records WHERE passage = ?1)",
            (passage,),
        )


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


MOST_NAMES = 500
"""Of tags, categories and scopes each; those of the most records."""

_COUNTS = ("total", "facts", "chunks", "superseded")


def counts(connection: apsw.Connection, where: Filter = EVERYTHING) -> dict[str, int]:
    """How many records there are, and of which kind."""
    sql, values = condition(where)
    found = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
        f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {sql}",
        values,
    ).get
    return dict(zip(_COUNTS, found, strict=True))


def forgotten(connection: apsw.Connection) -> int:
    """How many records were taken out of every answer."""
    return int(connection.execute("SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL").get)


def facets(connection: apsw.Connection, where: Filter) -> dict[str, list[Any]]:
    """The categories, tags and scopes of what may be seen, those of the most records first."""
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


LOOK_SECONDS = 0.1

_TOLD = """
    FROM history CROSS JOIN records ON records.row = history.row
    WHERE (user IS NULL OR user = ?) AND (agent IS NULL OR agent = ?) AND (session IS NULL OR session = ?)
    AND action <> 'supersedes' AND NOT (action = 'undo' AND EXISTS (
        SELECT 1 FROM history AS undone
        WHERE undone.seq = json_extract(history.detail, '$.undoes') AND undone.action = 'supersedes'))
    AND (passage = x'' OR seq > ifnull((
        SELECT max(seq) FROM history AS purge WHERE purge.row = history.row AND purge.action = 'purge'), 0))
"""
"""What a scope is told of: not that a record took the place of another, or no longer does, which the other record's own
line tells to who may see it; and nothing from before a purge where the id was used again, perhaps by another scope."""


class SqliteChanges:
    """What has happened to one file, by whichever process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def listen(self, quiet: float = 1.0) -> Iterator[Iterator[bool]]:
        """Within it, True each time that something has happened since the last, False after each quiet while."""
        yield self._told(quiet, self.newest())

    def newest(self, scope: Scope | None = None) -> int:
        """The number of the newest line of history that tells a scope anything."""
        with self._database.read() as connection:
            if scope is None:
                return sequence(connection)
            found = connection.execute(f"SELECT seq {_TOLD} ORDER BY seq DESC LIMIT 1", _parts(scope)).get
        return int(found or 0)

    def count(self, upto: int, scope: Scope) -> int:
        """How many such lines there are up to a number."""
        with self._database.read() as connection:
            return int(connection.execute(f"SELECT count(*) {_TOLD} AND seq <= ?", (*_parts(scope), upto)).get)

    def since(self, seq: int, scope: Scope | None = None) -> tuple[list[int], int]:
        """The numbers of such lines after a number; one writes at a time, so none comes late."""
        with self._database.read() as connection:
            if scope is None:
                rows: Any = connection.execute("SELECT seq FROM history WHERE seq > ?", (seq,))
            else:
                rows = connection.execute(f"SELECT seq {_TOLD} AND seq > ?", (*_parts(scope), seq))
            return [number for (number,) in rows], max(seq, sequence(connection))

    def _told(self, quiet: float, seen: int) -> Iterator[bool]:
        while True:
            until = time.monotonic() + quiet
            while (newest := self.newest()) == seen and (left := until - time.monotonic()) > 0:
                time.sleep(min(LOOK_SECONDS, left))
            told, seen = newest != seen, newest
            yield told


def _parts(scope: Scope) -> tuple[str | None, ...]:
    return scope.user, scope.agent, scope.session
