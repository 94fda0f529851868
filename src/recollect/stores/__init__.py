"""Stores: one package per kind, registered by the scheme of its URLs (docs/howto/add-a-store.md), loaded when used."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.config import misspelt, shown_place
from recollect.errors import DISTRIBUTION, RecollectError, UsageError
from recollect.registry import Entry, Registry
from recollect.types import Store

if TYPE_CHECKING:
    from recollect.stores.health import Examination, Finding


class StoreKind(ABC):
    """One kind of store. A `place` is the URL, or for files the path, that a user named."""

    shared: bool = False
    """Whether a server keeps it, for several machines: files of other machines are not reported as missing."""

    @abstractmethod
    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> Store:
        """Open the store, and make it where it does not exist. `language` is that of a new store."""

    @abstractmethod
    def exists(self, place: str) -> bool:
        """Whether the place holds a store; nothing is created."""

    def describe(self, place: str) -> str:
        """The place as messages and status show it, without passwords."""
        return shown_place(place)

    def absolute(self, place: str) -> str:
        """The place of a store, written so that it can be used from any folder."""
        return place

    def file(self, place: str) -> Path | None:  # noqa: ARG002  (for kinds that have one)
        """The SQLite file that is the whole store, whether it exists or not; None for a store that is more than that.

        A backup of such a store is a copy of its file. That of any other store is an export.
        """
        return None

    def truth(self, place: str) -> Path | None:
        """The SQLite file from which everything else of the store can be built, whether it exists or not."""
        return self.file(place)

    def hosts(self, place: str) -> list[str]:
        """The servers that opening the store contacts. Nothing is contacted to find out."""
        from recollect.network.addresses import host_of

        return [host_of(place)] if self.shared and host_of(place) else []

    def engine(self) -> str:
        """The name and version of what keeps the data. Raises StoreError where that version must not be used."""
        return type(self).__name__

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[Store]:
        """The store, opened so that nothing is changed, not even files beside it.

        Raises NotExamined where its content cannot be read: there is no store, or it is of another version.
        """
        from recollect.stores.health import NotExamined

        try:
            there = self.exists(place)
        except RecollectError as error:
            raise NotExamined("the store cannot be read") from error
        if not there:
            raise NotExamined("there is no store yet")
        with contextlib.closing(self.open(place, read_only=True)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> Iterable[Finding]:
        """The findings of one check of `recollect doctor`: `store`, `keywords`, `vectors` or `disk`. Changes nothing.

        A check that cannot look raises NotExamined, one that fails another RecollectError.
        """
        from recollect.stores.health import examine_any

        if check == "disk":
            return []
        shown = self.describe(examination.place)
        if check == "store" and not self.exists(examination.place):
            return [examination.no_store(shown)]
        with self.inspect(examination.place) as store:
            return examine_any(check, store, shown, examination)


STORES: Registry[type[StoreKind]] = Registry(
    kind="kind of store",
    builtin={
        "sqlite": Entry("recollect.stores.sqlite:SqliteKind"),
        "postgresql": Entry("recollect.stores.postgres:PostgresKind", "postgres", package="psycopg"),
        "postgres": Entry("recollect.stores.postgres:PostgresKind", "postgres", package="psycopg"),
        "lancedb": Entry("recollect.stores.lance:LanceKind", "lancedb"),
    },
    group="recollect.stores",
)

_URL = re.compile(r"([A-Za-z][\w+.-]+)://")


def scheme_of(place: str) -> str:
    """The scheme of a place's URL; that of SQLite where it is a path."""
    url = _URL.match(place)
    return url[1].lower() if url else "sqlite"


def kind_of(place: str) -> StoreKind:
    """The kind of store that a place names. A URL of an unknown scheme, or without slashes, is refused."""
    if misspelt(place):
        raise UsageError(
            f"{shown_place(place)!r} is not the address of a store",
            hint="a URL needs two slashes after the colon; for a file of this name write ./ before it",
        )
    scheme = scheme_of(place)
    try:
        STORES.check(scheme)
    except UsageError:
        extras = {name: entry.extra for name, entry in STORES.builtin.items()}
        names = (f"{name} ({DISTRIBUTION}[{extras[name]}])" if extras.get(name) else name for name in STORES.names())
        raise UsageError(
            f"unknown kind of store {scheme!r}; available: {', '.join(names)}",
            hint=f"name a file or a URL of one of these; packages add kinds in the entry point group {STORES.group!r}",
        ) from None
    return STORES.load(scheme)()


def open_store(place: str, *, language: str | None = None, read_only: bool = False) -> Store:
    """The store at a path (`notes.db`, `:memory:`) or a URL (`sqlite:///home/ada/notes.db`, `postgresql://…`, …).

    `language` is that of a store that is made; one that exists keeps its own.
    """
    return kind_of(place).open(place, language=language, read_only=read_only)


def exists(place: str) -> bool:
    """Whether there is a store at a path or URL; nothing is created."""
    return kind_of(place).exists(place)
