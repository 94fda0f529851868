"""The HTTP application, built from a memory and its tokens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from recollect import __version__
from recollect.memory import Memory
from recollect.types import GLOBAL
from recollect.web import changes, evaluation_routes, operations, record_routes, responses, search_routes
from recollect.web.access import Access
from recollect.web.changes import Waiting
from recollect.web.middleware import Guard, Hosts, Metrics, is_loopback
from recollect.web.operations import Indexer
from recollect.web.sessions import Agents
from recollect.web.tokens import Caller, Tokens
from recollect.web.workers import Lanes, Recipe

ABOUT = """Hybrid memory search. Errors are `{"error": {"code", "message", "hint", "request_id"}}`; every answer has an
`X-Request-Id`. The token decides the caller and its scope; a request that names another scope is refused."""

MCP_HEADERS = ("Mcp-Session-Id", "Mcp-Protocol-Version", "Last-Event-ID")
"""Headers of MCP clients that CORS allows."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The setup of a server. With a `recipe`, heavy requests of scoped callers run in other processes."""

    host: str = "127.0.0.1"
    read_only: bool = False
    folders: Sequence[str] = ()
    lab: Path | None = None
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    recipe: Recipe | None = None


def build(memory: Memory, tokens: Tokens, serving: Serving) -> FastAPI:
    """The application. Without tokens every caller is the owner, or bound to the memory's own scope."""
    metrics = Metrics()
    local = Caller("local", memory.scope, owner=memory.scope == GLOBAL)
    access = Access(memory, tokens, local, demanded=not is_loopback(serving.host), read_only=serving.read_only)
    agents = Agents(access)
    indexer = Indexer(memory, tuple(str(Path(folder).resolve()) for folder in serving.folders))
    waiting, lanes = Waiting(memory), Lanes(serving.recipe)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            async with agents.run():
                yield
        finally:
            lanes.close()
            waiting.close()
            indexer.close()

    hosts = Hosts(serving.host, serving.allowed_hosts, serving.allowed_origins)
    app = FastAPI(
        title="Recollect", version=__version__, description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None,
        middleware=[Middleware(Guard, hosts=hosts, metrics=metrics), *_cors(serving.allowed_origins)],
        separate_input_output_schemas=False, generate_unique_id_function=_method_name,
    )  # fmt: skip
    app.state.access, app.state.metrics, app.state.indexer = access, metrics, indexer
    app.state.lab, app.state.started, app.state.changes = serving.lab, time.monotonic(), waiting
    app.state.lanes = lanes
    responses.install(app)
    for router in (search_routes.router, record_routes.router, changes.router, evaluation_routes.router):
        app.include_router(router, responses=responses.DOCUMENTED)
    app.include_router(operations.router)
    app.include_router(operations.public)
    ours = (search_routes, record_routes, changes, evaluation_routes, operations)
    routers = (*(module.router for module in ours), operations.pages, operations.public)
    app.state.addresses = [route for router in routers for route in router.routes]
    app.router.routes.append(Route("/mcp", agents))
    operations.mount(app)
    return app


def _method_name(route: APIRoute) -> str:
    """The operation id of a route: the name of its function."""
    return route.name.strip("_")


def _cors(origins: Sequence[str]) -> list[Middleware]:
    """CORS is closed except for the origins that were named."""
    if not origins:
        return []
    allowed: dict[str, Any] = {
        "allow_methods": ["GET", "POST", "PATCH", "DELETE"],
        "allow_headers": ["Authorization", "Content-Type", "X-Request-Id", *MCP_HEADERS],
        "expose_headers": ["X-Request-Id", MCP_HEADERS[0]],
    }
    return [Middleware(CORSMiddleware, allow_origins=list(origins), **allowed)]
