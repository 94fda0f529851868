"""Why a record is not in an answer: the query is run with an eye on it, and the stage that lost it named.

The change that would bring it back is found by making it: each loss is mended in turn and the query run again, until
the record is there. What is advised has been seen to work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.memory.obstacles import obstacles, walls
from recollect.memory.shape import iso
from recollect.pipeline import Pipeline, Reply, all_failed, fused_results
from recollect.ranking import fold_hash
from recollect.stages import freshness
from recollect.types import Filter, Query, Record, Result, Store

Prepare: TypeAlias = Callable[[Mapping[str, Any]], tuple[Pipeline, Query]]
"""Options of `search` → the pipeline and the query they mean."""

DEEP = 1_000_000_000
"""As deep as any store: a rank is computed however far down it is."""

MOST_FETCHED, MOST_SHOWN = 100_000, 10_000
"""The largest `fetch_k` and `limit` that the settings take."""

TRIES = 8
LOCAL = ("keyword", "vector", "hyde")
ROUNDING = 10_000
"""Thresholds are advised to four places."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one source ranks the record, however deep, and how deep it is read; or why it does not rank it."""

    rank: int | None
    score: float | None
    fetch_k: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a record. `stage` is `found` where it is in the answer, at `rank`.

    `change` holds the options of `search` that bring it back, tried and seen to; `advice` what to do in words.
    """

    target: str
    record: Record | None
    stage: str
    reason: str
    rank: int | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    change: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One run of the query with an eye on the record."""

    stage: str
    reason: str
    change: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    advice: str = ""


def why_not(store: Store, prepare: Prepare, target: str, options: Mapping[str, Any]) -> Verdict:
    """The stage that lost the record or file named, and the smallest change found that brings it back."""
    record = _named(store, prepare, target, options)
    if isinstance(record, Verdict):
        return record
    first = look(prepare, options, record)
    pipeline, query = prepare(options)
    places = {} if obstacles(record, query.filter) else ranks(pipeline, query, record)
    shown = None if walls(record, query.filter) else record
    verdict = Verdict(target, shown, first.stage, first.reason, first.rank, places, advice=first.advice)
    if first.stage == "found":
        return verdict
    stale = _stale(store, record)
    if stale and not obstacles(record, query.filter):
        reason = f"the file has {stale} since it was indexed; as it was then, {first.reason}"
        return replace(verdict, stage=stale, reason=reason, advice=f"recollect index {record.path}")
    return replace(verdict, change=_mended(prepare, options, record, first))


def look(prepare: Prepare, options: Mapping[str, Any], record: Record) -> Look:
    """Run the query and say where the record is lost, or at which rank it stands."""
    pipeline, query = prepare(options)
    if hidden := obstacles(record, query.filter):
        change = {name: value for obstacle in hidden for name, value in obstacle.change.items()}
        return Look(hidden[0].stage, "; ".join(obstacle.reason for obstacle in hidden), change)
    replies = pipeline.ask(query)
    answered = [reply for reply in replies if reply.error is None]
    if not answered:
        raise all_failed(replies, pipeline.absent)
    fused, _ = fused_results(query, answered)
    if (place := _same(fused, record)) is not None:
        return _duplicate(fused[place], place) if fused[place].record.id != record.id else _follow(
            pipeline, query, fused, record
        )  # fmt: skip
    return _beyond(pipeline, query, record, answered)


def ranks(pipeline: Pipeline, query: Query, record: Record) -> dict[str, Place]:
    """Every source's rank of the record. Ours are read to the end; an outside one as deep as it is set to."""
    deep = replace(query, fetch_k=DEEP, deadline=None)
    ours = replace(pipeline, sources=tuple(source for source in pipeline.sources if source.name in LOCAL))
    outside = replace(pipeline, sources=tuple(source for source in pipeline.sources if source.name not in LOCAL))
    places = {reply.source.name: _place(reply, record, query.depth) for reply in ours.ask(deep)}
    places |= {reply.source.name: _place(reply, record, len(reply.found.hits)) for reply in outside.ask(query)}
    return places | {name: Place(None, None, 0, reason) for name, reason in pipeline.absent}


def _place(reply: Reply, record: Record, depth: int) -> Place:
    if reply.error is not None:
        return Place(None, None, depth, f"did not answer: {reply.trace.reason}")
    mark = fold_hash(record.text)
    for rank, hit in enumerate(reply.found.hits, 1):
        if hit.record.id == record.id:
            return Place(rank, hit.score, depth)
        if hit.fold == mark:
            return Place(rank, hit.score, depth, f"as its duplicate {hit.record.id}")
    if reply.source.name not in LOCAL:
        return Place(None, None, depth, "not in its list")
    silent = reply.source.name == "keyword"
    return Place(None, None, depth, "shares no word with the query" if silent else "has no vector yet")


def _follow(pipeline: Pipeline, query: Query, results: Sequence[Result], record: Record) -> Look:
    """The record through the stages, until one drops it."""
    for name, stage in pipeline.stages:
        before, results = results, stage(query, results)
        if _position(results, record) is None:
            return _lost(name, query, before, results, record)
    rank = (_position(results, record) or 0) + 1
    return Look("found", f"it is in the answer, at rank {rank}", rank=rank)


