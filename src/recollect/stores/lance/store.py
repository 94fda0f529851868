"""The store: a SQLite file for everything, and LanceDB as the index of its vectors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.errors import StoreError, UsageError
from recollect.stores.health import Examination, Finding
from recollect.stores.kinds import StoreKind
from recollect.stores.lance.table import LanceUrl, TableLost, parse_url
from recollect.stores.lance.updater import FileVectors, TableUpdater, vector_tables
from recollect.stores.lance.vectors import LanceVectors
from recollect.stores.sqlite import SqliteStore
from recollect.stores.sqlite.contents import SqliteContents, SqliteSnapshot
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.store import SqliteKind
from recollect.stores.sqlite.vectors import SqliteSpaces
from recollect.types import Filter, Progress, Scope, VectorSpace, VectorSpaces


class LanceStore:
    """`lancedb:///folder`, or `lancedb://s3://bucket/prefix?truth=FILE`."""

    def __init__(self, url: str, *, language: str | None = None, read_only: bool = False) -> None:
        if find_spec("lancedb") is None:
            raise UsageError(
                "a store with LanceDB needs the package 'lancedb', which is not installed",
                hint="pip install 'recollect[lancedb]'",
            )
        self.url = parse_url(url)
        self._file = SqliteStore(self.url.truth, language=language, read_only=read_only)
        self._database = self._file._database  # noqa: SLF001  (both packages use the same file)
        self.records = self._file.records
        self.files = self._file.files
        self.notes = self._file.notes
        self.joins = self._file.joins
        self.changes = self._file.changes
        self.keywords = self._file.keywords
        self.spaces = LanceSpaces(self._file.spaces, self._database, self.url)
        self.contents = LanceContents(self._database, self.keywords, self.spaces)

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads of the file inside the block share one snapshot."""
        return self._file.reading()

    def within(self, scope: Scope) -> LanceStore:  # noqa: ARG002
        """Itself: whoever can read the file can read all of it."""
        return self

    def status(self) -> dict[str, Any]:
        """What the store contains and how far its indexes are."""
        status = self._file.status()
        size = 0 if self.url.remote else _folder_size(Path(self.url.dataset))
        return {
            **status,
            "engine": f"{status['engine']}, LanceDB {_version()}",
            "bytes": status["bytes"] + size,
            "lance": {"dataset": self.url.dataset, "waiting": self.spaces.pending()},
        }

    def count(self, where: Filter) -> dict[str, int]:
        """How many records pass the filter, by kind."""
        return self._file.count(where)

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The categories, tags and scopes of the records that pass the filter."""
        return self._file.facets(where)

    def scrub(self) -> str | None:
        """Remove the bytes of purged records from the file and from all versions of LanceDB's tables."""
        self._file.scrub()
        for index in self.spaces.all():
            index.updater.scrub()
        return None

    def check(self) -> None:
        """Raise if the store is closed, or was opened by another process."""
        self._file.check()

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        self._file.close()


class LanceKind(StoreKind):
    """`lancedb:///folder`, or `lancedb://s3://bucket/prefix?truth=FILE`."""

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> LanceStore:
        return LanceStore(place, language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        return parse_url(place).truth.exists()

    def absolute(self, place: str) -> str:
        """The URL with the absolute path of a local folder."""
        where = place.partition("://")[2]
        return place if "://" in where else f"lancedb://{Path(where).expanduser().absolute()}"

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[SqliteStore]:
        """The file of the records, read without leaving a trace. LanceDB is not opened."""
        with SqliteKind().inspect(str(parse_url(place).truth)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> list[Finding]:
        from recollect.stores.lance import health

        return health.examine(check, examination)


class LanceSpaces(VectorSpaces):
    """The vector spaces of one store. The file says which exist."""

    def __init__(self, file: SqliteSpaces, database: Database, url: LanceUrl) -> None:
        self._file = file
        self._database = database
        self._url = url
        self._open: dict[str, LanceVectors] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> VectorSpace | None:
        return self._file.active

    def open(self, space: VectorSpace) -> LanceVectors:
        with self._lock:
            if space.fingerprint not in self._open:
                self._open[space.fingerprint] = self._new(space)
            return self._open[space.fingerprint]

    def activate(self, space: VectorSpace) -> None:
        """Use this space for searches. It has just been filled, so LanceDB is brought up to date."""
        index = self.open(space)
        self._file.activate(space)
        index.updater.complete()

    def all(self) -> list[LanceVectors]:
        """The indexes of all spaces."""
        with self._database.read() as connection:
            rows: Any = connection.execute("SELECT fingerprint, embedder, dimension FROM spaces").fetchall()
        return [self.open(VectorSpace(*row)) for row in rows]

    def pending(self) -> int:
        """How many vectors of the active space are not in LanceDB yet, at most."""
        active = self.active
        return self.open(active).updater.pending() if active else 0

    def _new(self, space: VectorSpace) -> LanceVectors:
        file = self._file.open(space)
        with self._database.read() as connection:
            number = connection.execute("SELECT space FROM spaces WHERE fingerprint = ?", (space.fingerprint,)).get
        updater = TableUpdater(self._database, self._url, FileVectors(int(number), space.dimension))
        visible = self._file._visible  # noqa: SLF001  (keyword and vector search share the visible sets)
        return LanceVectors(self._database, visible, file, updater)


class LanceContents(SqliteContents):
    """Dump and load the file, which has all vectors."""

    def __init__(self, database: Database, keywords: Any, spaces: LanceSpaces) -> None:
        super().__init__(database, keywords)
        self._spaces = spaces

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """The contents of the file, after vectors that an earlier version kept in LanceDB only were copied into it."""
        for index in self._spaces.all():
            with contextlib.suppress(TableLost):
                index.updater.adopt()
        with super().snapshot() as snapshot:
            if "lance_held" in vector_tables(snapshot.connection) and _held(snapshot):
                raise StoreError(
                    "some vectors of this store are in LanceDB only and cannot be read",
                    hint="open the store for writing while its object storage can be reached",
                )
            yield snapshot

    def finish(self, progress: Progress | None = None) -> None:
        """Bring the keyword index and LanceDB up to date."""
        super().finish(progress)
        for index in self._spaces.all():
            index.updater.complete()


def _held(snapshot: SqliteSnapshot) -> bool:
    return bool(snapshot.connection.execute("SELECT EXISTS (SELECT 1 FROM lance_held)").get)


def _folder_size(folder: Path) -> int:
    return sum(part.stat().st_size for part in folder.rglob("*") if part.is_file())


def _version() -> str:
    try:
        return version("lancedb")
    except PackageNotFoundError:
        return "of unknown version"
