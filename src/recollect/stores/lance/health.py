"""LanceDB's part of a store: whether it can be reached, has what the file says it has, and how much waits for it."""

from __future__ import annotations

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
from recollect.stores.lance.numbers import newest, tables
from recollect.stores.lance.place import Place, read_place
from recollect.stores.lance.shelf import Lost, Shelf
from recollect.stores.lance.state import State, state_of
from recollect.stores.sqlite import health as file
from recollect.types import VectorSpace

WAIT_S = 10.0
"""For object storage, which is asked again and again before it is given up."""


def examine(check: str, examination: Examination) -> list[Finding]:
    """The findings of one check: those of the file, and for vectors those of LanceDB."""
    place = read_place(examination.place)
    if check != "vectors":
        return file.examine(check, place.truth, examination)
    file.require_readable(place.truth)
    return file.steadily(place.truth, lambda: list(_vectors(place, examination)))


def _vectors(place: Place, examination: Examination) -> Iterator[Finding]:
    yield from file.vectors(place.truth, examination, tables)
    with file.looking(place.truth) as connection:
        yield from lance(place, examination, connection)


def lance(place: Place, examination: Examination, connection: apsw.Connection) -> Iterator[Finding]:
    """What is to be said of LanceDB's part, beside what the file has."""
    if find_spec("lancedb") is None:
        return  # the check of packages says so
    spaces: Any = connection.execute("SELECT space, fingerprint, embedder, dimension FROM spaces").fetchall()
    latest = newest(connection)
    for number, *said in spaces:
        state, space = state_of(connection, number), VectorSpace(*said)
        yield from _table(place, examination, space, state)
        waiting = latest - state.number
        if waiting >= place.batch:
            words = f"up to {waiting:,} vectors of {space.embedder} wait in the file, where each search compares them"
            mend = f"recollect doctor --fix{examination.flags} hands them on"
            yield Finding("vectors", "warning", words, mend, partial(settle, examination.place))


def _table(place: Place, examination: Examination, space: VectorSpace, state: State) -> Iterator[Finding]:
    """Whether the table is there, as far as the file says that it has been filled."""
    if not state.number or not state.table:
        return
    try:
        held = _asked(place, space, state)
    except Lost:
        said = f"the vectors of {space.embedder} at {place.dataset} are gone or damaged"
        if place.remote and state.dataset != place.dataset:
            mend = f"the file says that they are at {state.dataset}: name that place"
            yield Finding("vectors", "failure", f"{said}, or never were there", mend)
            return
        mend = f"recollect doctor --fix{examination.flags} makes them again"
        yield Finding("vectors", "warning", said, mend, partial(restore, examination, space))
    except RecollectError as error:
        yield Finding("vectors", "failure", error.message, error.hint)
    else:
        yield Finding("vectors", "ok", f"{held:,} of {space.embedder} are at {place.dataset}")


def _asked(place: Place, space: VectorSpace, state: State) -> int:
    """How many vectors the table has, from a thread of its own: nobody waits for a bucket that does not answer."""
    if not place.remote and not Path(place.dataset).is_dir():
        raise Lost  # to ask LanceDB would make the folder
    answer: Future[int] = Future()

    def ask() -> None:
        try:
            answer.set_result(Shelf(place, state.table, space.dimension).rows(state.version))
        except BaseException as error:  # noqa: BLE001  (an edge: whatever it is, it is told)
            answer.set_exception(error)

    threading.Thread(target=ask, name="asks LanceDB", daemon=True).start()
    try:
        return answer.result(WAIT_S)
    except FutureTimeout:
        said = f"{place.dataset} has not answered for {WAIT_S:g} s"
        hint = "check endpoint, region and keys (AWS_ACCESS_KEY_ID, …); words are searched without it"
        raise StoreError(said, hint=hint) from None


def settle(url: str, reporter: Reporter) -> None:
    """Hand LanceDB what waits."""
    reporter.announce("handing LanceDB what waits")
    store = LanceStore(url)
    try:
        store.moving.settle(reporter.progress("indexing"))
    finally:
        store.close()


def restore(examination: Examination, space: VectorSpace, reporter: Reporter) -> None:
    """Make a table again from the file, and compute what was in LanceDB alone, unless that would send texts away."""
    reporter.announce("making LanceDB's table again")
    store = LanceStore(examination.place)
    try:
        store.spaces.open(space).filling.restore()
    finally:
        store.close()
    if store.place.remote and examination.embed:
        examination.embed(reporter)
