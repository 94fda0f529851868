"""The HTTP application, built from a memory and its tokens: the JSON API, MCP and the page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus
from fastapi import Depends, FastAPI
from starlette import types as asgi
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from recollect import __version__
from recollect.memory import Memory
from recollect.network.addresses import is_local
from recollect.types import GLOBAL
from recollect.web import evaluation_routes, operations, record_routes, responses
from recollect.web.access import Access, Caller, CallerMemory, Tokens
from recollect.web.inputs import known_parameters
from recollect.web.middleware import MOST_BYTES, Guard, Hosts, Metrics
from recollect.web.workers import Lanes, Searches

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

ABOUT = """Hybrid memory search. Errors are `{"error": {"code", "message", "hint", "request_id"}}`; every answer has an
`X-Request-Id`. The token decides the caller and its scope; a request that names another scope is refused."""

MCP_HEADERS = (  # headers of MCP clients, which CORS allows
    "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Last-Event-ID",
)  # fmt: skip
MOST_SESSIONS = 1_000  # of MCP that one caller may have open

_STATIC = str(files("recollect.web") / "static")


def build(
    memory: Memory, tokens: Tokens, *, host: str = "127.0.0.1", read_only: bool = False, folders: Sequence[str] = (),
    lab: Path | None = None, allowed_hosts: Sequence[str] = (), allowed_origins: Sequence[str] = (),
    reopen: Callable[[], Memory] | None = None,
) -> FastAPI:  # fmt: skip
    """The application. Without tokens every caller is the owner, or bound to the memory's own scope.

    With `reopen`, heavy requests of scoped callers run in processes that open the memory with it.
    """
    metrics = Metrics()
    local = Caller("local", memory.scope, owner=memory.scope == GLOBAL)
    access = Access(memory, tokens, local, token_required=not is_local(host), read_only=read_only)
    agents = Agents(access)
    indexer = operations.Indexer(memory, tuple(str(Path(folder).resolve()) for folder in folders))
    waiting, lanes, searches = operations.Waiting(memory), Lanes(reopen), Searches(memory)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            async with agents.run():
                yield
        finally:
            lanes.close()
            searches.close()
            waiting.close()
            indexer.close()

    hosts = Hosts(host, allowed_hosts, allowed_origins)
    middleware = [Middleware(Guard, hosts=hosts, metrics=metrics)]
    if allowed_origins:
        cors = Middleware(
            CORSMiddleware, allow_origins=list(allowed_origins), allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id", *MCP_HEADERS],
            expose_headers=["X-Request-Id", MCP_HEADERS[0]],
        )  # fmt: skip
        middleware.append(cors)
    app = FastAPI(
        title="Recollect", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None,
        middleware=middleware, separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name.strip("_"),
    )  # fmt: skip
    app.state.access, app.state.metrics, app.state.indexer, app.state.changes = access, metrics, indexer, waiting
    app.state.lanes, app.state.searches, app.state.lab = lanes, searches, lab
    app.state.started = time.monotonic()
    responses.install(app)
    routers = (record_routes.search_router, record_routes.router, evaluation_routes.router, operations.router)
    for router in routers:
        app.include_router(router, dependencies=[Depends(known_parameters)], responses=responses.DOCUMENTED)
    app.include_router(operations.public)
    app.add_api_route("/", _page, methods=["GET", "HEAD"], include_in_schema=False)
    every = [route for router in (*routers, operations.public, app) for route in router.routes]
    app.state.addresses = [route for route in every if isinstance(route, Route)]
    app.router.routes.append(Route("/mcp", agents))
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    return app


def _page() -> FileResponse:
    return FileResponse(f"{_STATIC}/index.html", media_type="text/html")


@dataclass(slots=True)
class Agents:
    """The endpoint /mcp: a server for each caller. A session belongs to the caller who opened it."""

    access: Access
    _managers: dict[Caller, StreamableHTTPSessionManager] = field(default_factory=dict)
    _tasks: TaskGroup | None = None
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep sessions alive while the application runs."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Answer one request of an agent."""
        asker = self.access.asker(Headers(scope=scope).get("authorization"))
        async with self._lock:
            manager = self._managers.get(asker.caller)
            if manager is None:
                if self._tasks is None:
                    raise RuntimeError("the application is not running")
                manager = await anyio.to_thread.run_sync(self._build, asker)
                await self._tasks.start(_run_manager, manager)
                self._managers[asker.caller] = manager
        await manager.handle_request(scope, receive, send)

    def _build(self, asker: CallerMemory) -> StreamableHTTPSessionManager:
        # The SDK takes longer to import than all the rest, so it is imported for the first agent.
        from mcp.server.transport_security import TransportSecuritySettings

        from recollect import mcp

        public = partial(responses.logged, request_id=f"mcp {asker.caller.name}")
        server = mcp.build(asker.memory, read_only=not self.access.may_write(asker.caller), public=public)
        checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the middleware has checked them
        # An answer in one piece outlives the order to end; a stream of events is cut off by it.
        server.streamable_http_app(
            json_response=True, transport_security=checked, max_sessions=MOST_SESSIONS, max_request_body_size=MOST_BYTES
        )
        return server.session_manager


async def _run_manager(manager: StreamableHTTPSessionManager, *, task_status: TaskStatus[None]) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()
