"""Waiting for changes, status, settings, facets, indexing, metrics and health."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from recollect import __version__
from recollect.disk import at_home
from recollect.errors import FailedError, Forbidden, RecollectError, UsageError
from recollect.memory import Memory
from recollect.memory.roots import described
from recollect.memory.shapes import iso
from recollect.memory.watching import VisibleChanges
from recollect.sample import NOTES
from recollect.types import Scope, now
from recollect.web.inputs import FacetParameters, Indexing, Owns, OwnsAndWrites, Reads, controls
from recollect.web.middleware import ENDING
from recollect.web.responses import INTERNAL, Busy, Crowded, IndexingJob, Json, StatusAnswer, documented, model
from recollect.web.workers import disconnected

_log = logging.getLogger("recollect.web")

router = APIRouter(tags=["operations"])
public = APIRouter(tags=["operations"])

MOST_WAITING = 100  # callers of one scope that may wait at the same time
LONGEST_SECONDS = 55  # of one wait; less than the minute after which proxies give up
QUIET_SECONDS = 0.25  # within which the listening thread notices that it should end
PAUSE_SECONDS = 0.2  # between two notifications; changes in between are reported together
REST_SECONDS = 2.0  # between two looks at a store that cannot notify
SETTLING_SECONDS = 1.0  # after a change that did not raise `newest`: a wait in this time ends with it, as changed


class _Waiters:
    """Callers of one scope who wait: each with a future, and the number of the last change that it knows."""

    def __init__(self, memory: Memory) -> None:
        self.waiting: dict[asyncio.Future[None], int] = {}
        self.newest = 0  # the number of the newest line of history; for a scoped caller, how many lines it may see
        self._memory = memory
        self._visible: VisibleChanges | None = None
        self._late_change_at = 0.0
        self._lock = threading.Lock()

    @property
    def seconds_until_settled(self) -> float:  # until then a late change may have been missed
        return self._late_change_at + SETTLING_SECONDS - time.monotonic()

    def look(self) -> bool:
        """Whether anything has changed since the last look."""
        with self._lock:
            moved = self._visible is not None and self._visible.refresh()
            self._visible = self._visible or VisibleChanges(self._memory.store.changes, self._memory.caller)
            if moved and self._visible.newest == self.newest:
                self._late_change_at = time.monotonic()
            self.newest = self._visible.newest
            return moved

    def wake(self, *, everybody: bool = False) -> None:
        """Wake the callers who know an older state, or all; runs in the event loop."""
        for waiter, after in self.waiting.items():
            if not waiter.done() and (everybody or after != self.newest or self.seconds_until_settled > 0):
                waiter.set_result(None)


class Waiting:
    """All callers who wait for changes of one memory; one thread listens for them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiters: dict[Scope | None, _Waiters] = {}
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    async def changed(self, request: Request, memory: Memory, after: int | None, seconds: float) -> tuple[int, bool]:
        """The number of the newest change that a caller sees, and whether it differs from `after` within `seconds`."""
        self._check()
        waiters = self._waiters.setdefault(memory.caller, _Waiters(memory))
        if after is None or not seconds:
            await self._look(waiters)
            return waiters.newest, after not in (None, waiters.newest)
        if len(waiters.waiting) >= MOST_WAITING:
            raise Crowded("too many are waiting for changes", hint="ask again later, or with wait=0 now and then")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiters.waiting[waiter] = after
        left = asyncio.ensure_future(disconnected(request))
        try:
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, args=(loop,), name="changes", daemon=True)
                self._thread.start()
            await self._look(waiters)
            if after != waiters.newest:
                return waiters.newest, True
            late = waiters.seconds_until_settled
            patience = min(seconds, late) if late > 0 else seconds
            await asyncio.wait([waiter, left], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            self._check()
            return waiters.newest, waiter.done() or 0 < late <= seconds
        finally:
            left.cancel()
            del waiters.waiting[waiter]

    def end(self) -> None:
        """Answer all waiting callers and accept no more; runs in the event loop."""
        self._ended.set()
        for waiters in self._waiters.values():
            waiters.wake(everybody=True)

    def close(self, patience: float = 2.0) -> None:
        """Stop listening."""
        self.end()
        if self._thread is not None:
            self._thread.join(patience)

    def _check(self) -> None:
        if self._ended.is_set():
            raise FailedError(ENDING.message, hint=ENDING.hint)

    async def _look(self, waiters: _Waiters) -> None:
        if await to_thread.run_sync(waiters.look):
            waiters.wake()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        logged = ""
        while not self._ended.is_set():
            try:
                self._wake_on_changes(loop)
            except RecollectError as error:
                if error.message != logged and not self._ended.is_set():
                    _log.warning("cannot listen for changes: %s", error.message)
                logged = error.message
                self._ended.wait(REST_SECONDS)
            except RuntimeError:  # the loop has ended before us
                return

    def _wake_on_changes(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._memory.store.changes.listen(QUIET_SECONDS) as ticks:
            changed = True  # what happened before anybody listened
            while not self._ended.is_set():
                if changed:
                    for waiters in list(self._waiters.values()):
                        if waiters.waiting and waiters.look():
                            loop.call_soon_threadsafe(waiters.wake)
                    self._ended.wait(PAUSE_SECONDS)
                changed = next(ticks)


@router.get("/v1/changes", **documented(model("ChangesAnswer", seq=int, changed=bool)))
async def get_changes(  # holds no thread while it waits
    asker: Reads,
    request: Request,
    *,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="The `seq` of the last answer.")] = None,
    wait: Annotated[float, Query(ge=0, le=LONGEST_SECONDS, description="Seconds, at the most.")] = 25,
) -> Json:
    """Whether something that the caller may see has changed: as soon as it does, or when the wait is over.

    Without `after` it says at once where things stand.
    """
    start = time.monotonic()
    seq, changed = await request.app.state.changes.changed(request, asker.memory, after, wait)
    request.state.waited = time.monotonic() - start
    return Json({"seq": seq, "changed": changed})


