"""Search, recall and why-not; and single records: list, add, read, edit, supersede, forget, undo, history, file."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response

from recollect.analysis import matching_words
from recollect.errors import Forbidden
from recollect.memory import Memory
from recollect.memory.originals import Excerpt
from recollect.memory.payloads import MOST_NAME, RecallBlock, RelatedAnswer, SearchAnswer, StoredRecord, VerdictAnswer
from recollect.memory.recall import recall
from recollect.memory.related import MOST_SIMILAR, chain
from recollect.memory.resemblance import resembling
from recollect.memory.shapes import (
    answer_dict,
    bounded,
    event_dict,
    recall_dict,
    record_dict,
    record_dicts,
    verdict_dict,
)
from recollect.models.embedders import SERVICES
from recollect.options import SCOPE_PARTS, SIMILAR
from recollect.types import Event, Record, Trace, Work, now
from recollect.web import inputs
from recollect.web.access import CallerMemory
from recollect.web.inputs import Owns, Reads, ScopeBody, ScopeParameters, SearchBody, Writes
from recollect.web.rendering import code_nodes, nodes, turn_nodes
from recollect.web.responses import Changed, ChangedRecord, Json, documented, encoded, model
from recollect.web.workers import DEEPEST, limits

LIGHT_RESULTS, LIGHT_DEPTH, LIGHT_CHARACTERS = 100, 200, 10_000
"""A search within these limits, or within those of the settings, is not a heavy request."""

LIGHT_LISTED = 200  # a longer list is a heavy request
ROLLED_BACK = 100  # records of each kind that the answer to a rollback shows; all are counted
OTHERS = ("query", "explain", "tokens", "target")  # fields of bodies that are no options of `Memory.search`

PDF, BYTES = "application/pdf", {"type": "string", "format": "binary"}
INERT = {"Content-Disposition": "inline", "Content-Security-Policy": "sandbox; default-src 'none'"}
"""Headers of a file that anybody may have written: as a document of its own it has no origin, and can load nothing."""

search_router = APIRouter(tags=["search"])


@search_router.post("/v1/search", **documented(SearchAnswer))
async def search(body: SearchBody, asker: Reads, request: Request) -> Json:
    """Search: the best results first, with the rank that each source gave."""
    return await _answered(request, asker, body, _searched, body.query, body.set_fields(*OTHERS), body.explain)


@search_router.post("/v1/recall", **documented(RecallBlock))
async def recall_(body: inputs.RecallBody, asker: Reads, request: Request) -> Json:
    """The results of a query as one fenced block for a model's context, with citations."""
    return await _answered(request, asker, body, _recalled, body.query, body.set_fields(*OTHERS), body.tokens)


@search_router.post("/v1/why-not", **documented(VerdictAnswer))
async def why_not(body: inputs.WhyNotBody, asker: Reads, request: Request) -> Json:
    """Why a record is missing from the results, and what would bring it back."""
    _refuse_costly(asker, body)
    arguments = body.query, body.target, body.set_fields(*OTHERS)
    return Json(await request.app.state.lanes.run(request, asker, _explained, *arguments))


async def _answered(
    request: Request,
    asker: CallerMemory,
    body: SearchBody,
    function: Callable[..., tuple[bytes, Trace]],
    *arguments: Any,
) -> Json:
    """The result of a function of a search: at once if it is light, else in a queue."""
    _refuse_costly(asker, body)
    usual = asker.memory.settings.search
    short = (body.limit or 0) <= max(LIGHT_RESULTS, usual.limit) and len(body.query) <= LIGHT_CHARACTERS
    if short and (body.fetch_k or 0) <= max(LIGHT_DEPTH, usual.fetch_k):
        light = to_thread.run_sync if _waits(asker, body) else partial(request.app.state.searches.run, asker.caller)
        content, trace = await light(_bounded, limits(asker.caller), function, asker.memory, *arguments)
    else:
        content, trace = await request.app.state.lanes.run(request, asker, function, *arguments)
    request.app.state.metrics.saw_search(trace)
    return Json(content)


