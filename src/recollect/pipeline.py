"""The path of a query: ask every source at once, merge duplicates, fuse, run the stages, describe what happened."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace

from recollect.errors import LeftAlone, RecollectError, SearchFailed, TimedOut, TooLong
from recollect.fusion import METHODS, fuse
from recollect.types import Answer, Hit, Query, RankedList, Result, Source, Stage
from recollect.types.search import SourceTrace, StageTrace, Trace, WarnedResults

MOMENT_S = 0.08  # seconds to wait beyond a source's own timeout: its own error says best why it is late
CUTS = ("mmr", "limit")  # stages that shorten the list to the limit; what the others drop is counted in the trace


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Sources and stages; calling the pipeline with a query returns the answer.

    `absent` names sources that were requested and cannot run, with the reason: they appear in the trace. In a block of
    `reading`, all reads of the store share one snapshot. Each source has a snapshot of its own, and the stages have
    one: with a single one, a slow source would keep the others waiting beyond their deadline.
    """

    sources: tuple[Source, ...]
    stages: tuple[tuple[str, Stage], ...]
    executor: Executor
    absent: tuple[tuple[str, str], ...] = ()
    reading: Callable[[], AbstractContextManager[None]] = nullcontext

    def __call__(self, query: Query) -> Answer:
        """Answer one query."""
        start = time.perf_counter()
        return self.answer(query, self.ask(query), start)

    def ask(self, query: Query) -> list[RankedList]:
        """Every source's list, in the order of the sources; none is waited for beyond its deadline."""
        query.check()
        start = time.monotonic()
        # Each source runs in a copy of the context, so that its spans belong to this request.
        futures = [self.executor.submit(copy_context().run, self._search, source, query) for source in self.sources]
        return [_wait(*pair, query, start) for pair in zip(self.sources, futures, strict=True)]

    def _search(self, source: Source, query: Query) -> RankedList:
        start = time.perf_counter()
        try:
            with self.reading():
                ranked = source.search(query)
        except Exception as error:  # noqa: BLE001  (an edge: whatever a source does, the others still answer)
            return RankedList(source.name, error=error, took_ms=_since(start))
        return replace(ranked, source=source.name, bounded=source.bounded, took_ms=_since(start))

    def answer(self, query: Query, lists: Sequence[RankedList], start: float) -> Answer:
        """The answer that the sources' lists give; `start` is when the query began (`time.perf_counter`)."""
        results: Sequence[Result]
        results, duplicates = self.fused(query, lists)
        found, stages = bool(results), []
        with self.reading():
            for name, stage in self.stages:
                query.check()
                began, before = time.perf_counter(), results
                results = stage(query, before)
                warnings = results.warnings if isinstance(results, WarnedResults) and results is not before else ()
                stages.append(StageTrace(name, len(before), len(results), _since(began), warnings))
        answered = [ranked for ranked in lists if ranked.error is None]
        dropped = {stage.name: stage.given - stage.left for stage in stages if stage.name not in CUTS}
        lags = [ranked.lag for ranked in answered if ranked.lag is not None]
        abstained = found and any(stage.name == "confidence" and stage.given and not stage.left for stage in stages)
        least = query.ranking.min_confidence
        trace = Trace(
            took_ms=_since(start),
            mode="hybrid" if len(answered) > 1 else f"{answered[0].source}-only",
            sources=(
                *(_source_trace(ranked) for ranked in lists),
                *(SourceTrace(name, "skipped", reason=why) for name, why in self.absent),
            ),
            stages=tuple(stages),
            filtered={
                **dict.fromkeys(("superseded", "scope", "threshold", "confidence"), 0),
                **{name: count for name, count in dropped.items() if count},
                "duplicate": duplicates + sum(ranked.duplicates for ranked in answered),
            },
            lag={"vectors": lags[0]} if lags else {},
            warnings=tuple(dict.fromkeys(self._warnings(query, lists, stages))),
            abstained=f"no result reaches the confidence {least:g} that was asked for" if abstained else "",
        )
        return Answer(query, tuple(results), trace)

    def fused(self, query: Query, lists: Sequence[RankedList]) -> tuple[list[Result], int]:
        """The fused ranking of the lists, and how many hits were merged into a duplicate: same id or same text.

        A duplicate has the hit of the first list that has it, with the snippet of the first that has one. Merging comes
        before ranking, so it leaves no gap in the ranks.
        """
        answered = [ranked for ranked in lists if ranked.error is None]
        if not answered:
            raise self._failure(lists)
        merged, first, by_text, duplicates = [], dict[str, Hit](), dict[bytes, str](), 0
        for ranked in answered:
            hits, bounded = [], ranked.bounded
            for hit in ranked.entries:
                key = hit.id if hit.id in first else by_text.setdefault(hit.text_hash, hit.id)
                by_text.setdefault(hit.text_hash, key)
                known = first.setdefault(key, hit)
                if known.snippet is None and hit.snippet is not None:
                    first[key] = replace(known, snippet=hit.snippet)
                duplicates += key != hit.id
                hits.append(hit if key == hit.id else replace(hit, id=key))
            if METHODS[query.ranking.fusion].by_score and any(hit.score is None for hit in hits):
                hits = [replace(hit, score=1.0 / rank) for rank, hit in enumerate(hits, 1)]
                bounded = True
            merged.append(replace(ranked, entries=hits, bounded=bounded, weight=_weight(query, ranked, answered)))
        ranking = query.ranking
        fused = fuse(merged, method=ranking.fusion, k=ranking.rrf_k, normalisation=ranking.normalisation)
        results = []
        for place in fused:
            hit, cosine = first[place.id], place.shares.get("vector") or place.shares.get("hyde")
            similarity = cosine.score if cosine else None
            results.append(Result(hit.record, place.fused, place.score, place.shares, hit.snippet, similarity))
        return results, duplicates

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
        for ranked in lists:
            yield from ranked.warnings
        for ranked in lists:
            if ranked.error is not None:
                yield f"{ranked.source} did not answer: {described_error(ranked.error)}"
            elif METHODS[query.ranking.fusion].by_score and any(hit.score is None for hit in ranked.entries):
                yield f"{ranked.source} gives no scores; its ranks stand in for them"
        for name, why in self.absent:
            if why:
                yield f"{name} was left out: {why}"
        for stage in stages:
            yield from stage.warnings


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


def _weight(query: Query, ranked: RankedList, lists: Sequence[RankedList]) -> float:
    """A source's weight, times its trust where the fusion method reads that.

    Other methods, whose formulas people know, only leave out a source that understood nothing. If no other source has
    found anything, a source keeps its whole weight.
    """
    weight = query.weights.get(ranked.source, 1.0)
    others = (other for other in lists if other.source != ranked.source and query.weights.get(other.source, 1.0) > 0)
    if not any(other.entries and other.trust > 0 for other in others):
        return weight
    return weight * ranked.trust if METHODS[query.ranking.fusion].by_trust or ranked.trust == 0 else weight


def _source_trace(ranked: RankedList) -> SourceTrace:
    error = ranked.error
    if error is None:
        return SourceTrace(ranked.source, "ok", len(ranked.entries), ranked.took_ms, trust=ranked.trust)
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
