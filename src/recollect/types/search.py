"""A query and its answer: limits, ranked lists of hits, results and the trace of what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from recollect.errors import Cancelled, RecollectError, TimedOut
from recollect.fusion import DEFAULT_K, Share
from recollect.types.records import Filter, Record


class Work:
    """The limits of one request. Long computations call `check` between their steps.

    `seconds` is counted from the moment the object is made; `deepest` is how many results of a source may be read.
    None means no limit. `cancel` may be called from any thread.
    """

    def __init__(self, seconds: float | None = None, *, deepest: int | None = None) -> None:
        self.deepest = deepest
        self.seconds = math.inf if seconds is None else seconds
        self._deadline = time.monotonic() + self.seconds
        self.cancelled = False

    def cancel(self) -> None:
        """Let the next `check` end the work."""
        self.cancelled = True

    def check(self) -> None:
        """Raise an error if the work was cancelled or its time is over."""
        if self.cancelled:
            raise Cancelled("the request was cancelled: the client has left")
        if time.monotonic() > self._deadline:
            raise self.late()

    def late(self) -> RecollectError:
        """The error that `check` raises when the time is over."""
        hint = "ask for less: a smaller `fetch_k` or `limit`, a shorter query"
        return TimedOut(f"the request took longer than {self.seconds:g} s", hint=hint)


@dataclass(frozen=True, slots=True)
class Ranking:
    """How lists become one ranking, and what happens after. The defaults are the project's."""

    fusion: str = "blend"
    rrf_k: float = DEFAULT_K
    normalisation: str = "none"
    weights: Mapping[str, float] = field(default_factory=dict)
    decay: bool = True
    half_life_days: float | None = None
    importance_weight: float = 0.1
    prefer_newer: bool = True
    mmr: float | None = None
    min_score: float = 0.0
    confidence: bool = False
    min_confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Query:
    """A question, who asks it, how deep to look, and until when (`deadline`, a time of `time.monotonic`).

    When the deadline has passed, the answer is made of what is there; when the limits of `work` are reached, there is
    no answer but an error.
    """

    text: str
    limit: int = 10
    fetch_k: int = 100
    filter: Filter = field(default_factory=Filter)
    ranking: Ranking = field(default_factory=Ranking)
    deadline: float | None = None
    work: Work | None = field(default=None, repr=False, compare=False)

    def check(self) -> None:
        """Raise an error if nobody waits for the answer any more, or if it takes longer than it may."""
        if self.work is not None:
            self.work.check()

    @property
    def depth(self) -> int:
        """How far each source is read: `fetch_k`, and more only where more results were asked for than that."""
        return max(self.fetch_k, self.limit)


@dataclass(frozen=True, slots=True)
class Hit:
    """A record's place in one source's list; its rank is its position, from 1.

    `fold` tells texts that count as the same. A snippet is made only for what is shown, so it is a function.
    """

    record: Record
    fold: bytes
    score: float | None = None
    snippet: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One source's list, best first, and what the one who asked should know about it.

    `among` is set where the source was not cut off, so that whatever it could find is there: of how many documents,
    those that were read at the most, the list is what it found. `trust`, 0 to 1, is how far the
    source itself believes that it understood the question; 0 is not at all.
    """

    hits: tuple[Hit, ...] = ()
    warnings: tuple[str, ...] = ()
    folded: int = 0
    among: int | None = None
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """One record of the answer, with everything that put it where it is.

    `factors` multiply the score; `moves` are stages that change the place and not the score: from rank, to rank.
    """

    record: Record
    fused: float
    base: float
    shares: Mapping[str, Share]
    excerpt: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    similarity: float | None = None
    freshness: str | None = None
    confidence: float | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    moves: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def snippet(self) -> str:
        """The part of the text worth showing, made when it is asked for."""
        return self.excerpt() if self.excerpt else ""

    @property
    def total(self) -> float:
        """What the ranking is by after fusion: the fused score over its ceiling, times every factor."""
        product = self.base
        for factor in self.factors.values():
            product *= factor
        return product

    @property
    def score(self) -> float:
        """The total, kept within 0 and 1."""
        return min(1.0, max(0.0, self.total))

    def moved(self, stage: str, old: int, new: int) -> Result:
        """The same result, with what a stage did to its place."""
        return self if old == new else replace(self, moves={**self.moves, stage: (old, new)})

    def scaled(self, name: str, factor: float) -> Result:
        """The same result with one more factor."""
        return replace(self, factors={**self.factors, name: factor})


class Noted(list[Result]):
    """Results of a stage that has something to tell the one who asked."""

    def __init__(self, results: Iterable[Result], *warnings: str) -> None:
        super().__init__(results)
        self.warnings = tuple(filter(None, warnings))


GRADES = ((200.0, "strict"), (600.0, "acceptable"), (1000.0, "slow"))
"""Milliseconds below which an answer earns the word; from the last on it is bad."""


@dataclass(frozen=True, slots=True)
class SourceTrace:
    """How one source did: `ok`, or `failed`, `timeout` or `skipped` with its reason."""

    name: str
    status: str
    hits: int = 0
    took_ms: float = 0.0
    reason: str = ""
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class StageTrace:
    """One step after fusion: how many results it was given, how many it left, how long it took, what it had to say."""

    name: str
    given: int
    left: int
    took_ms: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """What ran, how long it took, what was dropped and why."""

    took_ms: float = 0.0
    mode: str = "hybrid"
    sources: tuple[SourceTrace, ...] = ()
    stages: tuple[StageTrace, ...] = ()
    filtered: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    abstained: str = ""

    @property
    def grade(self) -> str:
        """How long it took, in a word."""
        return next((word for limit_ms, word in GRADES if self.took_ms < limit_ms), "bad")


@dataclass(frozen=True, slots=True)
class Answer:
    """The results, best first, and the trace."""

    query: Query
    results: tuple[Result, ...] = ()
    trace: Trace = Trace()
