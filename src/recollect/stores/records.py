"""What the SQL stores read alike: records, events, files, ids of external systems, cached answers."""

import json
import os
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from recollect.disk import at_home
from recollect.stores.database import SqlPart
from recollect.stores.rows import EPOCH, Condition, from_row, meta, micros, reader
from recollect.types import GLOBAL, Changes, Event, Files, FileState, Filter, Joins, Notes, Record, Records, Scope, now
from recollect.types.records import SHORT_ID, short_id


class SqlRecords(SqlPart, Records):
    """Reads the records of one store, as one scope."""

    events_of = "{}"
    """The condition on the events of a record, around one on the record."""

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        dialect = self._database.dialect
        condition, values = dialect.matching(where) if where else ("forgotten_at IS NULL", [])
        with self._database.read(reader(self._scope, where)) as connection:
            named, keys = self._database.with_ids(connection, ids)
            rows = connection.execute(f"{dialect.select} WHERE {condition} AND {named}", [*values, *keys])
            records = {record.id: record for record in map(from_row, rows)}
        return [records[key] for key in ids if key in records]

    def history(self, record_id: str) -> list[Event]:
        with self._database.read(self._scope) as connection:
            named, keys = self._database.with_ids(connection, [record_id])
            condition = self.events_of.format(named)
            events = f"SELECT seq, id, action, at, detail FROM history WHERE {condition} ORDER BY seq"
            return [
                Event(seq, key, action, EPOCH + timedelta(microseconds=at), json.loads(detail))
                for seq, key, action, at, detail in connection.execute(events, keys)
            ]

    def scope_of(self, record_id: str) -> Scope | None:
        with self._database.read(self._scope) as connection:
            named, keys = self._database.with_ids(connection, [record_id])
            scope = f'SELECT "user", agent, session FROM {self._database.dialect.records}'
            row = connection.execute(f"{scope} WHERE {named} AND passage <> %s", [*keys, b""]).fetchone()
        return None if row is None else Scope(*row)

    def named(self, part: str, scope: Scope | None, limit: int) -> list[tuple[str, Scope, bool]]:
        dialect = self._database.dialect
        visible, values = ("true", []) if scope is None else dialect.admitting(Filter(scope=scope))
        end = part[-SHORT_ID:]
        sql = (
            f'SELECT id, "user", agent, session, forgotten_at IS NOT NULL FROM {dialect.records} WHERE ('
            f'id COLLATE "C" >= %s AND id COLLATE "C" < %s OR {dialect.short})'
            f" AND passage <> %s AND {visible} LIMIT %s"
        )
        with self._database.read(self._scope) as connection:
            rows = connection.execute(sql, [part, part + LAST, end, end + LAST, b"", *values, MOST_NAMED])
            named = [(key, Scope(*parts), bool(forgotten)) for key, *parts, forgotten in rows if _means(part, key)]
        return sorted(named)[:limit]

    def _select(self, condition: str, values: Sequence[Any], where: Filter | None) -> list[Record]:
        with self._database.read(reader(self._scope, where)) as connection:
            rows = connection.execute(f"{self._database.dialect.select} WHERE {condition}", values)
            return [from_row(row) for row in rows]

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        condition, values = self._database.dialect.matching(where)
        page = f'{condition} ORDER BY time DESC, id COLLATE "C" LIMIT %s OFFSET %s'
        return self._select(page, [*values, limit, offset], where)


MOST_NAMED = 1_000  # records that may share a part of their ids; where there are more, it says nothing
LAST = "\U0010ffff"  # the last character: no text that begins with another comes after it with this appended


def _means(part: str, record_id: str) -> bool:
    """Whether an id begins with a text, or its short id does, or it ends with a text longer than a short id."""
    short = short_id(record_id)
    return record_id.startswith(part) or short.startswith(part) or (short != record_id and record_id.endswith(part))


class SqlChanges(SqlPart, Changes):
    """Reads which events a scope may see."""

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


MAX_NOTES = 10_000
MAX_JOINS = 200_000  # rows of the two caches; the oldest are deleted first