_HEALTH = documented(model("Health", status=str))
_HEALTH["responses"][503] = {**_HEALTH["responses"][200], "description": "The store was deleted or replaced: restart."}


@public.head("/healthz", include_in_schema=False)
@public.get("/healthz", **_HEALTH)
async def get_health(request: Request) -> Json:  # waits for no thread, so that it answers also when all are busy
    """Whether the server and its store are available. For load balancers; needs no token."""
    try:
        request.app.state.access.memory.store.check()
    except RecollectError:
        return Json({"status": "the store cannot be used"}, 503)
    return Json({"status": "ok"})


_EXPOSED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_model=None, response_class=Response, responses=_EXPOSED)
def get_metrics(asker: Owns, request: Request) -> Response:
    """Counts and durations for Prometheus; no content of queries."""
    text = request.app.state.metrics.exposition(asker.memory.status())
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/status", **documented(StatusAnswer))
def get_status(asker: Reads, request: Request) -> Json:
    """The content of the store and how current its indexes are; for the owner also the state of sources and server."""
    state, owner = request.app.state, asker.caller.owner
    status: dict[str, Any] = {
        **asker.memory.status(),
        "scope": asker.memory.scope.as_dict(),
        "sources": list(asker.memory.sources()) if owner else [],
        "uptime_s": round(time.monotonic() - state.started, 1),
        "version": __version__,
    }
    if folders := described(asker.memory):
        status["folders"] = folders
    if owner:
        status |= {"latency": {"search": state.metrics.latency()}, "index": asdict(state.indexer.job)}
    return Json(status)


_CALLER = model("CallerAnswer", name=str, scope=dict[str, str], owner=bool, read_only=bool)
_SETTINGS = model(
    "SettingsAnswer", search=dict[str, Any], controls=dict[str, Any], vectors=bool, caller=_CALLER, version=str,
    sample=str | None,
)  # fmt: skip


