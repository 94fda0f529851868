"""Another search system as a source: asked within its time, and left alone for a while if it keeps failing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from typing import Any

from recollect.config import SourceSettings
from recollect.errors import STORE_FAILED, LeftAlone, RecollectError, SourceFailed, StoreError, TimedOut, TooLong
from recollect.sources.breaker import Breaker
from recollect.sources.matcher import ExternalRow, ResultMatcher, read_rows
from recollect.types import ExternalQuery, ExternalSystem, Query, RankedList, Scope, Source

MOMENT_S = 0.02

MOST_ASKED = 32 * 1024
"""Bytes of a question that an outside system is asked. Linux takes 128 KiB as one argument of a command, and servers
take less than that in an address."""


@dataclass(frozen=True, slots=True)
class ExternalSource:
    """One table of `[[sources]]`, ready to be asked."""

    said: SourceSettings
    system: ExternalSystem
    matcher: ResultMatcher
    breaker: Breaker
    insist: bool = False
    """Whether it is asked even while it is left alone: nobody else is, and an error is all there would be."""

    @property
    def name(self) -> str:
        """Its name in settings, traces and results."""
        return self.said.name

    @property
    def bounded(self) -> bool:
        """Whether its scores may be compared as they are."""
        return self.said.bounded

    @property
    def timeout(self) -> float:
        """Seconds after which nobody waits for it any more."""
        return self.said.timeout_ms / 1000

    def within(self, scope: Scope) -> ExternalSource:
        """The same for callers who are bound to a scope."""
        return replace(self, breaker=self.breaker.within(scope), matcher=replace(self.matcher, bound=True))

    def search(self, query: Query) -> RankedList:
        """What the system finds, as far as the query may see it."""
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        _refuse_long(query.text)
        if not self.insist:
            self.breaker.enter()
        rows = self._rows(query)
        self.breaker.succeeded()
        ranked = self.matcher.match(rows[: self.said.fetch_k], query)
        # A list that ends before it must is all that the system found, of as many documents as were asked for.
        return replace(ranked, among=self.said.fetch_k if len(rows) < self.said.fetch_k else None)

    def _rows(self, query: Query) -> list[ExternalRow]:
        own = time.monotonic() + self.timeout
        deadline = own if query.deadline is None else min(own, query.deadline)
        asked = ExternalQuery(query.text, self.said.fetch_k, query.filter.scope, deadline)
        try:
            return read_rows(self._ask(asked), self.said.results, self.said.fields)
        except TooLong:
            self.breaker.left()  # another question may fit
            raise
        except TimedOut:
            if deadline < own:
                self.breaker.left()  # the query was in a hurry; the system may be as quick as ever
            else:
                self.breaker.failed(f"no answer within {self.said.timeout_ms} ms")
            raise
        except RecollectError as error:
            self.breaker.failed(error.message)
            raise
        except BaseException:
            self.breaker.left()
            raise

    def _ask(self, asked: ExternalQuery) -> Any:
        """What the system answers, in a thread of its own: whatever it does, nobody waits beyond its deadline."""
        answer: Future[Any] = Future()
        threading.Thread(target=_keep, args=(answer, self.system, asked), name="asks a system", daemon=True).start()
        try:
            # A system that keeps to its deadline says best why it is late, so it has a moment to say it.
            return answer.result(asked.seconds_left + MOMENT_S)
        except FutureTimeout:
            limit = f"no answer after {self.said.timeout_ms} ms, its own timeout"
            raise TimedOut(limit, hint="raise timeout_ms of this source") from None


def _refuse_long(text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > MOST_ASKED:
        raise TooLong(
            f"the question has {size:,} bytes, and outside systems are asked up to {MOST_ASKED:,}",
            hint="ask something shorter",
        )


def _keep(answer: Future[Any], system: ExternalSystem, asked: ExternalQuery) -> None:
    try:
        answer.set_result(system.ask(asked))
    except RecollectError as error:
        answer.set_exception(error)
    except BaseException as error:  # noqa: BLE001  (an edge: the system may be anybody's, and may even exit)
        answer.set_exception(SourceFailed(f"{type(error).__name__}: {error}"))


_log = logging.getLogger("recollect.sources")

_WORDS: tuple[tuple[type[SourceFailed], str], ...] = (
    (TimedOut, "no answer in time"),
    (LeftAlone, "left alone after repeated failures"),
    (TooLong, "the question is too long for this source"),
)


@dataclass(frozen=True, slots=True)
class Screened:
    """A source whose errors say nothing about where it is or how it is run."""

    source: Source

    @property
    def name(self) -> str:
        """Its name in settings, traces and results."""
        return self.source.name

    @property
    def bounded(self) -> bool:
        """Whether its scores may be compared as they are."""
        return self.source.bounded

    @property
    def timeout(self) -> float | None:
        """Seconds after which nobody waits for it any more."""
        return self.source.timeout

    def search(self, query: Query) -> RankedList:
        """What the source finds."""
        try:
            return self.source.search(query)
        except Exception as error:  # an edge, as in the pipeline: a source may raise anything
            raise general(self.name, error) from error


def screened(name: str, write: Callable[[str], str]) -> Callable[[str], str]:
    """A function that writes a text for a source, with errors in general words."""

    def written(text: str) -> str:
        try:
            return write(text)
        except RecollectError as error:
            raise general(name, error) from error

    return written


def general(name: str, error: Exception) -> SourceFailed:
    """The same failure in general words; the details are logged, unless there are none beyond these words."""
    for kind, words in _WORDS:
        if isinstance(error, kind):
            failure = kind(words)
            break
    else:
        failure = SourceFailed(STORE_FAILED if isinstance(error, StoreError) else "the source failed")
    message = error.message if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"
    if not isinstance(error, LeftAlone | TooLong) and message != failure.message:
        _log.warning("the source %s failed: %s", name, message)
    return failure
