"""Records and answers as JSON: one shape for the command line, HTTP and MCP. Fields may be added, never renamed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.fusion import METHODS
from recollect.types import Answer, Event, Record, Result, Trace

if TYPE_CHECKING:
    from recollect.memory.explain import Verdict
    from recollect.memory.recall import Recall


def record_dict(record: Record) -> dict[str, Any]:
    """A record; what is not set is left out, but for the fields that readers count on."""
    optional = {
        "importance": record.importance if record.importance != Record("", "").importance else None,
        "decay": record.decay,
        "happened_at": iso(record.happened_at),
        "expires_at": iso(record.expires_at),
        "edited_at": iso(record.edited_at),
        "superseded_by": record.superseded_by,
        "superseded_at": iso(record.superseded_at),
        "source": record.source,
        "path": record.path,
        "lines": list(record.lines) if record.lines else None,
    }
    return {
        "id": record.id,
        "kind": record.kind,
        "text": record.text,
        "title": record.title,
        "scope": record.scope.as_dict(),
        "category": record.category,
        "tags": list(record.tags),
        "created_at": iso(record.created_at),
        **{name: value for name, value in optional.items() if value is not None},
    }


def answer_dict(answer: Answer, *, explain: bool = False) -> dict[str, Any]:
    """An answer; with `explain`, each result's factors and the stages too."""
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
    """A block for a model's context; of a citation, what is not set is left out."""
    return {
        "query": recall.query,
        "text": recall.text,
        "tokens": recall.tokens,
        "citations": [
            {"number": citation.number, "id": citation.id, "title": citation.title}
            | ({"path": citation.path} if citation.path else {})
            | ({"lines": list(citation.lines)} if citation.lines else {})
            | ({"freshness": citation.freshness} if citation.freshness else {})
            for citation in recall.citations
        ],
        "left_out": recall.left_out,
        "warnings": list(recall.warnings),
    }


def verdict_dict(query: str, verdict: Verdict) -> dict[str, Any]:
    """What `why-not` found."""
    return {
        "query": query,
        "target": verdict.target,
        "stage": verdict.stage,
        "reason": verdict.reason,
        "rank": verdict.rank,
        "sources": {
            name: {"rank": place.rank, "score": place.score, "fetch_k": place.fetch_k}
            | ({"note": place.note} if place.note else {})
            for name, place in verdict.places.items()
        },
        "change": dict(verdict.change),
        "advice": verdict.advice,
        "record": record_dict(verdict.record) if verdict.record else None,
    }


def event_dict(event: Event) -> dict[str, Any]:
    """One line of history."""
    return {
        "seq": event.seq,
        "id": event.id,
        "action": event.action,
        "at": iso(event.at),
        "detail": dict(event.detail),
    }


def iso(at: datetime | None) -> str | None:
    """A time in ISO 8601, UTC."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _result_dicts(answer: Answer, explain: bool) -> Iterator[dict[str, Any]]:
    for rank, result in enumerate(answer.results, 1):
        answer.query.check()  # the snippet of a long text takes time
        yield _result_dict(rank, result, explain)


def _result_dict(rank: int, result: Result, explain: bool) -> dict[str, Any]:
    record = record_dict(result.record)
    head = {name: record.pop(name) for name in ("id", "kind", "text", "title")}
    explained = (
        {
            "base": result.base,
            "factors": dict(result.factors),
            "moves": {stage: {"from": old, "to": new} for stage, (old, new) in result.moves.items()},
            "total": result.total,
        }
        if explain
        else {}
    )
    return {
        **head,
        "snippet": result.snippet,
        "rank": rank,
        "score": result.score,
        "fused": result.fused,
        "similarity": result.similarity,
        **({} if result.confidence is None else {"confidence": result.confidence}),
        "sources": {
            name: {"rank": share.rank, "score": share.score, "contribution": share.contribution}
            for name, share in result.shares.items()
        },
        "in_keyword": "keyword" in result.shares,
        "in_semantic": bool({"vector", "hyde"} & result.shares.keys()),
        **explained,
        **record,
        **({"freshness": result.freshness} if result.freshness else {}),
    }


def _trace_dict(trace: Trace) -> dict[str, Any]:
    return {
        "took_ms": trace.took_ms,
        "grade": trace.grade,
        "mode": trace.mode,
        "sources": [
            {"name": source.name, "status": source.status, "hits": source.hits, "took_ms": source.took_ms}
            | ({"reason": source.reason} if source.reason else {})
            | ({"trust": source.trust} if source.trust < 1 else {})
            for source in trace.sources
        ],
        "filtered": dict(trace.filtered),
        "lag": dict(trace.lag),
        "stages": [
            {"name": stage.name, "in": stage.given, "out": stage.left, "took_ms": stage.took_ms}
            for stage in trace.stages
        ],
        "warnings": list(trace.warnings),
        **({"abstained": trace.abstained} if trace.abstained else {}),
    }


FOUND_CHARACTERS = 4_000
"""Of a text in a list of results; `memory_get` has all of it."""

READ_CHARACTERS = 40_000
"""Of a text that is read; the rest is read from `next_offset` on."""


def bounded(record: dict[str, Any], most: int = FOUND_CHARACTERS, offset: int = 0) -> dict[str, Any]:
    """A record as JSON with no more text than that; where it was cut, how much there is and where to read on."""
    text, title = record["text"], record["title"]
    if len(text) <= most and not offset and len(title) <= most:
        return record
    cut = {**record, "text": text[offset : offset + most], "title": title[:most], "text_chars": len(text)}
    return cut | ({"next_offset": offset + most} if offset + most < len(text) else {})
