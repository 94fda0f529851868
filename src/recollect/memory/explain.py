"""Explain why a record is missing: run the query again, follow the record, report the stage that dropped it.

The advised change has been tried: each cause is removed in turn and the query run again, until the record is found.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from recollect.config.sources import RETRIEVERS
from recollect.errors import UnknownRecord, UsageError
from recollect.memory.shapes import iso
from recollect.memory.validation import clean
from recollect.options import FILTERS
from recollect.pipeline import CUTS, Pipeline, all_failed, fused_results, reason
from recollect.sources.matcher import below
from recollect.stages import freshness
from recollect.types import EVERYTHING, Filter, Query, RankedList, Record, Result, Scope, Store

Prepare: TypeAlias = Callable[[Mapping[str, Any]], tuple[Pipeline, Query]]
"""Changed options of the request → the pipeline and the query with these changes."""

MOST_FETCHED, MOST_SHOWN = 100_000, 10_000
"""The largest `fetch_k` and `limit` that the settings accept."""

DEEP = 1_000_000_000
"""Deeper than any store: a rank is computed however far down it is."""

TRIES = 12
PATIENT_TRIES = 4
"""After so many tries, `limit` and `fetch_k` grow faster than asked for."""

WEIGHTS = {"keyword": "text_weight", "vector": "vector_weight", "hyde": "hyde_weight"}
ROUNDING = 10_000
"""Thresholds are advised to four decimal places."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A source's rank of the record, however deep, and the depth it is read to; or a note why it has none."""

    rank: int | None
    score: float | None
    fetch_k: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a record is missing. `stage` is `found` if it is in the answer, at `rank`.

    `change` holds the options of `search` that bring it back, after a trial; `advice` is for people.
    """

    target: str
    record: Record | None
    stage: str
    reason: str
    rank: int | None = None
    places: Mapping[str, Placement] = field(default_factory=dict)
    change: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What one run of the query did with the record: the stage that dropped it, and the options that would not."""

    stage: str
    reason: str
    change: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    advice: str = ""
    replies: Sequence[RankedList] = ()


def why_not(
    store: Store, prepare: Prepare, target: str, options: Mapping[str, Any], *, caller: Scope | None = None
) -> Verdict:
    """The stage that dropped a record, named by id or path, and the smallest change found that brings it back.

    `options` is the caller's filter in single parts if it was given as a whole, so that a change can replace it;
    otherwise empty. A scoped `caller` learns only of records that it may see.
    """
    record = resolve(store, prepare, target, options) if caller is None else visible(store, target, caller)
    if isinstance(record, Verdict):
        return record
    first = trial(prepare, options, record)
    pipeline, query = prepare(options)
    hidden = obstacles(record, query.filter)
    places = {} if hidden else placements(pipeline, query, record, first.replies)
    shown = None if foreign_parts(record, query.filter) else record
    verdict = Verdict(target, shown, first.stage, first.reason, first.rank, places, advice=first.advice)
    if first.stage == "found":
        return verdict
    stale = _staleness(store, record)
    if stale and not hidden:
        state = "has changed" if stale == "changed" else "is missing"
        reason = f"the file {state} since it was indexed; as it was then, {first.reason}"
        path = Path(str(record.path)) if stale == "changed" else _nearest_folder(str(record.path))
        return replace(verdict, stage=stale, reason=reason, advice=f"recollect index {shlex.quote(str(path))}")
    change = _working_change(prepare, options, record, first)
    return replace(verdict, change={"where": None, **options, **change} if change and options else change)


def filter_parts(where: Filter) -> dict[str, Any]:
    """A filter as single arguments of `Memory.search`."""
    kind = where.kinds[0] if len(where.kinds) == 1 else None
    parts = {option.name: getattr(where, option.column or option.name) for option in FILTERS}
    return {"scope": where.scope, **parts, "kind": kind}


# -- which record is meant ----------------------------------------------------------------------------------


