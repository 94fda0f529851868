"""Records, answers and histories as JSON, the same for the command line, HTTP and MCP.

`payloads` describes it as types. Fields may be added, never renamed or removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.fusion import METHODS
from recollect.types import Answer, Event, Record, Result, Trace

if TYPE_CHECKING:
    from recollect.memory.explain import Verdict
    from recollect.memory.recall import Recall

FOUND_CHARACTERS = 4_000
"""Characters of a text in a list of results; `memory_get` returns all of it."""

READ_CHARACTERS = 40_000
"""Characters of a text that one read returns; the rest is read from `next_offset` on."""

DEFAULT_IMPORTANCE = Record("", "").importance


def record_dict(record: Record) -> dict[str, Any]:
    """The JSON of a record."""
    return {
        "id": record.id,
        "kind": record.kind,
        "text": record.text,
        "title": record.title,
        "scope": record.scope.as_dict(),
        "category": record.category,
        "tags": list(record.tags),
        "created_at": iso(record.created_at),
        **_set_fields(
            importance=record.importance if record.importance != DEFAULT_IMPORTANCE else None,
            decay=record.decay,
            happened_at=iso(record.happened_at),
            expires_at=iso(record.expires_at),
            edited_at=iso(record.edited_at),
            superseded_by=record.superseded_by,
            superseded_at=iso(record.superseded_at),
            source=record.source,
            path=record.path,
            lines=list(record.lines) if record.lines else None,
        ),
    }


def bounded(record: dict[str, Any], most: int = FOUND_CHARACTERS, offset: int = 0) -> dict[str, Any]:
    """The JSON of a record with at most so many characters of its text; if it was cut, where to read on."""
    text, title = record["text"], record["title"]
    if len(text) <= most and not offset and len(title) <= most:
        return record
    cut = {**record, "text": text[offset : offset + most], "title": title[:most], "text_chars": len(text)}
    return cut | ({"next_offset": offset + most} if offset + most < len(text) else {})


def answer_dict(answer: Answer, *, explain: bool = False) -> dict[str, Any]:
    """The JSON of an answer; with `explain`, also how each score was computed."""
    ranking = answer.query.ranking
    fusion: dict[str, Any] = {"method": ranking.fusion}
    reads = METHODS[ranking.fusion].reads
    if "rrf_k" in reads:
        fusion["k"] = int(ranking.rrf_k) if ranking.rrf_k.is_integer() else ranking.rrf_k
    if "normalisation" in reads:
        fusion["normalisation"] = ranking.normalisation
    return {
        "query": answer.query.text,
        "fusion": {**fusion, "weights": dict(answer.query.weights), "fetch_k": answer.query.fetch_k},
        "results": list(_result_dicts(answer, explain)),
        "trace": _trace_dict(answer.trace),
    }


def recall_dict(recall: Recall) -> dict[str, Any]:
    """The JSON of a recall block."""
    citations = [
        {
            **_picked(citation, "number", "id", "title"),
            **_set_fields(
                path=citation.path or None,
                lines=list(citation.lines) if citation.lines else None,
                freshness=citation.freshness or None,
            ),
        }
        for citation in recall.citations
    ]
    return {
        **_picked(recall, "query", "text", "tokens"),
        "citations": citations,
        "left_out": recall.left_out,
        "warnings": list(recall.warnings),
    }


def verdict_dict(query: str, verdict: Verdict) -> dict[str, Any]:
    """The JSON of what `why_not` returns."""
    return {
        "query": query,
        **_picked(verdict, "target", "stage", "reason", "rank"),
        "sources": {
            name: {**_picked(place, "rank", "score", "fetch_k"), **_set_fields(note=place.note or None)}
            for name, place in verdict.places.items()
        },
        "change": dict(verdict.change),
        "advice": verdict.advice,
        "record": record_dict(verdict.record) if verdict.record else None,
    }


def event_dict(event: Event) -> dict[str, Any]:
    """The JSON of one change in a history."""
    return {**_picked(event, "seq", "id", "action"), "at": iso(event.at), "detail": dict(event.detail)}


def iso(at: datetime | None) -> str | None:
    """A time in ISO 8601, UTC."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _picked(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _set_fields(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _result_dicts(answer: Answer, explain: bool) -> Iterator[dict[str, Any]]:
    for rank, result in enumerate(answer.results, 1):
        answer.query.check()  # the snippet of a long text takes time
        yield _result_dict(rank, result, explain)


def _result_dict(rank: int, result: Result, explain: bool) -> dict[str, Any]:
    record = record_dict(result.record)
    head = {name: record.pop(name) for name in ("id", "kind", "text", "title")}
    shares = result.shares
    explanation = {
        "base": result.base,
        "factors": dict(result.factors),
        "moves": {stage: {"from": old, "to": new} for stage, (old, new) in result.moves.items()},
        "total": result.total,
    }
    return {
        **head,
        "snippet": result.snippet,
        "rank": rank,
        **_picked(result, "score", "fused", "similarity"),
        **_set_fields(confidence=result.confidence),
        "sources": {name: _picked(share, "rank", "score", "contribution") for name, share in shares.items()},
        "in_keyword": "keyword" in shares,
        "in_semantic": bool({"vector", "hyde"} & shares.keys()),
        **(explanation if explain else {}),
        **record,
        **_set_fields(freshness=result.freshness or None),
    }


def _trace_dict(trace: Trace) -> dict[str, Any]:
    return {
        **_picked(trace, "took_ms", "grade", "mode"),
        "sources": [
            {
                **_picked(source, "name", "status", "hits", "took_ms"),
                **_set_fields(reason=source.reason or None, trust=source.trust if source.trust < 1 else None),
            }
            for source in trace.sources
        ],
        "filtered": dict(trace.filtered),
        "lag": dict(trace.lag),
        "stages": [
            {"name": stage.name, "in": stage.given, "out": stage.left, "took_ms": stage.took_ms}
            for stage in trace.stages
        ],
        "warnings": list(trace.warnings),
        **_set_fields(abstained=trace.abstained or None),
    }