@router.get("/v1/settings", **documented(_SETTINGS))
def get_settings(asker: Reads, request: Request) -> Json:
    """The default search options, and the caller."""
    read_only = not request.app.state.access.may_write(asker.caller)
    settings = {
        "search": asdict(asker.memory.settings.search),
        "controls": controls(),
        "vectors": asker.memory.embeddings.configured,
        "caller": {**asker.caller.as_dict(), "read_only": read_only},
        "version": __version__,
        "sample": str(NOTES) if asker.caller.owner else None,
    }
    return Json(settings)


_FACETS = model(
    "Facets", categories=list[str], tags=list[str], scopes=list[dict[str, str]], roots=list[str], sources=list[str]
)


@router.get("/v1/facets", **documented(_FACETS))
def get_facets(asker: Reads, request: Request, visible: Annotated[FacetParameters, Query()]) -> Json:
    """The categories, tags and scopes of visible records, and the sources."""
    memory, owner = asker.memory, asker.caller.owner
    facets = {
        **memory.facets(**visible.set_fields()),
        "scopes": memory.facets(any_scope=True)["scopes"] if owner else [],
        "roots": request.app.state.indexer.roots() if owner else [],
        "sources": [source["name"] for source in memory.sources()],
    }
    return Json(facets)


@router.get("/v1/index", **documented(IndexingJob))
def get_index(asker: Owns, request: Request) -> Json:  # noqa: ARG001  (the parameter checks the caller)
    """The last indexing run, or the current one."""
    return Json(asdict(request.app.state.indexer.job))


@router.post("/v1/index", **documented(IndexingJob, 202))
def start_index(body: Indexing, asker: OwnsAndWrites, request: Request) -> Json:  # noqa: ARG001
    """Index folders again in the background: those already indexed, or named when the server was started."""
    return Json(asdict(request.app.state.indexer.start(body.paths, dry_run=body.dry_run)), 202)


class _Stopped(Exception):
    """The server is shutting down."""


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
        allowed = tuple(self._allowed(path) for path in paths) or tuple(self.roots())
        if not allowed:
            raise UsageError("no folder is indexed yet", hint="recollect serve --folder DIR, or `recollect index DIR`")
        with self._lock:
            if self.job.state == "running":
                raise Busy("indexing is under way", hint="GET /v1/index says how far it is")
            started = self.job = IndexingJob("running", allowed, started_at=iso(now()))
            self._thread = threading.Thread(target=self._run, args=(allowed, dry_run), name="indexing", daemon=True)
            self._thread.start()
            return started

    def close(self, patience: float = 5.0) -> None:
        """Stop after the current file."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self, paths: tuple[str, ...], dry_run: bool) -> None:
        start = time.monotonic()
        ended: dict[str, Any]
        try:
            both = {"reading": self._progress, "progress": self._progress}
            report = self.memory.reindex(paths, new=(*self.folders, str(NOTES)), dry_run=dry_run, **both)
            ended = {"state": "done", "report": asdict(report)}
        except _Stopped:
            ended = {"state": "stopped"}
        except RecollectError as error:
            ended = {"state": "failed", "error": error.as_dict()["error"]}
        except Exception:  # noqa: BLE001  (the edge of a thread)
            _log.exception("indexing failed")
            ended = {"state": "failed", "error": INTERNAL}
        self.job = replace(self.job, **ended, took_ms=round((time.monotonic() - start) * 1000, 1))

    def _progress(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        self.job = replace(self.job, done=done, total=total)

    def _allowed(self, path: str) -> str:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            folder = at_home(path).resolve()
            if any(folder.is_relative_to(Path(root).resolve()) for root in (*self.roots(), str(NOTES))):
                return str(folder)
        raise Forbidden("the server does not index this folder", hint="start it with --folder DIR")
