"""The coordinator of a cluster: scopes by number in every statement, and what row-level security needs there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from recollect.dataclass import dataclass
from recollect.errors import StoreError, Unreachable
from recollect.stores.postgres.connections import Connection, run
from recollect.stores.postgres.database import DIALECT, PostgresDatabase
from recollect.stores.postgres.rows import visible_scopes
from recollect.stores.rows import Condition, Dialect, NumberedFilter
from recollect.types import GLOBAL, Filter, Scope

INSERT_ROWS = 100  # rows that one statement inserts

LOOK_SECONDS = 3.0  # how long it is remembered that the shard of records without a user could not be reached

NOT_SEARCHED = (
    "records that belong to no user (global ones, and those of an agent or a session alone) were not searched:"
    " the server that holds them does not answer now"
)

OWN = "scope = ANY(string_to_array(current_setting('recollect.scopes', true), ',')::integer[])"
"""Row-level security where no policy may have a subquery: the transaction lists the numbers of its scopes."""


NEW_SCOPE = (
    'INSERT INTO scopes (scope, "user", agent, session)'
    " VALUES (place_scope(%(user)s), %(user)s, %(agent)s, %(session)s) ON CONFLICT DO NOTHING"
)
"""Creates a scope, in the shard of its user."""


@dataclass(frozen=True)
class ClusterDialect(Dialect):
    """Conditions that name scopes by their numbers, which are looked up."""

    database: ClusterDatabase | None = None

    def admitting(self, where: Filter) -> Condition:
        return super().admitting(self.database.with_scope_numbers(where) if self.database else where)


class ClusterDatabase(PostgresDatabase):
    """The coordinator of a cluster."""

    locked = "scopes"  # on the coordinator: a lock on a distributed table asks every worker
    ids = "ids"
    TABLE_SIZE = "SELECT citus_total_relation_size(%s)"
    SIZE = (
        f"SELECT ({PostgresDatabase.SIZE}) + (SELECT coalesce(sum(citus_total_relation_size(oid, false)), 0)"
        " FROM pg_dist_partition JOIN pg_class ON oid = logicalrelid WHERE relnamespace = %(schema)s::regnamespace"
        " AND partmethod = 'h')"
    )

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(url, read_only=read_only)
        values = {field.name: getattr(DIALECT, field.name) for field in fields(DIALECT)}
        self.dialect = ClusterDialect(**{**values, "records": "records", "lock": "", "database": self})
        self.row_security()
        self._looking = threading.Lock()
        self._shared_is_lost = False
        self._look_at = 0.0

    def naming(self, scope: Scope | None, connection: Connection | None = None) -> list[Condition]:
        """Row-level security on the workers has no table of scopes: the transaction lists the numbers of its own."""
        named = super().naming(scope)
        if not self._row_security:
            return named
        with contextlib.nullcontext(connection) if connection else self.read(scope) as open_connection:
            run(open_connection, named)
            return [*named, list_scopes(visible_scopes(open_connection, scope or GLOBAL))]

    def _begin(self, stack: contextlib.ExitStack, scope: Scope | None, replica: bool) -> Connection:
        connection = super()._begin(stack, scope, replica)
        if self._row_security:
            run(connection, self.naming(scope, connection))
        return connection

    def with_scope_numbers(self, where: Filter) -> Filter:
        if where.any_scope or isinstance(where, NumberedFilter):
            return where
        with self.read(where.scope) as connection:
            numbers = visible_scopes(connection, where.scope)
        return _with_numbers(where, numbers)

    def narrowed(self, where: Filter, error: Exception | None = None) -> tuple[Filter, str] | None:
        """The scopes of the filter's user, while the shard of the scopes that have no user cannot be reached."""
        if (error is None and not self._shared_is_lost) or where.scope.user is None:
            return None
        if where.any_scope or isinstance(where, NumberedFilter):
            return None
        if error is not None:
            with self._looking:  # others that have failed wait for the first one that looks
                self._shared_is_lost = self._shared_is_lost or self._look(where.scope)
        elif time.monotonic() >= self._look_at and self._looking.acquire(blocking=False):
            try:
                self._shared_is_lost = self._look(where.scope)
            finally:
                self._looking.release()
        if not self._shared_is_lost:
            return None
        with self.read(where.scope) as connection:
            own = visible_scopes(connection, where.scope, '"user" IS NOT NULL')
        return (_with_numbers(where, own), NOT_SEARCHED) if own else None

    def _look(self, scope: Scope) -> bool:
        """Whether the records without a user that a caller can see cannot be reached."""
        try:
            with self.read(scope) as connection:
                if shared := visible_scopes(connection, scope, '"user" IS NULL'):
                    connection.execute("SELECT 1 FROM records WHERE scope = ANY(%s) LIMIT 1", (shared,))
        except Unreachable:
            return True
        except StoreError:  # whoever reads next gets the same error
            return False
        finally:
            self._look_at = time.monotonic() + LOOK_SECONDS  # from now on: a server that hangs takes a while to fail
        return False

    def with_ids(self, connection: Connection, ids: Sequence[str]) -> Condition:
        rows = connection.execute("SELECT scope, earlier FROM ids WHERE id = ANY(%s)", (list(ids),))
        scopes = {number for scope, earlier in rows for number in (scope, *(earlier or ()))}
        if not scopes:  # Citus would ask every shard
            return "false", []
        return "scope = ANY(%s) AND id = ANY(%s)", [sorted(scopes), list(ids)]

    def _prepare(self) -> str:
        # One connection to each worker, so that a transaction sees what it wrote; settings follow it there.
        return (
            "SET citus.multi_shard_modify_mode TO sequential; SET citus.propagate_set_commands TO local;"
            f" {super()._prepare()}"
        )


def _with_numbers(where: Filter, numbers: Sequence[int]) -> NumberedFilter:
    return NumberedFilter(**{field.name: getattr(where, field.name) for field in fields(where)}, numbers=tuple(numbers))


def list_scopes(numbers: Sequence[int]) -> Condition:
    """The statement that names the scopes of a transaction to row-level security."""
    return f"SET LOCAL recollect.scopes TO '{','.join(map(str, numbers))}'", ()


def insert_rows(connection: Connection, insert: str, rows: Sequence[Sequence[Any]], then: str = "") -> None:
    """Insert rows, many with each statement; `insert` is the statement for one of them, `then` follows the rows."""
    head, place = insert.split(" VALUES ")
    for start in range(0, len(rows), INSERT_ROWS):
        some = rows[start : start + INSERT_ROWS]
        values = [value for row in some for value in row]
        connection.execute(f"{head} VALUES {', '.join([place] * len(some))}{then}", values)
