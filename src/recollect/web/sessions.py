"""MCP over streamable HTTP: a server for each caller, limited to the caller's scope."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from recollect.mcp import build
from recollect.web import responses
from recollect.web.access import Access, Asker
from recollect.web.middleware import MOST_BYTES
from recollect.web.tokens import Caller

MOST_SESSIONS = 1_000
"""Sessions that one caller may have open."""

_CHECKED = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""The middleware has checked host and origin already."""


@dataclass(slots=True)
class Agents:
    """The endpoint /mcp. A session belongs to the caller who opened it and is unknown to others."""

    access: Access
    _managers: dict[Caller, StreamableHTTPSessionManager] = field(default_factory=dict)
    _tasks: TaskGroup | None = None
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep sessions alive while the application runs."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an agent."""
        # The file of tokens may have to be read again.
        asker = await anyio.to_thread.run_sync(self.access.asker, Headers(scope=scope).get("authorization"))
        manager = await self._manager(asker)
        await manager.handle_request(scope, receive, send)

    async def _manager(self, asker: Asker) -> StreamableHTTPSessionManager:
        async with self._lock:
            manager = self._managers.get(asker.caller)
            if manager is None:
                manager = self._managers[asker.caller] = await self._started(asker)
            return manager

    async def _started(self, asker: Asker) -> StreamableHTTPSessionManager:
        public = partial(responses.logged, request_id=f"mcp {asker.caller.name}")
        server = build(asker.memory, read_only=not self.access.may_write(asker.caller), public=public)
        # An answer in one piece outlives the order to end; a stream of events is cut off by it.
        server.streamable_http_app(
            json_response=True, transport_security=_CHECKED, max_sessions=MOST_SESSIONS,
            max_request_body_size=MOST_BYTES,
        )  # fmt: skip
        if self._tasks is None:
            raise RuntimeError("the application is not running")
        await self._tasks.start(_kept, server.session_manager)
        return server.session_manager


async def _kept(manager: StreamableHTTPSessionManager, *, task_status: TaskStatus[None]) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()
