"""What the SQL stores and their databases have in common: shared snapshots, numbers and facets."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from recollect.errors import StoreError
from recollect.stores.rows import Dialect, meta
from recollect.types import EVERYTHING, Filter, Scope

T = TypeVar("T")

MAX_FACETS = 500
"""The most categories, tags and scopes that are listed, each; those with the most records come first."""


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

    dialect: ClassVar[Dialect]

    def __init__(self, address: str, *, read_only: bool) -> None:
        self.address = address
        self.read_only = read_only
        self._pid = os.getpid()
        self._closed = False

    @abstractmethod
    def read(self, scope: Scope | None = None) -> AbstractContextManager[Any]:
        """A connection that sees one snapshot, as this scope where the database has row-level security."""

    @abstractmethod
    def transact(self, work: Callable[[Any], T], scope: Scope | None = None) -> T:
        """Do some work in one write transaction. It may be done again after a conflict."""

    @abstractmethod
    def try_write(self, work: Callable[[Any], None], scope: Scope | None = None) -> None:
        """The same for something that is only cached: not done where the store is read-only or busy."""

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
            # A thread that is still reading, because nobody waited for it, ends the snapshots itself.
            if reading.lock.acquire(blocking=False):
                self._end(reading)
                reading.lock.release()

    @property
    def _reading(self) -> Reading | None:
        return _READINGS.get().get(id(self))

    @abstractmethod
    def _end(self, reading: Reading) -> None:
        """End the snapshots of a reading, unless a read is using them."""

    def check(self) -> None:
        """Raise if the store is closed, or was opened by another process."""
        if self._closed:
            raise StoreError(f"{self.address} has been closed", hint="open it again with Memory.open(…)")
        if self._pid != os.getpid():
            raise StoreError(
                f"{self.address} was opened by another process",
                hint="a connection does not survive a fork: call Memory.open(…) in the child",
            )


class SqlStore:
    """What the SQL stores have in common beside their parts."""

    _database: Any
    keywords: Any

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside the block share one snapshot."""
        return self._database.reading()  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """What the store holds, and the lag of its indexes."""
        with self._database.read() as connection:
            forgotten, files, sequence = connection.execute(
                "SELECT (SELECT count(*) FROM records WHERE forgotten_at IS NOT NULL), (SELECT count(*) FROM files),"
                " (SELECT coalesce(max(seq), 0) FROM history)"
            ).fetchone()
            return {
                **self._place(connection),
                "records": {**self._counts(connection, EVERYTHING), "forgotten": forgotten},
                "files": files,
                "sequence": sequence,
                "language": meta(connection, "language") or self.keywords.analyzer.language,
                "keyword_lag": self.keywords.lag(connection),
            }

    @abstractmethod
    def _place(self, connection: Any) -> dict[str, Any]:
        """Where the store is, which engine keeps it, and its bytes."""

    def count(self, where: Filter) -> dict[str, int]:
        """How many records pass the filter, by kind."""
        with self._database.read(where.scope) as connection:
            return self._counts(connection, where)

    def _counts(self, connection: Any, where: Filter) -> dict[str, int]:
        condition, values = self._database.dialect.matching(where)
        numbers = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE kind = 'fact'), count(*) FILTER (WHERE kind = 'chunk'),"
            f" count(*) FILTER (WHERE superseded_at IS NOT NULL) FROM records WHERE {condition}",
            values,
        ).fetchone()
        return dict(zip(("total", "facts", "chunks", "superseded"), numbers, strict=True))

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The categories, tags and scopes of the records that pass the filter, those with the most records first."""
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
        """Raise if the store is closed, or was opened by another process."""
        self._database.check()

    def close(self) -> None:
        """Close the store; closing twice is harmless."""
        self._database.close()
