"""The path of a query: ask every source at once, merge duplicates, fuse, run the stages, describe what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace

from recollect.errors import LeftAlone, RecollectError, SearchFailed, TimedOut, TooLong
from recollect.fusion import METHODS, Fused, fuse
from recollect.types import (
    Answer,
    Hit,
    Query,
    RankedList,
    Result,
    Source,
    SourceTrace,
    Stage,
    StageTrace,
    Trace,
    WarnedResults,
)

MOMENT_S = 0.08
"""How much longer a source is waited for that keeps to its own timeout: it knows best why it is late."""


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

    def answer(self, query: Query, lists: Sequence[RankedList], start: float) -> Answer:
        """The answer that the sources' lists give; `start` is when the query began (`time.perf_counter`)."""
        answered = [ranked for ranked in lists if ranked.error is None]
        if not answered:
            raise all_failed(lists, self.absent)
        fused, duplicates = fused_results(query, answered)
        with self.reading():
            results, stages = self._run_stages(query, fused)
        trace = Trace(
            took_ms=_since(start),
            mode="hybrid" if len(answered) > 1 else f"{answered[0].source}-only",
            sources=(
                *(source_trace(ranked) for ranked in lists),
                *(SourceTrace(name, "skipped", reason=reason) for name, reason in self.absent),
            ),
            stages=stages,
            lag=_lag(answered),
            filtered=_filtered(stages, duplicates + sum(ranked.duplicates for ranked in answered)),
            warnings=tuple(dict.fromkeys(_warnings(query, lists, self.absent, stages))),
            abstained=_abstained(query, fused, stages),
        )
        return Answer(query, tuple(results), trace)

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

    def _run_stages(self, query: Query, results: Sequence[Result]) -> tuple[Sequence[Result], tuple[StageTrace, ...]]:
        traces = []
        for name, stage in self.stages:
            query.check()
            start, before = time.perf_counter(), results
            results = stage(query, before)
            warnings = results.warnings if isinstance(results, WarnedResults) and results is not before else ()
            traces.append(StageTrace(name, len(before), len(results), _since(start), warnings))
        return results, tuple(traces)


