"""Why a record is not in an answer: the query is run with an eye on it, and the stage that lost it named.

The change that would bring it back is found by making it: each loss is mended in turn and the query run again, until
the record is there. What is advised has been seen to work.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from recollect.config.sources import OURS
from recollect.errors import UnknownRecord, UsageError
from recollect.memory.shapes import iso
from recollect.memory.validation import clean
from recollect.pipeline import Pipeline, all_failed, fused_results, reason
from recollect.ranking import fold_hash
from recollect.sources.matcher import below
from recollect.stages import freshness
from recollect.types import EVERYTHING, Filter, Query, RankedList, Record, Result, Scope, Store


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One part of a filter that a record does not pass, and the options of `search` that would let it pass."""

    stage: str
    reason: str
    change: Mapping[str, Any] = field(default_factory=dict)


def obstacles(record: Record, where: Filter) -> list[Obstacle]:
    """Every part of the filter that hides the record; none where it may be seen."""
    if foreign_parts(record, where):
        return [*_of_scope(record, where)]  # what else hides it would tell what it is
    return [*_of_scope(record, where), *_of_moment(record, where), *_of_wishes(record, where)]


def _of_scope(record: Record, where: Filter) -> Iterator[Obstacle]:
    if where.any_scope or where.scope.admits(record.scope):
        return
    if others := foreign_parts(record, where):
        yield Obstacle("scope", f"out of scope: it belongs to another {' and another '.join(others)}")
        return
    theirs = {part: name for part, name in record.scope.as_dict().items() if part not in where.scope.as_dict()}
    owner = " and ".join(f"{part} {name!r}" for part, name in theirs.items())
    yield Obstacle("scope", f"out of scope: it belongs to {owner}, which the question does not name", theirs)


def foreign_parts(record: Record, where: Filter) -> list[str]:
    """The parts of the asker's scope that are set and not the record's: what lies behind them is not to be told."""
    asked, theirs = where.scope.as_dict(), record.scope.as_dict()
    return [part for part in theirs if asked.get(part, theirs[part]) != theirs[part] and not where.any_scope]


def _of_moment(record: Record, where: Filter) -> Iterator[Obstacle]:
    moment = where.moment
    if where.as_of and record.time > moment:
        yield Obstacle("as_of", f"it is from {iso(record.time)}, after the moment asked about", {"as_of": None})
    elif where.as_of and _passed(moment, record.edited_at):
        yield Obstacle(
            "as_of", f"its text was changed on {iso(record.edited_at)}, after the moment asked about", {"as_of": None}
        )
    if not where.superseded and record.superseded_at and record.superseded_at <= moment:
        by, at = record.superseded_by, iso(record.superseded_at)
        yield Obstacle("superseded", f"superseded by {by} on {at}", {"superseded": True})
    if record.expires_at and record.expires_at <= moment:
        before = record.expires_at - timedelta(microseconds=1)
        yield Obstacle("expired", f"it expired on {iso(record.expires_at)}", {"as_of": iso(before)})


def _of_wishes(record: Record, where: Filter) -> Iterator[Obstacle]:
    if where.categories and record.category not in where.categories:
        is_ = f"is {record.category!r}" if record.category else "is not set"
        yield Obstacle("category", f"filtered by category: its own {is_}", {"category": ()})
    if where.kinds and record.kind not in where.kinds:
        yield Obstacle("kind", f"filtered by kind: it is a {record.kind}", {"kind": None})
    if missing := [tag for tag in where.tags if tag not in record.tags]:
        kept = tuple(tag for tag in where.tags if tag in record.tags)
        yield Obstacle("tag", f"filtered by tag: it has no {', '.join(map(repr, missing))}", {"tags": kept})
    if where.path is not None and (record.path is None or not below(record.path, where.path)):
        yield Obstacle("path", f"filtered by path: it is {record.path or 'of no file'}", {"path": None})
    if where.since and record.time < where.since:
        yield Obstacle("since", f"filtered by time: it is from {iso(record.time)}", {"since": None})
    if where.until and record.time >= where.until:
        yield Obstacle("until", f"filtered by time: it is from {iso(record.time)}", {"until": None})


def _passed(moment: datetime, at: datetime | None) -> bool:
    return at is not None and at > moment


Prepare: TypeAlias = Callable[[Mapping[str, Any]], tuple[Pipeline, Query]]
"""Options of `search` → the pipeline and the query they mean."""

DEEP = 1_000_000_000
"""As deep as any store: a rank is computed however far down it is."""


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


