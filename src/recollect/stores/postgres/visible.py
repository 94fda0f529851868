"""Which rows a filter lets through, as SQL over `records`; and what it hides of a scope, where that is less to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.rows import text
from recollect.stores.rows import micros
from recollect.types import Filter, Scope

_Clause: TypeAlias = tuple[str, Sequence[Any]]


def condition(where: Filter) -> tuple[str, list[Any]]:
    """The filter as SQL over `records`, with its parameters."""
    clauses: list[_Clause] = [("forgotten_at IS NULL", ()), *_of_moment(where), *_of_wishes(where)]
    if not where.any_scope:
        sql, values = scoped(where.scope)
        clauses.append((f"records.scope IN (SELECT scope FROM scopes WHERE {sql})", values))
    return _joined(clauses)


def scoped(scope: Scope) -> tuple[str, list[Any]]:
    """The scopes that one who asks with this scope may see, as SQL over `scopes`."""
    clauses: list[_Clause] = []
    for column, value in (('"user"', scope.user), ("agent", scope.agent), ("session", scope.session)):
        seen = f"({column} IS NULL OR {column} = %s)" if value is not None else f"{column} IS NULL"
        clauses.append((seen, [] if value is None else [text(value)]))
    return _joined(clauses)


@dataclass(frozen=True, slots=True)
class Seen:
    """What may be seen: these scopes (or all), but for the `hidden` rows; where wishes narrow it, as `only` says."""

    scopes: list[int] | None
    hidden: list[int]
    only: tuple[str, list[Any]] | None
    count: int
    length: int

    @property
    def within(self) -> tuple[str, list[Any]]:
        """The scopes, as SQL over a table that has `scope`."""
        return _within(self.scopes)

    @property
    def rows(self) -> tuple[str, list[Any]]:
        """What of these scopes may be seen, as SQL over a table that has `row`."""
        if self.only is not None:
            return f"row IN (SELECT row FROM records WHERE {self.only[0]})", self.only[1]
        if not self.hidden:
            return "true", []
        return "row NOT IN (SELECT unnest(%s::bigint[]))", [self.hidden]


def seen(connection: Connection, where: Filter) -> Seen:
    """What a filter lets through, and how much that is."""
    scopes = None if where.any_scope else numbers(connection, where.scope)
    if where.as_of or any(_of_wishes(where)):
        only = condition(where)
        sums = "SELECT count(*), coalesce(sum(length), 0) FROM records"
        count, length = connection.execute(f"{sums} WHERE {only[0]}", only[1]).fetchone() or (0, 0)
        return Seen(scopes, [], only, int(count), int(length))
    there, values = _joined(list(_of_moment(where)))
    within, named = _within(scopes)
    with connection.pipeline():
        passing = connection.execute(
            "SELECT row, length FROM records WHERE forgotten_at IS NULL"
            " AND (expires_at IS NOT NULL OR superseded_at IS NOT NULL)"
            f" AND {within} AND NOT ({there})",
            [*named, *values],
        )
        sums = f"SELECT coalesce(sum(records), 0), coalesce(sum(length), 0) FROM tallies WHERE {within}"
        tallied = connection.execute(sums, named)
    hidden, tally = passing.fetchall(), tallied.fetchone() or (0, 0)
    count = int(tally[0]) - len(hidden)
    return Seen(scopes, [row for row, _ in hidden], None, count, int(tally[1]) - sum(length for _, length in hidden))


def _within(scopes: list[int] | None) -> tuple[str, list[Any]]:
    return ("true", []) if scopes is None else ("scope = ANY(%s)", [scopes])


def numbers(connection: Connection, scope: Scope) -> list[int]:
    """The scopes that one who asks with this scope may see, by number."""
    sql, values = scoped(scope)
    return [number for (number,) in connection.execute(f"SELECT scope FROM scopes WHERE {sql}", values)]


def _of_moment(where: Filter) -> Iterator[_Clause]:
    """What holds at the time asked about. A text that was changed since then is not what was known then."""
    moment = micros(where.moment)
    if where.as_of:
        yield "time <= %s AND (edited_at IS NULL OR edited_at <= %s)", (moment, moment)
    if not where.superseded:
        yield "(superseded_at IS NULL OR superseded_at > %s)", (moment,)
    yield "(expires_at IS NULL OR expires_at > %s)", (moment,)


def _of_wishes(where: Filter) -> Iterator[_Clause]:
    """What the one who asks wants to see of it."""
    for column, names in (("category", where.categories), ("kind", where.kinds)):
        if names:
            yield f"{column} = ANY(%s)", ([text(name) for name in names],)
    if where.tags:
        yield "tags @> %s::text[]", ([text(tag) for tag in where.tags],)
    if where.path is not None:
        yield "path LIKE ANY(%s)", (_path_patterns(where.path),)
    if where.since:
        yield "time >= %s", (micros(where.since),)
    if where.until:
        yield "time < %s", (micros(where.until),)


def _path_patterns(pattern: str) -> list[str]:
    """A path filter names a file or a folder, whole or by its last parts, with `*` where wanted."""
    name = text(pattern.removeprefix("./").rstrip("/"))
    for sign in ("\\", "%", "_"):
        name = name.replace(sign, f"\\{sign}")
    name = name.replace("*", "%")
    return [name, f"%/{name}", f"{name}/%", f"%/{name}/%"]


def _joined(clauses: Sequence[_Clause]) -> tuple[str, list[Any]]:
    return " AND ".join(sql for sql, _ in clauses) or "true", [value for _, values in clauses for value in values]
