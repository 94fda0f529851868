"""The path of a query: ask every source, fuse the lists, run the stages, describe what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from recollect.candidates import Fusion
from recollect.dataclass import dataclass
from recollect.errors import LeftAlone, RecollectError, SearchFailed, SourceFailed, TimedOut, TooLong, Unreachable
from recollect.fusion import METHODS
from recollect.types import (
    Answer,
    Candidate,
    Filter,
    Hit,
    Query,
    RankedList,
    RankedRows,
    Source,
    SourceTrace,
    Stage,
    StageTrace,
    Trace,
    Warned,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

TRIES = 3  # of a search, while a part of the store cannot be reached
SOON_S = 1.0  # an error that comes within this time may have passed, as that of a server that is starting again
MOMENT_S = 0.08  # seconds to wait beyond a source's own timeout: its own error says best why it is late
CHECKS = ("scope", "superseded")  # stages that check again what is shown
CUTS = ("mmr", "limit")  # stages that shorten the list to the limit
UNCOUNTED = (*CUTS, "files")  # what the other stages drop is counted in the trace


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Sources and stages; calling the pipeline with a query returns the answer.

    `absent` names sources that were requested and cannot run, with the reason: they appear in the trace. In a block of
    `reading`, all reads of the store share one snapshot. A source that may have to be left behind, because it or the
    query has a deadline, runs in a thread with a snapshot of its own. The others run here, one after the other, and
    share one snapshot with the stages. `narrowed` (`Store.narrowed`) gives a filter for what can be reached, if a part
    of the store cannot be; then the answer is made of that, with a warning.
    """

    sources: tuple[Source, ...]
    stages: tuple[tuple[str, Stage], ...]
    executor: Executor
    absent: tuple[tuple[str, str], ...] = ()
    reading: Callable[[], AbstractContextManager[None]] = nullcontext
    narrowed: Callable[[Filter, Exception | None], tuple[Filter, str] | None] = lambda *_: None

    def __call__(self, query: Query) -> Answer:
        """Answer one query."""
        start = time.perf_counter()
        return self._answer_with_retries(TRIES, self._narrower(query) or query, start)

    def _answer_with_retries(self, tries: int, query: Query, start: float) -> Answer:
        """The answer. If a part of the store cannot be reached, the query is narrowed, or tried again."""
        started = self._begin(query)
        try:
            with self.reading():
                lists = self._finish(query, started)
                lost = next(filter(None, map(_unreachable, lists)), None)
                none_answered = all(ranked.error for ranked in lists)
                again = self._retry_query(query, lost, start, same=none_answered) if lost and tries > 1 else None
                if again is None:
                    return self.answer(query, lists, start)
        except Unreachable as error:  # of a stage
            again = self._retry_query(query, error, start, same=True) if tries > 1 else None
            if again is None:
                raise
        return self._answer_with_retries(tries - 1, again, start)

    def _retry_query(self, query: Query, error: Unreachable, start: float, *, same: bool) -> Query | None:
        """A narrower query to try after an error; with `same` this one, if the error came soon and may have passed."""
        soon = time.perf_counter() - start < SOON_S
        return self._narrower(query, error) or (query if same and soon else None)

    def _narrower(self, query: Query, error: Unreachable | None = None) -> Query | None:
        """A query for the records that can be reached, if others cannot be."""
        if (narrowed := self.narrowed(query.filter, error)) is None:
            return None
        where, missing = narrowed
        return replace(query, filter=where, notes=(*query.notes, missing))

    def ask(self, query: Query) -> list[RankedList]:
        """Every source's list, in the order of the sources; none is waited for beyond its deadline."""
        return self._finish(query, self._begin(query))

    def _begin(self, query: Query) -> tuple[float, list[Future[RankedList] | None]]:
        """Start the sources that run in threads, before the caller's snapshot begins; the time, and their futures."""
        query.check()
        start = time.monotonic()
        # Each source runs in a copy of the context, so that its spans belong to this request.
        return start, [
            None
            if query.deadline is None and source.timeout is None
            else self.executor.submit(copy_context().run, self._search_in_thread, source, query)
            for source in self.sources
        ]

    def _finish(self, query: Query, started: tuple[float, list[Future[RankedList] | None]]) -> list[RankedList]:
        start, futures = started
        pairs = list(zip(self.sources, futures, strict=True))
        here = iter([self._search(source, query) for source, future in pairs if not future])
        return [_wait(source, future, query, start) if future else next(here) for source, future in pairs]

    def _search_in_thread(self, source: Source, query: Query) -> RankedList:
        """Search a source in a thread. If it fails when nobody waits any more, the store notes what it cannot reach."""
        ranked = self._search(source, query)
        if (lost := _unreachable(ranked)) is not None:
            self.narrowed(query.filter, lost)
        return ranked

    def _search(self, source: Source, query: Query) -> RankedList:
        start = time.perf_counter()
        try:
            with self.reading():
                return replace(source.search(query), source=source.name, took_ms=_since(start))
        except Exception as error:  # noqa: BLE001  (an edge: whatever a source does, the others still answer)
            return RankedList(source.name, error=error, took_ms=_since(start))

    def answer(self, query: Query, lists: Sequence[RankedList], start: float) -> Answer:
        """The answer that the sources' lists give; `start` is when the query began (`time.perf_counter`)."""
        fusion = Fusion(query, self._answered(lists))
        with self.reading():
            candidates, closest, stages = self._run_stages(query, fusion.candidates)
            results = fusion.results(candidates)
            closest_result = next(iter(fusion.results(closest)), None)
        abstained = f"no result reaches a confidence of {query.ranking.min_confidence:g}" if closest else ""
        trace = self._trace(query, lists, stages, fusion.duplicates)
        trace = replace(trace, took_ms=_since(start), abstained=abstained)
        return Answer(query, tuple(results), trace, closest_result)

    def _run_stages(
        self, query: Query, candidates: Sequence[Candidate]
    ) -> tuple[Sequence[Candidate], Sequence[Candidate], list[StageTrace]]:
        """The candidates that all stages leave; the closest one if none is likely enough; and what each stage did."""
        closest: Sequence[Candidate] = ()
        stages = []
        for name, stage in self.stages:
            query.check()
            began, before = time.perf_counter(), candidates
            candidates = stage(query, before)
            if name == "confidence" and before and not candidates:
                closest = [max(before, key=lambda candidate: candidate.confidence or 0.0)]
            elif name in CHECKS:
                closest = stage(query, closest)
            warnings = candidates.warnings if isinstance(candidates, Warned) and candidates is not before else ()
            stages.append(StageTrace(name, len(before), len(candidates), _since(began), warnings))
        return candidates, closest, stages

    def _trace(self, query: Query, lists: Sequence[RankedList], stages: Sequence[StageTrace], duplicates: int) -> Trace:
        answered = [ranked for ranked in lists if ranked.error is None]
        dropped = {stage.name: stage.given - stage.left for stage in stages if stage.name not in UNCOUNTED}
        lags = [ranked.lag for ranked in answered if ranked.lag is not None]
        absent = (SourceTrace(name, "skipped", reason=why) for name, why in self.absent)
        return Trace(
            mode="hybrid" if len(answered) > 1 else f"{answered[0].source}-only",
            sources=(*map(_source_trace, lists), *absent),
            stages=tuple(stages),
            filtered={
                **dict.fromkeys(("superseded", "scope", "threshold", "confidence"), 0),
                **{name: count for name, count in dropped.items() if count},
                "duplicate": duplicates + sum(ranked.duplicates for ranked in answered),
            },
            lag={"vectors": lags[0]} if lags else {},
            warnings=tuple(dict.fromkeys(self._warnings(query, lists, stages))),
            also_searched=tuple(dict.fromkeys(word for ranked in lists for word in ranked.also)),
            favours=str(query.period) if query.period else "",
        )

    def fused(self, query: Query, lists: Sequence[RankedList]) -> list[Candidate]:
        """The fused ranking of the lists, before any stage."""
        return Fusion(query, self._answered(lists)).candidates

    def _answered(self, lists: Sequence[RankedList]) -> Sequence[RankedList]:
        answered = [ranked for ranked in lists if ranked.error is None]
        if not answered:
            raise self._failure(lists)
        return answered

    def _failure(self, lists: Sequence[RankedList]) -> SearchFailed:
        """The error of a search that no source answered."""
        errors = [ranked.error for ranked in lists if ranked.error is not None]
        reasons = [f"{ranked.source}: {_source_trace(ranked).reason}" for ranked in lists]
        reasons += [f"{name}: {why}" for name, why in self.absent]
        hints = [error.hint for error in errors if isinstance(error, RecollectError) and error.hint]
        failure = SearchFailed(f"no source answered ({'; '.join(reasons)})", hint=hints[0] if hints else "")
        failure.__cause__ = errors[0] if errors else None
        return failure

    def _warnings(self, query: Query, lists: Sequence[RankedList], stages: Sequence[StageTrace]) -> Iterator[str]:
        yield from query.notes
        for ranked in lists:
            yield from ranked.warnings
        for ranked in lists:
            if ranked.error is not None:
                yield f"{ranked.source} did not answer: {described_error(ranked.error)}"
            elif METHODS[query.ranking.fusion].by_score and _lacks_scores(ranked.entries):
                yield f"{ranked.source} gives no scores; its ranks stand in for them"
        for name, why in self.absent:
            if why:
                yield f"{name} was left out: {why}"
        for stage in stages:
            yield from stage.warnings


