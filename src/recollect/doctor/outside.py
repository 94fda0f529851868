"""The check of outside sources: each is asked once, with its own timeout, and what it learns is not kept."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import apsw

from recollect.config import SYSTEMS, Settings, SourceSettings, shown_place
from recollect.doctor.findings import Finding
from recollect.doctor.looking import looking, schema, unreadable
from recollect.doctor.server import looking as reached
from recollect.doctor.setup import Setup
from recollect.errors import RecollectError, SourceFailed, TimedOut
from recollect.memory.peers import Peer
from recollect.sources.breaker import FAILURES, Breaker, State
from recollect.sources.matcher import read_rows
from recollect.stores.sqlite.schema import MIGRATIONS
from recollect.types import GLOBAL, Asked, Notes, System

WORD = "test"
MOMENT_S = 0.02


def sources(setup: Setup) -> Iterator[Finding]:
    """Whether outside sources answer, how fast, and which are left alone for a while."""
    said = setup.settings.sources
    if not said:
        yield Finding("sources", "ok", "no outside source is set")
        return
    states = _states(setup)
    with ThreadPoolExecutor(len(said)) as pool:
        answers = pool.map(partial(_asked, setup.settings), said)
        for source, found in zip(said, answers, strict=True):
            yield found
            yield from _resting(source, states.get(source.name, State()))


def _asked(settings: Settings, said: SourceSettings) -> Finding:
    began = time.monotonic()
    try:
        what = _looked_into(said) if "store" in said.options else _answered(settings, said)
    except RecollectError as error:
        hint = error.hint or f"check its table [[sources]] with the name {said.name!r}"
        return Finding("sources", "warning", f"{said.name}: {error.message}", hint)
    took = (time.monotonic() - began) * 1000
    return Finding("sources", "ok", f"{said.name} ({said.kind}): {what} in {took:.0f} ms of {said.timeout_ms}")


def _answered(settings: Settings, said: SourceSettings) -> str:
    try:
        system = Peer.of(said, settings) if said.kind == "recollect" else SYSTEMS.load(said.kind)(said)
    except RecollectError:
        raise
    except Exception as error:  # a kind may be anybody's
        raise SourceFailed(f"it cannot be set up: {type(error).__name__}: {error}") from error
    try:
        rows = read_rows(_answer(system, said), said.results, said.fields)
    finally:
        with contextlib.suppress(Exception):  # the same
            system.close()
    return f"answered with {len(rows)} row{'' if len(rows) == 1 else 's'}"


def _answer(system: System, said: SourceSettings) -> Any:
    """What it answers, in a thread of its own: whatever it does, nobody waits beyond its timeout."""
    answer: Future[Any] = Future()
    asked = Asked(WORD, 1, GLOBAL, time.monotonic() + said.timeout_ms / 1000)

    def ask() -> None:
        try:
            answer.set_result(system.ask(asked))
        except RecollectError as error:
            answer.set_exception(error)
        except BaseException as error:  # noqa: BLE001  (an edge: it may be anybody's, and may even exit)
            answer.set_exception(SourceFailed(f"{type(error).__name__}: {error}"))

    threading.Thread(target=ask, name="asks a system", daemon=True).start()
    try:
        return answer.result(asked.seconds_left + MOMENT_S)
    except FutureTimeout:
        limit = f"no answer after {said.timeout_ms} ms, its own timeout"
        raise TimedOut(limit, hint="raise timeout_ms of this source") from None


def _looked_into(said: SourceSettings) -> str:
    """Another store is not searched: that could fetch a model for it."""
    other = Setup(Settings(store=said.options["store"]))
    if other.kind == "postgresql":
        with reached(other.place) as server:
            return f"the store {server.shown} can be reached,"
    path = other.store
    if path is None or not path.is_file():
        where = path or shown_place(other.place)
        raise SourceFailed(f"there is no store at {where}", hint="check `store` in its table of [[sources]]")
    with looking(path) as connection:
        version = schema(connection)
    if version != len(MIGRATIONS):
        kind = "another program's database" if version is None else f"a store with schema {version}"
        raise SourceFailed(f"{path} is {kind}; this version reads schema {len(MIGRATIONS)}", hint="recollect --version")
    return f"the store {path} can be read,"


def _states(setup: Setup) -> Mapping[str, State]:
    """How each source has been doing, as searches left it in the store."""
    if setup.kind == "postgresql":
        with contextlib.suppress(RecollectError), reached(setup.place) as server:
            from recollect.stores.postgres.files import PostgresNotes

            return _seen(setup, PostgresNotes(server.database))
    if unreadable(setup) or setup.store is None:
        return {}
    with contextlib.suppress(RecollectError), looking(setup.store) as connection:
        return _seen(setup, _Kept(connection))
    return {}


def _seen(setup: Setup, notes: Notes) -> Mapping[str, State]:
    return {said.name: Breaker(said.fingerprint, notes).seen() for said in setup.settings.sources}


@dataclass(frozen=True, slots=True)
class _Kept:
    """A store's notes, for who only looks."""

    connection: apsw.Connection

    def get(self, key: str) -> str | None:
        """What was kept under a key."""
        value = self.connection.execute("SELECT value FROM notes WHERE key = ?", (key,)).get
        return None if value is None else str(value)

    def put(self, key: str, value: str) -> None:
        """Nothing is kept."""


def _resting(said: SourceSettings, state: State) -> Iterator[Finding]:
    left = state.until - time.time()
    if state.failures >= FAILURES and left > 0:
        until = datetime.fromtimestamp(state.until, UTC).strftime("%H:%M:%S UTC")
        words = f"{said.name}: searches leave it alone until {until} ({left:.0f} s), after {state.failures} failures"
        yield Finding("sources", "warning", f"{words}; the last: {state.reason}", "it is tried again by itself")
