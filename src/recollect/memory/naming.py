"""Which record is meant by an id, a path or the name of an outside document, and what is said where there is none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from recollect.errors import UnknownRecord, UsageError
from recollect.memory.obstacles import obstacles
from recollect.memory.parsing import clean
from recollect.memory.shape import iso
from recollect.pipeline import Pipeline, fused_results
from recollect.types import EVERYTHING, Query, Record, Scope, Store

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
    hits = (hit.record for reply in replies for hit in reply.found.hits)
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