_STATE = "SELECT path, root, mtime_ns, size, digest FROM files"
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class SqlFiles(SqlPart, Files):
    """Reads the states of files and their chunks, as one scope. Both are written as changes to the records."""

    def known(self, root: str) -> dict[str, FileState]:
        below = root.rstrip(os.sep) + os.sep
        after = below[:-1] + chr(ord(os.sep) + 1)  # the first text that sorts after all that begin with `below`
        condition = 'path = %s OR path COLLATE "C" >= %s AND path COLLATE "C" < %s'
        return self._states(f"{_STATE} WHERE {condition}", root, below, after)

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        return self._states(f"{_STATE} WHERE path = ANY(%s)", list(paths))

    def _states(self, sql: str, *values: object) -> dict[str, FileState]:
        with self._database.read(self._scope) as connection:
            return {row[0]: FileState(*row) for row in connection.execute(sql, values)}

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT root, max(told) FROM"
                " (SELECT root, told FROM roots UNION ALL SELECT root, NULL FROM files) AS known GROUP BY root"
            )
            return {root: json.loads(options) if options else None for root, options in sorted(rows)}

    def ingested(self, digests: Sequence[str]) -> set[str]:
        with self._database.read() as connection:
            rows = connection.execute("SELECT digest FROM ingested WHERE digest = ANY(%s)", (list(digests),))
            return {digest for (digest,) in rows}

    def chunks(self, path: str, *, forgotten: bool = False) -> list[Record]:
        with self._database.read(self._scope) as connection:
            state = "IS NOT NULL" if forgotten else "IS NULL"  # a purged record has no path
            chunks = f"WHERE path = %s AND kind = 'chunk' AND forgotten_at {state} ORDER BY records.row"
            return [from_row(row) for row in connection.execute(f"{self._database.dialect.select} {chunks}", (path,))]

    def visible(self, where: Filter) -> dict[str, tuple[str, str]]:
        condition, values = self._database.dialect.matching(where)
        sql = (
            "SELECT path, coalesce(root, ''), title FROM (SELECT path, min(title) AS title FROM records"
            f" WHERE {condition} AND kind = 'chunk' AND path IS NOT NULL GROUP BY path) AS seen"
            " LEFT JOIN files USING (path)"
        )
        with self._database.read(reader(self._scope, where)) as connection:
            return {path: (root, title.split(" › ")[0]) for path, root, title in connection.execute(sql, values)}

    def linking(self, words: Collection[str], where: Filter) -> list[Record]:
        condition, values = self._database.dialect.matching(where)
        # The order is that of their cost: many texts have no `[`, and case is compared in ASCII only.
        mentioned = " OR ".join(['text COLLATE "C" ILIKE %s'] * len(words))
        sql = f"""{self._database.dialect.select} WHERE {condition} AND text COLLATE "C" LIKE %s AND ({mentioned})"""
        with self._database.read(reader(self._scope, where)) as connection:
            rows = connection.execute(sql, [*values, "%[%", *(f"%[%{word}%" for word in words)])
            return [from_row(row) for row in rows]

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        dialect = self._database.dialect
        tagged, names = dialect.tagged(tags)
        sql = (
            f"SELECT DISTINCT path FROM {dialect.records} WHERE path = ANY(%s) AND kind = 'chunk'"
            ' AND forgotten_at IS NULL AND NOT ("user" IS NOT DISTINCT FROM %s AND agent IS NOT DISTINCT FROM %s'
            f" AND session IS NOT DISTINCT FROM %s AND {tagged})"
        )
        with self._database.read(self._scope) as connection:
            rows = connection.execute(sql, (list(paths), scope.user, scope.agent, scope.session, *names))
            return {path for (path,) in rows}

    def chunk_key(self) -> bytes:
        with self._database.read() as connection:
            key = meta(connection, "chunk_key")
        return bytes.fromhex(key if key is not None else self._database.transact(_create_chunk_key))


