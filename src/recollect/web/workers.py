"""Processes of their own for the heavy requests of bound callers.

One process runs one Python thread at a time, so that a heavy request in the server's own process slows down every
search: measured, the 95th percentile of another user's searches rises to 3.5 times its usual value. In another process
with a lower priority it stays where it is.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from recollect.errors import FailedError, RecollectError, without_place
from recollect.types import Scope, Work

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.memory import Memory

_log = logging.getLogger("recollect.web")

STARTING_SECONDS = 60.0
"""In which a new process opens the memory."""

GRACE_SECONDS = 2.0
"""In which a process ends work that was cancelled, or whose time is over; after that it is killed."""

IDLE_SECONDS = 300.0
"""After which a process that nobody needs ends."""

LOOK_SECONDS = 0.1
"""Between two looks whether the client has left."""

NICENESS = 10
"""How far the process stands back for the server and others; 0 is not at all, 19 the most."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How another process opens the same memory."""

    place: str
    settings: Settings

    def open(self) -> Memory:
        """The memory, opened anew."""
        from recollect.memory import Memory

        return Memory.open(self.place, settings=self.settings, fetch=False)


@dataclass(frozen=True, slots=True)
class Job:
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

    def call(self, job: Job, work: Work) -> tuple[Any, Exception | None]:
        """What the job makes, or its error. If `work` is cancelled the job is too; if it does not end, an OSError."""
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
        """End the process, whatever it does."""
        self.connection.close()
        self.process.kill()
        self.process.join()


@dataclass(slots=True)
class Workers:
    """The processes of one server. They are started when they are needed, and end when they are not."""

    recipe: Recipe
    _idle: list[Worker] = field(default_factory=list)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, job: Job, work: Work) -> Any:
        """What a job makes, in a process of its own."""
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
        """End all processes that do nothing; the others end with their jobs."""
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
    """The process: it opens the memory, and does jobs until nobody needs it."""
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
    """Do one job after the other, in a thread, so that word of a client that has left is heard meanwhile."""
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


def _do(connection: Connection, memory: Memory, job: Job, work: Work, done: threading.Event) -> None:
    answer: tuple[Any, Exception | None]
    try:
        answer = job.function(memory.within(job.scope), work, *job.arguments), None
    except Exception as error:  # noqa: BLE001  (the edge of a process)
        answer = None, _told(error)
    finally:
        done.set()
    connection.send(answer)


def _told(error: Exception) -> Exception:
    """The error as a bound caller may read it, without its cause. One that is not ours is a defect: it is logged."""
    if not isinstance(error, RecollectError):
        _log.error("a heavy request failed", exc_info=error)
        return RuntimeError(f"{type(error).__name__}: {error}")
    public = without_place(error)
    if public is not error:
        _log.warning("a heavy request failed: %s", error.message)
    return public.with_traceback(None)
