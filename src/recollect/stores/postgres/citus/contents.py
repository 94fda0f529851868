"""Dump and load a distributed store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recollect.stores import contents
from recollect.stores.postgres.citus.database import scope_number
from recollect.stores.postgres.citus.records import ClusterRows, merge_tallies
from recollect.stores.postgres.citus.vectors import create_space, save_vectors
from recollect.stores.postgres.connections import Connection
from recollect.stores.postgres.contents import PostgresContents, PostgresSnapshot
from recollect.stores.postgres.postings import IndexWriter
from recollect.types import (
    Record,
    Scope,
)
from recollect.types.parts import Part


class ClusterSnapshot(PostgresSnapshot):
    """A vector that several scopes have is one part."""

    def counts(self) -> Mapping[str, int]:
        different = "SELECT count(*) FROM (SELECT DISTINCT space, passage FROM embeddings) AS every"
        row = self.connection.execute(different).fetchone()
        return {**super().counts(), "vector": row[0] if row else 0}

    def rows(self, kind: str) -> Iterator[Sequence[Any]]:
        last: Any = None
        for row in super().rows(kind):
            if kind != "vector" or row[:2] != last:
                yield row
            last = row[:2]


class ClusterContents(PostgresContents):
    """Dumps and loads a distributed store."""

    selects = contents.selects(ClusterRows.dialect, "embeddings JOIN spaces USING (space)")
    create_space = staticmethod(create_space)

    @property
    def snapshot_type(self) -> type[PostgresSnapshot]:
        return ClusterSnapshot

    def begin(self, connection: Connection) -> None:
        """Begin to read on every worker while nobody writes, so that all of them show one state. Then writers go on."""
        with contextlib.ExitStack() as stack:
            if not self._database.is_at_once:  # else nobody else can write
                lock = stack.enter_context(self._database.connect())
                lock.execute(f"BEGIN; LOCK TABLE {self._database.locked} IN SHARE MODE")
            super().begin(connection)
            connection.execute("SELECT count(*) FROM records")

    def insert_records(self, connection: Connection, parts: Mapping[Part, Record], writer: IndexWriter) -> None:
        if not parts:
            return
        columns = [contents.columns_of(part) for part in parts]
        records = list(parts.values())
        names = ("user", "agent", "session")
        wanted = [Scope(*(each[name] for name in names)) for each in columns]
        ordered = sorted(set(wanted), key=lambda scope: sorted(scope.as_dict().items()))
        numbers = {scope: scope_number(connection, scope) for scope in ordered}
        with connection.cursor().copy("COPY ids (id, scope) FROM STDIN") as copy:
            for each, scope in zip(columns, wanted, strict=True):
                copy.write_row((each["id"], numbers[scope]))
        held = connection.execute("SELECT id, row FROM ids WHERE id = ANY(%s)", ([each["id"] for each in columns],))
        rows: dict[str, int] = dict(held.fetchall())
        terms = [writer.terms(record) for record in records]
        keys = ", ".join(f'"{name}"' for name in columns[0])
        with connection.cursor().copy(f"COPY records ({keys}, scope, length, row) FROM STDIN") as copy:
            for each, scope, term in zip(columns, wanted, terms, strict=True):
                copy.write_row([*each.values(), numbers[scope], term.length, rows[each["id"]]])
        live = [
            (rows[each["id"]], numbers[scope], term)
            for each, scope, term in zip(columns, wanted, terms, strict=True)
            if each["forgotten_at"] is None
        ]
        with connection.cursor().copy("COPY documents (row, scope, length, terms, counts) FROM STDIN") as copy:
            for row, number, (counts, length) in live:
                copy.write_row((row, number, length, list(counts), list(counts.values())))
        with connection.cursor().copy("COPY tallies (scope, records, length) FROM STDIN") as copy:
            for _, number, (_, length) in live:
                copy.write_row((number, 1, length))
        for (space,) in connection.execute("SELECT space FROM spaces ORDER BY space").fetchall():
            with connection.cursor().copy(f"COPY vectors_{space} (row, scope) FROM STDIN") as copy:
                for row, number, _ in live:
                    copy.write_row((row, number))

    def places(self, connection: Connection, events: Sequence[Part]) -> dict[str, tuple[int, int]]:
        ids = list({part.values[1] for part in events})
        rows = connection.execute("SELECT id, row, scope FROM ids WHERE id = ANY(%s)", (ids,))
        return {key: (row, scope) for key, row, scope in rows}

    def load_vectors(self, connection: Connection, parts: Sequence[Part]) -> None:
        rows = connection.execute("SELECT fingerprint, space, dimension FROM spaces").fetchall()
        contents.check_dimensions(parts, {fingerprint: dimension for fingerprint, _, dimension in rows})
        for fingerprint, space, _ in rows:
            values = [part.values[1:] for part in parts if part.values[0] == fingerprint]
            if values:
                save_vectors(connection, space, values, None)

    def merge_tallies(self, connection: Connection) -> None:
        scopes = connection.execute("SELECT scope FROM tallies GROUP BY scope HAVING count(*) > 1").fetchall()
        for (scope,) in scopes:
            with connection.transaction():
                merge_tallies(connection, scope)
