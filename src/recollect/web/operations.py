"""Status, settings, facets, indexing, metrics, health, and the page."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from recollect import __version__
from recollect.errors import Forbidden, RecollectError, UsageError
from recollect.memory import Memory
from recollect.memory.shapes import iso
from recollect.types import now
from recollect.web.access import Owns, OwnsAndWrites, Reads, told
from recollect.web.inputs import Indexing, Name, controls
from recollect.web.responses import (
    DOCUMENTED,
    INTERNAL,
    Busy,
    Facets,
    Health,
    JobAnswer,
    Json,
    SettingsAnswer,
    StatusAnswer,
    documented,
)

router = APIRouter(tags=["operations"], responses=DOCUMENTED)
public = APIRouter(tags=["operations"])

_EXPOSED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

_HEALTH = documented(Health)
_HEALTH["responses"][503] = {"model": Health, "description": "The store was deleted or replaced: restart the server."}

Part = Annotated[Name | None, Query()]


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz", **_HEALTH)
async def get_health(request: Request) -> Json:  # waits for no thread, so that it answers also when all are busy
    """Whether the server and its store are available. For load balancers; needs no token."""
    try:
        request.app.state.access.memory.store.check()
    except RecollectError:
        return Json({"status": "the store cannot be used"}, 503)
    return Json({"status": "ok"})


@router.get("/metrics", response_model=None, response_class=Response, responses=_EXPOSED)
def get_metrics(asker: Owns, request: Request) -> Response:
    """Counts and durations for Prometheus; no content of queries."""
    text = request.app.state.metrics.exposition(asker.memory.status())
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/status", **documented(StatusAnswer))
def get_status(asker: Reads, request: Request) -> Json:
    """The content of the store and how current its indexes are; for the owner also the state of sources and server."""
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
    """The default search options, and the caller."""
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
    """The categories, tags and scopes of visible records, and the sources."""
    said = {"any_scope": any_scope, "user": user, "agent": agent, "session": session}
    found = asker.memory.facets(**{name: value for name, value in said.items() if value})
    owner = asker.caller.owner
    scopes = asker.memory.facets(any_scope=True)["scopes"] if owner else []
    roots = request.app.state.indexer.roots() if owner else []
    sources = [source["name"] for source in asker.memory.sources()]
    return Json({**found, "scopes": scopes, "roots": roots, "sources": sources})


@router.get("/v1/index", **documented(JobAnswer))
def get_index(asker: Owns, request: Request) -> Json:  # noqa: ARG001  (asking is the check)
    """The last indexing run, or the current one."""
    return Json(request.app.state.indexer.job.as_dict())


@router.post("/v1/index", **documented(JobAnswer, 202))
def start_index(body: Indexing, asker: OwnsAndWrites, request: Request) -> Json:  # noqa: ARG001
    """Index folders again in the background: those already indexed, or named when the server was started."""
    return Json(request.app.state.indexer.start(body.paths, dry_run=body.dry_run).as_dict(), 202)


_log = logging.getLogger("recollect.web")


class _Stopped(Exception):
    """The server is shutting down."""


@dataclass(frozen=True, slots=True)
class IndexingJob:
    """One indexing run."""

    state: str = "idle"
    paths: tuple[str, ...] = ()
    done: int = 0
    total: int = 0
    report: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    started_at: str | None = None
    took_ms: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "paths": list(self.paths)}


@dataclass(slots=True)
class Indexer:
    """Runs indexing in the background, only for folders already indexed or named at the start."""

    memory: Memory
    folders: tuple[str, ...] = ()
    job: IndexingJob = field(default_factory=IndexingJob)
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def roots(self) -> list[str]:
        """The folders that may be indexed."""
        return list(dict.fromkeys([*self.folders, *self.memory.store.files.roots()]))

    def start(self, paths: Sequence[str], *, dry_run: bool) -> IndexingJob:
        """Start a run; raises Busy if one is running."""
        wanted = tuple(self._allowed(path) for path in paths) or tuple(self.roots())
        if not wanted:
            raise UsageError("no folder is indexed yet", hint="recollect serve --folder DIR, or `recollect index DIR`")
        with self._lock:
            if self.job.state == "running":
                raise Busy("indexing is under way", hint="GET /v1/index says how far it is")
            started = self.job = IndexingJob("running", wanted, started_at=iso(now()))
            self._thread = threading.Thread(target=self._run, args=(wanted, dry_run), name="indexing", daemon=True)
            self._thread.start()
            return started

    def close(self, patience: float = 5.0) -> None:
        """Stop after the current file."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self, paths: tuple[str, ...], dry_run: bool) -> None:
        start = time.monotonic()
        try:
            report = self.memory.reindex(
                paths, new=self.folders, dry_run=dry_run, reading=self._progress, progress=self._progress
            )
            ended = replace(self.job, state="done", report=asdict(report))
        except _Stopped:
            ended = replace(self.job, state="stopped")
        except RecollectError as error:
            ended = replace(self.job, state="failed", error=error.as_dict()["error"])
        except Exception:  # noqa: BLE001  (the edge of a thread)
            _log.exception("indexing failed")
            ended = replace(self.job, state="failed", error=dict(INTERNAL))
        self.job = replace(ended, took_ms=round((time.monotonic() - start) * 1000, 1))

    def _progress(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        self.job = replace(self.job, done=done, total=total)

    def _allowed(self, path: str) -> str:
        try:
            wanted = Path(path).expanduser().resolve()
            inside = any(wanted.is_relative_to(Path(root).resolve()) for root in self.roots())
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise Forbidden("that folder is not indexed, and may not be from here", hint="recollect serve --folder DIR")
        return str(wanted)


FOLDER = files("recollect.web") / "static"

pages = APIRouter(include_in_schema=False)


@pages.head("/")
@pages.get("/")
def page() -> FileResponse:
    """The page; it reads its data from the API."""
    return FileResponse(str(FOLDER / "index.html"), media_type="text/html", headers={"Cache-Control": "no-cache"})


def mount(app: FastAPI) -> None:
    """Serve its styles and scripts."""
    app.include_router(pages)
    app.mount("/static", StaticFiles(directory=str(FOLDER)), name="static")