def resolve(store: Store, prepare: Prepare, target: str, options: Mapping[str, Any]) -> Record | Verdict:
    """The record with this id; for a path, its chunk nearest to the answer; a verdict if there is no such record."""
    target = _checked_target(target)
    if records := store.records.get([target]):
        return records[0]
    if events := store.records.history(target):
        at = iso(events[-1].at)
        return Verdict(target, None, "forgotten", f"it was forgotten on {at}", advice="add it again")
    path, kind = _resolved_path(target)
    by_path = store.joins.by_path([path] if kind == "file" else [path, target], EVERYTHING)
    if by_path:
        chunks = by_path.get(path) or by_path[target]
        if len({chunk.path for chunk in chunks}) > 1:
            raise UsageError(f"{target!r} could be several files", hint="name more of the path")
        return _best_chunk(prepare, options, chunks)
    if external := _external_document(prepare, options, target):
        return external
    if kind == "folder":
        raise UsageError(f"{target!r} is a folder", hint="name one of its files")
    if kind == "nothing":
        raise UsageError(
            f"no record has the id {target!r}, and there is no such file", hint="`recollect list` shows the ids"
        )
    return Verdict(target, None, "not indexed", f"{path} is not indexed", advice=f"recollect index {shlex.quote(path)}")


def visible(store: Store, target: str, caller: Scope) -> Record:
    """The record that a scoped caller means; `UnknownRecord` if there is none that it may see."""
    target = _checked_target(target)
    where = replace(EVERYTHING, any_scope=False, scope=caller)
    for record in store.records.get([target], where) or store.joins.by_path([target], where).get(target, []):
        return record
    raise UnknownRecord(target)


def _checked_target(target: str) -> str:
    if not isinstance(target, str) or not target.strip():
        raise UsageError("name a record by its id or its path", hint='why-not "query" ID_OR_PATH')
    return clean(target)


def _resolved_path(target: str) -> tuple[str, str]:
    """The absolute path of a name, as `index` stores it, and what is there."""
    try:
        path = Path(target).expanduser().resolve()
        return str(path), "folder" if path.is_dir() else "file" if path.exists() else "nothing"
    except (OSError, ValueError, RuntimeError):
        return target, "nothing"


def _external_document(prepare: Prepare, options: Mapping[str, Any], target: str) -> Record | None:
    """A document of an external source, by the id that answers give it."""
    pipeline, query = prepare(options)
    sources = tuple(source for source in pipeline.sources if target.startswith(f"{source.name}:"))
    replies = replace(pipeline, sources=sources).ask(query)
    records = (hit.record for reply in replies for hit in reply.entries)
    return next((record for record in records if record.id == target), None)


def _best_chunk(prepare: Prepare, options: Mapping[str, Any], chunks: Sequence[Record]) -> Record:
    """The chunk of a file that ranks best for the query."""
    pipeline, query = prepare(options)
    candidates = {chunk.id: chunk for chunk in chunks if not obstacles(chunk, query.filter)}
    if not candidates:
        return chunks[0]
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    for result in pipeline(query).results:
        if result.record.id in candidates:
            return candidates[result.record.id]
    answered = [reply for reply in pipeline.ask(replace(query, fetch_k=DEEP)) if reply.error is None]
    fused, _ = fused_results(query, answered)
    ranked = (candidates[result.record.id] for result in fused if result.record.id in candidates)
    return next(ranked, next(iter(candidates.values())))


# -- the filter ---------------------------------------------------------------------------------------------


def obstacles(record: Record, where: Filter) -> list[RunOutcome]:
    """Every part of the filter that hides the record; empty if it is visible."""
    by_scope = list(_scope_obstacles(record, where))
    if foreign_parts(record, where):
        return by_scope  # other reasons would reveal what the record is
    return [*by_scope, *_time_obstacles(record, where), *_condition_obstacles(record, where)]


def foreign_parts(record: Record, where: Filter) -> list[str]:
    """The parts of the query's scope that name somebody other than the record's: nothing of it may be revealed."""
    ours, theirs = where.scope.as_dict(), record.scope.as_dict()
    return [part for part in theirs if ours.get(part, theirs[part]) != theirs[part] and not where.any_scope]


