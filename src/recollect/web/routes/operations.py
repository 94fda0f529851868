"""The whole: status, settings, what can be filtered by, indexing, metrics, health."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from recollect import __version__
from recollect.errors import RecollectError
from recollect.web.access import Owns, OwnsAndWrites, Reads, told
from recollect.web.answers import Facets, Health, JobAnswer, Json, SettingsAnswer, StatusAnswer, documented
from recollect.web.errors import DOCUMENTED
from recollect.web.inputs import Indexing, Name, controls

router = APIRouter(tags=["operations"], responses=DOCUMENTED)
public = APIRouter(tags=["operations"])

_EXPOSED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

_HEALTH = documented(Health)
_HEALTH["responses"][503] = {"model": Health, "description": "The store was deleted or replaced: restart the server."}

Part = Annotated[Name | None, Query()]


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz", **_HEALTH)
async def get_health(request: Request) -> Json:  # waits for no thread, so that it answers also when all are busy
    """Whether the server is there and its store is in place; for load balancers, so without a token."""
    try:
        request.app.state.access.memory.store.check()
    except RecollectError:
        return Json({"status": "the store cannot be used"}, 503)
    return Json({"status": "ok"})


@router.get("/metrics", response_model=None, response_class=Response, responses=_EXPOSED)
def get_metrics(asker: Owns, request: Request) -> Response:
    """Counts and times for Prometheus; of what was asked, nothing."""
    text = request.app.state.metrics.exposition(asker.memory.status())
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/status", **documented(StatusAnswer))
def get_status(asker: Reads, request: Request) -> Json:
    """What the store holds and how current it is; for the owner also how sources and server are doing."""
    state = request.app.state
    found: dict[str, Any] = {
        **asker.memory.status(),
        "scope": asker.memory.scope.as_dict(),
        "sources": list(asker.memory.sources()) if asker.caller.owner else [],
        "uptime_s": round(time.monotonic() - state.started, 1),
        "version": __version__,
    }
    if asker.caller.owner:
        found |= {"latency": {"search": state.metrics.latency()}, "index": state.indexer.job.as_dict()}
    return Json(found)


@router.get("/v1/settings", **documented(SettingsAnswer))
def get_settings(asker: Reads, request: Request) -> Json:
    """What a search is answered with where nothing is said, and who asks."""
    memory, caller = asker.memory, told(asker.caller, request.app.state.access)
    search = dataclasses.asdict(memory.settings.search)
    return Json(
        {
            "search": search,
            "controls": controls(),
            "vectors": memory.embeddings.configured,
            "caller": caller,
            "version": __version__,
        }
    )


@router.get("/v1/facets", **documented(Facets))
def get_facets(
    asker: Reads, request: Request, *,
    any_scope: bool = False, user: Part = None, agent: Part = None, session: Part = None,
) -> Json:  # fmt: skip
    """The categories, tags and scopes of what may be seen, and the sources there are."""
    said = {"any_scope": any_scope, "user": user, "agent": agent, "session": session}
    found = asker.memory.facets(**{name: value for name, value in said.items() if value})
    owner = asker.caller.owner
    scopes = asker.memory.facets(any_scope=True)["scopes"] if owner else []
    roots = request.app.state.indexer.roots() if owner else []
    sources = [source["name"] for source in asker.memory.sources()]
    return Json({**found, "scopes": scopes, "roots": roots, "sources": sources})


@router.get("/v1/index", **documented(JobAnswer))
def get_index(asker: Owns, request: Request) -> Json:  # noqa: ARG001  (asking is the check)
    """The last run of indexing, or the one under way."""
    return Json(request.app.state.indexer.job.as_dict())


@router.post("/v1/index", **documented(JobAnswer, 202))
def start_index(body: Indexing, asker: OwnsAndWrites, request: Request) -> Json:  # noqa: ARG001
    """Mirror folders again, beside other requests: those that are indexed already, or that the server was given."""
    return Json(request.app.state.indexer.start(body.paths, dry_run=body.dry_run).as_dict(), 202)
