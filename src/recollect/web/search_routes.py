"""Search, recall, why-not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request

from recollect.config import SearchOptions
from recollect.errors import Forbidden
from recollect.memory import Memory
from recollect.memory.payloads import RecallBlock, SearchAnswer, VerdictAnswer
from recollect.memory.recall import recall
from recollect.memory.shapes import answer_dict, bounded, recall_dict, verdict_dict
from recollect.options import SCOPE_PARTS
from recollect.types import Trace, Work
from recollect.web.access import Asker, Reads
from recollect.web.inputs import RecallBody, SearchBody, WhyNotBody
from recollect.web.responses import Json, documented, encoded
from recollect.web.workers import DEEPEST, Lanes, limits

router = APIRouter(tags=["search"])

LIGHT_RESULTS, LIGHT_DEPTH, LIGHT_CHARACTERS = 100, 200, 10_000
"""A search within these limits, or within those of the settings, is not a heavy request."""


@router.post("/v1/search", **documented(SearchAnswer))
async def search(body: SearchBody, asker: Reads, request: Request) -> Json:
    """Search: the best results first, with the rank that each source gave."""
    return await _answered(request, asker, body, _searched, body.query, body.options(), body.explain)


@router.post("/v1/recall", **documented(RecallBlock))
async def recall_(body: RecallBody, asker: Reads, request: Request) -> Json:
    """The results of a query as one fenced block for a model's context, with citations."""
    return await _answered(request, asker, body, _recalled, body.query, body.options("tokens"), body.tokens)


@router.post("/v1/why-not", **documented(VerdictAnswer))
async def why_not(body: WhyNotBody, asker: Reads, request: Request) -> Json:
    """Why a record is missing from the results, and what would bring it back."""
    _refuse_costly(asker, body)
    lanes: Lanes = request.app.state.lanes
    return Json(await lanes.run(request, asker, _explained, body.query, body.target, body.options("target")))


def _searched(memory: Memory, work: Work, query: str, options: dict[str, Any], explain: bool) -> tuple[bytes, Trace]:
    answer = memory.search(query, work=work, **options)
    found = answer_dict(answer, explain=explain)
    return encoded({**found, "results": [bounded(result) for result in found["results"]]}), answer.trace


def _recalled(memory: Memory, work: Work, query: str, options: dict[str, Any], tokens: int) -> tuple[bytes, Trace]:
    answer = memory.search(query, work=work, **options)
    return encoded(recall_dict(recall(answer, tokens=tokens))), answer.trace


def _explained(memory: Memory, work: Work, query: str, target: str, options: dict[str, Any]) -> bytes:
    found = verdict_dict(query, memory.why_not(query, target, work=work, **options))
    record = bounded(found["record"]) if found["record"] else None
    return encoded({**found, "change": _as_body(found["change"], options.get("scope", {})), "record": record})


async def _answered(
    request: Request, asker: Asker, body: SearchBody, function: Callable[..., tuple[bytes, Trace]], *arguments: Any
) -> Json:
    """The result of a function of a search: at once if it is light, else in a queue."""
    _refuse_costly(asker, body)
    if _is_light(body, asker.memory.settings.search):
        made = await to_thread.run_sync(function, asker.memory, limits(asker.caller), *arguments)
    else:
        lanes: Lanes = request.app.state.lanes
        made = await lanes.run(request, asker, function, *arguments)
    content, trace = made
    request.app.state.metrics.saw_search(trace)
    return Json(content)


def _is_light(body: SearchBody, settings: SearchOptions) -> bool:
    return (
        (body.limit or 0) <= max(LIGHT_RESULTS, settings.limit)
        and (body.fetch_k or 0) <= max(LIGHT_DEPTH, settings.fetch_k)
        and len(body.query) <= LIGHT_CHARACTERS
    )


def _as_body(change: dict[str, Any], scope: dict[str, str]) -> dict[str, Any]:
    """The change that brings a record back, as fields of a request, with `scope` as one field."""
    parts = {part: change[part] for part in SCOPE_PARTS if part in change}
    if not parts:
        return change
    rest = {name: value for name, value in change.items() if name not in parts}
    return {**rest, "scope": {**scope, **parts}}


def _refuse_costly(asker: Asker, body: SearchBody) -> None:
    """Options that send the query elsewhere or fetch a model are for the owner only."""
    if asker.caller.owner:
        return
    for name, asked in (("hyde", body.hyde), ("rerank", body.rerank)):
        if asked and not getattr(asker.memory.settings.search, name):
            raise Forbidden(f"only the owner may switch on {name}", hint=f"leave out `{name}`")
    if (body.fetch_k or 0) > DEEPEST:
        raise Forbidden(f"only the owner may read sources deeper than {DEEPEST:,}", hint="a smaller `fetch_k`")