def _scope_obstacles(record: Record, where: Filter) -> Iterator[RunOutcome]:
    if where.any_scope or where.scope.admits(record.scope):
        return
    if others := foreign_parts(record, where):
        yield RunOutcome("scope", f"out of scope: it belongs to another {' and another '.join(others)}")
        return
    missing = {part: name for part, name in record.scope.as_dict().items() if part not in where.scope.as_dict()}
    owner = " and ".join(f"{part} {name!r}" for part, name in missing.items())
    yield RunOutcome("scope", f"out of scope: it belongs to {owner}, which the query does not name", missing)


def _time_obstacles(record: Record, where: Filter) -> Iterator[RunOutcome]:
    moment = where.moment
    if where.as_of and record.time > moment:
        yield RunOutcome("as_of", f"it is from {iso(record.time)}, after `as_of`", {"as_of": None})
    elif where.as_of and record.edited_at is not None and record.edited_at > moment:
        yield RunOutcome("as_of", f"its text was changed on {iso(record.edited_at)}, after `as_of`", {"as_of": None})
    if not where.superseded and record.superseded_at and record.superseded_at <= moment:
        by, at = record.superseded_by, iso(record.superseded_at)
        yield RunOutcome("superseded", f"superseded by {by} on {at}", {"superseded": True})
    if record.expires_at and record.expires_at <= moment:
        before = record.expires_at - timedelta(microseconds=1)
        yield RunOutcome("expired", f"it expired on {iso(record.expires_at)}", {"as_of": iso(before)})


def _condition_obstacles(record: Record, where: Filter) -> Iterator[RunOutcome]:
    if where.categories and record.category not in where.categories:
        is_ = f"is {record.category!r}" if record.category else "is not set"
        yield RunOutcome("category", f"filtered by category: its own {is_}", {"category": ()})
    if where.kinds and record.kind not in where.kinds:
        yield RunOutcome("kind", f"filtered by kind: it is a {record.kind}", {"kind": None})
    if missing := [tag for tag in where.tags if tag not in record.tags]:
        present = tuple(tag for tag in where.tags if tag in record.tags)
        yield RunOutcome("tag", f"filtered by tag: it has no {', '.join(map(repr, missing))}", {"tags": present})
    if where.path is not None and (record.path is None or not below(record.path, where.path)):
        yield RunOutcome("path", f"filtered by path: it is {record.path or 'of no file'}", {"path": None})
    if where.since and record.time < where.since:
        yield RunOutcome("since", f"filtered by time: it is from {iso(record.time)}", {"since": None})
    if where.until and record.time >= where.until:
        yield RunOutcome("until", f"filtered by time: it is from {iso(record.time)}", {"until": None})


# -- sources and stages -------------------------------------------------------------------------------------


def trial(prepare: Prepare, options: Mapping[str, Any], record: Record) -> RunOutcome:
    """Run the query and follow the record: where it is dropped, or its rank."""
    pipeline, query = prepare(options)
    if hidden := obstacles(record, query.filter):
        change = {name: value for obstacle in hidden for name, value in obstacle.change.items()}
        return RunOutcome(hidden[0].stage, "; ".join(obstacle.reason for obstacle in hidden), change)
    replies = pipeline.ask(query)
    answered = [reply for reply in replies if reply.error is None]
    if not answered:
        raise all_failed(replies, pipeline.absent)
    fused, _ = fused_results(query, answered)
    index = _index_of_text(query, fused, record)
    if index is None:
        outcome = _unranked(pipeline, query, record, replies)
    else:
        outcome = _through_stages(pipeline, query, fused, fused[index].record)
        if fused[index].record.id != record.id:
            outcome = _as_duplicate(fused[index], index, outcome)
    return replace(outcome, replies=replies)


def placements(pipeline: Pipeline, query: Query, record: Record, replies: Sequence[RankedList]) -> dict[str, Placement]:
    """Every source's rank of the record. Retrievers are read as deep as allowed; external replies are used again."""
    deepest = _allowed(DEEP, query)
    deep = replace(query, fetch_k=deepest, deadline=None)
    retrievers = replace(pipeline, sources=tuple(source for source in pipeline.sources if source.name in RETRIEVERS))
    places = {reply.source: _placement(reply, record, query.depth, deepest) for reply in retrievers.ask(deep)}
    external = [reply for reply in replies if reply.source not in RETRIEVERS]
    places |= {reply.source: _placement(reply, record, len(reply.entries)) for reply in external}
    return places | {name: Placement(None, None, 0, reason) for name, reason in pipeline.absent}