def _waits(asker: CallerMemory, body: SearchBody) -> bool:
    """Whether a search waits for others, or computes for seconds: it then gets a thread of its own."""
    settings = asker.memory.settings
    named = {name: getattr(body, name) for name in ("hyde", "rerank")}
    chosen = {name: getattr(settings.search, name) if value is None else value for name, value in named.items()}
    reranks = isinstance(body, inputs.RecallBody) and chosen["rerank"] is None
    return reranks or any(chosen.values()) or bool(settings.sources) or settings.embedder.partition(":")[0] in SERVICES


def _bounded(make: Callable[[], Work], function: Callable[..., Any], memory: Memory, *arguments: Any) -> Any:
    """The result of a function whose time begins now, not while its request waited."""
    return function(memory, make(), *arguments)


def _searched(memory: Memory, work: Work, query: str, options: dict[str, Any], explain: bool) -> tuple[bytes, Trace]:
    answer = memory.search(query, work=work, **options)
    document = answer_dict(answer, explain=explain)
    results = document["results"] = [bounded(result) for result in document["results"]]
    if explain:
        texts = " ".join(f"{result['title']} {result['snippet']} {result['text']}" for result in results)
        words = " ".join(dict.fromkeys(texts.split()))  # each once: half the time
        document["matched"] = sorted(matching_words(words, query, memory.store.keywords.analyzer))
    return encoded(document), answer.trace


def _recalled(memory: Memory, work: Work, query: str, options: dict[str, Any], tokens: int) -> tuple[bytes, Trace]:
    answer = memory.search(query, work=work, for_model=True, **options)
    return encoded(recall_dict(recall(answer, tokens=tokens))), answer.trace


def _explained(memory: Memory, work: Work, query: str, target: str, options: dict[str, Any]) -> bytes:
    """The verdict; the change that brings the record back has the fields of a request, with `scope` as one field."""
    verdict = verdict_dict(query, memory.why_not(query, target, work=work, **options))
    change = verdict["change"]
    if parts := {part: change.pop(part) for part in SCOPE_PARTS if part in change}:
        change["scope"] = {**options.get("scope", {}), **parts}
    return encoded({**verdict, "record": bounded(verdict["record"]) if verdict["record"] else None})


def _refuse_costly(asker: CallerMemory, body: SearchBody) -> None:
    """Options that send the query elsewhere or fetch a model are for the owner only."""
    if asker.caller.owner:
        return
    for name in ("hyde", "rerank"):
        if getattr(body, name) and not getattr(asker.memory.settings.search, name):
            raise Forbidden(f"only the owner may switch on {name}", hint=f"leave out `{name}`")
    if (body.fetch_k or 0) > DEEPEST:
        raise Forbidden(f"only the owner may read sources deeper than {DEEPEST:,}", hint="a smaller `fetch_k`")


