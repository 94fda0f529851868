"""The JSON of HTTP answers as types, for the OpenAPI document; `recollect.memory.schema` has those shared with MCP."""

from __future__ import annotations

import json
from typing import Any, NotRequired

from starlette.responses import Response
from typing_extensions import TypedDict

from recollect.memory.schema import HistoryEvent, SourceHealth, StoredRecord, extensible


class Json(Response):
    """JSON as it was made: its shape is checked by tests, not again on every answer. Bytes are JSON already."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200) -> None:
        super().__init__(content if isinstance(content, bytes) else encoded(content), status_code)


def encoded(content: Any) -> bytes:
    """The JSON of some content."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def documented(model: Any, status: int = 200) -> dict[str, Any]:
    """What a route's decorator is told of its answer."""
    return {"response_model": None, "status_code": status, "responses": {status: {"model": model}}}


class RecordList(TypedDict):
    """Records, newest first."""

    records: list[StoredRecord]
    limit: int
    offset: int


class Changed(TypedDict):
    """What was done to a record: `add`, `update`, `supersedes`, `forget` or `nothing`; `seq` is for `/v1/undo`."""

    id: str
    seq: int
    action: str


class ChangedRecord(StoredRecord):
    """A record as it stands after a change."""

    change: Changed


class ForgottenRecords(TypedDict):
    """What is not found any more."""

    forgotten: list[str]
    changes: list[Changed]


class Undone(TypedDict):
    """What was taken back, and the record as it stands now."""

    undone: str
    record: StoredRecord | None


class HistoryAnswer(TypedDict):
    """All that happened to a record, and the chain of supersession it stands in, oldest first."""

    id: str
    events: list[HistoryEvent]
    chain: list[str]


class FileAnswer(TypedDict):
    """A file open at a chunk."""

    path: str
    first_line: int
    text: str
    lines: list[int]
    total_lines: int
    freshness: str


class ChangesAnswer(TypedDict):
    """How far changes have come that the caller sees, as a number, and whether that is another than they knew."""

    seq: int
    changed: bool


class Facets(TypedDict):
    """What can be filtered by."""

    categories: list[str]
    tags: list[str]
    scopes: list[dict[str, str]]
    roots: list[str]
    sources: list[str]


class CallerAnswer(TypedDict):
    """Who asks."""

    name: str
    scope: dict[str, str]
    owner: bool
    read_only: bool


class SettingsAnswer(TypedDict):
    """What a search is answered with where nothing is said, and who asks."""

    search: dict[str, Any]
    controls: dict[str, Any]
    vectors: bool
    caller: CallerAnswer
    version: str


@extensible
class JobAnswer(TypedDict):
    """The last run of indexing, or the one under way."""

    state: str
    paths: list[str]
    done: int
    total: int
    report: dict[str, Any] | None
    error: dict[str, Any] | None
    started_at: str | None
    took_ms: float | None


@extensible
class StatusAnswer(TypedDict):
    """What the store holds, how current it is, how its parts and this server are doing."""

    records: dict[str, int]
    vectors: dict[str, Any]
    scope: dict[str, str]
    sources: list[SourceHealth]
    latency: NotRequired[dict[str, Any]]
    index: NotRequired[JobAnswer]
    uptime_s: float
    version: str


class Health(TypedDict):
    """That it is there."""

    status: str
