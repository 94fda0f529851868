"""Heavy requests: queues with limits for each scope, and processes that compute them for scoped callers.

One process runs one Python thread at a time, so that a heavy request in the server's own process slows down every
search: measured, the 95th percentile of another user's searches rises to 3.5 times its usual value. In another process
with a lower priority it stays where it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.requests import Request

from recollect.errors import Cancelled, FailedError, RecollectError, without_place
from recollect.evaluation.studies import SECONDS, StudyWork
from recollect.types import Scope, Work
from recollect.web.access import Asker
from recollect.web.changes import Crowded
from recollect.web.middleware import ENDING
from recollect.web.responses import Busy
from recollect.web.tokens import Caller

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.memory import Memory


_log = logging.getLogger("recollect.web")

STARTING_SECONDS = 60.0
"""Seconds in which a new process must open the memory."""

GRACE_SECONDS = 2.0
"""Seconds in which a process must end cancelled or late work before it is killed."""

IDLE_SECONDS = 300.0
"""Seconds after which an idle process ends."""

LOOK_SECONDS = 0.1
"""Seconds between two checks whether the client has left."""

NICENESS = 10
"""The niceness of the processes, 0 to 19."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What another process needs to open the same memory."""

    place: str
    settings: Settings

    def open(self) -> Memory:
        """The memory, opened again."""
        from recollect.memory import Memory

        return Memory.open(self.place, settings=self.settings, fetch=False)


@dataclass(frozen=True, slots=True)
class HeavyJob:
    """A function of a module, called with the memory of a scope, limits that `make` makes, and arguments."""

    scope: Scope
    make: Callable[[], Work]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(slots=True)
class Worker:
    """One process, which does one job at a time."""

    process: Any
    connection: Connection

    def call(self, job: HeavyJob, work: Work) -> tuple[Any, Exception | None]:
        """The job's result or error. Cancelling `work` cancels the job; OSError if it does not end."""
        self.connection.send(job)
        deadline, told = time.monotonic() + work.seconds + GRACE_SECONDS, False
        while not self.connection.poll(LOOK_SECONDS):
            if work.cancelled and not told:
                self.connection.send(None)
                deadline, told = time.monotonic() + GRACE_SECONDS, True
            if time.monotonic() > deadline:
                raise TimeoutError
        made, error = self.connection.recv()
        return made, error

    def end(self) -> None:
        """Kill the process."""
        self.connection.close()
        self.process.kill()
        self.process.join()


@dataclass(slots=True)
class Workers:
    """The processes of one server, started on demand and ended when idle."""

    recipe: Recipe
    _idle: list[Worker] = field(default_factory=list)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, job: HeavyJob, work: Work) -> Any:
        """The result of a job, computed in another process."""
        worker = self._take()
        try:
            made, error = worker.call(job, work)
        except (EOFError, OSError) as lost:
            worker.end()
            work.check()
            raise FailedError("the process that computes heavy requests has ended", hint="try again") from lost
        self._put_back(worker)
        if error is not None:
            raise error
        return made

    def close(self) -> None:
        """End idle processes; the others end with their jobs."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _take(self) -> Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if not worker.connection.poll():  # it has nothing to say, so it has not ended
                    return worker
                worker.end()
        return self._started()

    def _put_back(self, worker: Worker) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        worker.end()

    def _started(self) -> Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_main, args=(theirs, self.recipe), name="recollect-heavy", daemon=True)
        process.start()
        theirs.close()
        worker = Worker(process, ours)
        try:
            error = ours.recv() if ours.poll(STARTING_SECONDS) else FailedError("the process did not start in time")
        except EOFError:
            error = FailedError("the process that computes heavy requests did not start", hint="try again")
        if error is not None:
            worker.end()
            raise error
        return worker


def _main(connection: Connection, recipe: Recipe) -> None:
    """The main function of a process: open the memory, run jobs until idle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's; it ends us
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    try:
        memory = recipe.open()
    except Exception as error:  # noqa: BLE001  (the edge of a process)
        connection.send(_told(error))
        return
    with memory, contextlib.suppress(EOFError, OSError):
        connection.send(None)
        _do_jobs(connection, memory)


def _do_jobs(connection: Connection, memory: Memory) -> None:
    """Run jobs one after the other in a thread, so that a cancellation is received meanwhile."""
    while connection.poll(IDLE_SECONDS):
        job = connection.recv()
        if job is None:  # word that came when the job was done
            continue
        work = job.make()
        done = threading.Event()
        threading.Thread(target=_do, args=(connection, memory, job, work, done), daemon=True).start()
        while not done.wait(LOOK_SECONDS):
            if connection.poll():
                connection.recv()
                work.cancel()


def _do(connection: Connection, memory: Memory, job: HeavyJob, work: Work, done: threading.Event) -> None:
    answer: tuple[Any, Exception | None]
    try:
        answer = job.function(memory.within(job.scope), work, *job.arguments), None
    except Exception as error:  # noqa: BLE001  (the edge of a process)
        answer = None, _told(error)
    finally:
        done.set()
    connection.send(answer)


def _told(error: Exception) -> Exception:
    """The error as a scoped caller may read it, without its cause. An unexpected error is logged."""
    if not isinstance(error, RecollectError):
        _log.error("a heavy request failed", exc_info=error)
        return RuntimeError(f"{type(error).__name__}: {error}")
    public = without_place(error)
    if public is not error:
        _log.warning("a heavy request failed: %s", error.message)
    return public.with_traceback(None)


Made = TypeVar("Made")

DEEPEST = 1_000
"""The largest `fetch_k` of a scoped caller."""

BOUND_SECONDS = 5.0
"""Seconds for one request of a scoped caller."""

STUDY_SECONDS = 30.0
"""Seconds for one study of a scoped caller."""

AT_ONCE = 2
"""Heavy requests of scoped callers computed at the same time, and as many studies."""

EACH_AT_ONCE = 1
"""Of these, the most of one scope."""

WAITING = 4
"""Heavy requests of one scope that may wait; one more is refused."""

PATIENCE_SECONDS = 10.0
"""Seconds that a heavy request waits."""

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
        """The result of `compute`, when it is this caller's turn. If the client leaves, the work is cancelled."""
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
        """Wait for a free thread, for a limited time and while the client is connected."""
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
        """Leave the queue; if a thread was already given, pass it to the next."""
        if self._queue.pop(turn, self) is self:
            self._leave(who)

    def _admit(self) -> None:
        """Give free threads to waiting requests, first come, first served, among scopes below their share."""
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
    """What to compute, and how its limits are made."""

    make: Callable[[], Work]
    function: Callable[..., Made]
    arguments: tuple[Any, ...]


class Lanes:
    """The queues of one server: for scoped callers, for their studies, and for the owner.

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
        """The result of `function(memory, work, *arguments)`; a process must be able to import the function."""
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
            made: Made = self._workers.call(HeavyJob(scope, task.make, task.function, task.arguments), work)
            return made

        return await lane.run(request, scope, task.make, compute)

    def close(self) -> None:
        """Cancel all work, and end the processes."""
        for lane in (self.bound, self.studies, self.owner):
            lane.close()
        if self._workers is not None:
            self._workers.close()


def limits(caller: Caller) -> Work:
    """The limits of one request of this caller; the owner has none."""
    return Work() if caller.owner else Work(BOUND_SECONDS, deepest=DEEPEST)


async def _left(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