class _Anything(PathConvertor):
    """The rest of the path: an id may contain slashes and even line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _Anything())

router = APIRouter(tags=["records"])

_SIMILAR = "Look for an earlier fact that the new one nearly repeats or contradicts."
_ID = "The id or short id of a record; may hold slashes."
RecordId = Annotated[str, Path(min_length=1, max_length=MOST_NAME, description=_ID)]
ImageName = Annotated[str, Query(min_length=1, max_length=MOST_NAME, description="Its path, from the note's folder.")]


def _in_scope(asker: CallerMemory, scope: ScopeBody | ScopeParameters | None) -> Memory:
    named = scope.set_fields() if scope else {}
    return asker.memory.scoped(named) if named else asker.memory


def _named(asker: Reads, scope: Annotated[ScopeParameters, Query()]) -> Memory:
    return _in_scope(asker, scope)


Named = Annotated[Memory, Depends(_named)]  # the memory that the parameters `user`, `agent` and `session` name


@router.get("/v1/records", **documented(model("RecordList", records=list[StoredRecord], limit=int, offset=int)))
async def list_records(asker: Reads, request: Request, parameters: Annotated[inputs.ListParameters, Query()]) -> Json:
    """Records, newest first."""
    arguments = parameters.limit, parameters.offset, parameters.set_fields("limit", "offset")
    if parameters.limit <= LIGHT_LISTED:
        return Json(await to_thread.run_sync(_listed, asker.memory, Work(), *arguments))
    return Json(await request.app.state.lanes.run(request, asker, _listed, *arguments))


def _listed(memory: Memory, work: Work, limit: int, offset: int, filters: dict[str, Any]) -> bytes:
    records = memory.list(limit=limit, offset=offset, **filters)
    work.check()
    return encoded({"records": list(map(bounded, record_dicts(records))), "limit": limit, "offset": offset})


@router.post("/v1/records", **documented(ChangedRecord, 201))
def add_record(
    body: inputs.NewRecord, asker: Writes, similar: Annotated[bool, Query(description=_SIMILAR)] = False
) -> Json:
    """Add a record. The same text in the same scope is one record: adding it again updates it.

    If another fact has contradicted it since, a new record supersedes it instead. With `similar=true` the answer also
    has, as `similar`, an earlier fact that the new one nearly repeats or contradicts; `/v1/supersede` can replace it.
    """
    began = now()
    fields = body.set_fields("text", "supersedes")
    record = asker.memory.add(body.text, supersedes=body.supersedes, **fields)
    other = resembling(asker.memory, record) if similar else None
    return _changed(asker.memory, record, began, 201, **({"similar": other.as_dict()} if other else {}))


@router.get("/v1/records/{id:anything}", **documented(StoredRecord))
def get_record(id: RecordId, memory: Named) -> Json:  # noqa: A002  (the word of the JSON)
    """One record in full."""
    return Json(record_dict(memory.require(id)))


@router.patch("/v1/records/{id:anything}", **documented(ChangedRecord))
def edit_record(id: RecordId, body: inputs.Edited, asker: Writes, memory: Named) -> Json:  # noqa: A002, ARG001
    """Edit a fact in place. The old version stays in its history."""
    began = now()
    return _changed(memory, memory.edit(id, **body.model_dump(exclude_unset=True)), began)


_FORGOTTEN = documented(model("ForgottenRecords", forgotten=list[str], changes=list[Changed]))


@router.delete("/v1/records/{id:anything}", **_FORGOTTEN)
def delete_record(id: RecordId, asker: Writes, memory: Named) -> Json:  # noqa: A002, ARG001  (it checks the caller)
    """Forget a record; `/v1/undo` restores it."""
    return _forgotten(memory, [id])


@router.post("/v1/forget", **_FORGOTTEN)
def forget(body: inputs.Forgetting, asker: Writes) -> Json:
    """Forget records: all of them, or none if one is unknown."""
    return _forgotten(_in_scope(asker, body.scope), body.ids)


_ROLLBACK = dict.fromkeys(("forgotten", "reverted", "restored"), list[StoredRecord])


@router.post("/v1/rollback", **documented(model("RollbackAnswer", done=bool, counts=dict[str, int], **_ROLLBACK)))
async def roll_back(body: inputs.RollingBack, asker: Writes, request: Request) -> Json:
    """Forget the facts of some writers and bring back what they replaced; without `confirm`, only say what."""
    scope = body.scope.set_fields() if body.scope else {}
    filters = body.set_fields("confirm", "scope")
    return Json(await request.app.state.lanes.run(request, asker, _rolled_back, scope, filters, body.confirm))


def _rolled_back(memory: Memory, work: Work, scope: dict[str, str], filters: dict[str, Any], confirm: bool) -> bytes:
    """The counts, and the first records of each kind."""
    work.check()
    rollback = (memory.scoped(scope) if scope else memory).roll_back(**filters, confirm=confirm)
    kinds = {name: getattr(rollback, name) for name in _ROLLBACK}
    counts = {name: len(records) for name, records in kinds.items()}
    first = {name: [bounded(record_dict(one)) for one in records[:ROLLED_BACK]] for name, records in kinds.items()}
    return encoded({"done": rollback.done, "counts": counts, **first})


@router.post("/v1/supersede", **documented(ChangedRecord))
def supersede(body: inputs.Supersession, asker: Writes) -> Json:
    """Supersede a record by a new text or another record; returns the new record."""
    began, memory = now(), _in_scope(asker, body.scope).written_by(body.author, origin=body.origin)
    return _changed(memory, memory.supersede(body.id, body.by, text=body.text, at=body.at), began)


@router.post("/v1/undo", **documented(model("Undone", undone=str, record=StoredRecord | None, forgotten=list[str])))
def undo(body: inputs.Undoing, asker: Writes) -> Json:
    """Undo the last change to a record: that it was added, edited, superseded or forgotten."""
    undone, record, forgotten = _in_scope(asker, body.scope).undo_details(body.id, seq=body.seq)
    return Json({"undone": undone, "record": record_dict(record) if record else None, "forgotten": forgotten})


_HISTORY = model("HistoryAnswer", id=str, events=list[Event], chain=list[str])


@router.get("/v1/history/{id:anything}", **documented(_HISTORY))
def get_history(id: RecordId, memory: Named) -> Json:  # noqa: A002
    """The history of a record, and its chain of supersession."""
    key = memory.resolve(id)
    events = [event_dict(event) for event in memory.history(key)]
    record = memory.get(key)
    return Json({"id": key, "events": events, "chain": chain(memory, record) if record else [key]})


@router.get("/v1/file/{id:anything}", **documented(Excerpt))
def get_file(id: RecordId, memory: Named) -> Json:  # noqa: A002
    """The current lines of a chunk's file."""
    return Json(asdict(memory.excerpt(id)))


