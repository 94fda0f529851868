"""Long polling for changes: one thread listens for all waiting callers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Annotated, Any, ClassVar

from anyio import to_thread
from fastapi import APIRouter, Query, Request

from recollect.errors import FailedError, RecollectError
from recollect.memory import Memory
from recollect.memory.history import VisibleChanges
from recollect.types import Changes, Scope
from recollect.web.access import Reads
from recollect.web.middleware import ENDING
from recollect.web.responses import ChangesAnswer, Json, documented

_log = logging.getLogger("recollect.web")

MOST_WAITING = 100
"""Callers of one scope that may wait at the same time."""

QUIET_SECONDS = 0.25
"""Seconds within which the listening thread notices that it should end."""

PAUSE_SECONDS = 0.2
"""Seconds between two notifications; changes in between are reported together."""

REST_SECONDS = 2.0
"""Seconds between two looks at a store that cannot notify."""

SETTLING_SECONDS = 1.0
"""Seconds after an answer in which a late change may have been missed: who waits again waits at least as long."""


class Crowded(FailedError):
    """Too many callers wait already."""

    code: ClassVar[str] = "crowded"


class _Side:
    """Callers of one scope who wait."""

    def __init__(self, changes: Changes, scope: Scope | None) -> None:
        self.waiting: dict[asyncio.Future[None], int] = {}
        self._changes = changes
        self._scope = scope
        self._visible: VisibleChanges | None = None
        self._late = 0.0
        self._lock = threading.Lock()

    @property
    def newest(self) -> int:
        """The number of the newest line of history; of callers bound to a scope, how many lines they may see."""
        return self._visible.newest if self._visible else 0

    @property
    def unsettled(self) -> float:
        """How many seconds are left of those in which a late change may have been missed."""
        return self._late + SETTLING_SECONDS - time.monotonic()

    def look(self) -> bool:
        """Whether anything has changed since the last look."""
        with self._lock:
            if self._visible is None:
                self._visible = VisibleChanges(self._changes, self._scope)
                return False
            before, moved = self._visible.newest, self._visible.refresh()
            if moved and self._visible.newest == before:
                self._late = time.monotonic()
            return moved

    def tell(self, *, all_: bool = False) -> None:
        """Wake the callers who know an older state, or all; runs in the event loop."""
        for waiter, after in self.waiting.items():
            if not waiter.done() and (all_ or after != self.newest or self.unsettled > 0):
                waiter.set_result(None)


class Waiting:
    """All callers who wait for changes of one memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sides: dict[Scope | None, _Side] = {}
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    async def changed(self, request: Request, memory: Memory, after: int | None, seconds: float) -> tuple[int, bool]:
        """The newest that this side of the memory sees, and whether that is another than `after`: now, or in time."""
        self._check()
        side = self._side(memory)
        if after is None or not seconds:
            await _looked(side)
            return side.newest, after not in (None, side.newest)
        if len(side.waiting) >= MOST_WAITING:
            raise Crowded("too many are waiting for changes", hint="ask again later, or with wait=0 now and then")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        side.waiting[waiter] = after
        try:
            self._listen(asyncio.get_running_loop())
            await _looked(side)
            if after != side.newest:
                return side.newest, True
            changed = await self._waited(side, waiter, asyncio.ensure_future(_gone(request)), seconds)
            return side.newest, changed
        finally:
            del side.waiting[waiter]

    def end(self) -> None:
        """Answer all waiting callers and accept no more; runs in the event loop."""
        self._ended.set()
        for side in self._sides.values():
            side.tell(all_=True)

    def close(self, patience: float = 2.0) -> None:
        """Stop listening."""
        self.end()
        if self._thread is not None:
            self._thread.join(patience)

    def _side(self, memory: Memory) -> _Side:
        scope = memory.caller
        if scope not in self._sides:
            self._sides[scope] = _Side(memory.store.changes, scope)
        return self._sides[scope]

    def _check(self) -> None:
        if self._ended.is_set():
            raise FailedError(ENDING.message, hint=ENDING.hint)

    async def _waited(
        self, side: _Side, waiter: asyncio.Future[None], gone: asyncio.Future[None], seconds: float
    ) -> bool:
        """Whether a change came before the time was up or the client left."""
        late = side.unsettled
        parts: list[asyncio.Future[Any]] = [waiter, gone]
        patience = min(seconds, late) if late > 0 else seconds
        try:
            await asyncio.wait(parts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        self._check()
        return waiter.done() or 0 < late <= seconds

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(loop,), name="changes", daemon=True)
            self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        said = ""
        while not self._ended.is_set():
            try:
                self._hear(loop)
            except RecollectError as error:
                if error.message != said and not self._ended.is_set():
                    _log.warning("changes are not heard of: %s", error.message)
                said = error.message
                self._ended.wait(REST_SECONDS)
            except RuntimeError:  # the loop has ended before us
                return

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._memory.store.changes.listen(QUIET_SECONDS) as ticks:
            told = True  # what happened before anybody listened
            while not self._ended.is_set():
                if told:
                    for side in [side for side in list(self._sides.values()) if side.waiting]:
                        if side.look():
                            loop.call_soon_threadsafe(side.tell)
                    self._ended.wait(PAUSE_SECONDS)
                told = next(ticks)


async def _looked(side: _Side) -> None:
    """Read the state in a thread, and notify all."""
    if await to_thread.run_sync(side.look):
        side.tell()


async def _gone(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


router = APIRouter(tags=["operations"])

LONGEST_SECONDS = 55
"""Seconds; less than the minute after which proxies give up."""


@router.get("/v1/changes", **documented(ChangesAnswer))
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
