"""Health checks of a store with LanceDB: those of its file, and whether LanceDB's tables are reachable and complete."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import RecollectError, StoreError
from recollect.stores.health import Examination, Finding, Reporter
from recollect.stores.lance import LanceStore
from recollect.stores.lance.table import LanceTable, LanceUrl, TableLost, parse_url
from recollect.stores.lance.updater import TableState, last_number, vector_tables
from recollect.stores.sqlite import health as file
from recollect.types import VectorSpace

WAIT_S = 10.0
"""For object storage, whose client retries many times before it gives up."""


def examine(check: str, examination: Examination) -> list[Finding]:
    """The findings of one check: those of the file, and for vectors also those of LanceDB."""
    url = parse_url(examination.place)
    if check != "vectors":
        return file.examine(check, url.truth, examination)
    file.require_readable(url.truth)
    return file.steadily(url.truth, lambda: list(_vectors(url, examination)))


def _vectors(url: LanceUrl, examination: Examination) -> Iterator[Finding]:
    yield from file.vectors(url.truth, examination, vector_tables)
    if find_spec("lancedb") is None:
        return  # the check of packages reports that
    with file.looking(url.truth) as connection:
        yield from _tables(url, examination, connection)


def _tables(url: LanceUrl, examination: Examination, connection: apsw.Connection) -> Iterator[Finding]:
    rows: Any = connection.execute("SELECT space, fingerprint, embedder, dimension FROM spaces").fetchall()
    last = last_number(connection)
    for number, *fields in rows:
        state, space = TableState.load(connection, number), VectorSpace(*fields)
        if state.number and state.table:
            yield _table(url, examination, space, state)
        pending = last - state.number
        if pending >= url.batch:
            message = f"up to {pending:,} vectors of {space.embedder} are not in LanceDB yet; each search compares them"
            mend = f"recollect doctor --fix{examination.flags} adds them"
            yield Finding("vectors", "warning", message, mend, partial(update, examination.place))


def _table(url: LanceUrl, examination: Examination, space: VectorSpace, state: TableState) -> Finding:
    """Whether the table has at least the version that the file records."""
    try:
        count = _count(url, space, state)
    except TableLost:
        message = f"the vectors of {space.embedder} at {url.dataset} are missing or damaged"
        if url.remote and state.dataset != url.dataset:
            return Finding("vectors", "failure", message, f"the file says that they are at {state.dataset}: use that")
        mend = f"recollect doctor --fix{examination.flags} builds them again"
        return Finding("vectors", "warning", message, mend, partial(rebuild, examination, space))
    except RecollectError as error:
        return Finding("vectors", "failure", error.message, error.hint)
    return Finding("vectors", "ok", f"{count:,} of {space.embedder} are at {url.dataset}")


def _count(url: LanceUrl, space: VectorSpace, state: TableState) -> int:
    """How many vectors the table has. A thread asks, so that a bucket that does not answer delays nobody for long."""
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
    except FutureTimeout:
        raise StoreError(
            f"{url.dataset} has not answered for {WAIT_S:g} s",
            hint="check endpoint, region and keys (AWS_ACCESS_KEY_ID, …); keyword search works without it",
        ) from None


def update(url: str, reporter: Reporter) -> None:
    """Add pending vectors to LanceDB."""
    reporter.announce("adding pending vectors to LanceDB")
    with contextlib.closing(LanceStore(url)) as store:
        store.contents.finish(reporter.progress("indexing"))


def rebuild(examination: Examination, space: VectorSpace, reporter: Reporter) -> None:
    """Build a table again from the file, and compute vectors that only the lost table had."""
    reporter.announce("building LanceDB's table again")
    with contextlib.closing(LanceStore(examination.place)) as store:
        store.spaces.open(space).updater.rebuild()
        incomplete = store.spaces.open(space).coverage()[1] > 0
    if incomplete and examination.embed:
        examination.embed(reporter)
