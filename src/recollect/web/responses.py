"""The JSON of HTTP answers as types, for the OpenAPI document; `memory/payloads` has those shared with MCP."""

import json
import logging
from collections.abc import Mapping
from typing import Any, NotRequired

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import create_model
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from typing_extensions import TypedDict

from recollect import errors
from recollect.dataclass import dataclass
from recollect.errors import FailedError, Forbidden, RecollectError, UsageError
from recollect.memory.payloads import SimilarFact, SourceHealth, StoredRecord, extensible
from recollect.web.access import Unauthorized


class Json(Response):
    """JSON sent without validation: tests check its shape. Bytes are JSON already."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200) -> None:
        super().__init__(content if isinstance(content, bytes) else encoded(content), status_code)


def encoded(content: Any) -> bytes:
    """The JSON of some content."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def documented(model: Any, status: int = 200) -> dict[str, Any]:
    """The arguments of a route's decorator for its answer."""
    return {"response_model": None, "status_code": status, "responses": {status: {"model": model}}}


def model(name: str, /, **fields: Any) -> Any:
    """The JSON of an answer: its fields with their types."""
    return create_model(name, **{field: (kind, ...) for field, kind in fields.items()})  # type: ignore[call-overload]


class Changed(TypedDict):
    """The change to a record: `add`, `update`, `supersedes`, `forget` or `nothing`; `seq` is for `/v1/undo`."""

    id: str
    seq: int
    action: str


class ChangedRecord(StoredRecord):
    """A record after a change; `similar` is an earlier fact that a new one nearly repeats or contradicts."""

    change: Changed
    similar: NotRequired[SimilarFact]


@dataclass(frozen=True, slots=True)
class IndexingJob:
    """The last indexing run, or the current one."""

    state: str = "idle"
    paths: tuple[str, ...] = ()
    done: int = 0
    total: int = 0
    report: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    started_at: str | None = None
    took_ms: float | None = None


@extensible
class StatusAnswer(TypedDict):
    """The content of the store, how current its indexes are, and the state of sources and server."""

    records: dict[str, int]
    vectors: dict[str, Any]
    scope: dict[str, str]
    sources: list[SourceHealth]
    latency: NotRequired[dict[str, Any]]
    index: NotRequired[IndexingJob]
    uptime_s: float
    version: str


class ForbiddenHost(Forbidden, code="forbidden_host"):
    """The request names a host that is not this server."""


class ForbiddenOrigin(Forbidden, code="forbidden_origin"):
    """The request comes from a page of another site."""


class Busy(UsageError, code="busy"):
    """The work is already running."""


class Crowded(FailedError, code="crowded"):
    """Too many callers wait already."""


STATUSES: tuple[tuple[type[RecollectError], int], ...] = (  # by kind of error; the first match decides
    (Unauthorized, 401),
    (Forbidden, 403),
    (errors.UnknownRecord, 404),
    (errors.SupersessionCycle, 409),
    (Busy, 409),
    (errors.Overtaken, 409),
    (UsageError, 400),
    (errors.TimedOut, 504),
    (errors.Cancelled, 499),  # nobody reads it; in the metrics it is no failure of the server
    (FailedError, 503),
)

_CODES = {  # the codes of errors that the framework or the middleware finds
    400: "usage", 404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large",
    415: "unsupported_media_type",
}  # fmt: skip

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}

INTERNAL = {"code": "internal", "message": "something went wrong here", "hint": "the server's log says what"}

_WORDS = {
    400: "A value is not valid.",
    401: "The token is missing or unknown.",
    403: "The caller may not do this, or the request names a foreign host or origin.",
    404: "There is no such record, or no such address.",
    408: "The request's body took too long.",
    409: "A supersession would lead in a circle, another change came first, or it is being done already.",
    413: "The request is too large.",
    415: "The body is not `application/json`.",
    422: "The request does not fit the schema.",
    503: "The request is valid, but the store, a model or another part is not available. Try again.",
    504: "The request took longer than its time limit.",
}

_ERROR = model("ErrorAnswer", error=model("ErrorBody", code=str, message=str, hint=str, request_id=str))

DOCUMENTED: dict[int | str, Any] = {status: {"model": _ERROR, "description": text} for status, text in _WORDS.items()}


def answer(error: RecollectError, request_id: str, *, owner: bool = False) -> JSONResponse:
    """A Recollect error as a response."""
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    if not owner or (isinstance(error, errors.StoreError) and "://" in error.message):
        error = logged(error, request_id)
    return body(status, request_id, _HEADERS.get(status), **error.as_dict()["error"])


def logged(error: RecollectError, request_id: str) -> RecollectError:
    """The error without the store's address; the log has it."""
    public = errors.without_place(error)
    if public is not error:
        logging.getLogger("recollect").warning("%s: %s", request_id, error.message)
    return public


def plain(error: HTTPException, request_id: str) -> JSONResponse:
    """An error of the framework as a response."""
    code, hint = _CODES.get(error.status_code, "http"), "GET /openapi.json lists the addresses"
    return body(error.status_code, request_id, error.headers, code=code, message=str(error.detail), hint=hint)


def body(status: int, request_id: str, headers: Mapping[str, str] | None = None, **error: str) -> JSONResponse:
    """Any error as a response."""
    return JSONResponse({"error": {**error, "request_id": request_id}}, status, headers=headers)


def install(app: FastAPI) -> None:
    """Install the handlers that turn every error into this JSON."""

    @app.exception_handler(RecollectError)
    def ours(request: Request, error: RecollectError) -> JSONResponse:
        return answer(error, request.state.request_id, owner=getattr(request.state, "owner", False))

    @app.exception_handler(RequestValidationError)
    def misfit(request: Request, error: RequestValidationError) -> JSONResponse:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        faults = error.errors()
        unread = any(fault["loc"] == ("body",) and fault["type"] != "missing" for fault in faults)
        if unread and kind != "application/json":
            return plain(HTTPException(415, "a body is JSON: Content-Type: application/json"), request.state.request_id)
        # The values are not repeated: they may be long or private.
        message = "; ".join(f"{'.'.join(map(str, fault['loc']))[:100]}: {fault['msg'][:200]}" for fault in faults[:10])
        hint = "GET /openapi.json has the schema of every request"
        return body(422, request.state.request_id, code="invalid", message=message, hint=hint)

    @app.exception_handler(HTTPException)
    def theirs(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 405:  # noqa: PLR2004
            # All methods of the path; the framework names those of its first route only.
            here = (route for route in request.app.state.addresses if route.matches(request.scope)[0] is not Match.NONE)
            error.headers = {"Allow": ", ".join(sorted({method for route in here for method in route.methods or ()}))}
        return plain(error, request.state.request_id)
