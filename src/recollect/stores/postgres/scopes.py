"""The number of each scope: what indexes begin with."""

from __future__ import annotations

from typing import Any

from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import text
from recollect.types import Scope


def scope_find(scope: Scope) -> tuple[str, list[Any]]:
    """The statement that finds a scope's number."""
    parts = {'"user"': scope.user, "agent": scope.agent, "session": scope.session}
    same = " AND ".join(f"{name} IS NULL" if value is None else f"{name} = %s" for name, value in parts.items())
    return f"SELECT scope FROM scopes WHERE {same}", [text(value) for value in parts.values() if value is not None]


def scope_number(connection: Connection, scope: Scope) -> int:
    """The scope's number, made where the scope is new; two who make it at once agree."""
    find, wanted = scope_find(scope)
    values = [text(value) for value in (scope.user, scope.agent, scope.session)]
    while (found := connection.execute(find, wanted).fetchone()) is None:
        connection.execute(
            'INSERT INTO scopes ("user", agent, session) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING', values
        )
    return int(found[0])
