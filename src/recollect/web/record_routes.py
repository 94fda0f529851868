"""Single records: list, add, read, edit, supersede, forget, undo, history, file."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor

from recollect.memory import Memory
from recollect.memory.history import chain
from recollect.memory.payloads import StoredRecord
from recollect.memory.shapes import bounded, event_dict, record_dict
from recollect.memory.validation import merge_scope
from recollect.types import GLOBAL, Record, Work, now
from recollect.web.access import Asker, Reads, Writes
from recollect.web.inputs import (
    MOST_NAME,
    Edited,
    Forgetting,
    ListParameters,
    Name,
    NewRecord,
    ScopeBody,
    Supersession,
    Undoing,
)
from recollect.web.responses import (
    ChangedRecord,
    FileAnswer,
    ForgottenRecords,
    HistoryAnswer,
    Json,
    RecordList,
    Undone,
    documented,
    encoded,
)
from recollect.web.workers import Lanes


class _Anything(PathConvertor):
    """The rest of the path: an id may contain slashes and even line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _Anything())

router = APIRouter(tags=["records"])

LIGHT_LISTED = 200
"""A longer list is a heavy request."""

RecordId = Annotated[str, Path(min_length=1, max_length=MOST_NAME, description="The id of a record; may hold slashes.")]
Part = Annotated[Name | None, Query()]


def _side(asker: Asker, named: dict[str, str]) -> Memory:
    """The caller's memory; the owner may name the scope of the record."""
    return asker.memory.scoped(merge_scope(GLOBAL, named, {})) if named else asker.memory


def _named(asker: Reads, user: Part = None, agent: Part = None, session: Part = None) -> Memory:
    parts = {"user": user, "agent": agent, "session": session}
    return _side(asker, {part: value for part, value in parts.items() if value})


def _told(asker: Asker, scope: ScopeBody | None) -> Memory:
    return _side(asker, scope.said() if scope else {})


Named = Annotated[Memory, Depends(_named)]
"""The memory that the parameters `user`, `agent` and `session` name."""


@router.get("/v1/records", **documented(RecordList))
async def list_records(asker: Reads, request: Request, asked: Annotated[ListParameters, Query()]) -> Json:
    """Records, newest first."""
    limit, offset, filters = asked.limit, asked.offset, asked.filters()
    if limit <= LIGHT_LISTED:
        return Json(await to_thread.run_sync(_listed, asker.memory, Work(), limit, offset, filters))
    lanes: Lanes = request.app.state.lanes
    return Json(await lanes.run(request, asker, _listed, limit, offset, filters))


@router.post("/v1/records", **documented(ChangedRecord, 201))
def add_record(body: NewRecord, asker: Writes) -> Json:
    """Add a record. The same text in the same scope is one record: adding it again updates it."""
    began = now()
    stored = asker.memory.add(body.text, supersedes=body.supersedes, **body.said("text", "supersedes"))
    return _changed(asker.memory, stored, began, 201)


@router.get("/v1/records/{id:anything}", **documented(StoredRecord))
def get_record(id: RecordId, memory: Named) -> Json:  # noqa: A002  (the word of the JSON)
    """One record in full."""
    return Json(record_dict(memory.require(id)))


@router.patch("/v1/records/{id:anything}", **documented(ChangedRecord))
def edit_record(id: RecordId, body: Edited, asker: Writes, memory: Named) -> Json:  # noqa: A002, ARG001
    """Edit a fact in place. The old version stays in its history."""
    began = now()
    return _changed(memory, memory.edit(id, **body.changes()), began)


@router.delete("/v1/records/{id:anything}", **documented(ForgottenRecords))
def delete_record(id: RecordId, asker: Writes, memory: Named) -> Json:  # noqa: A002, ARG001  (asking is the check)
    """Forget a record; `/v1/undo` restores it."""
    return _forgotten(memory, [id])


@router.post("/v1/forget", **documented(ForgottenRecords))
def forget(body: Forgetting, asker: Writes) -> Json:
    """Forget records: all of them, or none if one is unknown."""
    return _forgotten(_told(asker, body.scope), body.ids)


@router.post("/v1/supersede", **documented(ChangedRecord))
def supersede(body: Supersession, asker: Writes) -> Json:
    """Supersede a record by a new text or another record; returns the new record."""
    began, memory = now(), _told(asker, body.scope)
    return _changed(memory, memory.supersede(body.id, body.by, text=body.text, at=body.at), began)


@router.post("/v1/undo", **documented(Undone))
def undo(body: Undoing, asker: Writes) -> Json:
    """Undo the last change to a record: that it was added, edited, superseded or forgotten."""
    undone, record = _told(asker, body.scope).undo(body.id, seq=body.seq)
    return Json({"undone": undone, "record": record_dict(record) if record else None})


@router.get("/v1/history/{id:anything}", **documented(HistoryAnswer))
def get_history(id: RecordId, memory: Named) -> Json:  # noqa: A002
    """The history of a record, and its chain of supersession."""
    events = [event_dict(event) for event in memory.history(id)]
    record = memory.get(id)
    return Json({"id": id, "events": events, "chain": chain(memory, record) if record else [id]})


@router.get("/v1/file/{id:anything}", **documented(FileAnswer))
def get_file(id: RecordId, memory: Named) -> Json:  # noqa: A002
    """The current lines of a chunk's file."""
    found = memory.excerpt(id)
    return Json(
        {
            "path": found.path, "first_line": found.first_line, "text": found.text, "lines": list(found.lines),
            "total_lines": found.total_lines, "freshness": found.freshness,
        }
    )  # fmt: skip


def _listed(memory: Memory, work: Work, limit: int, offset: int, filters: dict[str, Any]) -> bytes:
    found = memory.list(limit=limit, offset=offset, **filters)
    work.check()
    return encoded({"records": [bounded(record_dict(one)) for one in found], "limit": limit, "offset": offset})


def _forgotten(memory: Memory, ids: list[str]) -> Json:
    once = list(dict.fromkeys(ids))
    began = now()
    memory.forget(*once)
    return Json({"forgotten": once, "changes": [_change(memory, key, began) for key in once]})


def _changed(memory: Memory, record: Record, began: datetime, status: int = 200) -> Json:
    """The record now, and the number of the change for `/v1/undo`.

    The owner reads it back in the record's own scope: behind row-level security it is seen in no other.
    """
    side = memory if memory.caller is not None else memory.scoped(record.scope)
    return Json({**record_dict(record), "change": _change(side, record.id, began)}, status)


def _change(memory: Memory, key: str, began: datetime) -> dict[str, Any]:
    last = memory.history(key)[-1]
    return {"id": key, "seq": last.seq, "action": last.action if last.at >= began else "nothing"}
