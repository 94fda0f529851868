"""Heavy requests: a few at a time, on threads of their own, and ended when their client leaves.

Searches use the threads that every route uses. What may take seconds (why-not, deep searches, long lists, studies) must
not take these threads, so it waits here for one of a few others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.requests import Request

from recollect.errors import Cancelled, FailedError
from recollect.evaluation.studies import SECONDS, StudyWork
from recollect.types import Scope, Work
from recollect.web.access import Asker
from recollect.web.changes import Crowded
from recollect.web.errors import Busy
from recollect.web.guard import ENDING
from recollect.web.tokens import Caller
from recollect.web.workers import Job, Recipe, Workers

Made = TypeVar("Made")

DEEPEST = 1_000
"""Results of a source that a bound caller may have read: the work after that grows faster than the depth."""

BOUND_SECONDS = 5.0
"""How long one request of a bound caller may be computed; a study has more."""

STUDY_SECONDS = 30.0
"""How long a study of a bound caller may take."""

AT_ONCE = 2
"""Heavy requests of all bound callers that are computed at the same time, and as many studies."""

EACH_AT_ONCE = 1
"""Of these, the most of one scope: one caller cannot keep the others out."""

WAITING = 4
"""Heavy requests of one scope that may wait for their turn; one more is refused."""

PATIENCE_SECONDS = 10.0
"""How long a heavy request waits for its turn."""

OWNER_AT_ONCE, OWNER_WAITING, OWNER_PATIENCE_SECONDS = 4, 32, 60.0
"""The same for the owner."""

AGAIN = "try again in a few seconds"
LEFT = "the client has left"


@dataclass(slots=True)
class Lane:
    """Threads for heavy requests, and the queue before them. Everything but the work runs in the event loop."""

    at_once: int
    each: int
    waiting: int
    patience: float
    running: Counter[Scope | None] = field(default_factory=Counter)
    _queue: dict[asyncio.Future[None], Scope | None] = field(default_factory=dict)
    _works: set[Work] = field(default_factory=set)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="heavy")

    async def run(
        self, request: Request, who: Scope | None, make: Callable[[], Work], compute: Callable[[Work], Made]
    ) -> Made:
        """What `compute` makes, when it is this caller's turn. If the client leaves, the work is cancelled."""
        gone = asyncio.ensure_future(_left(request))
        try:
            await self._turn(who, gone)
            return await self._computed(who, make(), compute, gone)
        finally:
            gone.cancel()

    def close(self) -> None:
        """Cancel all work, and wait until the threads have noticed."""
        for work in list(self._works):
            work.cancel()
        for turn in self._queue:
            turn.set_exception(FailedError(ENDING.message, hint=ENDING.hint))
        self._queue.clear()
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _turn(self, who: Scope | None, gone: asyncio.Future[None]) -> None:
        """Wait for a free thread, but not for ever, and not for a client that has left."""
        if Counter(self._queue.values())[who] >= self.waiting:
            raise Crowded("too many requests of this kind are waiting", hint=AGAIN)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = who
        self._admit()
        try:
            await asyncio.wait({turn, gone}, timeout=self.patience, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(turn, who)
            raise
        if turn.done() and not gone.done():
            turn.result()
            return
        self._give_up(turn, who)
        raise Cancelled(LEFT) if gone.done() else Crowded("the server is busy with requests of this kind", hint=AGAIN)

    def _give_up(self, turn: asyncio.Future[None], who: Scope | None) -> None:
        """Leave the queue; where a thread was given already, leave that to the next."""
        if self._queue.pop(turn, self) is self:
            self._leave(who)

    def _admit(self) -> None:
        """Give free threads to those who wait: first come, first served, among scopes that have not their share."""
        for turn, who in list(self._queue.items()):
            if self.running.total() < self.at_once and self.running[who] < self.each:
                del self._queue[turn]
                self.running[who] += 1
                turn.set_result(None)

    def _leave(self, who: Scope | None) -> None:
        self.running[who] -= 1
        if not self.running[who]:
            del self.running[who]
        self._admit()

    async def _computed(
        self, who: Scope | None, work: Work, compute: Callable[[Work], Made], gone: asyncio.Future[None]
    ) -> Made:
        loop = asyncio.get_running_loop()
        self._works.add(work)
        future: asyncio.Future[Any] = loop.run_in_executor(self._threads, copy_context().run, compute, work)

        def ended(done: asyncio.Future[Any]) -> None:
            self._works.discard(work)
            self._leave(who)  # not before the thread is free
            if not done.cancelled():
                done.exception()  # a client that has left does not read it

        future.add_done_callback(ended)
        try:
            await asyncio.wait([future, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not future.done():
                work.cancel()
        if not future.done():
            raise Cancelled(LEFT)
        made: Made = future.result()
        return made


@dataclass(frozen=True, slots=True)
class Task(Generic[Made]):
    """What is to be computed, and how its limits are made."""

    make: Callable[[], Work]
    function: Callable[..., Made]
    arguments: tuple[Any, ...]


class Lanes:
    """The lanes of one server: for bound callers, for their studies, and for the owner.

    What bound callers ask for is computed in other processes where `recipe` says how they open the memory. The owner's
    heavy requests stay in this process, where the indexes are in memory already.
    """

    def __init__(self, recipe: Recipe | None = None) -> None:
        self.bound = Lane(AT_ONCE, EACH_AT_ONCE, WAITING, PATIENCE_SECONDS)
        self.studies = Lane(AT_ONCE, EACH_AT_ONCE, WAITING, STUDY_SECONDS + PATIENCE_SECONDS)
        self.owner = Lane(OWNER_AT_ONCE, OWNER_AT_ONCE, OWNER_WAITING, OWNER_PATIENCE_SECONDS)
        self._workers = Workers(recipe) if recipe else None
        self._studying: set[Scope | None] = set()

    async def run(self, request: Request, asker: Asker, function: Callable[..., Made], *arguments: Any) -> Made:
        """What `function(memory, work, *arguments)` makes. It is a function of a module, so that a process finds it."""
        lane = self.owner if asker.caller.owner else self.bound
        return await self._run(lane, request, asker, Task(partial(limits, asker.caller), function, arguments))

    async def study(self, request: Request, asker: Asker, function: Callable[..., Made], *arguments: Any) -> Made:
        """The same for a study: one at a time for each scope, and one of the owner's."""
        caller = asker.caller
        scope, seconds = (None, SECONDS) if caller.owner else (caller.scope, STUDY_SECONDS)
        if scope in self._studying:
            raise Busy("a study is under way", hint=f"try again; it takes {seconds:g} s at the most")
        self._studying.add(scope)
        try:
            lane = self.owner if caller.owner else self.studies
            return await self._run(lane, request, asker, Task(partial(StudyWork, seconds), function, arguments))
        finally:
            self._studying.discard(scope)

    async def _run(self, lane: Lane, request: Request, asker: Asker, task: Task[Made]) -> Made:
        scope = None if asker.caller.owner else asker.caller.scope

        def compute(work: Work) -> Made:
            if self._workers is None or scope is None:
                return task.function(asker.memory, work, *task.arguments)
            made: Made = self._workers.call(Job(scope, task.make, task.function, task.arguments), work)
            return made

        return await lane.run(request, scope, task.make, compute)

    def close(self) -> None:
        """Cancel all work, and end the processes."""
        for lane in (self.bound, self.studies, self.owner):
            lane.close()
        if self._workers is not None:
            self._workers.close()


def limits(caller: Caller) -> Work:
    """What one request of this caller may cost; the owner has no limits."""
    return Work() if caller.owner else Work(BOUND_SECONDS, deepest=DEEPEST)


async def _left(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