def named(store: Store, prepare: Prepare, target: str, options: Mapping[str, Any]) -> Record | Verdict:
    """The record that was meant, of a file the one nearest to the answer; a verdict where there is none to look at."""
    if not isinstance(target, str) or not target.strip():
        raise UsageError("a record is named by its id or its path", hint='why-not "query" ID_OR_PATH')
    target = clean(target)
    if found := store.records.get([target]):
        return found[0]
    if events := store.records.history(target):
        at = iso(events[-1].at)
        return Verdict(target, None, "forgotten", f"it was forgotten on {at}", advice="add it again")
    path, kind = _looked_up(target)
    chunks = store.joins.by_path([path] if kind == "file" else [path, target], EVERYTHING)
    if chunks:
        found = chunks.get(path) or chunks[target]
        if len({chunk.path for chunk in found}) > 1:
            raise UsageError(f"{target!r} could be several files", hint="name more of the path")
        return _nearest(prepare, options, found)
    if theirs := _foreign(prepare, options, target):
        return theirs
    if kind == "folder":
        raise UsageError(f"{target!r} is a folder", hint="name one file of it")
    if kind == "nothing":
        raise UsageError(
            f"no record has the id {target!r}, and there is no such file",
            hint="`recollect list` shows the ids that are there",
        )
    return Verdict(target, None, "not indexed", f"{path} is not indexed", advice=f"recollect index {shlex.quote(path)}")


def seen(store: Store, target: str, scope: Scope) -> Record:
    """The record that was meant, of those that a scope may see; whatever else there is, is not told."""
    if not isinstance(target, str) or not target.strip():
        raise UsageError("a record is named by its id or its path", hint='why-not "query" ID_OR_PATH')
    where = replace(EVERYTHING, any_scope=False, scope=scope)
    target = clean(target)
    found = store.records.get([target], where) or store.joins.by_path([target], where).get(target, [])
    if not found:
        raise UnknownRecord(target)
    return found[0]


def _looked_up(target: str) -> tuple[str, str]:
    """The whole path that a name means from here, as `index` keeps it, and what is there."""
    try:
        path = Path(target).expanduser().resolve()
        return str(path), "folder" if path.is_dir() else "file" if path.exists() else "nothing"
    except (OSError, ValueError, RuntimeError):
        return target, "nothing"


def _foreign(prepare: Prepare, options: Mapping[str, Any], target: str) -> Record | None:
    """A document of an outside source, by the id that answers give it."""
    pipeline, query = prepare(options)
    asked = tuple(source for source in pipeline.sources if target.startswith(f"{source.name}:"))
    replies = replace(pipeline, sources=asked).ask(query)
    hits = (hit.record for reply in replies for hit in reply.entries)
    return next((record for record in hits if record.id == target), None)


def _nearest(prepare: Prepare, options: Mapping[str, Any], chunks: Sequence[Record]) -> Record:
    pipeline, query = prepare(options)
    seen = [chunk for chunk in chunks if not obstacles(chunk, query.filter)]
    if len(seen) < 2:  # noqa: PLR2004  (nothing to choose from)
        return (seen or chunks)[0]
    ids = {chunk.id: chunk for chunk in seen}
    shown = (result.record.id for result in pipeline(query).results)
    if (first := next((key for key in shown if key in ids), None)) is not None:
        return ids[first]
    answered = [reply for reply in pipeline.ask(replace(query, fetch_k=DEEP)) if reply.error is None]
    fused, _ = fused_results(query, answered)
    return next((ids[result.record.id] for result in fused if result.record.id in ids), seen[0])


MOST_FETCHED, MOST_SHOWN = 100_000, 10_000
"""The largest `fetch_k` and `limit` that the settings take."""

TRIES = 12
PATIENCE = 4
WEIGHTS = {"keyword": "text_weight", "vector": "vector_weight", "hyde": "hyde_weight"}
LOCAL = OURS
ROUNDING = 10_000
"""Thresholds are advised to four places."""


@dataclass(frozen=True, slots=True)
class Look:
    """One run of the query with an eye on the record."""

    stage: str
    reason: str
    change: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    advice: str = ""
    replies: Sequence[RankedList] = ()