def _allowed(number: int, query: Query) -> int:
    """The number, or the depth that the query's limits allow if that is less."""
    deepest = query.work.deepest if query.work else None
    return number if deepest is None else min(number, deepest)


def _placement(reply: RankedList, record: Record, depth: int, deepest: int = DEEP) -> Placement:
    if reply.error is not None:
        return Placement(None, None, depth, f"did not answer: {reason(reply.error)}")
    text_hash = record.text_hash
    for rank, hit in enumerate(reply.entries, 1):
        if hit.record.id == record.id:
            return Placement(rank, hit.score, depth)
        if hit.text_hash == text_hash:
            return Placement(rank, hit.score, depth, f"as its duplicate {hit.record.id}")
    if len(reply.entries) >= deepest:
        return Placement(None, None, depth, _too_deep(deepest))
    return Placement(None, None, depth, _absence(reply, record))


def _too_deep(deepest: int) -> str:
    return f"beyond rank {deepest:,}"


def _absence(reply: RankedList, record: Record) -> str:
    """Why a source that answered does not have the record."""
    if reply.source not in RETRIEVERS:
        return "not in its list"
    if record.kind == "outside":
        return "searches this store, which does not hold it"
    if not reply.entries and reply.warnings:
        return reply.warnings[0]
    return "shares no word with the query" if reply.source == "keyword" else "has no vector yet"


def _through_stages(pipeline: Pipeline, query: Query, results: Sequence[Result], record: Record) -> RunOutcome:
    """Follow the record through the stages until one drops it."""
    for name, stage in pipeline.stages:
        query.check()
        before, results = results, stage(query, results)
        if _index_of(results, record) is None:
            # Only with any confidence accepted does the stage show the confidence for which it drops the result.
            before = stage(_accepting_any_confidence(query), before) if name == "confidence" else before
            return _dropped(name, query, before, results, record)
    rank = (_index_of(results, record) or 0) + 1
    return RunOutcome("found", f"it is in the answer, at rank {rank}", rank=rank)


def _accepting_any_confidence(query: Query) -> Query:
    return replace(query, ranking=replace(query.ranking, confidence=True, min_confidence=0.0))


def _dropped(name: str, query: Query, before: Sequence[Result], after: Sequence[Result], record: Record) -> RunOutcome:
    index = _index_of(before, record) or 0
    result, ranking = before[index], query.ranking
    if name == "threshold":
        short = ranking.min_score - result.score
        reason = f"below the threshold by {short:.2g}: it scores {result.score:.4f}, min_score is {ranking.min_score:g}"
        return RunOutcome(name, reason, {"min_score": _just_below(result.score)})
    if name == "confidence":
        confidence = result.confidence or 0.0
        reason = f"its confidence is {confidence:.4f}, min_confidence is {ranking.min_confidence:g}"
        return RunOutcome(name, reason, {"min_confidence": _just_below(confidence)})
    if name == "mmr" and index < query.limit:
        rival = next(other for other in after if (_index_of(before, other.record) or 0) > index)
        reason = (
            f"displaced by MMR in favour of {rival.record.id}, which says something new; by relevance it is at rank"
        )
        return RunOutcome(name, f"{reason} {index + 1}", {"mmr": False})
    if name not in CUTS:
        return RunOutcome(name, f"dropped by the stage {name}, before which it is at rank {index + 1}")
    change = {"limit": index + 1} if index < _allowed(MOST_SHOWN, query) else {}
    return RunOutcome("limit", f"at rank {index + 1}, beyond the limit of {query.limit}", change)