def _wait(source: Source, future: Future[RankedList], query: Query, start: float) -> RankedList:
    """The list, or a timeout; what comes later is dropped."""
    own = math.inf if source.timeout is None else start + source.timeout + MOMENT_S
    deadline = min(own, math.inf if query.deadline is None else query.deadline)
    try:
        return future.result(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
    except FutureTimeout:
        future.cancel()
        took = round((time.monotonic() - start) * 1000, 3)
        limit = "its own timeout" if own <= deadline else "the query's budget"
        return RankedList(source.name, error=TimedOut(f"no answer after {took:.0f} ms, {limit}"), took_ms=took)


_STATUSES = ((TimedOut, "timeout"), (LeftAlone, "skipped"), (TooLong, "skipped"))


def source_trace(ranked: RankedList) -> SourceTrace:
    """What the trace says about one source's list, or its failure."""
    if ranked.error is None:
        return SourceTrace(ranked.source, "ok", len(ranked.entries), ranked.took_ms, trust=ranked.trust)
    status = next((word for kind, word in _STATUSES if isinstance(ranked.error, kind)), "failed")
    return SourceTrace(ranked.source, status, 0, ranked.took_ms, reason(ranked.error))


def reason(error: Exception) -> str:
    """Why a source failed, in one line."""
    return error.message if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"


def described_error(error: Exception) -> str:
    """Why something failed, and what to do about it."""
    hint = error.hint if isinstance(error, RecollectError) else ""
    return f"{reason(error)} ({hint})" if hint else reason(error)


def merge_duplicates(lists: Sequence[RankedList]) -> tuple[list[RankedList], dict[str, Hit], int]:
    """Give hits of the same id or the same text one id.

    Returns the lists with those ids, the hit that stands for each id (of the first list that has it, with the snippet
    of the first that has one), and how many hits were merged into another. Nothing is ranked yet, so merging leaves no
    gap in the ranks.
    """
    merged, first, by_text, count = [], dict[str, Hit](), dict[bytes, str](), 0
    for ranked in lists:
        hits = []
        for hit in ranked.entries:
            key = hit.id if hit.id in first else by_text.setdefault(hit.text_hash, hit.id)
            by_text.setdefault(hit.text_hash, key)
            known = first.setdefault(key, hit)
            if known.snippet is None and hit.snippet is not None:
                first[key] = replace(known, snippet=hit.snippet)
            count += key != hit.id
            hits.append(hit if key == hit.id else replace(hit, id=key))
        merged.append(replace(ranked, entries=hits))
    return merged, first, count


def fused_results(query: Query, lists: Sequence[RankedList]) -> tuple[list[Result], int]:
    """The fused ranking of the lists, and how many hits were merged into a duplicate."""
    ranking = query.ranking
    merged, first, duplicates = merge_duplicates(lists)
    weighed = [replace(ranked, weight=_weight(query, ranked, lists)) for ranked in merged]
    if METHODS[ranking.fusion].by_score:
        weighed = [_with_scores(ranked) for ranked in weighed]
    fused = fuse(weighed, method=ranking.fusion, k=ranking.rrf_k, normalisation=ranking.normalisation)
    return [_result(place, first[place.id]) for place in fused], duplicates


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


def _with_scores(ranked: RankedList) -> RankedList:
    """A list without scores gets 1 / rank as scores, so that it can be fused by score."""
    if all(hit.score is not None for hit in ranked.entries):
        return ranked
    hits = [replace(hit, score=1.0 / rank) for rank, hit in enumerate(ranked.entries, 1)]
    return replace(ranked, entries=hits, bounded=True)


def _result(fused: Fused, hit: Hit) -> Result:
    cosines = [fused.shares[name].score for name in ("vector", "hyde") if name in fused.shares]
    return Result(
        hit.record,
        fused.fused,
        fused.score,
        fused.shares,
        hit.snippet,
        similarity=cosines[0] if cosines else None,
    )


def all_failed(lists: Sequence[RankedList], absent: Sequence[tuple[str, str]]) -> SearchFailed:
    """The error of a search that no source answered."""
    errors = [ranked.error for ranked in lists if ranked.error is not None]
    reasons = [f"{ranked.source}: {source_trace(ranked).reason}" for ranked in lists]
    reasons += [f"{name}: {why}" for name, why in absent]
    hints = [error.hint for error in errors if isinstance(error, RecollectError) and error.hint]
    error = SearchFailed(f"no source answered ({'; '.join(reasons)})", hint=hints[0] if hints else "")
    error.__cause__ = errors[0] if errors else None
    return error


CUTS = ("mmr", "limit")
"""Stages that shorten the list to the limit; what the others drop is counted in the trace."""


def _filtered(stages: Sequence[StageTrace], duplicates: int) -> dict[str, int]:
    dropped = {trace.name: trace.given - trace.left for trace in stages if trace.name not in CUTS}
    always = dict.fromkeys(("superseded", "scope", "threshold", "confidence"), 0)
    return {**always, **{name: count for name, count in dropped.items() if count}, "duplicate": duplicates}


def _lag(lists: Sequence[RankedList]) -> dict[str, int]:
    lags = [ranked.lag for ranked in lists if ranked.lag is not None]
    return {"vectors": lags[0]} if lags else {}


def _abstained(query: Query, fused: Sequence[Result], stages: Sequence[StageTrace]) -> str:
    """Why there is no result although something was found; empty if that is not so."""
    cut = next((trace for trace in stages if trace.name == "confidence"), None)
    if not fused or cut is None or not cut.given or cut.left:
        return ""
    return f"no result reaches the confidence {query.ranking.min_confidence:g} that was asked for"


def _warnings(
    query: Query, lists: Sequence[RankedList], absent: Sequence[tuple[str, str]], stages: Sequence[StageTrace]
) -> list[str]:
    warnings = [warning for ranked in lists for warning in ranked.warnings]
    for ranked in lists:
        if ranked.error is not None:
            warnings.append(f"{ranked.source} did not answer: {described_error(ranked.error)}")
        elif METHODS[query.ranking.fusion].by_score and any(hit.score is None for hit in ranked.entries):
            warnings.append(f"{ranked.source} gives no scores; its ranks stand in for them")
    warnings += [f"{name} was left out: {why}" for name, why in absent if why]
    return warnings + [warning for stage in stages for warning in stage.warnings]


def _since(start: float) -> float:
    return round((time.perf_counter() - start) * 1000, 3)
