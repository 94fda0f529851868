"""The way of a query: ask every source at once, fold duplicates, fuse, pass the stages, say what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import copy_context
from dataclasses import dataclass, field

from recollect.errors import LeftAlone, RecollectError, SearchFailed, TimedOut, TooLong
from recollect.fusion import METHODS, Entry, Fused, RankedList, fuse
from recollect.types import (
    Answer,
    Found,
    Hit,
    Noted,
    Query,
    Record,
    Result,
    Source,
    SourceTrace,
    Stage,
    StageTrace,
    Trace,
)

MOMENT_S = 0.05


@dataclass(frozen=True, slots=True)
class Reply:
    """One source's list, or why there is none."""

    source: Source
    trace: SourceTrace
    found: Found = field(default_factory=Found)
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Sources and stages as values; calling it with a query gives the answer.

    `absent` names sources that were asked for and cannot run, with the reason: they appear in the trace.
    """

    sources: tuple[Source, ...]
    stages: tuple[tuple[str, Stage], ...]
    executor: Executor
    absent: tuple[tuple[str, str], ...] = ()

    def __call__(self, query: Query) -> Answer:
        """Answer one query."""
        start = time.perf_counter()
        return self.answer(query, self.ask(query), start)

    def answer(self, query: Query, replies: Sequence[Reply], start: float) -> Answer:
        """What comes of the sources' replies; `start` is when the question was asked (`time.perf_counter`)."""
        answered = [reply for reply in replies if reply.error is None]
        if not answered:
            raise all_failed(replies, self.absent)
        fused, folded = fused_results(query, answered)
        results, stages = self._run_stages(query, fused)
        trace = Trace(
            took_ms=_since(start),
            mode="hybrid" if len(answered) > 1 else f"{answered[0].source.name}-only",
            sources=(
                *(reply.trace for reply in replies),
                *(SourceTrace(name, "skipped", reason=reason) for name, reason in self.absent),
            ),
            stages=stages,
            filtered=_filtered(stages, folded + sum(reply.found.folded for reply in answered)),
            warnings=tuple(dict.fromkeys([*_warnings(query, replies, self.absent), *_told(stages)])),
            abstained=_abstained(query, fused, stages),
        )
        return Answer(query, tuple(results), trace)

    def ask(self, query: Query) -> list[Reply]:
        """Every source's reply, in their order. Nobody is waited for beyond the query's deadline or its own timeout."""
        query.check()
        start = time.monotonic()
        # A copy of the context each: what an outside source does belongs to whoever asked.
        asked = [(source, self.executor.submit(copy_context().run, _ask, source, query)) for source in self.sources]
        return [_wait(source, future, query, start) for source, future in asked]

    def _run_stages(self, query: Query, results: Sequence[Result]) -> tuple[Sequence[Result], tuple[StageTrace, ...]]:
        traces = []
        for name, stage in self.stages:
            query.check()
            start, given = time.perf_counter(), results
            results = stage(query, given)
            told = results.warnings if isinstance(results, Noted) and results is not given else ()
            traces.append(StageTrace(name, len(given), len(results), _since(start), told))
        return results, tuple(traces)


@dataclass(slots=True)
class FoldedHits:
    """Every source's hits with duplicates folded: `lists[source]` is [(id, hit)], `records[id]` the survivor.

    `excerpts[id]` makes the snippet of the first source in order that has one.
    """

    lists: dict[str, list[tuple[str, Hit]]] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    excerpts: dict[str, Callable[[], str]] = field(default_factory=dict)


def fold_hits(lists: Iterable[tuple[str, Sequence[Hit]]]) -> tuple[FoldedHits, int]:
    """Join hits of the same id or the same text under one survivor, and count those that were not it.

    The first source in order decides which record stands for a text. Nothing is ranked yet, so folding cannot
    leave a gap in the ranks.
    """
    folded, by_text, count = FoldedHits(), dict[bytes, str](), 0
    for name, hits in lists:
        places = folded.lists.setdefault(name, [])
        for hit in hits:
            key = hit.record.id if hit.record.id in folded.records else by_text.setdefault(hit.fold, hit.record.id)
            folded.records.setdefault(key, hit.record)
            by_text.setdefault(hit.fold, key)
            if hit.snippet is not None:
                folded.excerpts.setdefault(key, hit.snippet)
            count += key != hit.record.id
            places.append((key, hit))
    return folded, count


def _ask(source: Source, query: Query) -> Reply:
    start = time.perf_counter()
    try:
        found = source.search(query)
    except Exception as error:  # noqa: BLE001  (an edge: whatever a source does, the others still answer)
        return _failure(source, error, _since(start))
    return Reply(source, SourceTrace(source.name, "ok", len(found.hits), _since(start), trust=found.trust), found)


def _wait(source: Source, future: Future[Reply], query: Query, start: float) -> Reply:
    """The reply, or that it did not come in time. What comes later is dropped."""
    # A source that keeps to its time says best why it is late, so it has a moment to say it.
    own = math.inf if source.timeout is None else start + source.timeout + MOMENT_S
    deadline = min(own, math.inf if query.deadline is None else query.deadline)
    try:
        return future.result(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
    except FutureTimeout:
        future.cancel()
        took = round((time.monotonic() - start) * 1000, 3)
        limit = "its own timeout" if own <= deadline else "the query's budget"
        return _failure(source, TimedOut(f"no answer after {took:.0f} ms, {limit}"), took)


def _failure(source: Source, error: Exception, took_ms: float) -> Reply:
    reason = error.message if isinstance(error, RecollectError) else f"{type(error).__name__}: {error}"
    status = next((word for kind, word in _STATUSES if isinstance(error, kind)), "failed")
    return Reply(source, SourceTrace(source.name, status, 0, took_ms, reason), error=error)


_STATUSES = ((TimedOut, "timeout"), (LeftAlone, "skipped"), (TooLong, "skipped"))


def fused_results(query: Query, answered: Sequence[Reply]) -> tuple[list[Result], int]:
    """What the sources found as one ranking, and how many hits were folded under another."""
    ranking = query.ranking
    hits, folded = fold_hits((reply.source.name, reply.found.hits) for reply in answered)
    lists = [
        RankedList(
            reply.source.name,
            [Entry(key, hit.score) for key, hit in hits.lists[reply.source.name]],
            ranking.weights.get(reply.source.name, 1.0) * _trust(query, reply, answered),
            reply.source.bounded,
            reply.found.among,
        )
        for reply in answered
    ]
    if not ranks_only(query):
        lists = [_with_scores(ranked) for ranked in lists]
    fused = fuse(lists, method=ranking.fusion, k=ranking.rrf_k, normalisation=ranking.normalisation)
    return [_result(place, hits) for place in fused], folded


def _trust(query: Query, reply: Reply, answered: Sequence[Reply]) -> float:
    """What a source's own trust makes of its weight.

    `blend` weighs it; the others, which are formulas that people know, only leave out a source that understood nothing.
    Where no other source has found anything, it is heard anyway.
    """
    trust = reply.found.trust
    weights = query.ranking.weights
    others = (other for other in answered if other is not reply and weights.get(other.source.name, 1.0) > 0)
    if not any(other.found.hits and other.found.trust > 0 for other in others):
        return 1.0
    return trust if METHODS[query.ranking.fusion].by_trust or trust == 0 else 1.0


def ranks_only(query: Query) -> bool:
    """Whether fusion reads ranks and no scores."""
    return not METHODS[query.ranking.fusion].by_score


def _with_scores(ranked: RankedList) -> RankedList:
    """A list without scores gets those of its ranks, 1 / rank, so that it can be fused with others by score."""
    if all(entry.score is not None for entry in ranked.entries):
        return ranked
    entries = [Entry(entry.id, 1.0 / rank) for rank, entry in enumerate(ranked.entries, 1)]
    return RankedList(ranked.source, entries, ranked.weight, bounded=True, among=ranked.among)


def _result(place: Fused, hits: FoldedHits) -> Result:
    cosines = [place.shares[name].score for name in ("vector", "hyde") if name in place.shares]
    return Result(
        hits.records[place.id],
        place.fused,
        place.score,
        place.shares,
        hits.excerpts.get(place.id),
        similarity=cosines[0] if cosines else None,
    )


def all_failed(replies: Sequence[Reply], absent: Sequence[tuple[str, str]]) -> SearchFailed:
    """The error of a search that no source answered."""
    reasons = [f"{reply.trace.name}: {reply.trace.reason}" for reply in replies]
    reasons += [f"{name}: {reason}" for name, reason in absent]
    hints = [reply.error.hint for reply in replies if isinstance(reply.error, RecollectError) and reply.error.hint]
    error = SearchFailed(f"no source answered ({'; '.join(reasons)})", hint=hints[0] if hints else "")
    error.__cause__ = replies[0].error if replies else None
    return error


def _filtered(stages: Sequence[StageTrace], duplicates: int) -> dict[str, int]:
    dropped = {trace.name: trace.given - trace.left for trace in stages}
    named = {name: dropped.get(name, 0) for name in ("superseded", "scope", "threshold", "confidence")}
    return {**named, "duplicate": duplicates}


def _abstained(query: Query, fused: Sequence[Result], stages: Sequence[StageTrace]) -> str:
    """Why nothing was answered although something was found; empty where that is not so."""
    cut = next((trace for trace in stages if trace.name == "confidence"), None)
    if not fused or cut is None or not cut.given or cut.left:
        return ""
    return f"no result reaches the confidence {query.ranking.min_confidence:g} that was asked for"


def _warnings(query: Query, replies: Sequence[Reply], absent: Sequence[tuple[str, str]]) -> list[str]:
    """What the one who asked should know, said once."""
    said = [warning for reply in replies for warning in reply.found.warnings]
    for reply in replies:
        if reply.error is not None:
            hint = reply.error.hint if isinstance(reply.error, RecollectError) else ""
            said.append(f"{reply.trace.name} did not answer: {reply.trace.reason}" + (f" ({hint})" if hint else ""))
        elif not ranks_only(query) and any(hit.score is None for hit in reply.found.hits):
            said.append(f"{reply.trace.name} gives no scores; its ranks stand in for them")
    return said + [f"{name} was left out: {reason}" for name, reason in absent if reason]


def _told(stages: Sequence[StageTrace]) -> list[str]:
    return [warning for stage in stages for warning in stage.warnings]


def _since(start: float) -> float:
    return round((time.perf_counter() - start) * 1000, 3)
