"""Heavy requests: queues with limits for each scope, and processes that compute them for scoped callers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, TypeVar, cast

from starlette.requests import Request

from recollect.errors import Cancelled, FailedError, RecollectError, without_place
from recollect.evaluation.studies import SECONDS, StudyWork
from recollect.memory import Memory
from recollect.stores import kind_of
from recollect.types import Scope, Work
from recollect.web.access import Caller, CallerMemory
from recollect.web.responses import Busy, Crowded

_log = logging.getLogger("recollect.web")

STARTING_SECONDS = 60.0  # in which a new process must open the memory
GRACE_SECONDS = 2.0  # in which a process must end cancelled or late work before it is killed
IDLE_SECONDS = 300.0  # after which an idle process ends
LOOK_SECONDS = 0.1  # between two checks whether the client has left
NICENESS = 10  # 0 to 19. In the server's own process, heavy work made the slowest 5% of searches 3.5 times slower.
CANCEL = getattr(signal, "SIGUSR1", signal.SIGINT)  # cancels the job of a process; on Windows it ends the process

DEEPEST = 1_000  # the largest `fetch_k` of a scoped caller
BOUND_SECONDS = 5.0  # for one request of a scoped caller
STUDY_SECONDS = 30.0  # for one study of a scoped caller
AT_ONCE = 2  # heavy requests of scoped callers computed at the same time, and as many studies
EACH_AT_ONCE = 1  # of these, the most of one scope
WAITING = 4  # heavy requests of one scope that may wait; one more is refused
PATIENCE_SECONDS = 10.0  # that a heavy request waits
OWNER_AT_ONCE, OWNER_WAITING, OWNER_PATIENCE_SECONDS = 4, 32, 60.0  # the same for the owner

WAITING_THREADS = 8  # searches at once for each core, where a database server computes a part of them

AGAIN = "try again in a few seconds"

Made = TypeVar("Made")
Job: TypeAlias = tuple[Callable[[], Work], Callable[..., Made], tuple[Any, ...]]
"""What makes the limits of the work, a function of a module, and its arguments after memory and work."""


def limits(caller: Caller) -> Callable[[], Work]:
    """What makes the limits of one request of this caller; the owner has none."""
    return Work if caller.owner else partial(Work, BOUND_SECONDS, deepest=DEEPEST)


async def disconnected(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class Workers:
    """The processes of one server: started on demand, each for one job at a time, ended when idle."""

    reopen: Callable[[], Memory]
    _idle: list[tuple[Any, Connection]] = field(default_factory=list)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, caller: tuple[Scope, str | None], job: Job[Made], work: Work) -> Made:
        """The result of a job for the scope and the name of a caller, computed in another process.

        Cancelling `work` cancels the job.
        """
        process, connection = self._take()
        try:
            connection.send((*caller, *job))
            deadline = time.monotonic() + work.seconds + GRACE_SECONDS
            while not connection.poll(LOOK_SECONDS):
                if work.cancelled and deadline > (soon := time.monotonic() + GRACE_SECONDS):
                    os.kill(process.pid, CANCEL)
                    deadline = soon
                if time.monotonic() > deadline:
                    raise TimeoutError
            result, error = connection.recv()
        except (EOFError, OSError) as lost:
            _end(process, connection)
            work.check()
            raise FailedError("the process that computes heavy requests has ended", hint="try again") from lost
        with self._lock:
            if self._closed:
                _end(process, connection)
            else:
                self._idle.append((process, connection))
        if error is not None:
            raise error
        return cast("Made", result)

    def close(self) -> None:
        """End idle processes; the others end with their jobs."""
        with self._lock:
            self._closed = True
        for process, connection in self._idle:
            _end(process, connection)

    def _take(self) -> tuple[Any, Connection]:
        with self._lock:
            while self._idle:
                process, connection = self._idle.pop()
                if not connection.poll():  # it has nothing to say, so it has not ended
                    return process, connection
                _end(process, connection)
        context = multiprocessing.get_context("spawn")
        connection, theirs = context.Pipe()
        process = context.Process(target=_main, args=(theirs, self.reopen), name="recollect-heavy", daemon=True)
        process.start()
        theirs.close()
        error: Exception | None = FailedError("the process for heavy requests did not start", hint="try again")
        with contextlib.suppress(EOFError):
            if connection.poll(STARTING_SECONDS):
                error = connection.recv()
        if error is not None:
            _end(process, connection)
            raise error
        return process, connection


def _end(process: Any, connection: Connection) -> None:
    connection.close()
    process.kill()
    process.join()


def _main(connection: Connection, reopen: Callable[[], Memory]) -> None:
    work = Work()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's; it ends us
    signal.signal(CANCEL, lambda *_: work.cancel())
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    try:
        memory = reopen()
        with contextlib.suppress(RecollectError):  # a request that needs the index raises it again
            memory.store.keywords.catch_up()  # here, because the time limit of the first request does not count yet
    except Exception as error:  # noqa: BLE001  (the edge of a process)
        connection.send(_public(error))
        return
    with memory, contextlib.suppress(EOFError, OSError):
        connection.send(None)
        while connection.poll(IDLE_SECONDS):
            scope, author, make, function, arguments = connection.recv()
            work = make()
            answer: tuple[Any, Exception | None]
            try:
                answer = function(memory.within(scope).written_by(author), work, *arguments), None
            except Exception as error:  # noqa: BLE001  (the edge of a process)
                answer = None, _public(error)
            connection.send(answer)


def _public(error: Exception) -> Exception:
    if not isinstance(error, RecollectError):
        _log.error("a heavy request failed", exc_info=error)
        return RuntimeError(f"{type(error).__name__}: {error}")
    public = without_place(error)
    if public is not error:
        _log.warning("a heavy request failed: %s", error.message)
    return public.with_traceback(None)


class Searches:
    """The threads of light searches: one for each processor core. Callers that wait for a thread take turns.

    More threads than cores would make every search slower, because the threads wait for each other.
    """

    def __init__(self, memory: Memory) -> None:
        from recollect.models.onnx import usable_cores  # imports numpy, which the command must import itself

        # With a database server, a thread waits while the server computes its part of the search.
        self._free = usable_cores() * (WAITING_THREADS if kind_of(memory.settings.place).shared else 1)
        self._threads = ThreadPoolExecutor(self._free, thread_name_prefix="search")
        self._waiting: dict[Caller, deque[asyncio.Future[None]]] = {}

    async def run(self, caller: Caller, function: Callable[..., Made], *arguments: Any) -> Made:
        """Wait for this caller's turn, and return the result of a function that runs in one of the threads."""
        loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(caller, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        try:
            return await loop.run_in_executor(self._threads, copy_context().run, function, *arguments)
        finally:
            self._pass_on()

    def close(self) -> None:
        """Wait for the searches that are being computed."""
        self._threads.shutdown(wait=True)

    def _pass_on(self) -> None:
        """Start the oldest request of the caller whose last turn is longest ago."""
        while self._waiting:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # behind all others
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                return
        self._free += 1


class Lane:
    """A queue for heavy requests: so many at once, so many of each scope, and so many of each scope that wait."""

    def __init__(self, at_once: int, each: int, waiting: int, patience: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._waiting, self._patience = waiting, patience
        self._shares: defaultdict[Scope | None, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(each))
        self._queue: Counter[Scope | None] = Counter()
        self._works: set[Work] = set()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="heavy")

    async def run(
        self, request: Request, scope: Scope | None, make: Callable[[], Work], compute: Callable[[Work], Made]
    ) -> Made:
        """The result of `compute`, when it is this caller's turn. If the client leaves, the work is cancelled."""
        task = asyncio.ensure_future(self._in_turn(scope, make, compute))
        left = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait([task, left], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Cancelled("the client has left")
        finally:
            left.cancel()
            task.cancel()

    def close(self) -> None:
        """Cancel all work, and wait until the threads have noticed."""
        for work in list(self._works):
            work.cancel()
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _in_turn(self, scope: Scope | None, make: Callable[[], Work], compute: Callable[[Work], Made]) -> Made:
        if self._queue[scope] >= self._waiting:
            raise Crowded("too many requests of this kind are waiting", hint=AGAIN)
        async with contextlib.AsyncExitStack() as turn:
            self._queue[scope] += 1
            try:
                async with asyncio.timeout(self._patience):
                    await turn.enter_async_context(self._shares[scope])
                    await turn.enter_async_context(self._free)
            except TimeoutError:
                raise Crowded("the server is busy with requests of this kind", hint=AGAIN) from None
            finally:
                self._queue[scope] -= 1
            work = make()
            self._works.add(work)
            future = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, compute, work)
            # An error is read here, too: if nobody waits for it any more, asyncio would log it.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # the thread holds its place until it has noticed
                work.cancel()
                await asyncio.wait([future])
                raise
            finally:
                self._works.discard(work)
            return future.result()


class Lanes:
    """The queues of one server: for scoped callers, for their studies, and for the owner.

    Requests of scoped callers are computed in processes that open the memory by `reopen`; the owner's heavy requests
    stay in this process, where the indexes are in memory already.
    """

    def __init__(self, reopen: Callable[[], Memory] | None) -> None:
        self.bound = Lane(AT_ONCE, EACH_AT_ONCE, WAITING, PATIENCE_SECONDS)
        self.studies = Lane(AT_ONCE, EACH_AT_ONCE, WAITING, STUDY_SECONDS + PATIENCE_SECONDS)
        self.owner = Lane(OWNER_AT_ONCE, OWNER_AT_ONCE, OWNER_WAITING, OWNER_PATIENCE_SECONDS)
        self._workers = Workers(reopen) if reopen else None
        self._studying: set[Scope | None] = set()

    async def run(self, request: Request, asker: CallerMemory, function: Callable[..., Made], *arguments: Any) -> Made:
        """The result of `function(memory, work, *arguments)`; a process must be able to import the function."""
        return await self._run(self.bound, request, asker, (limits(asker.caller), function, arguments))

    async def study(
        self, request: Request, asker: CallerMemory, function: Callable[..., Made], *arguments: Any
    ) -> Made:
        """The result of a study, computed as by `run`: one study at a time for each scope, and one of the owner's."""
        scope, seconds = (None, SECONDS) if asker.caller.owner else (asker.caller.scope, STUDY_SECONDS)
        if scope in self._studying:
            raise Busy("a study is under way", hint=f"try again; it takes {seconds:g} s at the most")
        self._studying.add(scope)
        try:
            return await self._run(self.studies, request, asker, (partial(StudyWork, seconds), function, arguments))
        finally:
            self._studying.discard(scope)

    async def _run(self, lane: Lane, request: Request, asker: CallerMemory, job: Job[Made]) -> Made:
        scope, workers = None if asker.caller.owner else asker.caller.scope, self._workers
        make, function, arguments = job

        def compute(work: Work) -> Made:
            if workers is None or scope is None:
                return function(asker.memory, work, *arguments)
            return workers.call((scope, asker.memory.provenance.author), job, work)

        return await (self.owner if scope is None else lane).run(request, scope, make, compute)

    def close(self) -> None:
        """Cancel all work, and end the processes."""
        for lane in (self.bound, self.studies, self.owner):
            lane.close()
        if self._workers is not None:
            self._workers.close()
