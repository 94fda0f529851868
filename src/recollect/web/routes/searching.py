"""Questions: search, recall, why-not."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from recollect.errors import Forbidden
from recollect.mcp import outputs
from recollect.memory.bounds import bounded
from recollect.memory.parsing import SCOPE_PARTS
from recollect.memory.recall import recall
from recollect.memory.shape import answer_dict, recall_dict, verdict_dict
from recollect.types import Answer
from recollect.web.access import Asker, Reads
from recollect.web.answers import Json, VerdictAnswer, documented
from recollect.web.inputs import RecallBody, SearchBody, WhyNotBody

router = APIRouter(tags=["search"])

DEEPEST = 1_000
"""How deep one who is not the owner may have a source read: what comes after grows with its square."""


@router.post("/v1/search", **documented(outputs.SearchAnswer))
def search(body: SearchBody, asker: Reads, request: Request) -> Json:
    """Find what answers a question, best first, with the rank that each source gave."""
    answer = answer_dict(_answer(request, asker, body, body.options()), explain=body.explain)
    return Json({**answer, "results": [bounded(result) for result in answer["results"]]})


@router.post("/v1/recall", **documented(outputs.RecallBlock))
def recall_(body: RecallBody, asker: Reads, request: Request) -> Json:
    """What is known about a question, as one fenced block for a model's context, with citations."""
    answer = _answer(request, asker, body, body.options("tokens"))
    return Json(recall_dict(recall(answer, tokens=body.tokens)))


@router.post("/v1/why-not", **documented(VerdictAnswer))
def why_not(body: WhyNotBody, asker: Reads) -> Json:
    """Why a record is or is not in an answer, and what would bring it back."""
    _refuse_costly(asker, body)
    verdict = asker.memory.why_not(body.query, body.target, **body.options("target"))
    told = verdict_dict(body.query, verdict)
    change = _as_body(told["change"], body)
    return Json({**told, "change": change, "record": bounded(told["record"]) if told["record"] else None})


def _answer(request: Request, asker: Asker, body: SearchBody, options: dict[str, Any]) -> Answer:
    _refuse_costly(asker, body)
    answer = asker.memory.search(body.query, **options)
    request.app.state.metrics.saw_search(answer)
    return answer


def _as_body(change: dict[str, Any], body: SearchBody) -> dict[str, Any]:
    """What would bring a record back, as the fields of a request: there a scope is one of them, not three."""
    parts = {part: change[part] for part in SCOPE_PARTS if part in change}
    if not parts:
        return change
    rest = {name: value for name, value in change.items() if name not in parts}
    return {**rest, "scope": {**(body.scope.said() if body.scope else {}), **parts}}


def _refuse_costly(asker: Asker, body: SearchBody) -> None:
    """A language model costs its owner money and is told the question, a reranker may have to be fetched first."""
    if asker.caller.owner:
        return
    for name, asked in (("hyde", body.hyde), ("rerank", body.rerank)):
        if asked and not getattr(asker.memory.settings.search, name):
            raise Forbidden(f"only the owner may switch on {name}", hint=f"leave out `{name}`")
    if (body.fetch_k or 0) > DEEPEST:
        raise Forbidden(f"only the owner may read sources deeper than {DEEPEST:,}", hint="a smaller `fetch_k`")