def _create_chunk_key(connection: Any) -> str:
    """If two processes create it at once, that of the first is used."""
    create = "INSERT INTO meta VALUES ('chunk_key', %s) ON CONFLICT (key) DO NOTHING"
    connection.execute(create, (os.urandom(32).hex(),))
    return meta(connection, "chunk_key") or ""


class SqlNotes(SqlPart, Notes):
    """A small cache in the store."""

    prune = "DELETE FROM notes WHERE key IN (SELECT key FROM notes ORDER BY at DESC LIMIT -1 OFFSET %s)"

    def get(self, key: str) -> str | None:
        with self._database.read() as connection:
            self.announce(connection, key)
            row = connection.execute("SELECT value FROM notes WHERE key = %s", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        def work(connection: Any) -> None:
            self.announce(connection, key)
            connection.execute(
                "INSERT INTO notes VALUES (%s, %s, %s)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at",
                (key, value, micros(now())),
            )
            connection.execute(self.prune, (MAX_NOTES,))

        self._database.try_write(work)

    def announce(self, connection: Any, key: str) -> None:
        """Tell the database which note is used."""


class SqlJoins(SqlPart, Joins):
    """Finds the records that results of external sources stand for, and remembers which path an id means."""

    prune = "DELETE FROM joins WHERE number <= (SELECT max(number) FROM joins) - %s"

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        with self._database.read(scope) as connection:
            sql = "SELECT id, path FROM joins WHERE source = %s AND scope = %s"
            return dict(connection.execute(sql, (source, scope.key)))

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        known = self.paths(source, scope)
        new = [(source, scope.key, key, path) for key, path in paths.items() if known.get(key) != path]

        def work(connection: Any) -> None:
            cursor = connection.cursor()
            cursor.executemany(
                "DELETE FROM joins WHERE source = %s AND scope = %s AND id = %s", [row[:3] for row in new]
            )
            cursor.executemany("INSERT INTO joins (source, scope, id, path) VALUES (%s, %s, %s, %s)", new)
            cursor.execute(self.prune, (MAX_JOINS,))

        if new:
            self._database.try_write(work, scope)

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        dialect = self._database.dialect
        condition, values = dialect.matching(where)
        forms = {path: path_forms(path) for path in paths}
        with self._database.read(reader(self._scope, where)) as connection:

            def select(form: str, *texts: Any) -> list[Record]:
                order = 'ORDER BY first_line NULLS FIRST, id COLLATE "C"'
                rows = connection.execute(f"{dialect.select} WHERE {condition} AND {form} {order}", [*values, *texts])
                return [from_row(row) for row in rows]

            by_path: dict[str | None, list[Record]] = {}
            for record in select("path = ANY(%s)", [path for same, _ in forms.values() for path in same]):
                by_path.setdefault(record.path, []).append(record)
            records = {
                path: [record for form in same for record in by_path.get(form, ())]
                or (select(dialect.ends, ending, ending) if ending else [])
                for path, (same, ending) in forms.items()
            }
        return {path: of_path for path, of_path in records.items() if of_path}

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        dialect = self._database.dialect
        condition, values = dialect.matching(where)
        newest = (
            'SELECT row FROM (SELECT row, row_number() OVER (PARTITION BY fold ORDER BY time DESC, id COLLATE "C")'
            f" AS place FROM records WHERE {condition} AND fold = ANY(%s::bytea[])) AS ranked WHERE place = 1"
        )
        sql = f"{dialect.select.replace('SELECT', 'SELECT fold,', 1)} WHERE row IN ({newest})"
        with self._database.read(reader(self._scope, where)) as connection:
            return {bytes(fold): from_row(row) for fold, *row in connection.execute(sql, [*values, list(folds)])}


def path_forms(path: str) -> tuple[list[str], str | None]:
    """All forms of the same path, and how longer paths that it is the end of must end; None if that says nothing."""
    name = _SCHEME.sub("", path).removeprefix("./")
    same = dict.fromkeys((path, name, f"/{name}", name if "\0" in name else str(at_home(name))))
    ending = f"/{name.lstrip('/')}"
    return list(same), ending if ending != "/" else None
