"""Another search system as a source: queried within its time, its rows matched with our records, paused if it fails.

A new kind of system is one class with `ask` and `close` (`recollect.types.ExternalSystem`), registered in
`config/sources.py` or by a package through an entry point. Everything that the kinds have in common is here.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import astuple, field, replace
from typing import Any

from recollect.config import SourceSettings
from recollect.dataclass import dataclass
from recollect.errors import (
    STORE_FAILED,
    LeftAlone,
    NotContacted,
    RecollectError,
    SourceFailed,
    StoreError,
    TimedOut,
    TooLong,
)
from recollect.redaction import query_warning
from recollect.sources.matcher import ExternalRow, ResultMatcher, read_rows
from recollect.types import ExternalQuery, ExternalSystem, Notes, Query, RankedList, Scope, Source

GRACE_S = 0.02
"""How long a system is waited for after its deadline: it can say best why it is late, and close what it has open."""

MOST_BYTES_OF_QUERY = 32 * 1024
"""Linux takes 128 KiB as one argument of a command, and servers take less than that in an address."""

FAILURES = 3  # failures in a row after which a system is paused

FIRST_REST_S = 30.0
LONGEST_REST_S = 600.0  # each failed probe doubles the pause, up to this

_log = logging.getLogger("recollect.sources")


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The failures of a system. `until` is wall-clock time, because the state outlives the process."""

    failures: int = 0
    rest: float = 0.0
    until: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Breaker:
    """A circuit breaker: a system that keeps failing is not queried for a while, and then tried once.

    Its state is stored in the notes, so that separate commands share it.
    """

    name: str
    notes: Notes
    clock: Callable[[], float] = time.time
    _state: BreakerState | None = None
    _probing: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _scoped: dict[Scope, Breaker] = field(default_factory=dict)

    def within(self, scope: Scope) -> Breaker:
        """The breaker of scoped callers: their failures do not pause the source for anybody else."""
        own = Breaker(f"{self.name} {scope.key}", self.notes, self.clock, _scoped=self._scoped)
        return self._scoped.setdefault(scope, own)

    def enter(self) -> None:
        """Raise `LeftAlone` during a pause. After it, one caller passes as a probe, and the others wait for it."""
        with self._lock:
            state = self.state()
            if state.failures < FAILURES:
                return
            left = state.until - self.clock()
            left = 0.0 if left > LONGEST_REST_S else left  # the clock was set back
            if left > 0 or self._probing:
                when = f"for {max(1, round(left))} s more" if left > 0 else "while one query tries it"
                raise LeftAlone(
                    f"it failed {state.failures} times in a row and is left alone {when} (last: {state.reason})",
                    hint="it is tried again automatically",
                )
            self._probing = True

    def succeeded(self) -> None:
        """The system answered: reset the state."""
        with self._lock:
            self._probing = False
            if self.state() != BreakerState():
                self._store(BreakerState())

    def failed(self, reason: str) -> None:
        """Count a failure; from `FAILURES` in a row on, the system is paused."""
        with self._lock:
            probed, self._probing = self._probing, False
            state = self.state()
            state = replace(state, failures=state.failures + 1, reason=reason[:160])
            # Of many queries in progress, only the first failure begins the pause; a failed probe makes it longer.
            if state.failures == FAILURES or (probed and state.failures > FAILURES):
                rest = min(LONGEST_REST_S, 2 * state.rest or FIRST_REST_S)
                state = replace(state, rest=rest, until=self.clock() + rest)
            self._store(state)

    def released(self) -> None:
        """The query ended without telling whether the system works."""
        with self._lock:
            self._probing = False

    def state(self) -> BreakerState:
        """The present state; a new one if there is no note, or none that can be read."""
        with self._lock:
            if self._state is None:
                try:
                    failures, rest, until, reason = json.loads(self.notes.get(f"breaker:{self.name}") or "")
                    self._state = BreakerState(int(failures), float(rest), float(until), str(reason))
                except (ValueError, TypeError):
                    self._state = BreakerState()
            return self._state

    def _store(self, state: BreakerState) -> None:
        self._state = state
        try:
            self.notes.put(f"breaker:{self.name}", json.dumps(astuple(state)))
        except RecollectError:
            return  # a busy or closed store: the state stays in this process


