"""What the SQL stores read alike: records and their history, numbers and facets of a store, and events."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from recollect.stores.database import SqlDatabase
from recollect.stores.rows import EPOCH, Condition, from_row, meta, reader
from recollect.types import EVERYTHING, Changes, Event, Filter, Record, Records, Scope

MAX_FACETS = 500
"""The most categories, tags and scopes that are listed, each; those with the most records come first."""


class SqlRecords(Records):
    """Reads the records of one store, as one scope."""

    def __init__(self, database: SqlDatabase, scope: Scope | None = None) -> None:
        self._database = database
        self._scope = scope

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        condition, values = self._database.dialect.matching(where) if where else ("forgotten_at IS NULL", [])
        records = {
            record.id: record for record in self._select(f"{condition} AND id = ANY(%s)", [*values, list(ids)], where)
        }
        return [records[key] for key in ids if key in records]

    def history(self, record_id: str) -> list[Event]:
        with self._database.read(self._scope) as connection:
            events = "SELECT seq, id, action, at, detail FROM history WHERE id = %s ORDER BY seq"
            return [
                Event(seq, key, action, EPOCH + timedelta(microseconds=at), json.loads(detail))
                for seq, key, action, at, detail in connection.execute(events, (record_id,))
            ]

    def scope_of(self, record_id: str) -> Scope | None:
        with self._database.read(self._scope) as connection:
            scope = f'SELECT "user", agent, session FROM {self._database.dialect.records}'
            row = connection.execute(f"{scope} WHERE id = %s AND passage <> %s", (record_id, b"")).fetchone()
        return None if row is None else Scope(*row)

    def _select(self, condition: str, values: Sequence[Any], where: Filter | None) -> list[Record]:
        with self._database.read(reader(self._scope, where)) as connection:
            rows = connection.execute(f"{self._database.dialect.select} WHERE {condition}", values)
            return [from_row(row) for row in rows]

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        condition, values = self._database.dialect.matching(where)
        page = f'{condition} ORDER BY time DESC, id COLLATE "C" LIMIT %s OFFSET %s'
        return self._select(page, [*values, limit, offset], where)


class SqlChanges(Changes):
    """Reads which events a scope may see."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    @abstractmethod
    def _visible(self, connection: Any, scope: Scope) -> Condition:
        """The events that a scope may see, as the end of a statement.

        That a record supersedes another is not among them: the superseded record has an event of its own, for those who
        can see that record.
        """

    @abstractmethod
    def _next(self, connection: Any, seq: int, events: list[int]) -> int:
        """The number to pass the next time, after these events that follow `seq`."""

    def newest(self, scope: Scope | None = None) -> int:
        with self._database.read(scope) as connection:
            numbers = self._select(connection, scope, "SELECT seq {} ORDER BY seq DESC LIMIT 1")
            return numbers[0] if numbers else 0

    def count(self, upto: int, scope: Scope) -> int:
        with self._database.read(scope) as connection:
            return self._select(connection, scope, "SELECT count(*) {} AND seq <= %s", upto)[0]

    def since(self, seq: int, scope: Scope | None = None) -> tuple[list[int], int]:
        with self._database.read(scope) as connection:
            events = self._select(connection, scope, "SELECT seq {} AND seq > %s", seq)
            return events, self._next(connection, seq, events)

    def _select(self, connection: Any, scope: Scope | None, sql: str, *values: int) -> list[int]:
        visible, own = ("FROM history WHERE true", []) if scope is None else self._visible(connection, scope)
        return [number for (number,) in connection.execute(sql.format(visible), [*own, *values])]


class SqlStore:
    """What the SQL stores have in common beside their parts."""

    _database: Any
    keywords: Any

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside the block share one snapshot."""
        return self._database.reading()  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """What the store holds, and the lag of its indexes."""
        with self._database.read() as connection:
            forgotten, files, sequence = connection.execute(
                "SELECT (SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL), (SELECT count(*) FROM files),"
                " (SELECT coalesce(max(seq), 0) FROM history)"
            ).fetchone()
            return {
                **self._place(connection),
                "records": {**self._counts(connection, EVERYTHING), "forgotten": forgotten},
                "files": files,
                "sequence": sequence,
                "language": meta(connection, "language") or self.keywords.analyzer.language,
                "keyword_lag": self.keywords.lag(connection),
            }

    @abstractmethod
    def _place(self, connection: Any) -> dict[str, Any]:
        """Where the store is, which engine keeps it, and its bytes."""

    def count(self, where: Filter) -> dict[str, int]:
        """How many records pass the filter, by kind."""
        with self._database.read(where.scope) as connection:
            return self._counts(connection, where)

    def _counts(self, connection: Any, where: Filter) -> dict[str, int]:
        condition, values = self._database.dialect.matching(where)
        numbers = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
            f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {condition}",
            values,
        ).fetchone()
        return dict(zip(("total", "facts", "chunks", "superseded"), numbers, strict=True))

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The categories, tags and scopes of the records that pass the filter, those with the most records first."""
        dialect = self._database.dialect
        condition, values = dialect.matching(where)
        scope = '"user", agent, session'
        facets = (
            ("category", f"records WHERE {condition} AND category IS NOT NULL", 'category COLLATE "C"'),
            ("tag", dialect.tag_facet.format(condition), 'tag COLLATE "C"'),
            (scope, f"{dialect.records} WHERE {condition}", scope.replace(",", " NULLS FIRST,") + " NULLS FIRST"),
        )
        with self._database.read(where.scope) as connection:
            with connection.pipeline():
                categories, tags, scopes = (
                    connection.execute(
                        f"SELECT {names} FROM {rows} GROUP BY {names} ORDER BY count(*) DESC, {order} LIMIT %s",
                        [*values, MAX_FACETS],
                    )
                    for names, rows, order in facets
                )
            return {
                "categories": [name for (name,) in categories],
                "tags": [name for (name,) in tags],
                "scopes": [Scope(*row).as_dict() for row in scopes],
            }

    def check(self) -> None:
        """Raise if the store is closed, or was opened by another process."""
        self._database.check()

    def close(self) -> None:
        """Close the store; closing twice is harmless."""
        self._database.close()
