"""Between a `Record` and its row. PostgreSQL's text cannot hold NUL, so that is written with a sign of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from recollect.stores.postgres.database import Connection, plain, text
from recollect.stores.rows import EPOCH, distinct, micros, moment, passage_hash
from recollect.types import Filter, Hit, RankedList, Record, Scope

COLUMNS = (
    "id", "kind", "text", "title", "category", "tags", "importance", "decay", "time", "created_at", "happened_at",
    "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path", "first_line", "last_line", "fold",
    "passage",
)  # fmt: skip
"""What a record itself says; its scope and length are beside it."""

SELECT = (
    f'SELECT {", ".join(f"records.{column}" for column in COLUMNS[:-2])}, "user", agent, session'
    " FROM records JOIN scopes USING (scope)"
)


def to_row(record: Record) -> list[Any]:
    """The values of `COLUMNS`."""
    first, last = record.lines or (None, None)
    return [
        text(record.id), record.kind, text(record.text), text(record.title), text(record.category),
        [text(tag) for tag in record.tags], record.importance, record.decay, micros(record.time),
        micros(record.created_at), micros(record.happened_at), micros(record.expires_at), micros(record.edited_at),
        text(record.superseded_by), micros(record.superseded_at), text(record.source), text(record.path), first, last,
        record.text_hash, passage_hash(record.passage),
    ]  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row that `SELECT` found."""
    (
        key, kind, words, title, category, tags, importance, decay, _time, created, happened, expires, edited,
        superseded_by, superseded_at, source, path, first, last, user, agent, session,
    ) = row  # fmt: skip
    return Record(
        id=plain(key),
        text=plain(words),
        kind=kind,
        title=plain(title),
        category=plain(category),
        tags=tuple(map(plain, tags)),
        scope=Scope(plain(user), plain(agent), plain(session)),
        importance=importance,
        decay=decay,
        created_at=moment(created) or EPOCH,
        happened_at=moment(happened),
        expires_at=moment(expires),
        edited_at=moment(edited),
        superseded_by=plain(superseded_by),
        superseded_at=moment(superseded_at),
        source=plain(source),
        path=plain(path),
        lines=None if first is None else (first, last),
    )


def time_of(value: int | None) -> datetime:
    """A kept time that is always there."""
    return moment(value) or EPOCH


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


def best(connection: Connection, scored: str, values: Sequence[Any], depth: int) -> tuple[RankedList, dict[str, int]]:
    """The first `depth` of what `scored` ranks, of equal texts only the first; and how many records hold each term."""
    wanted = depth
    while True:
        ranked = connection.execute(scored, [*values, wanted, wanted]).fetchall()
        kept, folded = distinct([(row, bytes(fold), float(score)) for row, fold, score, _ in ranked], depth)
        if len(kept) >= depth or len(ranked) < wanted:
            break
        wanted *= 4
    return matches(connection, kept, folded), json.loads(ranked[0][3]) if ranked else {}


def matches(connection: Connection, kept: dict[int, tuple[float, bytes]], folded: int) -> RankedList:
    """The records of rows, with their scores."""
    records = fetch(connection, list(kept))
    hits = (
        Hit(records[row].id, score, record=records[row], text_hash=fold)
        for row, (score, fold) in kept.items()
        if row in records
    )
    return RankedList("", tuple(hits), duplicates=folded)


def fetch(connection: Connection, rows: list[int]) -> dict[int, Record]:
    """The records in these rows."""
    select = SELECT.replace("SELECT ", "SELECT records.row, ", 1)
    return {row: from_row(fields) for row, *fields in connection.execute(f"{select} WHERE row = ANY(%s)", (rows,))}


def meta(connection: Connection, key: str) -> str | None:
    """One value of the store's own notes."""
    found = connection.execute("SELECT value FROM meta WHERE key = %s", (key,)).fetchone()
    return None if found is None else str(found[0])


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Note a value."""
    connection.execute(
        "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )
