"""The path of a query: ask every source at once, merge duplicates, fuse, run the stages, describe what happened."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from functools import partial

from recollect.dataclass import dataclass
from recollect.errors import LeftAlone, RecollectError, SearchFailed, TimedOut, TooLong
from recollect.fusion import METHODS, Ranking, combine
from recollect.types import (
    Answer,
    Candidate,
    Contribution,
    Hit,
    Pool,
    Query,
    RankedList,
    RankedRows,
    Record,
    Result,
    Source,
    SourceTrace,
    Stage,
    StageTrace,
    Trace,
    Warned,
)
from recollect.types.records import micros

MOMENT_S = 0.08  # seconds to wait beyond a source's own timeout: its own error says best why it is late
CUTS = ("mmr", "limit")  # stages that shorten the list to the limit; what the others drop is counted in the trace


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Sources and stages; calling the pipeline with a query returns the answer.

    `absent` names sources that were requested and cannot run, with the reason: they appear in the trace. In a block of
    `reading`, all reads of the store share one snapshot. A source that may have to be left behind, because it or the
    query has a deadline, runs in a thread with a snapshot of its own. The others run here, one after the other, and
    share one snapshot with the stages.
    """

    sources: tuple[Source, ...]
    stages: tuple[tuple[str, Stage], ...]
    executor: Executor
    absent: tuple[tuple[str, str], ...] = ()
    reading: Callable[[], AbstractContextManager[None]] = nullcontext

    def __call__(self, query: Query) -> Answer:
        """Answer one query."""
        start, begun = time.perf_counter(), self._begin(query)
        with self.reading():
            return self.answer(query, self._finish(query, begun), start)

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
            else self.executor.submit(copy_context().run, self._search, source, query)
            for source in self.sources
        ]

    def _finish(self, query: Query, begun: tuple[float, list[Future[RankedList] | None]]) -> list[RankedList]:
        start, futures = begun
        lists = [
            self._search(source, query) for source, future in zip(self.sources, futures, strict=True) if not future
        ]
        here = iter(lists)
        return [
            _wait(source, future, query, start) if future else next(here)
            for source, future in zip(self.sources, futures, strict=True)
        ]

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
        fusion = Fusion(query, self._answered(lists))
        candidates: Sequence[Candidate] = fusion.candidates
        stages = []
        with self.reading():
            for name, stage in self.stages:
                query.check()
                began, before = time.perf_counter(), candidates
                candidates = stage(query, before)
                warnings = candidates.warnings if isinstance(candidates, Warned) and candidates is not before else ()
                stages.append(StageTrace(name, len(before), len(candidates), _since(began), warnings))
            results = fusion.results(candidates)
        answered = [ranked for ranked in lists if ranked.error is None]
        dropped = {stage.name: stage.given - stage.left for stage in stages if stage.name not in CUTS}
        lags = [ranked.lag for ranked in answered if ranked.lag is not None]
        abstained = any(stage.name == "confidence" and stage.given and not stage.left for stage in stages)
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
                "duplicate": fusion.duplicates + sum(ranked.duplicates for ranked in answered),
            },
            lag={"vectors": lags[0]} if lags else {},
            warnings=tuple(dict.fromkeys(self._warnings(query, lists, stages))),
            abstained=f"no result reaches the confidence {least:g} that was asked for" if abstained else "",
        )
        return Answer(query, tuple(results), trace)

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


class Fusion:
    """The fused ranking of one query's lists, whose candidates become results when they are shown.

    Hits with the same id or the same text are merged into one candidate, that of the first list that has it. Merging
    comes before ranking, so it leaves no gap in the ranks. `duplicates` counts the hits that were merged.
    """

    def __init__(self, query: Query, lists: Sequence[RankedList]) -> None:
        self._pool, self._lists = Pool(), lists
        self._known: dict[int | str, Candidate] = {}
        self._by_text: dict[bytes, int | str] = {}
        self._snippets: dict[int | str, Callable[[], str]] = {}
        self.duplicates = 0
        # Rows are numbers of one store; where other documents come in, all are told apart by their ids.
        by_row = all(isinstance(ranked.entries, RankedRows) for ranked in lists)
        self._rankings = [self._ranking(query, ranked, by_row) for ranked in lists]
        counted, options = [ranking for ranking in self._rankings if ranking.weight > 0], query.ranking
        self.candidates: list[Candidate] = []
        for key, fused, base in combine(counted, options.fusion, options.rrf_k, options.normalisation):
            candidate = self._known[key]
            candidate.fused, candidate.base, candidate.total = fused, base, base
            self.candidates.append(candidate)
        if options.wants_confidence:
            self._pool.scores = {of.source: dict(zip(of.keys, of.scores, strict=True)) for of in counted}

    def _ranking(self, query: Query, ranked: RankedList, by_row: bool) -> Ranking:
        """A list in columns, with the keys of candidates; its new documents become candidates."""
        keys, scores, ranks, bounded = list[int | str](), list[float | None](), list[int](), ranked.bounded
        if by_row and isinstance(ranked.entries, RankedRows):
            rows = ranked.entries
            self._pool.rows = rows
            scores.extend(rows.scores)
            columns = zip(rows.rows, rows.folds, rows.times, rows.importances, rows.decays, strict=True)
            keys.extend(itertools.starmap(self._key, columns))
        else:
            for hit in ranked.entries:
                record = hit.record
                at = micros(record.time) or 0
                key = self._key(hit.id, hit.text_hash, at, record.importance, record.decay)
                self._pool.records.setdefault(key, record)
                if hit.snippet is not None:
                    self._snippets.setdefault(key, hit.snippet)
                keys.append(key)
                scores.append(hit.score)
                ranks += [] if hit.rank is None else [hit.rank]
        if None in scores and METHODS[query.ranking.fusion].by_score:
            scores, bounded = [1.0 / rank for rank in range(1, len(keys) + 1)], True
        weight = _weight(query, ranked, self._lists)
        return Ranking(ranked.source, keys, scores, weight, bounded, ranked.among, ranks).without_repeats()

    def _key(self, own: int | str, fold: bytes, time: int, importance: float, decay: str | None) -> int | str:
        """The key of the candidate with this row or id, or else of the one with the same text; it may be new."""
        if own in self._known:
            return own
        key = self._by_text.setdefault(fold, own)
        if key == own:
            self._known[own] = Candidate(self._pool, own, fold, time=time, importance=importance, decay=decay)
        else:
            self.duplicates += 1
        return key

    def results(self, candidates: Sequence[Candidate]) -> list[Result]:
        """The results that candidates become, with their records and what each source gave to them."""
        return [
            Result(
                record := self._pool.records[candidate.key],
                candidate.fused,
                candidate.base,
                shares := self._shares(candidate),
                self._excerpt(candidate, record),
                next((shares[name].score for name in ("vector", "hyde") if name in shares), None),
                candidate.freshness,
                candidate.confidence,
                candidate.factors,
                candidate.moves,
            )
            for candidate in self._pool.read(candidates)
        ]

    def _shares(self, candidate: Candidate) -> dict[str, Contribution]:
        shares = (
            (ranking.source, ranking.contribution(candidate.key)) for ranking in self._rankings if ranking.amounts
        )
        return {source: share for source, share in shares if share is not None}

    def _excerpt(self, candidate: Candidate, record: Record) -> Callable[[], str] | None:
        """Makes the snippet, as the first source does that can."""
        for ranked, ranking in zip(self._lists, self._rankings, strict=True):
            if ranked.excerpt is not None and candidate.key in ranking:
                return partial(ranked.excerpt, record)
        return self._snippets.get(candidate.key)


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