def _lost(name: str, query: Query, before: Sequence[Result], after: Sequence[Result], record: Record) -> Look:
    place = _position(before, record) or 0
    result, ranking = before[place], query.ranking
    if name == "threshold":
        short = ranking.min_score - result.score
        return Look(name, f"below the threshold by {short:.2g}: it scores {result.score:.4f}, min_score is "
                    f"{ranking.min_score:g}", {"min_score": _just_below(result.score)})  # fmt: skip
    if name == "confidence":
        has = result.confidence or 0.0
        return Look(name, f"its confidence is {has:.4f}, {ranking.min_confidence:g} was asked for",
                    {"min_confidence": _just_below(has)})  # fmt: skip
    if name == "mmr" and place < query.limit:
        rival = next(kept for kept in after if (_position(before, kept.record) or 0) > place)
        return Look(name, f"displaced by MMR in favour of {rival.record.id}, which says something new; by relevance "
                    f"it is at rank {place + 1}", {"mmr": False})  # fmt: skip
    wanted = {"limit": place + 1} if place < MOST_SHOWN else {}
    return Look("limit", f"at rank {place + 1}, beyond the limit of {query.limit}", wanted)


def _beyond(pipeline: Pipeline, query: Query, record: Record, answered: Sequence[Reply]) -> Look:
    """No source has it within its depth; this is how deep they would have to be read."""
    places = ranks(pipeline, query, record)
    words = "; ".join(
        f"{name} rank {place.rank} beyond fetch_k {place.fetch_k}"
        if place.rank and name in LOCAL and place.rank > place.fetch_k
        else f"{name} {place.note or f'rank {place.rank}'}"
        for name, place in places.items()
    )
    heard = {reply.source.name for reply in answered}
    deep = [place.rank for name, place in places.items() if place.rank and name in heard]
    if not deep:
        return Look("unmatched", f"no source finds it: {words}", advice="ask with words that stand in it")
    change = {"fetch_k": min(deep)} if min(deep) <= MOST_FETCHED else {}
    return Look("fetch_k", words, change)


def _duplicate(survivor: Result, place: int) -> Look:
    other = survivor.record.id
    return Look(
        "duplicate",
        f"folded into its duplicate {other}, which has the same text and stands at rank {place + 1} after fusion",
        advice=f"nothing is lost: {other} stands for it",
    )


def _mended(prepare: Prepare, options: Mapping[str, Any], record: Record, seen: Look) -> dict[str, Any]:
    """Mend each loss in turn; what does not end with the record in the answer is no change to advise."""
    change: dict[str, Any] = {}
    for _ in range(TRIES):
        if seen.stage == "found":
            return change
        if not seen.change or seen.change.items() <= change.items():
            break
        change |= seen.change
        seen = look(prepare, {**options, **change}, record)
    return change if seen.stage == "found" else {}


def _named(store: Store, prepare: Prepare, target: str, options: Mapping[str, Any]) -> Record | Verdict:
    """The record that was meant: by id, or of a file the one that comes nearest to the answer."""
    if not isinstance(target, str) or not target.strip():
        raise UsageError("a record is named by its id or its path", hint='why-not "query" ID_OR_PATH')
    if found := store.records.get([target]):
        return found[0]
    if events := store.records.history(target):
        at = iso(events[-1].at)
        return Verdict(target, None, "forgotten", f"it was forgotten on {at}", advice="add it again")
    _, query = prepare(options)
    everything = Filter(any_scope=True, superseded=True, now=query.filter.now)
    path = str(Path(target).expanduser().absolute())
    chunks = store.joins.by_path([path, target], everything)
    if chunks:
        return _nearest(prepare, options, chunks.get(path) or chunks[target])
    if Path(path).is_dir():
        raise UsageError(f"{target} is a folder", hint="name one file of it")
    if not Path(path).exists():
        raise UsageError(
            f"no record has the id {target!r}, and there is no such file",
            hint="`recollect list` shows the ids that are there",
        )
    return Verdict(target, None, "not indexed", f"{path} is not indexed", advice=f"recollect index {path}")


def _nearest(prepare: Prepare, options: Mapping[str, Any], chunks: Sequence[Record]) -> Record:
    pipeline, query = prepare(options)
    seen = [chunk for chunk in chunks if not obstacles(chunk, query.filter)]
    if len(seen) < 2:  # noqa: PLR2004  (nothing to choose from)
        return (seen or chunks)[0]
    ids = {chunk.id: chunk for chunk in seen}
    answered = [reply for reply in pipeline.ask(replace(query, fetch_k=DEEP)) if reply.error is None]
    fused, _ = fused_results(query, answered)
    return next((ids[result.record.id] for result in fused if result.record.id in ids), seen[0])


def _stale(store: Store, record: Record) -> str:
    """`changed` or `missing`, where the record's file is no longer as it was indexed."""
    if record.path is None:
        return ""
    mark = freshness(record.path, store.files.states([record.path]).get(record.path))
    return mark if mark in ("changed", "missing") else ""


def _same(results: Sequence[Result], record: Record) -> int | None:
    """Where the record is, or the one that stands for its text."""
    place = _position(results, record)
    if place is not None:
        return place
    mark = fold_hash(record.text)
    return next((i for i, result in enumerate(results) if fold_hash(result.record.text) == mark), None)


def _position(results: Sequence[Result], record: Record) -> int | None:
    return next((i for i, result in enumerate(results) if result.record.id == record.id), None)


def _just_below(value: float) -> float:
    return math.floor(value * ROUNDING) / ROUNDING
