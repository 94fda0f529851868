"""Vectors in a distributed store, each once for every scope that has its text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from recollect.errors import StoreError
from recollect.stores.postgres.citus.database import OWN, ClusterDatabase, insert_rows
from recollect.stores.postgres.connections import CONNECTION_LOST, Connection
from recollect.stores.postgres.vectors import (
    PostgresSpaces,
    PostgresVectors,
    add_rows,
    create_index,
    create_space,
    literal,
    spaces_of,
    unpack,
)
from recollect.types import VectorSpace

UNOWNED_SCOPE = 0
"""The scope of vectors whose texts no record has yet. Scopes of records have greater numbers."""

EMBEDDING = "INSERT INTO embeddings (scope, space, passage, vector) VALUES (%s, %s, %s, %s::vector)"


def save_vectors(
    connection: Connection,
    space: int,
    vectors: Sequence[tuple[bytes, bytes]],
    scopes: Sequence[int] | None = None,
    *,
    ahead: bool = False,
) -> None:
    """Save vectors by the hashes of their texts in the scopes that have these texts, or in some of them.

    With `ahead`, vectors of other texts are saved, too: their records will be stored.
    """
    values = dict(vectors)
    among, numbers = ("true", []) if scopes is None else ("scope = ANY(%s)", [list(scopes)])
    of_texts = f"SELECT DISTINCT scope, passage FROM records WHERE passage = ANY(%s) AND {among}"
    rows = connection.execute(of_texts, [list(values), *numbers]) if values else ()
    owners = [(scope, bytes(passage)) for scope, passage in rows]
    if ahead:
        owners += [(UNOWNED_SCOPE, passage) for passage in set(values) - {passage for _, passage in owners}]
    if not owners:
        return
    new = [(scope, space, passage, literal(np.frombuffer(values[passage], "<f4"))) for scope, passage in owners]
    insert_rows(connection, EMBEDDING, new, " ON CONFLICT DO NOTHING")
    attach_vectors(connection, space, list(values), sorted({scope for scope, _ in owners}))


def insert_vectors(connection: Connection, space: int, records: Sequence[tuple[int, int, bytes, bytes | None]]) -> None:
    """Insert new records into a space: the row, the scope and the hash of the text of each, and perhaps its vector."""
    rows, embeddings = list[Sequence[Any]](), list[Sequence[Any]]()
    for row, scope, passage, vector in records:
        value = None if vector is None else literal(np.frombuffer(vector, "<f4"))
        rows.append((row, scope, value, value is not None))
        if value is not None:
            embeddings.append((scope, space, passage, value))
    insert = f"INSERT INTO vectors_{space} (row, scope, vector, settled) VALUES (%s, %s, %s::halfvec, %s)"
    insert_rows(connection, insert, rows)
    insert_rows(connection, EMBEDDING, embeddings, " ON CONFLICT DO NOTHING")


def adopt_vectors(connection: Connection, passages: Sequence[bytes]) -> None:
    """Give new records the vectors that records of other scopes have, or that were there before."""
    for space in spaces_of(connection):
        missing = connection.execute(
            f"SELECT DISTINCT passage FROM records JOIN vectors_{space} AS held USING (scope, row)"
            " WHERE held.vector IS NULL AND passage = ANY(%s)",
            (list(passages),),
        ).fetchall()
        embedded = connection.cursor(binary=True).execute(
            "SELECT DISTINCT ON (passage) passage, vector FROM embeddings WHERE space = %s AND passage = ANY(%s)"
            " ORDER BY passage, scope",
            (space, [passage for (passage,) in missing]),
        ).fetchall()  # fmt: skip
        if embedded:
            pairs = [(bytes(passage), unpack([vector]).tobytes()) for passage, vector in embedded]
            save_vectors(connection, space, pairs)
            keys = [passage for passage, _ in pairs]
            connection.execute("DELETE FROM embeddings WHERE scope = %s AND passage = ANY(%s)", (UNOWNED_SCOPE, keys))


def attach_vectors(connection: Connection, space: int, passages: Sequence[bytes], scopes: Sequence[int]) -> None:
    """Give records of some scopes the vectors of their texts, where these are stored."""
    connection.execute(
        f"UPDATE vectors_{space} AS held SET vector = embeddings.vector::halfvec, settled = true"
        " FROM records JOIN embeddings USING (scope, passage) WHERE held.scope = ANY(%s) AND records.scope = ANY(%s)"
        " AND embeddings.scope = ANY(%s) AND held.scope = records.scope AND held.row = records.row"
        " AND space = %s AND passage = ANY(%s) AND held.vector IS NULL",
        [list(scopes), list(scopes), list(scopes), space, list(passages)],
    )


class ClusterVectors(PostgresVectors):
    """Vector search in one space of a distributed store."""

    _key = "scope, row"  # with the scope, each shard joins its own rows
    _embedded = "records JOIN embeddings USING (scope, passage)"
    _explored = 2  # every shard is asked for all candidates, and has few of the nearest
    _has_unsettled = False
    partitioned = True

    def known(self, passages: Sequence[str]) -> set[str]:
        try:
            return super().known(passages)
        except StoreError as error:
            if not isinstance(error.__cause__, CONNECTION_LOST):
                raise
            return set()  # while a worker does not answer, a vector of another scope is computed again

    def _save(self, pairs: Sequence[tuple[bytes, bytes]], *, ahead: bool) -> None:
        if self._database.row_security():
            keys, values = zip(*pairs, strict=True)
            literals = [literal(np.frombuffer(value, "<f4")) for value in values]
            keep = ("SELECT keep_vectors(%s, %s::bytea[], %s::vector[])", [self._number, list(keys), literals])
            self._database.write_at_once([keep])
        else:
            self._database.write(partial(save_vectors, space=self._number, vectors=pairs, ahead=ahead), self._scope)


def create_vectors(connection: Connection, number: int, dimension: int) -> None:
    """Create the table of a space."""
    table = f"vectors_{number}"
    connection.execute(
        f"CREATE TABLE {table} (row bigint, scope integer, vector halfvec({dimension}),"
        " settled boolean NOT NULL DEFAULT false, PRIMARY KEY (scope, row))"
    )
    connection.execute(f"SELECT create_distributed_table('{table}', 'scope', colocate_with := 'records')")
    add_rows(connection, number)
    connection.execute(f"CREATE INDEX {table}_missing ON {table} (scope, row) WHERE vector IS NULL")
    create_index(connection, number, dimension)
    connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    connection.execute(f"CREATE POLICY seen ON {table} USING ({OWN})")


create_cluster_space = partial(create_space, locked=ClusterDatabase.locked, create_table=create_vectors)


class ClusterSpaces(PostgresSpaces):
    """The vector spaces of a distributed store."""

    _counted = "DISTINCT passage"  # several scopes may have one text
    _create = staticmethod(create_cluster_space)

    def _index(self, space: VectorSpace, number: int) -> PostgresVectors:
        return ClusterVectors(self._database, space, number)