def why_not(
    store: Store, prepare: Prepare, target: str, options: Mapping[str, Any], *, caller: Scope | None = None
) -> Verdict:
    """The stage that lost the record or file named, and the smallest change found that brings it back.

    A scoped `caller` learns only of what that scope may see.
    """
    options = _in_parts(options)
    record = named(store, prepare, target, options) if caller is None else seen(store, target, caller)
    if isinstance(record, Verdict):
        return record
    first = look(prepare, options, record)
    pipeline, query = prepare(options)
    places = {} if obstacles(record, query.filter) else ranks(pipeline, query, record, first.replies)
    shown = None if foreign_parts(record, query.filter) else record
    verdict = Verdict(target, shown, first.stage, first.reason, first.rank, places, advice=first.advice)
    if first.stage == "found":
        return verdict
    stale = _stale(store, record)
    if stale and not obstacles(record, query.filter):
        is_ = "has changed" if stale == "changed" else "is missing"
        reason = f"the file {is_} since it was indexed; as it was then, {first.reason}"
        place = Path(str(record.path)) if stale == "changed" else _folder(str(record.path))
        return replace(verdict, stage=stale, reason=reason, advice=f"recollect index {shlex.quote(str(place))}")
    change = _mended(prepare, options, record, first)
    return replace(verdict, change={**options, **change} if change and "where" in options else change)


def _folder(path: str) -> Path:
    """The nearest folder above a path that is still there: indexing that takes the path out."""
    return next(folder for folder in Path(path).parents if folder.is_dir())


def _in_parts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options in which a filter is given part by part, so that a part of it can be changed."""
    where: Filter | None = options.get("where")
    if where is None:
        return options
    kind = where.kinds[0] if len(where.kinds) == 1 else None
    parts = {
        "scope": where.scope, "category": where.categories, "tags": where.tags, "kind": kind, "path": where.path,
        "since": where.since, "until": where.until, "as_of": where.as_of, "superseded": where.superseded,
        "any_scope": where.any_scope,
    }  # fmt: skip
    return {**options, "where": None, **parts}


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
    place = _same(query, fused, record)
    if place is None:
        seen = _beyond(pipeline, query, record, replies)
    else:
        seen = _follow(pipeline, query, fused, fused[place].record)
        if fused[place].record.id != record.id:
            seen = _duplicate(fused[place], place, seen)
    return replace(seen, replies=replies)


def ranks(pipeline: Pipeline, query: Query, record: Record, replies: Sequence[RankedList]) -> dict[str, Place]:
    """Every source's rank of the record. Ours are read as deep as allowed; an outside one has answered already."""
    deepest = _at_most(DEEP, query)
    deep = replace(query, fetch_k=deepest, deadline=None)
    ours = replace(pipeline, sources=tuple(source for source in pipeline.sources if source.name in LOCAL))
    places = {reply.source: _place(reply, record, query.depth, deepest) for reply in ours.ask(deep)}
    outside = [reply for reply in replies if reply.source not in LOCAL]
    places |= {reply.source: _place(reply, record, len(reply.entries)) for reply in outside}
    return places | {name: Place(None, None, 0, reason) for name, reason in pipeline.absent}


def _at_most(number: int, query: Query) -> int:
    """The number, or the depth that the query's limits allow where that is less."""
    deepest = query.work.deepest if query.work else None
    return number if deepest is None else min(number, deepest)


def _place(reply: RankedList, record: Record, depth: int, deepest: int = DEEP) -> Place:
    if reply.error is not None:
        return Place(None, None, depth, f"did not answer: {reason(reply.error)}")
    mark = fold_hash(record.text)
    for rank, hit in enumerate(reply.entries, 1):
        if hit.record.id == record.id:
            return Place(rank, hit.score, depth)
        if hit.text_hash == mark:
            return Place(rank, hit.score, depth, f"as its duplicate {hit.record.id}")
    if len(reply.entries) >= deepest:
        return Place(None, None, depth, _too_deep(deepest))
    return Place(None, None, depth, _absence(reply, record))


def _too_deep(deepest: int) -> str:
    return f"beyond rank {deepest:,}"


def _absence(reply: RankedList, record: Record) -> str:
    """Why a source that answered does not have the record."""
    if reply.source not in LOCAL:
        return "not in its list"
    if record.kind == "outside":
        return "searches this store, which does not hold it"
    if not reply.entries and reply.warnings:
        return reply.warnings[0]
    return "shares no word with the query" if reply.source == "keyword" else "has no vector yet"


def _follow(pipeline: Pipeline, query: Query, results: Sequence[Result], record: Record) -> Look:
    """The record through the stages, until one drops it."""
    for name, stage in pipeline.stages:
        query.check()
        before, results = results, stage(query, results)
        if _position(results, record) is None:
            # What a stage adds to a result and drops it for must be seen to be told.
            before = stage(_lenient(query), before) if name == "confidence" else before
            return _lost(name, query, before, results, record)
    rank = (_position(results, record) or 0) + 1
    return Look("found", f"it is in the answer, at rank {rank}", rank=rank)


