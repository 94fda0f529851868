"""Sources for callers who are bound to a scope: what fails is said in general words, and the details are logged.

Messages of a source name programs, addresses and files, and quote what a program wrote on standard error. That is for
whoever runs the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from recollect.errors import STORE_FAILED, LeftAlone, RecollectError, SourceFailed, StoreError, TimedOut, TooLong
from recollect.types import Found, Query, Source

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

    def search(self, query: Query) -> Found:
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
