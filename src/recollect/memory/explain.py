"""Explain why a record is missing: run the query again, follow the record, report the stage that dropped it.

The advised change has been tried: each cause is removed in turn and the query run again, until the record is found.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from recollect.analysis import Analyzer
from recollect.config.sources import RETRIEVERS
from recollect.disk import at_home
from recollect.errors import UnknownRecord, UsageError
from recollect.memory.memory import Memory
from recollect.memory.shapes import iso
from recollect.memory.validation import WRITER_FIELDS
from recollect.options import FILTERS
from recollect.pipeline import CUTS, Pipeline, reason
from recollect.querylang import contained, missing, parse
from recollect.ranking import clean
from recollect.sources.matcher import below
from recollect.stages import freshness
from recollect.types import EVERYTHING, Candidate, Filter, Query, RankedList, RankedRows, Record, Scope, Store, Work

MOST_FETCHED, MOST_SHOWN = 100_000, 10_000  # the largest `fetch_k` and `limit` that the settings accept
DEEP = 1_000_000_000  # deeper than any store: a rank is computed however far down it is
TRIES, PATIENT_TRIES = 12, 4  # after so many patient tries, `limit` and `fetch_k` grow faster than needed
WEIGHTS = {"keyword": "text_weight", "vector": "vector_weight", "hyde": "hyde_weight"}
MOST_NAMED = 3  # forgotten chunks of one file
ROUNDING = 10_000  # thresholds are advised to four decimal places


@dataclass(frozen=True, slots=True)
class Placement:
    """A source's rank of the record, however deep, and the depth it is read to; or a note why it has none."""

    rank: int | None
    score: float | None
    fetch_k: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a record is missing: `stage` dropped it, or is `found` if it is in the answer, at `rank`.

    `change` holds the options of `search` that bring it back, after a trial; `advice` is for people.
    """

    stage: str
    reason: str
    change: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    advice: str = ""
    target: str = ""
    record: Record | None = None
    places: Mapping[str, Placement] = field(default_factory=dict)


def why_not(memory: Memory, text: str, target: str, options: Mapping[str, Any], work: Work | None) -> Verdict:
    """The stage that dropped a record, named by id or path, and the smallest change found that brings it back.

    `options` are those of `Memory.search`. A scoped caller learns only of records that it may see.
    """
    where = memory.prepare(text, work=work, **options)[1].filter
    parts: dict[str, Any] = {}
    if options.get("where") is not None:  # the filter in single parts, so that a change can replace one of them
        parts = {option.name: getattr(where, option.column or option.name) for option in FILTERS}
        parts |= {"where": None, "scope": where.scope, "kind": where.kinds[0] if len(where.kinds) == 1 else None}

    def prepare(**change: Any) -> tuple[Pipeline, Query]:
        return memory.scoped(where.scope).prepare(text, work=work, **{**options, **parts, **change})

    if not isinstance(target, str) or not target.strip():
        raise UsageError("name a record by its id or its path", hint='why-not "query" ID_OR_PATH')
    target, store, caller = clean(target), memory.store.within(where.scope), memory.caller
    view = memory.scoped(where.scope)
    record = _resolved(view, store, *prepare(), target) if caller is None else _visible(view, store, target, caller)
    if isinstance(record, Verdict):
        return replace(record, target=target)
    run = QueryRun(*prepare(), record, store.keywords.analyzer)
    first = run.follow()
    places = {} if run.hidden else run.placements
    shown = None if foreign_parts(record, run.query.filter) else record
    verdict = replace(first, target=target, record=shown, places=places, change={})
    if first.stage == "found":
        return verdict
    path = record.path or ""
    file = store.files.states([path]).get(path) if path else None
    stale = freshness(path, file) if path else ""
    if stale in ("changed", "missing") and not run.hidden:
        state = "has changed" if stale == "changed" else "is missing"
        reason = f"the file {state} since it was indexed; as it was then, {first.reason}"
        if stale == "missing" and file and not Path(file.root).exists():
            advice = f"recollect folders remove {shlex.quote(file.root)}"
            return replace(verdict, stage=stale, reason=reason, advice=advice)
        if stale == "missing":  # indexing the nearest folder that exists removes the file
            path = str(next(folder for folder in Path(path).parents if folder.is_dir()))
        return replace(verdict, stage=stale, reason=reason, advice=f"recollect index {shlex.quote(path)}")
    change = _working_change(prepare, run, first)
    return replace(verdict, change={**parts, **change} if change else {})


def _working_change(prepare: Callable[..., tuple[Pipeline, Query]], run: QueryRun, outcome: Verdict) -> dict[str, Any]:
    """The options that bring the record back, found by trying; empty if no trial ends with the record found."""
    change: dict[str, Any] = {}
    most = {"limit": min(MOST_SHOWN, run.deepest), "fetch_k": min(MOST_FETCHED, run.deepest)}
    for attempt in range(TRIES):
        if outcome.stage == "found" or not outcome.change or outcome.change.items() <= change.items():
            break
        change |= outcome.change
        if attempt >= PATIENT_TRIES:  # a larger limit reads deeper, which can move the record further down
            change |= {name: min(most[name], 4 * value) for name, value in outcome.change.items() if name in most}
        outcome = QueryRun(*prepare(**change), run.record, run.analyzer).follow()
    return change if outcome.stage == "found" else {}


def _visible(memory: Memory, store: Store, target: str, caller: Scope) -> Record:
    """The record that a scoped caller means; `UnknownRecord` if there is none that it may see."""
    where = replace(EVERYTHING, any_scope=False, scope=caller)
    for record in store.records.get([target], where) or store.joins.by_path([target], where).get(target, []):
        return record
    for record in store.records.get([memory.resolve(target)], where):
        return record
    raise UnknownRecord(target)


def _resolved(memory: Memory, store: Store, pipeline: Pipeline, query: Query, target: str) -> Record | Verdict:
    """The record with this id; for a path, its chunk nearest to the answer; a verdict if there is no such record."""
    if records := store.records.get([target]):
        return records[0]
    if events := store.records.history(target):
        action, at = events[-1].action, iso(events[-1].at)
        advice = f"recollect undo {shlex.quote(target)}" if action != "purge" else "add it again"
        return Verdict("forgotten", f"it was {'purged' if action == 'purge' else 'forgotten'} on {at}", advice=advice)
    path, kind = target, "nothing"
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        resolved = at_home(target).resolve()  # as `index` stores it
        path, kind = str(resolved), "folder" if resolved.is_dir() else "file" if resolved.exists() else "nothing"
    by_path = store.joins.by_path([path] if kind == "file" else [path, target], EVERYTHING)
    if by_path:
        chunks = by_path.get(path) or by_path[target]
        if len({chunk.path for chunk in chunks}) > 1:
            raise UsageError(f"{target!r} could be several files", hint="name more of the path")
        return _best_chunk(pipeline, query, chunks, store.keywords.analyzer)
    # A document of an external source has the name of the source before its id.
    sources = tuple(source for source in pipeline.sources if target.startswith(f"{source.name}:"))
    for reply in replace(pipeline, sources=sources).ask(query):
        for hit in reply.entries:
            if hit.record.id == target:
                return hit.record
    if (key := memory.resolve(target)) != target:
        return _resolved(memory, store, pipeline, query, key)
    chunks = store.files.chunks(path, forgotten=True)
    chunks = [chunk for chunk in chunks if not foreign_parts(chunk, query.filter)]
    return _forgotten_file(path, chunks) if chunks else _not_indexed(store, target, path, kind)


def _forgotten_file(path: str, chunks: Sequence[Record]) -> Verdict:
    """A file of which every chunk is forgotten, and the commands that restore them."""
    undo = "; ".join(f"recollect undo {shlex.quote(chunk.id)}" for chunk in chunks[:MOST_NAMED])
    more = f"; and {len(chunks) - MOST_NAMED} more" if len(chunks) > MOST_NAMED else ""
    records = "record of it was" if len(chunks) == 1 else f"{len(chunks):,} records of it were"
    return Verdict("forgotten", f"{path} is indexed, and the {records} forgotten", advice=undo + more)


def _not_indexed(store: Store, target: str, path: str, kind: str) -> Verdict:
    """A file without a record: why `index` left it out, and what can be done."""
    from recollect.ingest.discovery import LARGER, exclusion, unfit

    if kind == "folder":
        raise UsageError(f"{target!r} is a folder", hint="name one of its files")
    if kind == "nothing":
        message = f"no record has the id {target!r}, and there is no such file"
        raise UsageError(message, hint="a search or a list shows the ids")
    command = f"recollect index {shlex.quote(path)}"
    state = store.files.states([path]).get(path)
    problem = unfit(path)
    if state and not problem and freshness(path, state) == "fresh":
        problem = state.problem or "it was read, and it has no text or its records were purged"
    if problem:
        advice = "split it into smaller files" if problem.startswith(LARGER) else f"when this has changed: {command}"
        return Verdict("not indexed", f"{path} is not indexed: {problem}", advice=advice)
    roots = {root: options or {} for root, options in store.files.roots().items() if Path(path).is_relative_to(root)}
    root = max(roots, key=len, default=str(Path(path).parent))
    cause = exclusion(path, root, **{name: roots.get(root, {}).get(name, ()) for name in ("include", "exclude")})
    left_out = f": `index` leaves it out with its folder, because {cause}" if cause else ""
    return Verdict("not indexed", f"{path} is not indexed{left_out}", advice=command)


def _best_chunk(pipeline: Pipeline, query: Query, chunks: Sequence[Record], analyzer: Analyzer) -> Record:
    """The chunk of a file that ranks best for the query: in the answer, or else however deep."""
    candidates = {chunk.id: chunk for chunk in chunks if not obstacles(chunk, query.filter, analyzer)}
    if len(candidates) > 1:
        for result in pipeline(query).results:
            if result.record.id in candidates:
                return candidates[result.record.id]
        by_text = {chunk.text_hash: chunk for chunk in reversed(candidates.values())}
        for candidate in pipeline.fused(query, pipeline.ask(replace(query, fetch_k=DEEP))):
            if candidate.fold in by_text:
                return by_text[candidate.fold]
    return next(iter(candidates.values()), chunks[0])


def foreign_parts(record: Record, where: Filter) -> list[str]:
    """The parts of the query's scope that name somebody other than the record's: nothing of it may be revealed."""
    ours, theirs = where.scope.as_dict(), record.scope.as_dict()
    return [part for part in theirs if ours.get(part, theirs[part]) != theirs[part] and not where.any_scope]


def obstacles(record: Record, where: Filter, analyzer: Analyzer) -> list[Verdict]:
    """Every part of the filter that hides the record; empty if it is visible. Excluded words need the `analyzer`."""
    if others := foreign_parts(record, where):  # other reasons would reveal what the record is
        return [Verdict("scope", f"out of scope: it belongs to another {' and another '.join(others)}")]
    hiding = [*_scope_and_time_obstacles(record, where), *_condition_obstacles(record, where)]
    return [*hiding, *_wording_obstacles(record, where, analyzer)]


def _scope_and_time_obstacles(record: Record, where: Filter) -> Iterator[Verdict]:
    if not where.any_scope and not where.scope.admits(record.scope):
        missing = {part: name for part, name in record.scope.as_dict().items() if part not in where.scope.as_dict()}
        owner = " and ".join(f"{part} {name!r}" for part, name in missing.items())
        yield Verdict("scope", f"out of scope: it belongs to {owner}, which the query does not name", missing)
    moment = where.moment
    if where.as_of and record.time > moment:
        yield Verdict("as_of", f"it is from {iso(record.time)}, after `as_of`", {"as_of": None})
    elif where.as_of and record.edited_at is not None and record.edited_at > moment:
        yield Verdict("as_of", f"its text was changed on {iso(record.edited_at)}, after `as_of`", {"as_of": None})
    if not where.superseded and record.superseded_at and record.superseded_at <= moment:
        by, at = record.superseded_by, iso(record.superseded_at)
        yield Verdict("superseded", f"superseded by {by} on {at}", {"superseded": True})
    if record.expires_at and record.expires_at <= moment:
        before = record.expires_at - timedelta(microseconds=1)
        yield Verdict("expired", f"it expired on {iso(record.expires_at)}", {"as_of": iso(before)})


def _condition_obstacles(record: Record, where: Filter) -> Iterator[Verdict]:
    if where.categories and record.category not in where.categories:
        is_ = f"is {record.category!r}" if record.category else "is not set"
        yield Verdict("category", f"filtered by category: its own {is_}", {"category": ()})
    if where.kinds and record.kind not in where.kinds:
        yield Verdict("kind", f"filtered by kind: it is a {record.kind}", {"kind": None})
    for name in WRITER_FIELDS:
        admitted, own = getattr(where, f"{name}s"), getattr(record, name)
        if admitted and own not in admitted:
            words = f"its own is {own!r}" if own else "it has none"
            yield Verdict(name, f"filtered by {name.replace('_', ' ')}: {words}", {name: ()})
    if missing := [tag for tag in where.tags if tag not in record.tags]:
        present = tuple(tag for tag in where.tags if tag in record.tags)
        yield Verdict("tag", f"filtered by tag: it has no {', '.join(map(repr, missing))}", {"tags": present})
    if where.path is not None and (record.path is None or not below(record.path, where.path)):
        yield Verdict("path", f"filtered by path: it is {record.path or 'of no file'}", {"path": None})
    if where.since and record.time < where.since:
        yield Verdict("since", f"filtered by time: it is from {iso(record.time)}", {"since": None})
    if where.until and record.time >= where.until:
        yield Verdict("until", f"filtered by time: it is from {iso(record.time)}", {"until": None})


def _wording_obstacles(record: Record, where: Filter, analyzer: Analyzer) -> Iterator[Verdict]:
    for phrase in missing(where.phrases, record.title, record.text):
        yield Verdict("phrase", f'it does not contain the phrase "{phrase}"', {"plain": True})
    for group in where.required:
        if not any(contained(group, record.title, record.text, analyzer)):
            wordings = " or ".join(map(repr, group))
            yield Verdict("required", f"it does not contain {wordings}, which the query requires", {"plain": True})
    for wording in contained(where.without, record.title, record.text, analyzer):
        yield Verdict("without", f"it contains {wording!r}, which the query excludes", {"plain": True})


# Fields of a query → the obstacles that they make, if the names differ
_STAGES = {"user": "scope", "before": "until", "after": "since"}


def _is_of_text(stage: str, query: Query) -> bool:
    """Whether an operator or a time in the text of the query made an obstacle: then a plain reading removes it."""
    parts = parse(query.written).parts
    if stage in ("since", "until") and not query.text and any(part.kind == "text" for part in parts):
        return True
    return any(stage in (part.kind, _STAGES.get(part.name, part.name)) for part in parts)


class QueryRun:
    """One run of the query, in which a record is followed. `hidden` are the parts of the filter that hide it."""

    def __init__(self, pipeline: Pipeline, query: Query, record: Record, analyzer: Analyzer) -> None:
        self.pipeline, self.query, self.record, self.analyzer = pipeline, query, record, analyzer
        self.hidden = [
            replace(each, change={"plain": True}) if query.written and _is_of_text(each.stage, query) else each
            for each in obstacles(record, query.filter, analyzer)
        ]
        deepest = query.work.deepest if query.work else None
        self.deepest = DEEP if deepest is None else deepest
        self._too_deep = f"beyond rank {self.deepest:,}"
        self._replies: Sequence[RankedList] = ()

    def follow(self) -> Verdict:
        """Run the query and follow the record: where it is dropped, or its rank."""
        if self.hidden:
            change = {name: value for obstacle in self.hidden for name, value in obstacle.change.items()}
            return Verdict(self.hidden[0].stage, "; ".join(obstacle.reason for obstacle in self.hidden), change)
        self._replies = self.pipeline.ask(self.query)
        fused = self.pipeline.fused(self.query, self._replies)
        # The record, or the duplicate that is shown for its text.
        index = next((i for i, candidate in enumerate(fused) if candidate.fold == self.record.text_hash), None)
        if index is None:
            return self._unranked()
        other = fused[index].record.id
        outcome = self._through_stages(fused, fused[index])
        if other == self.record.id:
            return outcome
        found = outcome.stage == "found"
        return Verdict(
            "duplicate",
            f"merged with its duplicate {other}, which has the same text and is at rank {index + 1} after fusion",
            advice=f"nothing is lost: {other} is shown instead" if found else f"ask why-not {other}: {outcome.reason}",
        )

    @cached_property
    def placements(self) -> dict[str, Placement]:
        """Every source's rank of the record. Retrievers are read as deep as allowed; others are not asked again."""
        deep = replace(self.query, fetch_k=self.deepest, deadline=None)
        own = tuple(source for source in self.pipeline.sources if source.name in RETRIEVERS)
        external = [reply for reply in self._replies if reply.source not in RETRIEVERS]
        replies = [*replace(self.pipeline, sources=own).ask(deep), *external]
        places = {reply.source: self._placement(reply) for reply in replies}
        return places | {name: Placement(None, None, 0, reason) for name, reason in self.pipeline.absent}

    def _placement(self, reply: RankedList) -> Placement:
        depth = self.query.depth if reply.source in RETRIEVERS else len(reply.entries)
        entries = reply.entries
        folds = entries.folds if isinstance(entries, RankedRows) else [hit.text_hash for hit in entries]
        if self.record.text_hash in folds:
            at = list(folds).index(self.record.text_hash)
            note = "" if entries[at].id == self.record.id else f"as its duplicate {entries[at].id}"
            return Placement(at + 1, entries[at].score, depth, note)
        if reply.error is not None:
            note = f"did not answer: {reason(reply.error)}"
        elif reply.source not in RETRIEVERS:
            note = "not in its list"
        elif len(reply.entries) >= self.deepest:
            note = self._too_deep
        elif self.record.kind == "outside":
            note = "searches this store, which does not hold it"
        elif not reply.entries and reply.warnings:
            note = reply.warnings[0]
        else:
            note = "shares no word with the query" if reply.source == "keyword" else "has no vector yet"
        return Placement(None, None, depth, note)

    def _through_stages(self, candidates: Sequence[Candidate], followed: Candidate, first: int = 0) -> Verdict:
        for number, (name, stage) in enumerate(self.pipeline.stages[first:], first + 1):
            self.query.check()
            before, candidates = candidates, stage(self.query, candidates)
            if followed not in candidates:
                if name == "files":
                    best = next(one for one in candidates if one.file == followed.file)
                    return self._of_file(followed, best, self._through_stages(candidates, best, number))
                return self._dropped(name, before, candidates, before.index(followed))
        rank = candidates.index(followed) + 1
        return Verdict("found", f"it is in the answer, at rank {rank}", rank=rank)

    def _of_file(self, followed: Candidate, best: Candidate, outcome: Verdict) -> Verdict:
        """The verdict on a passage whose file is represented by another one, from the outcome of that one."""
        other = best.record.id
        if outcome.stage != "found":
            return replace(outcome, reason=f"its file is represented by its best passage, {other}: {outcome.reason}")
        shown = f"its file is shown at rank {outcome.rank} with its best passage, {other}"
        if followed in best.passages:
            reason = f"{shown}, and this one is listed as a further passage"
        else:
            reason = f"{shown}; this one scores {followed.score:.4f}, less than half of that, and is not listed with it"
        return Verdict("files", reason, {"by": "chunk"})

    def _dropped(self, name: str, before: Sequence[Candidate], after: Sequence[Candidate], index: int) -> Verdict:
        result, ranking = before[index], self.query.ranking
        if name == "threshold":
            short = ranking.min_score - result.score
            reason = f"it scores {result.score:.4f}, min_score is {ranking.min_score:g}"
            change = {"min_score": _just_below(result.score)}
            return Verdict(name, f"below the threshold by {short:.2g}: {reason}", change)
        if name == "confidence":
            confidence = result.confidence or 0.0
            reason = f"its confidence is {confidence:.4f}, min_confidence is {ranking.min_confidence:g}"
            return Verdict(name, reason, {"min_confidence": _just_below(confidence)})
        if name == "mmr" and index < self.query.limit:
            rival = next(candidate for candidate in after if candidate in before[index + 1 :])
            reason = (
                f"displaced by MMR in favour of {rival.record.id}, which says something new; by relevance it is at rank"
            )
            return Verdict(name, f"{reason} {index + 1}", {"mmr": False})
        if name not in CUTS:
            return Verdict(name, f"dropped by the stage {name}, before which it is at rank {index + 1}")
        enough = {"limit": index + 1} if index < min(MOST_SHOWN, self.deepest) else {}
        return Verdict("limit", f"at rank {index + 1}, beyond the limit of {self.query.limit}", enough)

    def _unranked(self) -> Verdict:
        """No source returned it within its depth; the verdict says how deep they would have to be read."""
        places = self.placements
        words = "; ".join(
            f"{name} rank {place.rank} beyond fetch_k {place.fetch_k}"
            if place.rank and name in RETRIEVERS and place.rank > place.fetch_k
            else f"{name} {place.note or f'rank {place.rank}'}"
            for name, place in places.items()
        )
        having = [reply for reply in self._replies if places[reply.source].rank]
        untrusted = {reply.source for reply in having if reply.trust == 0}
        answered = {reply.source for reply in having if reply.error is None}
        weightless = {name for name in answered if self.query.weights.get(name, 1.0) == 0}
        if ranks := [places[name].rank or 0 for name in answered - weightless - untrusted]:
            return Verdict("fetch_k", words, {"fetch_k": min(ranks)} if min(ranks) <= MOST_FETCHED else {})
        if weightless:
            change = {WEIGHTS[name]: 1.0 for name in sorted(weightless) if name in WEIGHTS}
            return Verdict("weight", f"only a source of weight 0 has it: {words}", change)
        if untrusted:
            names = " and ".join(sorted(untrusted))
            reason = f"only {names} has it, which does not read this language and is left out: {words}"
            return Verdict("trust", reason, {"sources": sorted(untrusted)})
        if any(place.note == self._too_deep for place in places.values()):
            advice = f"use words that occur in it; only the owner of the store may read deeper than {self.deepest:,}"
            return Verdict("fetch_k", words, advice=advice)
        return Verdict("unmatched", f"no source finds it: {words}", advice="use words that occur in it")


def _just_below(value: float) -> float:
    steps = math.floor(value * ROUNDING)
    return (steps if steps / ROUNDING <= value else steps - 1) / ROUNDING