def _lenient(query: Query) -> Query:
    """The same query, content with any confidence."""
    return replace(query, ranking=replace(query.ranking, confidence=True, min_confidence=0.0))


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
    wanted = {"limit": place + 1} if place < _at_most(MOST_SHOWN, query) else {}
    return Look("limit", f"at rank {place + 1}, beyond the limit of {query.limit}", wanted)


def _beyond(pipeline: Pipeline, query: Query, record: Record, replies: Sequence[RankedList]) -> Look:
    """No source has it within its depth; this is how deep they would have to be read."""
    places = ranks(pipeline, query, record, replies)
    words = "; ".join(
        f"{name} rank {place.rank} beyond fetch_k {place.fetch_k}"
        if place.rank and name in LOCAL and place.rank > place.fetch_k
        else f"{name} {place.note or f'rank {place.rank}'}"
        for name, place in places.items()
    )
    heard = {reply.source for reply in replies if reply.error is None}
    unread = {reply.source for reply in replies if reply.trust == 0 and places[reply.source].rank}
    light = {name for name in heard if query.ranking.weights.get(name, 1.0) == 0 and places[name].rank}
    deep = [place.rank for name, place in places.items() if place.rank and name in heard - light - unread]
    if light and not deep:
        change = {WEIGHTS[name]: 1.0 for name in sorted(light) if name in WEIGHTS}
        return Look("weight", f"only a source of weight 0 has it: {words}", change)
    if unread and not deep:
        reason = (
            f"only {' and '.join(sorted(unread))} has it, which does not read this language and is left out: {words}"
        )
        return Look("trust", reason, {"sources": sorted(unread)})
    deepest = _at_most(DEEP, query)
    if not deep and any(place.note == _too_deep(deepest) for place in places.values()):
        advice = f"ask with words that stand in it; only the owner of the store may read deeper than {deepest:,}"
        return Look("fetch_k", words, advice=advice)
    if not deep:
        return Look("unmatched", f"no source finds it: {words}", advice="ask with words that stand in it")
    change = {"fetch_k": min(deep)} if min(deep) <= MOST_FETCHED else {}
    return Look("fetch_k", words, change)


def _duplicate(survivor: Result, place: int, seen: Look) -> Look:
    other = survivor.record.id
    shown = seen.stage == "found"
    return Look(
        "duplicate",
        f"folded into its duplicate {other}, which has the same text and stands at rank {place + 1} after fusion",
        advice=f"nothing is lost: {other} stands for it" if shown else f"ask why-not {other}: {seen.reason}",
    )


def _mended(prepare: Prepare, options: Mapping[str, Any], record: Record, seen: Look) -> dict[str, Any]:
    """Mend each loss in turn; what does not end with the record in the answer is no change to advise."""
    change: dict[str, Any] = {}
    deepest = _at_most(DEEP, prepare(options)[1])
    for attempt in range(TRIES):
        if seen.stage == "found":
            return change
        if not seen.change or seen.change.items() <= change.items():
            break
        change |= _further(seen.change, deepest) if attempt >= PATIENCE else seen.change
        seen = look(prepare, {**options, **change}, record)
    return change if seen.stage == "found" else {}


def _further(change: Mapping[str, Any], deepest: int) -> dict[str, Any]:
    """A limit that reads deeper moves the record on: after some steps, leap."""
    most = {"limit": min(MOST_SHOWN, deepest), "fetch_k": min(MOST_FETCHED, deepest)}
    return {name: min(most[name], 4 * value) if name in most else value for name, value in change.items()}


def _stale(store: Store, record: Record) -> str:
    """`changed` or `missing`, where the record's file is no longer as it was indexed."""
    if record.path is None:
        return ""
    mark = freshness(record.path, store.files.states([record.path]).get(record.path))
    return mark if mark in ("changed", "missing") else ""


def _same(query: Query, results: Sequence[Result], record: Record) -> int | None:
    """Where the record is, or the one that stands for its text."""
    place = _position(results, record)
    if place is not None:
        return place
    mark = fold_hash(record.text)
    for i, result in enumerate(results):
        query.check()
        if fold_hash(result.record.text) == mark:
            return i
    return None


def _position(results: Sequence[Result], record: Record) -> int | None:
    return next((i for i, result in enumerate(results) if result.record.id == record.id), None)


def _just_below(value: float) -> float:
    below = math.floor(value * ROUNDING)
    return (below if below / ROUNDING <= value else below - 1) / ROUNDING
