"""What the SQL stores have in common: shared snapshots, numbers and facets, the language, the vector spaces."""

import contextlib
import copy
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import field
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from recollect.analysis import LANGUAGES, Analyzer
from recollect.dataclass import dataclass
from recollect.errors import StoreError, UsageError
from recollect.stores.rows import Condition, Dialect, analyzer_of, meta, set_meta, stored_pairs, usable_language
from recollect.types import EVERYTHING, Filter, KeywordIndex, Matrix, Scope, VectorIndex, VectorSpace, VectorSpaces
from recollect.types.records import SaveVectors

T = TypeVar("T")

K1, B, TITLE_WEIGHT = 1.2, 0.75, 2.0  # the parameters of BM25, and how much more a term counts in a title
KIND_NUMBERS: Mapping[str, int] = MappingProxyType({"fact": 0, "chunk": 1, "turn": 2})  # stored: never change one
NOTHING: Mapping[str, float] = MappingProxyType({})  # terms near those of a query, where there are none
MAX_FACETS = 500  # the most categories, tags and scopes that are listed, each; those with the most records come first


def mean_lengths(counts: Sequence[float], lengths: Sequence[float]) -> list[float]:
    """The length that records of each kind are compared with, from the number of records of each and their total.

    It is the mean of the kind, or of all if that is longer: many short facts do not make the notes beside them long.
    """
    mean = sum(lengths) / (sum(counts) or 1) or 1.0
    return [max(mean, length / (count or 1)) for count, length in zip(counts, lengths, strict=True)]


@dataclass(slots=True)
class Reading:
    """The snapshots that the reads of one `SqlDatabase.reading` share; whoever holds the lock uses them."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    snapshots: dict[int, Any] = field(default_factory=dict)
    depth: int = 0
    ended: bool = False


_READINGS: ContextVar[Mapping[int, Reading]] = ContextVar("readings", default=MappingProxyType({}))
"""The readings of a context, by the id of their database."""


class SqlDatabase(ABC):
    """A database that is read in snapshots and written in transactions. Safe to use from many threads."""

    dialect: Dialect

    def __init__(self, address: str, *, read_only: bool) -> None:
        self.address = address
        self.read_only = read_only
        self._pid = os.getpid()
        self._closed = False

    @abstractmethod
    def read(self, scope: Scope | None = None) -> AbstractContextManager[Any]:
        """A connection that sees one snapshot, as this scope where the database has row-level security."""

    @abstractmethod
    def transact(self, work: Callable[[Any], T]) -> T:
        """Do some work in one write transaction. It may be done again after a conflict."""

    @abstractmethod
    def try_write(self, work: Callable[[Any], None], scope: Scope | None = None) -> None:
        """Write something that is only cached. Nothing is written where the store is read-only or busy."""

    def one(self, statement: str) -> Any:
        """The first row of a statement's result."""
        with self.read() as connection:
            return connection.execute(statement).fetchone()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let all reads inside the block share one snapshot; threads that run in a copy of its context share it too.

        They use one connection in turns. A write of this process starts a new snapshot for the reads after it.
        """
        if self._reading is not None:
            yield
            return
        reading = Reading()
        token = _READINGS.set({**_READINGS.get(), id(self): reading})
        try:
            yield
        finally:
            _READINGS.reset(token)
            reading.ended = True
            self._end_if_free(reading)

    def _end_if_free(self, reading: Reading) -> None:
        """End the snapshots of a reading that has ended; a thread that still reads does so after its read."""
        if reading.ended and reading.lock.acquire(blocking=False):
            self._end(reading)
            reading.lock.release()

    @property
    def _reading(self) -> Reading | None:
        return _READINGS.get().get(id(self))

    @abstractmethod
    def _end(self, reading: Reading) -> None:
        """End the snapshots of a reading, unless a read is using them."""

    def with_ids(self, connection: Any, ids: Sequence[str]) -> Condition:  # noqa: ARG002
        """A condition on records: those with these ids."""
        return ("id = %s", ids) if len(ids) == 1 else ("id = ANY(%s)", [list(ids)])

    def narrowed(self, where: Filter, error: Exception | None = None) -> tuple[Filter, str] | None:  # noqa: ARG002
        """As `Store.narrowed`: one file or server has everything."""
        return None

    def check(self) -> None:
        """Raise if the store is closed, or was opened by another process."""
        if self._closed:
            raise StoreError(f"{self.address} has been closed", hint="open it again with Memory.open(…)")
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.address} was opened by another process",
                hint="a connection does not survive a fork: call Memory.open(…) in the child",
            )


class SqlPart:
    """A part of a store. A view of it acts as one scope."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database
        self._scope: Scope | None = None

    def within(self, scope: Scope | None) -> Self:
        """A view of this part whose transactions act as this scope."""
        view = copy.copy(self)
        view._scope = scope  # noqa: SLF001  (same class)
        return view


