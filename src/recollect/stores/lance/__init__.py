"""A SQLite file with an approximate vector index in LanceDB (extra `lancedb`), which can be rebuilt from the file."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.errors import DISTRIBUTION, RecollectError, StoreError, UsageError
from recollect.stores import StoreKind
from recollect.stores.health import Examination, Finding, Reporter
from recollect.stores.lance.table import LanceTable, LanceUrl, TableLost, parse_url
from recollect.stores.lance.updater import TableState, TableUpdater
from recollect.stores.lance.vectors import LanceVectors
from recollect.stores.sqlite import SqliteKind, SqliteStore, is_there
from recollect.stores.sqlite.contents import SqliteContents
from recollect.stores.sqlite.index import state_of
from recollect.stores.sqlite.rows import Connection
from recollect.stores.sqlite.vectors import SqliteSpaces
from recollect.types import Progress, VectorSpace

WAIT_S = 10.0  # how long a check waits for object storage, whose client retries many times before it gives up


class LanceStore(SqliteStore):
    """`lancedb:///folder`, or `lancedb://s3://bucket/prefix?truth=FILE`."""

    def __init__(self, url: str, *, language: str | None = None, read_only: bool = False) -> None:
        if find_spec("lancedb") is None:
            message = "a store with LanceDB needs the package 'lancedb', which is not installed"
            raise UsageError(message, hint=f"pip install '{DISTRIBUTION}[lancedb]'")
        self.url = parse_url(url)
        super().__init__(self.url.truth, language=language, read_only=read_only)
        self.spaces: LanceSpaces = LanceSpaces(self._database, self._index, self.url)
        self.contents = LanceContents(self._database, self.keywords, self.spaces)

    def status(self) -> dict[str, Any]:
        status = super().status()
        folder = [] if self.url.remote else Path(self.url.dataset).rglob("*")
        return {
            **status,
            "engine": f"{status['engine']}, LanceDB {version('lancedb')}",
            "bytes": status["bytes"] + sum(part.stat().st_size for part in folder if part.is_file()),
            "lance": {"dataset": self.url.dataset, "waiting": self.spaces.pending()},
        }

    def scrub(self) -> str | None:
        """Remove the bytes of purged records from the file and from all versions of LanceDB's tables."""
        warning = super().scrub()
        for index in self.spaces.all():
            index.updater.scrub()
        return warning


class LanceSpaces(SqliteSpaces):
    """The vector spaces of one store, which the file lists."""

    def __init__(self, database: Any, index: Any, url: LanceUrl) -> None:
        super().__init__(database, index)
        self._url = url

    def _index(self, space: VectorSpace, number: int) -> LanceVectors:
        updater = TableUpdater(self._database, self._url, number, space.dimension)
        return LanceVectors(self._database, self.index, space, number, updater)

    def activate(self, space: VectorSpace) -> None:
        """Use this space for searches. It has just been filled, so LanceDB is brought up to date."""
        super().activate(space)
        self.open(space).updater.complete()

    def clear(self, space: VectorSpace) -> None:
        super().clear(space)
        self.open(space).updater.start_again()

    def pending(self) -> int:
        """How many vectors of the active space are not in LanceDB yet, at most."""
        active = self.active
        return self.open(active).updater.pending() if active else 0


class LanceContents(SqliteContents):
    """Dump and load the file, which has all vectors."""

    _spaces: LanceSpaces
    file = None  # it is not the whole store: LanceDB's tables are beside it

    def finish(self, progress: Progress | None = None) -> None:
        super().finish(progress)
        for index in self._spaces.all():
            index.updater.complete()


class LanceKind(StoreKind):
    """`lancedb:///folder`, or `lancedb://s3://bucket/prefix?truth=FILE`."""

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> LanceStore:
        return LanceStore(place, language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        return is_there(parse_url(place).truth)

    def truth(self, place: str) -> Path:
        return parse_url(place).truth

    def hosts(self, place: str) -> list[str]:
        url = parse_url(place)
        return [url.host] if url.remote else []

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
        """The findings of one check: those of the file, and for vectors also those of LanceDB."""
        from recollect.stores.sqlite import health

        url = parse_url(examination.place)
        if check != "vectors":
            return health.examine(check, url.truth, examination)

        def look() -> list[Finding]:
            findings = list(health.vectors(url.truth, examination))
            if find_spec("lancedb") is not None:  # the check of packages reports a missing one
                with health.looking(url.truth) as connection:
                    findings += _tables(url, examination, connection)
            return findings

        health.require_readable(url.truth)
        return health.steadily(url.truth, look)


def _tables(url: LanceUrl, examination: Examination, connection: Connection) -> Iterator[Finding]:
    rows: Any = connection.execute("SELECT space, fingerprint, embedder, dimension FROM spaces").fetchall()
    last = state_of(connection).number
    for number, *fields in rows:
        state, space = TableState.load(connection, number), VectorSpace(*fields)
        if state.number and state.table:
            yield _table(url, examination, space, state)
        pending = last - state.number
        if pending >= url.batch:
            message = f"up to {pending:,} vectors of {space.embedder} are not in LanceDB yet; each search compares them"
            fix = partial(_update, examination.place)
            yield Finding("vectors", "warning", message, f"{examination.fix_command} adds them", fix)


def _table(url: LanceUrl, examination: Examination, space: VectorSpace, state: TableState) -> Finding:
    """Whether the table has at least the version that the file records."""
    try:
        count = _count(url, space, state)
    except TableLost:
        message = f"the vectors of {space.embedder} at {url.dataset} are missing or damaged"
        if url.remote and state.dataset != url.dataset:
            return Finding("vectors", "failure", message, f"the file says that they are at {state.dataset}: use that")
        fix = partial(_rebuild, examination, space)
        return Finding("vectors", "warning", message, f"{examination.fix_command} builds them again", fix)
    except RecollectError as error:
        return Finding("vectors", "failure", error.message, error.hint)
    return Finding("vectors", "ok", f"{count:,} of {space.embedder} are at {url.dataset}")


def _count(url: LanceUrl, space: VectorSpace, state: TableState) -> int:
    """The number of vectors in the table. A thread reads it, so that slow object storage does not block the check."""
    if not url.remote and not Path(url.dataset).is_dir():
        raise TableLost  # LanceDB would create the folder
    answer: Future[int] = Future()

    def ask() -> None:
        try:
            answer.set_result(LanceTable(url, state.table, space.dimension).rows(state.version))
        except BaseException as error:  # noqa: BLE001  (the waiting thread raises it)
            answer.set_exception(error)

    threading.Thread(target=ask, name="recollect-lancedb-check", daemon=True).start()
    try:
        return answer.result(WAIT_S)
    except TimeoutError:
        hint = "check endpoint, region and keys (AWS_ACCESS_KEY_ID, …); keyword search works without it"
        raise StoreError(f"{url.dataset} has not answered for {WAIT_S:g} s", hint=hint) from None


def _update(url: str, reporter: Reporter) -> None:
    reporter.announce("adding pending vectors to LanceDB")
    with contextlib.closing(LanceStore(url)) as store:
        store.contents.finish(reporter.progress("indexing"))


def _rebuild(examination: Examination, space: VectorSpace, reporter: Reporter) -> None:
    """Build a table again from the file, and compute vectors that only the lost table had."""
    reporter.announce("building LanceDB's table again")
    with contextlib.closing(LanceStore(examination.place)) as store:
        store.spaces.open(space).updater.rebuild()
        incomplete = store.spaces.open(space).coverage()[1] > 0
    if incomplete and examination.embed:
        examination.embed(reporter)