@dataclass(frozen=True, slots=True)
class ExternalSource:
    """The source of one table of `[[sources]]`. With `insist`, it is queried even while the breaker pauses it."""

    settings: SourceSettings
    system: ExternalSystem
    matcher: ResultMatcher
    breaker: Breaker
    insist: bool = False

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def timeout(self) -> float:
        return self.settings.timeout_ms / 1000

    def within(self, scope: Scope) -> ExternalSource:
        """The same source for scoped callers."""
        return replace(self, breaker=self.breaker.within(scope), matcher=replace(self.matcher, scoped=True))

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        size = len(query.text.encode("utf-8", "replace"))
        if size > MOST_BYTES_OF_QUERY:
            raise TooLong(
                f"the query has {size:,} bytes, and external systems get up to {MOST_BYTES_OF_QUERY:,}",
                hint="use a shorter query",
            )
        if not self.insist:
            self.breaker.enter()
        rows = self._rows(query)
        ranked = self.matcher.match(rows[: self.settings.fetch_k], query)
        warnings = ranked.warnings + (query_warning(query.text) if getattr(self.system, "remote", False) else ())
        # A list shorter than requested is complete: the system found no more among the documents it ranked.
        among = self.settings.fetch_k if len(rows) < self.settings.fetch_k else None
        return replace(ranked, bounded=self.settings.bounded, among=among, warnings=warnings)

    def _rows(self, query: Query) -> list[ExternalRow]:
        """The rows of the system's answer; the breaker learns of every failure that is the system's."""
        settings, own_deadline = self.settings, time.monotonic() + self.timeout
        deadline = own_deadline if query.deadline is None else min(own_deadline, query.deadline)
        external = ExternalQuery(query.text, settings.fetch_k, query.filter.scope, deadline, query.filter.origins)
        try:
            answer = ask_in_time(self.system, external, settings.timeout_ms)
            rows = read_rows(answer, settings.results, settings.fields)
        except BaseException as error:
            late = isinstance(error, TimedOut)
            # Nothing is proved by a query that was too long, was not sent, or had less time than the system may take.
            proves_nothing = isinstance(error, TooLong | NotContacted) or (late and deadline < own_deadline)
            if isinstance(error, RecollectError) and not proves_nothing:
                self.breaker.failed(f"no answer within {settings.timeout_ms} ms" if late else error.message)
            else:
                self.breaker.released()
            raise
        self.breaker.succeeded()
        return rows


def ask_in_time(system: ExternalSystem, query: ExternalQuery, timeout_ms: float) -> Any:
    """The system's answer. It runs in a thread of its own, so that nobody waits for it beyond the deadline.

    At the deadline, `query.cancel` calls what the system has registered there, and the system has a moment to end.
    `timeout_ms` is for the message.
    """
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(system.ask(query))
        except RecollectError as error:
            answer.set_exception(error)
        except BaseException as error:  # noqa: BLE001  (an edge: the system may be anybody's, and may even exit)
            answer.set_exception(SourceFailed(f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=run, name="external system", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise SourceFailed(f"no thread can be started: {error}") from error
    try:
        return answer.result(query.seconds_left)
    except TimeoutError:
        pass
    finally:
        query.cancel()
        thread.join(GRACE_S)
    reason = answer.exception() if answer.done() else None
    if isinstance(reason, TimedOut):
        raise reason
    message = f"no answer after {timeout_ms:g} ms, its own timeout"
    raise TimedOut(message, hint="raise timeout_ms of this source")


class Screened:
    """A source for scoped callers: its errors do not say where it is or how it is run. The details are logged.

    The messages of a source contain programs, addresses and paths, and quote what a program wrote to standard error.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.timeout = source.name, source.timeout

    def search(self, query: Query) -> RankedList:
        with screened(self.name):
            return self._source.search(query)


@contextmanager
def screened(name: str) -> Iterator[None]:
    """Let every error of a source leave the block without details; they are logged if there are any."""
    try:
        yield
    except Exception as error:  # an edge, as in the pipeline: a source may raise anything
        match error:
            case LeftAlone():
                raise LeftAlone("left alone after repeated failures") from error
            case NotContacted():
                raise SourceFailed("the server does not contact this source now") from error
            case TooLong():
                raise TooLong("the query is too long for this source") from error
            case TimedOut():
                failure: SourceFailed = TimedOut("no answer in time")
            case _:
                failure = SourceFailed(STORE_FAILED if isinstance(error, StoreError) else "the source failed")
        details = error.message if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"
        if details != failure.message:
            _log.warning("the source %s failed: %s", name, details)
        raise failure from error
