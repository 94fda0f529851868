"""The truth: records and their history, changed in short transactions, with everything that is derived from them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby

from recollect.analysis import Analyzer
from recollect.errors import RecollectError
from recollect.stores import ledger
from recollect.stores.postgres.database import Connection, Database
from recollect.stores.postgres.derived import Derived
from recollect.stores.postgres.rows import SELECT, from_row, plain, text, time_of
from recollect.stores.postgres.table import Rows
from recollect.stores.postgres.turns import take_turns
from recollect.stores.postgres.visible import condition
from recollect.types import GLOBAL, Change, Event, Filter, Put, Record, Scope

MOST_CHANGES = 200
MOST_CHARACTERS = 10_000_000
MOST_SECONDS = 0.1
"""What one transaction holds, or waits for: when it is full or this old it is made, so that nobody waits long."""

CHANNEL = "recollect"


class PostgresRecords:
    """Reads and writes the records of one PostgreSQL store; `follow` says in which language a transaction writes."""

    def __init__(
        self, database: Database, derived: Derived, follow: Callable[[Connection], Analyzer], scope: Scope | None = None
    ) -> None:
        self._database = database
        self._derived = derived
        self._follow = follow
        self._scope = scope

    def within(self, scope: Scope) -> PostgresRecords:
        """The same records, always in the name of one scope."""
        return PostgresRecords(self._database, self._derived, self._follow, scope)

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, each group as one; the records put come back as they now stand."""
        stored: list[Record] = []
        applied = 0
        for some in _batches(iter(groups)):
            read = self._derived.reading(change.record for group in some for change in group if isinstance(change, Put))
            try:
                stored += self._database.write(lambda c, some=some, read=read: self._make(c, some, read), self._scope)  # type: ignore[misc]
            except RecollectError as error:
                error.applied = applied
                raise
            applied += len(some)
        return stored

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), in the order asked."""
        sql, values = condition(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read(self._reader(where)) as connection:
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

    def _reader(self, where: Filter | None) -> Scope | None:
        """In whose name is read: that of the filter, and ours where it names nobody."""
        if where is None:
            return self._scope
        return self._scope or where.scope if where.any_scope else where.scope

    def _make(self, connection: Connection, groups: Sequence[Sequence[Change]], derived: Derived) -> list[Record]:
        """Some groups in one transaction."""
        derived = derived.by(self._follow(connection))
        done: list[Record] = []
        for changes in self._together(connection, groups):
            done += _apply(Rows(connection, derived), changes)
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self._database.schema))
        return done

    def _together(self, connection: Connection, groups: Sequence[Sequence[Change]]) -> Iterator[list[Change]]:
        """All changes; behind row-level security those that follow one another for one scope, in its name."""
        if not self._database.walled(connection):
            yield list(chain.from_iterable(groups))
            return
        take_turns(connection, chain.from_iterable(groups))
        for scope, some in groupby(groups, lambda group: _whose(group, self._scope)):
            self._database.be(connection, scope)
            yield list(chain.from_iterable(some))

    def scope_of(self, record_id: str) -> Scope | None:
        """Whose a record is, forgotten or not; of one that was purged nothing is told."""
        with self._database.read(self._scope) as connection:
            found = connection.execute(
                'SELECT "user", agent, session FROM records JOIN scopes USING (scope) WHERE id = %s AND passage <> %s',
                (text(record_id), b""),
            ).fetchone()
        return None if found is None else Scope(*map(plain, found))

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""
        sql, values = condition(where)
        with self._database.read(self._reader(where)) as connection:
            rows = connection.execute(
                f'{SELECT} WHERE {sql} ORDER BY time DESC, id COLLATE "C" LIMIT %s OFFSET %s', [*values, limit, offset]
            )
            return [from_row(row) for row in rows]


def _apply(table: Rows, changes: Sequence[Change]) -> list[Record]:
    table.prepare(changes)
    done = [record for change in changes for record in ledger.apply(table, change)]
    table.flush()
    return done


def _batches(groups: Iterator[Sequence[Change]]) -> Iterator[list[Sequence[Change]]]:
    """Groups that are made together; the transaction begins when they are all at hand."""
    for first in groups:
        some, deadline = [first], time.monotonic() + MOST_SECONDS
        count, letters = len(first), _letters(first)
        while count < MOST_CHANGES and letters < MOST_CHARACTERS and time.monotonic() < deadline:
            if (group := next(groups, None)) is None:
                break
            some.append(group)
            count += len(group)
            letters += _letters(group)
        yield some


def _letters(group: Sequence[Change]) -> int:
    return sum(len(change.record.title) + len(change.record.text) for change in group if isinstance(change, Put))


def _whose(group: Sequence[Change], mine: Scope | None) -> Scope:
    """In whose name a group is made: ours, or that of the first record in it which is not for us to see."""
    ours = mine or GLOBAL
    puts = (change.record.scope for change in group if isinstance(change, Put))
    return next((scope for scope in puts if not ours.admits(scope)), ours)
