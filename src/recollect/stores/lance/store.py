"""The store put together: a SQLite file for everything, and its vectors in LanceDB."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.errors import UsageError
from recollect.stores.health import Examination, Finding
from recollect.stores.kinds import StoreKind
from recollect.stores.lance.filling import Filling
from recollect.stores.lance.moving import LanceMoving
from recollect.stores.lance.numbers import HELD
from recollect.stores.lance.place import Place, read_place
from recollect.stores.lance.vectors import LanceVectors
from recollect.stores.lance.waiting import Table
from recollect.stores.sqlite import SqliteStore
from recollect.stores.sqlite.database import Database
from recollect.stores.sqlite.store import SqliteKind
from recollect.stores.sqlite.vectors import SqliteSpaces
from recollect.types import Filter, Scope, VectorSpace


class LanceStore:
    """`lancedb:///folder`, or `lancedb://s3://bucket/prefix?truth=FILE`."""

    def __init__(self, url: str, *, language: str | None = None, read_only: bool = False) -> None:
        if find_spec("lancedb") is None:
            raise UsageError(
                "a store with LanceDB needs the package 'lancedb', which is not installed",
                hint="pip install 'recollect[lancedb]'",
            )
        self.place = read_place(url)
        self._truth = SqliteStore(self.place.truth, language=language, read_only=read_only)
        self._database = self._truth._database  # noqa: SLF001  (of one make: both keep the same file)
        self.records = self._truth.records
        self.files = self._truth.files
        self.notes = self._truth.notes
        self.joins = self._truth.joins
        self.changes = self._truth.changes
        self.keywords = self._truth.keywords
        self.spaces = LanceSpaces(self._truth.spaces, self._database, self.place)
        self.moving = LanceMoving(self._truth.moving, self._database, self.spaces)

    def within(self, scope: Scope) -> LanceStore:  # noqa: ARG002
        """Itself: a file has no guards of its own, whoever may read it reads all of it."""
        return self

    def status(self) -> dict[str, Any]:
        """What it holds and how far its indexes have read."""
        held = self._truth.status()
        size = 0 if self.place.remote else _size(Path(self.place.dataset))
        return {
            **held,
            "engine": f"{held['engine']}, LanceDB {_version()}",
            "bytes": held["bytes"] + size,
            "lance": {"dataset": self.place.dataset, "waiting": self.spaces.waiting()},
        }

    def count(self, where: Filter) -> dict[str, int]:
        """How many records the filter lets through, and of which kind."""
        return self._truth.count(where)

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The categories, tags and scopes of what the filter lets through."""
        return self._truth.facets(where)

    def scrub(self) -> str | None:
        """Leave no byte of what was purged: not in the file, not in any version of LanceDB's tables."""
        self._truth.scrub()
        self.spaces.scrub()
        return None

    def check(self) -> None:
        """Refuse use after closing, and in a process that did not open it."""
        self._truth.check()

    def close(self) -> None:
        """Close the file; closing twice is harmless. What waits there is searched there."""
        self._truth.close()


class LanceKind(StoreKind):
    """`lancedb:///folder`, or `lancedb://s3://bucket/prefix?truth=FILE`."""

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> LanceStore:
        """Open the store, and make it where it does not exist."""
        return LanceStore(place, language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        """Whether the file of the records is there."""
        return read_place(place).truth.exists()

    def absolute(self, place: str) -> str:
        """With the absolute path of a local folder."""
        where = place.partition("://")[2]
        return place if "://" in where else f"lancedb://{Path(where).expanduser().absolute()}"

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[SqliteStore]:
        """The file of the records, read without leaving a trace: LanceDB is not opened."""
        with SqliteKind().inspect(str(read_place(place).truth)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> list[Finding]:
        """The findings of one check."""
        from recollect.stores.lance import health

        return health.examine(check, examination)


class LanceSpaces:
    """The vector spaces of one store: which there are is the file's affair, where their vectors are is ours."""

    def __init__(self, kept: SqliteSpaces, database: Database, place: Place) -> None:
        self._kept = kept
        self._database = database
        self._place = place
        self._open: dict[str, LanceVectors] = {}
        self._lock = threading.Lock()
        if place.remote and not database.read_only:
            with database.write() as connection:
                connection.execute(HELD)

    @property
    def active(self) -> VectorSpace | None:
        """The space that answers, in every process."""
        return self._kept.active

    def open(self, space: VectorSpace) -> LanceVectors:
        """The index of one space, made where there is none."""
        with self._lock:
            if space.fingerprint not in self._open:
                self._open[space.fingerprint] = self._opened(space)
            return self._open[space.fingerprint]

    def activate(self, space: VectorSpace) -> None:
        """From now on this space answers; it has just been filled, and LanceDB gets what waits."""
        index = self.open(space)
        self._kept.activate(space)
        index.filling.complete()

    def complete(self) -> None:
        """Hand LanceDB what waits."""
        for space in self._spaces():
            self.open(space).filling.complete()

    def scrub(self) -> None:
        """Leave no vector in LanceDB that no record has."""
        for space in self._spaces():
            self.open(space).filling.scrub()

    def waiting(self) -> int:
        """How many vectors of the active space are in the file alone, at the most."""
        active = self.active
        return self.open(active).filling.waiting() if active else 0

    def _opened(self, space: VectorSpace) -> LanceVectors:
        kept = self._kept.open(space)
        with self._database.read() as connection:
            found = connection.execute("SELECT space FROM spaces WHERE fingerprint = ?", (space.fingerprint,)).get
        filling = Filling(self._database, self._place, Table(int(found), space.dimension))
        visible = self._kept._visible  # noqa: SLF001  (one set serves words and meaning)
        return LanceVectors(self._database, visible, kept, filling)

    def _spaces(self) -> list[VectorSpace]:
        with self._database.read() as connection:
            found: Any = connection.execute("SELECT fingerprint, embedder, dimension FROM spaces").fetchall()
        return [VectorSpace(*row) for row in found]


def _size(folder: Path) -> int:
    return sum(part.stat().st_size for part in folder.rglob("*") if part.is_file())


def _version() -> str:
    try:
        return version("lancedb")
    except PackageNotFoundError:
        return "of unknown version"
