"""The vectors in PostgreSQL: whether each record has one, in the place it should be, and each space its index."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from recollect.doctor.findings import Finding, State, Telling
from recollect.doctor.postings import LIVE, written
from recollect.doctor.server import Server, TooLong, main_of
from recollect.doctor.setup import Setup
from recollect.doctor.vectors import Stand, chosen, told
from recollect.stores.postgres import PostgresStore
from recollect.stores.postgres.database import Connection
from recollect.stores.postgres.moving import SETTLING
from recollect.stores.postgres.vectors import EXACT_UP_TO, LONGEST_INDEXED

_INDEXES = f"""
    SELECT space, embedder, indisvalid FROM spaces LEFT JOIN
        (SELECT relname, indisvalid AND indisready AS indisvalid FROM pg_class JOIN pg_index ON indexrelid = oid
        WHERE relnamespace = current_schema()::regnamespace) AS held ON relname = 'vectors_' || space || '_near'
    WHERE dimension <= {LONGEST_INDEXED} AND indisvalid IS NOT TRUE ORDER BY space
"""

_BEING_MADE = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s::integer::oid
        AND objid = current_schema()::regnamespace::oid
"""

_ASTRAY = """
    SELECT (SELECT count(*) FROM records LEFT JOIN vectors_{0} AS held USING (row)
            WHERE forgotten_at IS NULL AND held.scope IS DISTINCT FROM records.scope),
        (SELECT count(*) FROM vectors_{0} AS held WHERE NOT EXISTS
            (SELECT 1 FROM records WHERE records.row = held.row AND forgotten_at IS NULL))
"""

_ORPHANS = "FROM embeddings WHERE NOT EXISTS (SELECT 1 FROM records WHERE records.passage = embeddings.passage)"


def vectors(server: Server, setup: Setup) -> Iterator[Finding]:
    """Whether every record has a vector of the model that is set, and whether searches find them fast."""
    found: Any = server.rows("SELECT space, fingerprint, embedder FROM spaces ORDER BY space DESC")
    total = server.number(LIVE)
    if setup.settings.embedder == "none":
        yield Finding("vectors", "ok", "none wanted: keyword search only")
    else:
        active, own = chosen(setup.settings, found, server.meta("space"))
        empty = f"SELECT count(*) FROM vectors_{own[0]} WHERE vector IS NULL" if own else LIVE
        stand = Stand(active[2] if active else None, own is not None and active == own, server.number(empty), total)
        yield told(stand, setup)
    yield from _indexes(server, setup, total)
    for space, _, embedder in found:
        yield from _places(server, setup, space, embedder)
    yield from _orphans(server, setup)


def _indexes(server: Server, setup: Setup, total: int) -> Iterator[Finding]:
    """Approximate indexes that are not there, or that a crash left half made."""
    being_made = server.number(_BEING_MADE, SETTLING)
    for space, embedder, valid in server.rows(_INDEXES):
        what = "is missing" if valid is None else "is invalid"
        said = f"the approximate index of {embedder} {what}"
        if being_made:
            yield Finding("vectors", "note", f"{said}; it is being made")
            continue
        state: State = "note" if valid is None and total <= EXACT_UP_TO else "warning"
        slow = f"{said}: a search that sees more than {EXACT_UP_TO:,} records compares them all"
        mend = f"recollect doctor --fix{setup.flags} makes it"
        yield Finding("vectors", state, slow, mend, partial(settle, setup.place, space))


def _places(server: Server, setup: Setup, space: int, embedder: str) -> Iterator[Finding]:
    """Records that have no place among the vectors, or another's, and places of no record."""
    try:
        without, gone = server.row(_ASTRAY.format(space))
    except TooLong:
        return
    if without or gone:
        said = f"the vectors of {embedder} are not at their records: {without:,} records and {gone:,} places do not fit"
        mend = f"recollect doctor --fix{setup.flags} puts them there"
        yield Finding("vectors", "failure", said, mend, partial(place, setup.place, space))


def _orphans(server: Server, setup: Setup) -> Iterator[Finding]:
    """Vectors that no record has: words could be read out of them."""
    try:
        count = server.number(f"SELECT count(*) {_ORPHANS}")
    except TooLong:
        return
    if count:
        mend = f"recollect doctor --fix{setup.flags} removes them"
        yield Finding(
            "vectors", "note", f"{count:,} of the vectors kept are of no record", mend, partial(drop, setup.place)
        )


def settle(url: str, space: int, telling: Telling) -> None:
    """Make the approximate index of a space, where none is or one that was never finished."""
    telling.announce("making the approximate index")

    def drop_invalid(connection: Connection) -> None:
        name = f"vectors_{space}_near"
        found = connection.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (name,))
        if found.fetchone() == (False,):
            connection.execute(f"DROP INDEX {name}")

    written(url, drop_invalid)
    store = PostgresStore(main_of(url))
    try:
        store.moving.settle(telling.progress("indexing"))
    finally:
        store.close()


def place(url: str, space: int, telling: Telling) -> None:
    """Put every live record's vector where searches look for it, and nothing else."""
    telling.announce("putting vectors where their records are")

    def work(connection: Connection) -> None:
        connection.execute("LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(
            f"DELETE FROM vectors_{space} AS held WHERE NOT EXISTS (SELECT 1 FROM records"
            " WHERE records.row = held.row AND records.scope = held.scope AND forgotten_at IS NULL)"
        )
        connection.execute(
            f"INSERT INTO vectors_{space} (row, scope, vector) SELECT row, scope, vector::halfvec FROM records"
            " LEFT JOIN embeddings ON embeddings.passage = records.passage AND space = %s"
            " WHERE forgotten_at IS NULL ON CONFLICT DO NOTHING",
            (space,),
        )

    written(url, work)


def drop(url: str, telling: Telling) -> None:
    """Remove the vectors that no record has."""
    telling.announce("removing vectors of no record")
    written(url, _drop)


def _drop(connection: Connection) -> None:
    connection.execute(f"SELECT drop_orphan(passage) FROM (SELECT DISTINCT passage {_ORPHANS}) AS orphans")