class SqlStore(ABC):
    """What the SQL stores have in common beside their parts."""

    _database: Any
    keywords: Any

    def reading(self) -> AbstractContextManager[None]:
        return self._database.reading()  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        with self._database.read() as connection:
            forgotten, files, sequence = connection.execute(
                "SELECT (SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL AND passage <> %s),"  # not purged
                " (SELECT count(*) FROM files WHERE digest NOT LIKE %s), (SELECT coalesce(max(seq), 0) FROM history)",
                (b"", "% % %"),  # `FileState.problem`: after the hash and the reader, why a file could not be read
            ).fetchone()
            return {
                **self._place(connection),
                "records": {**self._counts(connection, EVERYTHING), "forgotten": forgotten},
                "files": files,
                "sequence": sequence,
                "language": meta(connection, "language") or self.keywords.analyzer.language,
                "keyword_lag": self.keywords.lag(connection),
            }

    def narrowed(self, where: Filter, error: Exception | None = None) -> tuple[Filter, str] | None:
        return self._database.narrowed(where, error)  # type: ignore[no-any-return]

    @abstractmethod
    def _place(self, connection: Any) -> dict[str, Any]:
        """Where the store is, which engine keeps it, and its bytes."""

    def count(self, where: Filter) -> dict[str, int]:
        with self._database.read(where.scope) as connection:
            return self._counts(connection, where)

    def _counts(self, connection: Any, where: Filter) -> dict[str, int]:
        condition, values = self._database.dialect.matching(where)
        numbers = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
            " count(*) FILTER (WHERE kind = 'turn'), count(*) FILTER (WHERE superseded_at IS NOT NULL)"
            f" FROM records WHERE {condition}",
            values,
        ).fetchone()
        return dict(zip(("total", "facts", "chunks", "turns", "superseded"), numbers, strict=True))

    def facets(self, where: Filter) -> dict[str, list[Any]]:
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
        self._database.check()

    def close(self) -> None:
        self._database.close()


class SqlKeywords(KeywordIndex):
    """A keyword index in the language of its store. A store that has none yet takes `language`, or English."""

    def __init__(self, database: SqlDatabase, language: str | None) -> None:
        self._database = database
        analyzer = analyzer_of(language or "english")
        with database.read() as connection:
            stored = usable_language(meta(connection, "language"), language, database.address)
        if stored is None and not database.read_only:
            stored = database.transact(lambda connection: self.store_language(connection, analyzer, new=True))
        self._analyzer = analyzer if stored is None else analyzer_of(stored)

    def change_language(self, language: str) -> None:
        analyzer = analyzer_of(language)
        self._database.transact(lambda connection: self.store_language(connection, analyzer))

    def store_language(self, connection: Any, analyzer: Analyzer, *, new: bool = False) -> str:
        """Store the language (with `new` only if no other process has), and return the one that the store has now."""
        stored = meta(connection, "language")
        if new and stored in LANGUAGES:
            return stored
        set_meta(connection, "language", analyzer.language)
        return analyzer.language


class SqlVectors(SqlPart, VectorIndex):
    """The vectors of one space."""

    save_batch: ClassVar[int]
    """How many vectors a transaction stores."""

    def __init__(self, database: SqlDatabase, space: VectorSpace, number: int) -> None:
        super().__init__(database)
        self._space = space
        self._number = number

    def save(self, passages: Sequence[str], vectors: Matrix, *, ahead: bool = False) -> None:
        for start in range(0, len(passages), self.save_batch):
            part = slice(start, start + self.save_batch)
            self._save(stored_pairs(passages[part], vectors[part]), ahead=ahead)

    @abstractmethod
    def _save(self, pairs: Sequence[tuple[bytes, bytes]], *, ahead: bool) -> None:
        """Store vectors by the hashes of their passages, in one transaction."""

    def saving(self, passages: Sequence[str], vectors: Matrix) -> SaveVectors:
        """The change that stores the vectors together with their records."""
        return SaveVectors(self._number, stored_pairs(passages, vectors))


class SqlSpaces(SqlPart, VectorSpaces, ABC):
    """The vector spaces of one store."""

    _counted = "*"  # what `count` counts

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._open: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> VectorSpace | None:
        row = self._database.one(
            "SELECT fingerprint, embedder, dimension FROM spaces JOIN meta ON value = fingerprint WHERE key = 'space'"
        )
        return VectorSpace(*row) if row else None

    def open(self, space: VectorSpace) -> Any:
        with self._lock:
            if space.fingerprint not in self._open:
                with self._database.read() as connection:
                    find = "SELECT space FROM spaces WHERE fingerprint = %s"
                    row = connection.execute(find, (space.fingerprint,)).fetchone()
                number = row[0] if row else self._database.transact(lambda connection: self._create(connection, space))
                self._open[space.fingerprint] = self._index(space, number)
            return self._open[space.fingerprint]

    def activate(self, space: VectorSpace) -> None:
        self.open(space)
        self._database.transact(lambda connection: set_meta(connection, "space", space.fingerprint))

    def stored(self) -> list[VectorSpace]:
        """All spaces, also those without vectors."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT fingerprint, embedder, dimension FROM spaces ORDER BY space")
            return [VectorSpace(*row) for row in rows]

    def count(self, space: VectorSpace) -> int:
        """How many vectors a space has."""
        with self._database.read() as connection:
            of = "embeddings WHERE space = (SELECT space FROM spaces WHERE fingerprint = %s)"
            count = connection.execute(f"SELECT count({self._counted}) FROM {of}", (space.fingerprint,))
            return int(count.fetchone()[0])

    def clear(self, space: VectorSpace) -> None:
        """Delete all vectors of a space, which must not be the active one. The space itself stays, empty."""

        def work(connection: Any) -> None:
            if meta(connection, "space") == space.fingerprint:
                message = f"the vectors of {space.embedder} answer searches"
                raise UsageError(message, hint="switch to another model first")
            row = connection.execute("SELECT space FROM spaces WHERE fingerprint = %s", (space.fingerprint,)).fetchone()
            if row is not None:
                connection.execute("DELETE FROM embeddings WHERE space = %s", (row[0],))
                self._cleared(connection, row[0])

        self._database.transact(work)

    @abstractmethod
    def _cleared(self, connection: Any, number: int) -> None:
        """Let every index that is derived from the vectors of a space notice that they are gone."""

    @abstractmethod
    def _index(self, space: VectorSpace, number: int) -> VectorIndex: ...

    @abstractmethod
    def _create(self, connection: Any, space: VectorSpace) -> int:
        """Create a space, if no other process has, and return its number."""