@router.get("/v1/pdf/{id:anything}", response_class=Response, responses={200: {"content": {PDF: {"schema": BYTES}}}})
def get_pdf(id: RecordId, memory: Named) -> Response:  # noqa: A002
    """The PDF file of a chunk, to be opened at its page: `#page=12`."""
    return Response(memory.pdf(id), media_type=PDF, headers=INERT)


_READING = model("Reading", id=str, path=str | None, lines=list[int] | None, freshness=str | None, nodes=list[Any])


@router.get("/v1/reading/{id:anything}", **documented(_READING))
async def get_reading(id: RecordId, asker: Reads, memory: Named, request: Request) -> Json:  # noqa: A002
    """A record to read: its Markdown as nested lists, with what is around it in its file or conversation."""
    return Json(await request.app.state.searches.run(asker.caller, _read, memory, id))


def _read(memory: Memory, record_id: str) -> bytes:
    record = memory.require(record_id)
    freshness, lines = None, record.lines if record.path else None
    if record.kind == "turn":
        content, lines = turn_nodes(memory.conversation(record.id).turns, record.id)
    elif lines:
        around = memory.excerpt(record_id)
        freshness, text, first = around.freshness, around.text, around.first_line
        content = nodes(text, first, around=lines[0]) if record.is_markdown else code_nodes(text, first)
    else:
        content = nodes(record.text)
    return encoded({"id": record.id, "path": record.path, "lines": lines, "freshness": freshness, "nodes": content})


@router.get("/v1/related/{id:anything}", **documented(RelatedAnswer))
async def get_related(
    id: RecordId,  # noqa: A002
    asker: Reads,
    memory: Named,
    request: Request,
    limit: Annotated[int, Query(ge=0, le=MOST_SIMILAR, description="How many similar notes.")] = SIMILAR,
) -> Json:
    """The notes that a record or a file links to, those that link to it, and similar ones. A file is named by path."""
    run = request.app.state.searches.run
    return Json(await run(asker.caller, _bounded, limits(asker.caller), _related, memory, id, limit))


def _related(memory: Memory, work: Work, target: str, limit: int) -> bytes:
    return encoded(memory.related(target, limit=limit, work=work).as_dict())


@router.get("/v1/image/{id:anything}", **documented(model("Image", media_type=str, base64=str)))
def get_image(id: RecordId, asker: Owns, memory: Named, name: ImageName) -> Json:  # noqa: A002, ARG001
    """An image that an indexed note shows, from the folder that was indexed."""
    content, kind = memory.image(id, name)
    return Json({"media_type": kind, "base64": b64encode(content).decode("ascii")})


def _forgotten(memory: Memory, ids: list[str]) -> Json:
    began = now()
    forgotten = memory.forget(*ids)
    return Json({"forgotten": forgotten, "changes": [_change(memory, key, began) for key in forgotten]})


def _changed(memory: Memory, record: Record, began: datetime, status: int = 200, **more: Any) -> Json:
    """The record now, and the number of the change for `/v1/undo`."""
    # The owner reads it back in the record's own scope: behind row-level security it is seen in no other.
    side = memory if memory.caller is not None else memory.scoped(record.scope)
    return Json({**record_dict(record), "change": _change(side, record.id, began), **more}, status)


def _change(memory: Memory, key: str, began: datetime) -> dict[str, Any]:
    last = memory.history(key)[-1]
    return {"id": key, "seq": last.seq, "action": last.action if last.at >= began else "nothing"}