def _unreachable(ranked: RankedList) -> Unreachable | None:
    """The error of a part of the store. For a scoped caller it is behind one that says less."""
    error = ranked.error
    cause = error.__cause__ if isinstance(error, SourceFailed) else error
    return cause if isinstance(cause, Unreachable) else None


def _lacks_scores(entries: Sequence[Hit]) -> bool:
    return not isinstance(entries, RankedRows) and any(hit.score is None for hit in entries)


def _wait(source: Source, future: Future[RankedList], query: Query, start: float) -> RankedList:
    """The list, or a timeout; what comes later is dropped."""
    own = math.inf if source.timeout is None else start + source.timeout + MOMENT_S
    deadline = min(own, math.inf if query.deadline is None else query.deadline)
    try:
        return future.result(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        future.cancel()
        took = round((time.monotonic() - start) * 1000, 3)
        limit = "its own timeout" if own <= deadline else "the query's budget"
        return RankedList(source.name, error=TimedOut(f"no answer after {took:.0f} ms, {limit}"), took_ms=took)


def _source_trace(ranked: RankedList) -> SourceTrace:
    error = ranked.error
    if error is None:
        entries, trust = len(ranked.entries), ranked.trust
        return SourceTrace(ranked.source, "ok", entries, ranked.took_ms, trust=trust, read_as=ranked.read_as)
    status = "timeout" if isinstance(error, TimedOut) else "failed"
    status = "skipped" if isinstance(error, LeftAlone | TooLong) else status
    return SourceTrace(ranked.source, status, 0, ranked.took_ms, reason(error))


def reason(error: Exception) -> str:
    """Why a source failed, in one line."""
    return error.message if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"


def described_error(error: Exception) -> str:
    """Why something failed, and what to do about it."""
    hint = error.hint if isinstance(error, RecollectError) else ""
    return f"{reason(error)} ({hint})" if hint else reason(error)


def _since(start: float) -> float:
    return round((time.perf_counter() - start) * 1000, 3)
