"""New records: one statement writes a record with all that is derived from it, and may check first that it is new."""

from collections.abc import Sequence

import numpy as np

from recollect.stores.ledger import ACTIVE_SPACE
from recollect.stores.postgres.database import PostgresDatabase
from recollect.stores.postgres.keywords import LOCK_LANGUAGE, PostgresKeywords
from recollect.stores.postgres.postings import KIND, WORDS, IndexWriter, drawn_scopes, stored_vector
from recollect.stores.postgres.rows import find_scope
from recollect.stores.postgres.vectors import literal
from recollect.stores.rows import COLUMNS, Condition, micros, to_row
from recollect.types import Put, Record, now

CHANNEL = "recollect"  # the channel of NOTIFY; the payload is the schema

TEXT_LOCKS = 0x52434C57
SLOTS = 256  # advisory locks for adding the same text at once. They are few because the server's lock table is small.

_PLACES = ", ".join(["%s"] * len(COLUMNS))
_INSERT = f"INSERT INTO records ({', '.join(COLUMNS)}, scope, length)"
_RETURNING = "ON CONFLICT (id) DO NOTHING RETURNING row, scope, id, length, passage"
_EVENT = "INSERT INTO history (row, scope, id, action, at, detail) SELECT row, scope, id, %s, %s, %s FROM new"
_NOTIFY = "SELECT pg_notify(%s, %s) WHERE EXISTS (SELECT 1 FROM history WHERE id = %s AND at = %s)"


def insertion(spaces: Sequence[int], *, noted: bool) -> str:
    """The statement that inserts a new record into its table, the tallies and all indexes; `noted` with an event.

    Its parameters: those of the record, scope, length, terms, counts; action, time and detail of the event.
    """
    return _inserting(spaces, [f"new AS ({_INSERT} VALUES ({_PLACES}, %s, %s) {_RETURNING})"], noted=noted)


def _guarded_insertion(spaces: Sequence[int], find: str, space: int | None, *, merge: bool) -> str:
    """The statement that inserts a new record and its event, if the store is as the client knows it.

    That is: it has this scope, language and these spaces, and the text is new in the scope. Else it writes nothing.
    A vector in the space `space` is inserted, too, which must be the active one.
    """
    known = (
        "%s = (SELECT value FROM meta WHERE key = 'language')"
        " AND %s::integer[] = ARRAY(SELECT space FROM spaces ORDER BY space)"
    )
    if merge:
        known += " AND NOT EXISTS (SELECT 1 FROM records WHERE fold = %s AND records.scope = scopes.scope)"
    vector = []
    if space is not None:
        known += f" AND {space} = ({ACTIVE_SPACE})"
        insert = (
            f"INSERT INTO embeddings (space, passage, vector) SELECT {space}, passage, given.vector FROM new, given"
        )
        vector = ["given AS (SELECT %s::vector AS vector)", f"embedding AS ({insert} ON CONFLICT DO NOTHING)"]
    new = f"new AS ({_INSERT} SELECT {_PLACES}, scope, %s FROM place {_RETURNING})"
    return _inserting(spaces, [f"place AS ({find} AND {known})", new, *vector], noted=True, given=space)


def _inserting(spaces: Sequence[int], new: Sequence[str], *, noted: bool, given: int | None = None) -> str:
    def vector(space: int) -> str:
        stored = stored_vector(space, "new")
        return f"coalesce({stored}, (SELECT vector::halfvec FROM given))" if space == given else stored

    parts = [
        *new,
        "document AS (INSERT INTO documents SELECT row, scope, length, %s::text[], %s::real[] FROM new)",
        f"tally AS (INSERT INTO tallies (scope, kind, records, length) SELECT scope, {KIND}, 1, {WORDS} FROM new)",
        *(
            f"space_{space} AS (INSERT INTO vectors_{space} (row, scope, vector)"
            f" SELECT row, scope, {vector(space)} FROM new)"
            for space in spaces
        ),
        *([f"event AS ({_EVENT})"] if noted else []),
    ]
    return f"WITH {', '.join(parts)} SELECT row, scope FROM new"


def lock_folds(folds: set[bytes]) -> Condition:
    """The statement that waits for transactions that add the same texts. One locks all of its texts at once."""
    slots = sorted({int.from_bytes(fold[:8]) % SLOTS for fold in folds})
    return "SELECT pg_advisory_xact_lock(%s, slot) FROM unnest(%s::integer[]) AS slot", [TEXT_LOCKS, slots]


class Additions:
    """Adds single new records in one round trip, which checks, writes and commits."""

    def __init__(self, database: PostgresDatabase, keywords: PostgresKeywords) -> None:
        self._database = database
        self._keywords = keywords
        self._spaces: list[int] = []  # as they were read last

    def add(self, put: Put, space: int | None = None, vector: bytes = b"") -> Record | None:
        """Add a record, with its vector in a space, if it is new and the store's language and spaces are those we know.

        Else nothing is written. Row-level security needs a look at every step, so there it is never done. If the
        connection is lost and all is sent again, the id is there already.
        """
        if self._database.row_security() or not (
            space is None or space in self._spaces or space in self._read_spaces()
        ):
            return None
        locks = [LOCK_LANGUAGE[0], *([lock_folds({put.record.text_hash})] if put.merge else [])]
        at = micros(now())
        statements = [*locks, self._insert(put, at, space, vector)]
        tell = (_NOTIFY, [CHANNEL, self._database.schema, put.record.id, at])
        row = self._database.write_at_once(statements, [tell])[-1].fetchone()
        if row is None:
            self._read_spaces()
            return None
        if scopes := drawn_scopes(row[1:]):
            self._database.try_write(lambda connection: IndexWriter.merge_tallies(connection, scopes))
        return put.record

    def _insert(self, put: Put, at: int | None, space: int | None, vector: bytes) -> Condition:
        record, writer, spaces = put.record, self._keywords.writer, self._spaces
        find, scope = find_scope(record.scope)
        length, terms, counts = writer.terms(record).columns
        guards = [writer.analyzer.language, spaces, *([record.text_hash] if put.merge else [])]
        given = [] if space is None else [literal(np.frombuffer(vector, "<f4"))]
        return _guarded_insertion(spaces, find, space, merge=put.merge), [
            *scope, *guards, *to_row(record), length, *given, terms, counts, "add", at, "{}",
        ]  # fmt: skip

    def _read_spaces(self) -> list[int]:
        (self._spaces,) = self._database.one("SELECT ARRAY(SELECT space FROM spaces ORDER BY space)")
        return self._spaces