def _unranked(pipeline: Pipeline, query: Query, record: Record, replies: Sequence[RankedList]) -> RunOutcome:
    """No source returned it within its depth; the outcome says how deep they would have to be read."""
    places = placements(pipeline, query, record, replies)
    words = "; ".join(
        f"{name} rank {place.rank} beyond fetch_k {place.fetch_k}"
        if place.rank and name in RETRIEVERS and place.rank > place.fetch_k
        else f"{name} {place.note or f'rank {place.rank}'}"
        for name, place in places.items()
    )
    answered = {reply.source for reply in replies if reply.error is None}
    untrusted = {reply.source for reply in replies if reply.trust == 0 and places[reply.source].rank}
    weightless = {name for name in answered if query.weights.get(name, 1.0) == 0 and places[name].rank}
    ranks = [place.rank for name, place in places.items() if place.rank and name in answered - weightless - untrusted]
    if ranks:
        return RunOutcome("fetch_k", words, {"fetch_k": min(ranks)} if min(ranks) <= MOST_FETCHED else {})
    if weightless:
        change = {WEIGHTS[name]: 1.0 for name in sorted(weightless) if name in WEIGHTS}
        return RunOutcome("weight", f"only a source of weight 0 has it: {words}", change)
    if untrusted:
        names = " and ".join(sorted(untrusted))
        reason = f"only {names} has it, which does not read this language and is left out: {words}"
        return RunOutcome("trust", reason, {"sources": sorted(untrusted)})
    deepest = _allowed(DEEP, query)
    if any(place.note == _too_deep(deepest) for place in places.values()):
        advice = f"use words that occur in it; only the owner of the store may read deeper than {deepest:,}"
        return RunOutcome("fetch_k", words, advice=advice)
    return RunOutcome("unmatched", f"no source finds it: {words}", advice="use words that occur in it")


def _as_duplicate(survivor: Result, index: int, outcome: RunOutcome) -> RunOutcome:
    other = survivor.record.id
    found = outcome.stage == "found"
    return RunOutcome(
        "duplicate",
        f"merged with its duplicate {other}, which has the same text and is at rank {index + 1} after fusion",
        advice=f"nothing is lost: {other} is shown instead" if found else f"ask why-not {other}: {outcome.reason}",
    )


# -- the change that works ----------------------------------------------------------------------------------


def _working_change(
    prepare: Prepare, options: Mapping[str, Any], record: Record, outcome: RunOutcome
) -> dict[str, Any]:
    """The options that bring the record back, found by trying; empty if no trial ends with the record found."""
    change: dict[str, Any] = {}
    deepest = _allowed(DEEP, prepare(options)[1])
    for attempt in range(TRIES):
        if outcome.stage == "found":
            return change
        if not outcome.change or outcome.change.items() <= change.items():
            break
        change |= _larger(outcome.change, deepest) if attempt >= PATIENT_TRIES else outcome.change
        outcome = trial(prepare, {**options, **change}, record)
    return change if outcome.stage == "found" else {}


def _larger(change: Mapping[str, Any], deepest: int) -> dict[str, Any]:
    """A larger step: a larger limit reads deeper, which can move the record further down."""
    most = {"limit": min(MOST_SHOWN, deepest), "fetch_k": min(MOST_FETCHED, deepest)}
    return {name: min(most[name], 4 * value) if name in most else value for name, value in change.items()}


def _staleness(store: Store, record: Record) -> str:
    """`changed` or `missing` if the record's file is no longer as it was indexed, else empty."""
    if record.path is None:
        return ""
    state = freshness(record.path, store.files.states([record.path]).get(record.path))
    return state if state in ("changed", "missing") else ""


def _nearest_folder(path: str) -> Path:
    """The nearest existing folder above a missing file: indexing that folder removes the file."""
    return next(folder for folder in Path(path).parents if folder.is_dir())


def _index_of_text(query: Query, results: Sequence[Result], record: Record) -> int | None:
    """The index of the record, or of the duplicate that is shown for its text."""
    index = _index_of(results, record)
    if index is not None:
        return index
    text_hash = record.text_hash
    for i, result in enumerate(results):
        query.check()
        if result.record.text_hash == text_hash:
            return i
    return None


def _index_of(results: Sequence[Result], record: Record) -> int | None:
    return next((i for i, result in enumerate(results) if result.record.id == record.id), None)


def _just_below(value: float) -> float:
    steps = math.floor(value * ROUNDING)
    return (steps if steps / ROUNDING <= value else steps - 1) / ROUNDING
