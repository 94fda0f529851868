"""The embedded store: one SQLite file in WAL mode, and beside it a folder with the index that is derived from it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import apsw

from recollect.errors import StoreError
from recollect.stores import StoreKind
from recollect.stores.database import SqlStore
from recollect.stores.records import SqlFiles, SqlNotes
from recollect.stores.sqlite.contents import SqliteContents
from recollect.stores.sqlite.database import Database, check_engine
from recollect.stores.sqlite.index import NOT_SCRUBBED, Index
from recollect.stores.sqlite.keywords import SqliteKeywords
from recollect.stores.sqlite.records import SqliteChanges, SqliteJoins, SqliteRecords
from recollect.stores.sqlite.rows import Connection
from recollect.stores.sqlite.vectors import SqliteSpaces
from recollect.types import Scope

if TYPE_CHECKING:
    from recollect.stores.health import Examination, Finding


class SqliteStore(SqlStore):
    """One file. `:memory:` is a file in a temporary folder that is removed when the store is closed."""

    def __init__(
        self, path: str | Path, *, language: str | None = None, read_only: bool = False, untouched: bool = False
    ) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if str(path) == ":memory:":
            self._folder = tempfile.TemporaryDirectory(prefix="recollect-")
            path = Path(self._folder.name) / "memory.db"
        self._database = Database(local_path(path), read_only=read_only, untouched=untouched)
        try:
            self._index = Index(self._database)
            self.keywords = SqliteKeywords(self._database, self._index, language)
        except BaseException:
            self.close()
            raise
        self.spaces = SqliteSpaces(self._database, self._index)
        self.files = SqlFiles(self._database)
        self.notes = SqlNotes(self._database)
        self.joins = SqliteJoins(self._database)
        self.changes = SqliteChanges(self._database)
        self.records = SqliteRecords(self._database)
        self.contents = SqliteContents(self._database, self.keywords, self.spaces)

    def within(self, scope: Scope) -> SqliteStore:  # noqa: ARG002
        """Itself: whoever can read the file can read all of it."""
        return self

    def _place(self, connection: Connection) -> dict[str, Any]:  # noqa: ARG002
        return {
            "store": str(self._database.path),
            "engine": f"SQLite {apsw.sqlite_lib_version()}",
            "bytes": sum(part.stat().st_size for part in self._database.files()),
        }

    def scrub(self) -> str | None:
        """Remove every byte of purged records from the index and the log."""
        warning = self._index.scrub()
        written = [index.scrub() for index in self.spaces.all()]
        self._database.empty_log()
        return warning if all(written) else NOT_SCRUBBED.format(self._index.folder.path)

    def close(self) -> None:
        super().close()
        if self._folder is not None:
            self._folder.cleanup()


class SqliteKind(StoreKind):
    """A file: a path, `:memory:`, or `sqlite:///home/ada/notes.db`."""

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> SqliteStore:
        return SqliteStore(place, language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        return is_there(local_path(place))

    def absolute(self, place: str) -> str:
        return place if "://" in place else str(local_path(place).absolute())

    def file(self, place: str) -> Path | None:
        return None if place == ":memory:" else local_path(place)

    def engine(self) -> str:
        """The version of SQLite; one that can lose acknowledged writes is an error."""
        check_engine(apsw.sqlite_lib_version())
        return f"SQLite {apsw.sqlite_lib_version()}"

    @contextlib.contextmanager
    def inspect(self, place: str) -> Iterator[SqliteStore]:
        from recollect.stores.health import NotExamined
        from recollect.stores.sqlite.health import require_readable

        if place == ":memory:":
            raise NotExamined("it is in memory only")
        path = local_path(place)
        require_readable(path)
        with contextlib.closing(SqliteStore(path, read_only=True, untouched=True)) as store:
            yield store

    def examine(self, check: str, examination: Examination) -> list[Finding]:
        from recollect.stores.health import Finding, NotExamined
        from recollect.stores.sqlite import health

        if examination.place != ":memory:":
            path = local_path(examination.place)
            if check in ("store", "disk"):
                is_there(path)  # an error for a folder without access
            return health.examine(check, path, examination)
        if check == "store":
            return [Finding("store", "note", "in memory only: there is nothing to check")]
        if check == "disk":
            return []
        raise NotExamined("it is in memory only")


def is_there(path: Path) -> bool:
    """Whether a file is there, also an empty one: opening it says what may have happened."""
    try:
        return path.exists()
    except OSError as error:  # a folder without access
        message = f"{path} cannot be opened: {error.strerror or error}"
        raise StoreError(message, hint="check the permissions of its folder, or name another store") from error


def local_path(place: str | Path) -> Path:
    """The path of a place that is a path, or a URL of one such as `sqlite:///home/ada/notes.db`."""
    try:
        return Path(unquote(urlsplit(str(place)).path) if "://" in str(place) else place).expanduser()
    except RuntimeError as error:
        raise StoreError(
            f"{place} cannot be a store: {error}", hint="name a file in a folder you may write to"
        ) from error
