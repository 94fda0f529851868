"""What the SQL databases have in common: reads that share a snapshot, and the end of a database."""

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
from recollect.stores.rows import Dialect
from recollect.types import Scope

T = TypeVar("T")


@dataclass(slots=True)
class Reading:
    """The snapshots that the reads of one `SqlDatabase.reading` share; whoever holds the lock uses them."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    snapshots: dict[bool, Any] = field(default_factory=dict)
    """By whether they are on a replica."""
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
