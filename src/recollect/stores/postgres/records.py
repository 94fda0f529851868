"""The truth: records and their history, changed in short transactions, with everything that is derived from them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recollect.ranking import fold_hash
from recollect.stores import ledger
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.derived import Derived
from recollect.stores.postgres.rows import COLUMNS, SELECT, from_row, plain, text, time_of, to_row
from recollect.stores.postgres.scopes import scope_number
from recollect.stores.postgres.visible import condition
from recollect.stores.rows import micros, passage_hash
from recollect.types import GLOBAL, Change, Event, Filter, Put, Record, SawFile, Scope, now

TRANSACTION_SECONDS = 0.1
"""When a transaction is this old it is committed and the rest goes on in a new one, so that nobody waits long."""

CHANNEL = "recollect"

_INSERT = f"INSERT INTO records ({', '.join(COLUMNS)}, scope, length) VALUES ({', '.join(['%s'] * (len(COLUMNS) + 2))})"
_REPLACE = (
    f"UPDATE records SET forgotten_at = NULL, {', '.join(f'{column} = %s' for column in COLUMNS)},"
    " scope = %s, length = %s WHERE row = %s"
)


class PostgresRecords:
    """Reads and writes the records of one PostgreSQL store."""

    def __init__(self, database: Database, derived: Derived, scope: Scope | None = None) -> None:
        self._database = database
        self._derived = derived
        self._scope = scope

    def within(self, scope: Scope) -> PostgresRecords:
        """The same records, always in the name of one scope."""
        return PostgresRecords(self._database, self._derived, scope)

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, each group as one; the records put come back as they now stand."""
        waiting = iter(groups)
        stored: list[Record] = []
        taken: list[Sequence[Change]] = []
        while True:
            stored += self._database.write(lambda connection: self._some(connection, taken, waiting), self._scope)
            if not taken:
                return stored
            taken.clear()

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), in the order asked."""
        sql, values = condition(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read(self._scope or (where.scope if where else None)) as connection:
            rows = connection.execute(f"{SELECT} WHERE {sql} AND id = ANY(%s)", [*values, [text(key) for key in ids]])
            found = {record.id: record for record in map(from_row, rows)}
        return [found[key] for key in ids if key in found]

    def history(self, record_id: str) -> list[Event]:
        """All that happened to one record, oldest first."""
        with self._database.read(self._scope) as connection:
            rows = connection.execute(
                "SELECT seq, id, action, at, detail FROM history WHERE id = %s ORDER BY seq", (text(record_id),)
            )
            return [
                Event(seq, plain(key), action, time_of(at), json.loads(detail)) for seq, key, action, at, detail in rows
            ]

    def _some(
        self, connection: Connection, taken: list[Sequence[Change]], waiting: Iterable[Sequence[Change]]
    ) -> list[Record]:
        """As many groups as there is time for, those first that an earlier try of this transaction has taken."""
        deadline = time.monotonic() + TRANSACTION_SECONDS
        table = _Rows(connection, self._derived)
        done: list[Record] = []
        position = 0
        while position < len(taken) or time.monotonic() < deadline:
            if position == len(taken):
                group = next(iter(waiting), None)
                if group is None:
                    break
                taken.append(group)
            self._be(connection, taken[position])
            done += [record for change in taken[position] for record in ledger.apply(table, change)]
            position += 1
        if taken:
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))
        return done

    def _be(self, connection: Connection, group: Sequence[Change]) -> None:
        """A group is written in the name of the scope that its records are of, where no scope is fixed."""
        whose = next((change.record.scope for change in group if isinstance(change, Put)), GLOBAL)
        self._database.be(connection, self._scope or whose)

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""
        sql, values = condition(where)
        with self._database.read(self._scope or where.scope) as connection:
            rows = connection.execute(
                f'{SELECT} WHERE {sql} ORDER BY time DESC, id COLLATE "C" LIMIT %s OFFSET %s', [*values, limit, offset]
            )
            return [from_row(row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The steps of a change, in a transaction that is open; rows that are looked at are locked."""

    connection: Connection
    derived: Derived

    def look(self, key: str) -> ledger.Kept | None:
        """What has this id."""
        found = self.connection.execute(
            f"{SELECT.replace(' FROM', ', forgotten_at, passage FROM', 1)} WHERE id = %s FOR UPDATE OF records",
            (text(key),),
        ).fetchone()
        if found is None:
            return None
        *row, forgotten, passage = found
        return ledger.Kept(from_row(row), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope that says the same; two who add the same text at once take turns."""
        fold = fold_hash(record.text)
        self.connection.execute("SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(fold[:8], signed=True),))
        sql, values = condition(Filter(scope=record.scope, kinds=(record.kind,)))
        rows = self.connection.execute(f"{SELECT} WHERE {sql} AND fold = %s FOR UPDATE OF records", [*values, fold])
        return next((twin for twin in map(from_row, rows) if twin.scope == record.scope), None)

    def insert(self, record: Record) -> None:
        """Keep a new record."""
        scope = scope_number(self.connection, record.scope)
        terms = self.derived.terms(record)
        row = self.connection.execute(f"{_INSERT} RETURNING row", [*to_row(record), scope, terms.length]).fetchone()
        self.derived.add(self.connection, _number(row), scope, record, terms)

    def replace(self, record: Record, before: Record) -> None:
        """Keep a record in the place of another; vectors of a passage that nobody has any more go."""
        row = self._row(record.id)
        scope = scope_number(self.connection, record.scope)
        terms = self.derived.terms(record)
        self.derived.remove(self.connection, row)
        self.connection.execute(_REPLACE, [*to_row(record), scope, terms.length, row])
        self._drop_orphan(passage_hash(before.passage))
        self.derived.add(self.connection, row, scope, record, terms)

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Note what stands in a record's place."""
        self.connection.execute(
            "UPDATE records SET superseded_by = %s, superseded_at = %s WHERE id = %s", (text(by), micros(at), text(key))
        )

    def hide(self, key: str, *, purge: bool) -> None:
        """A tombstone; the id stays taken."""
        row = self._row(key)
        self.derived.remove(self.connection, row)
        self.connection.execute("UPDATE records SET forgotten_at = %s WHERE row = %s", (micros(now()), row))
        if purge:
            self._wipe(row)

    def show(self, record: Record) -> None:
        """Away with the tombstone."""
        row, scope = self._row(record.id), scope_number(self.connection, record.scope)
        self.connection.execute("UPDATE records SET forgotten_at = NULL WHERE row = %s", (row,))
        self.derived.add(self.connection, row, scope, record, self.derived.terms(record))

    def saw(self, change: SawFile) -> None:
        """Note the state of a file."""
        self.connection.execute("DELETE FROM files WHERE path = %s", (text(change.path),))
        if (state := change.state) is not None:
            values = (text(state.path), text(state.root), state.mtime_ns, state.size, state.digest)
            self.connection.execute("INSERT INTO files VALUES (%s, %s, %s, %s, %s)", values)

    def ingested(self, digest: str) -> None:
        """Note what was read for facts."""
        self.connection.execute(
            "INSERT INTO ingested VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET at = excluded.at",
            (digest, micros(now())),
        )

    def last(self, key: str) -> int | None:
        """The number of the last line of a record's history; the record is locked, so that none can be added."""
        self.look(key)
        found = self.connection.execute("SELECT max(seq) FROM history WHERE id = %s", (text(key),)).fetchone()
        return None if found is None else found[0]

    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write a line of history."""
        told = json.dumps(detail, default=_as_text)
        self.connection.execute(
            "INSERT INTO history (row, scope, id, action, at, detail)"
            " SELECT row, scope, id, %s, %s, %s FROM records WHERE id = %s",
            (action, micros(now()), told, text(key)),
        )

    def _row(self, key: str) -> int:
        return _number(self.connection.execute("SELECT row FROM records WHERE id = %s", (text(key),)).fetchone())

    def _wipe(self, row: int) -> None:
        """Nothing of the content stays: not in the record, not in its history, not as a vector."""
        passage = self.connection.execute("SELECT passage FROM records WHERE row = %s", (row,)).fetchone()
        self.connection.execute(
            "UPDATE records SET text = '', title = '', category = NULL, tags = '{}', source = NULL, path = NULL,"
            " first_line = NULL, last_line = NULL, fold = '', passage = '' WHERE row = %s",
            (row,),
        )
        self.connection.execute("UPDATE history SET detail = '{}' WHERE row = %s", (row,))
        self._drop_orphan(passage[0] if passage else b"")

    def _drop_orphan(self, passage: bytes) -> None:
        """Delete the vectors of a passage that no record has any more: a vector can be turned back into words."""
        self.connection.execute(
            "DELETE FROM embeddings WHERE passage = %s AND NOT EXISTS (SELECT 1 FROM records WHERE passage = %s)",
            (passage, passage),
        )


def _number(row: Any) -> int:
    return int(row[0])


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
