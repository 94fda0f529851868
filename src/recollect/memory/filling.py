"""Missing vectors computed in the background: one process of low priority for a store, which reports how far it is.

Its lock, its report and its errors are files in the user's state folder. The lock is released when the process ends,
however that happens, so a report that nobody holds the lock of is that of a process that failed or was killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from recollect import process
from recollect.dataclass import dataclass
from recollect.disk import hashed_name, own_folder
from recollect.errors import FailedError, RecollectError
from recollect.memory.memory import Memory
from recollect.sources.local import REST
from recollect.types import Progress, Store

NICE = 10  # the priority of the background process: other programs go first
HANDOVER_SECONDS = 10.0  # how long a new process waits for one with the same embedder that may be about to end
POLL_SECONDS = 0.2  # how often it tries
LOOKING_SECONDS = 1.0  # how long a lock is waited for that may be held only to look whether it is held
REPORT_SECONDS = 2.0  # how often it writes its report
SETTLED_SECONDS = 5.0  # how long the rate is watched before a time is named
RECENT_SECONDS = 30.0  # the rate is that of this long


class Rate:
    """Items a second over the last half minute; 0 until some seconds of work have been seen.

    The time before the first item, in which a model is loaded, does not count.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def __call__(self, done: int, now: float | None = None) -> float:
        """The rate after `done` items."""
        now = time.monotonic() if now is None else now
        if done > 0:
            self._points.append((now, done))
        while len(self._points) > 2 and now - self._points[1][0] >= RECENT_SECONDS:  # noqa: PLR2004
            self._points.popleft()
        if not self._points or now - self._points[0][0] < SETTLED_SECONDS:
            return 0.0
        began, first = self._points[0]
        return (done - first) / (now - began)


@dataclass(frozen=True, slots=True)
class Filling:
    """The report of a background process: how many vectors it has computed, and the seconds left once that is known.

    `error` says why it ended before it had finished; while it runs that is empty.
    """

    pid: int
    embedder: str = ""
    done: int = 0
    total: int = 0
    seconds_left: float | None = None
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"stopped at {self.done:,} of {self.total:,}: {self.error}"
        left = f", {about(self.seconds_left)} left" if self.seconds_left is not None else ""
        return f"{self.done:,} of {self.total:,}{left} (process {self.pid})"


def about(seconds: float) -> str:
    """A time as a person says it: `about 6 min`."""
    if seconds < 90:  # noqa: PLR2004  (a minute and a half)
        return f"about {max(10, round(seconds, -1)):.0f} s"
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes < 120 else f"about {round(minutes / 60)} h"  # noqa: PLR2004  (two hours)


def filling(store: Store) -> Filling | None:
    """What the background process of a store reports; None if there is none and the last one has finished."""
    with contextlib.suppress(OSError, ValueError, TypeError, RecollectError):
        base = _base(store)
        report, log = base.with_suffix(".json"), base.with_suffix(".log")
        if not report.exists():
            return None
        try:
            with FileLock(base.with_suffix(".lock")).acquire(blocking=False):
                more = f"; see {log}" if log.exists() and log.stat().st_size else ""
                ended = {"error": f"it ended before it had finished{more}"}
                return Filling(**ended | json.loads(report.read_text(encoding="utf-8")))
        except Timeout:
            now = Filling(**json.loads(report.read_text(encoding="utf-8")))
            if sys.platform != "win32":
                with contextlib.suppress(PermissionError):
                    os.kill(now.pid, 0)  # if it is dead, another process holds the lock: nothing is known
            return now
    return None


def missing_vectors_notice(store: Store) -> str:
    """How the vectors that are missing in a store will be computed."""
    now = filling(store)
    if now is None:
        return REST
    if now.error:
        return f"the background process stopped ({now.error}); {REST}"
    return "the rest is being computed" if now.seconds_left is None else f"the rest in {about(now.seconds_left)}"


def start(store: Store, environment: Mapping[str, str], arguments: tuple[str, ...] = ()) -> int:
    """Start a background process for a store, with these additions to the environment, and return its number.

    It has the folder and the settings of this process. It belongs to no terminal, so it goes on when that is closed.
    """
    base = _base(store)
    with _state_folder(base):
        errors = base.with_suffix(".log").open("ab")
        if (last := filling(store)) and last.error:
            base.with_suffix(".json").unlink(missing_ok=True)
    with errors:
        return process.detach(["embed", "--detached", *arguments], environment, errors)


def fill(memory: Memory, progress: Progress | None = None, *, move: bool = False) -> int:
    """Compute missing vectors; a background process that is doing so finishes first, and its progress is shown."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FailedError):  # no state folder: no other process, and no report
            stack.enter_context(_locked(memory, math.inf, threading.Event(), progress))
        return memory.embed(move=move, progress=progress)


@contextlib.contextmanager
def exclusive(memory: Memory) -> Iterator[Callable[[Progress | None], Progress]]:
    """Let no other process of this user compute vectors while the block lasts; an error if one does already.

    The result adds the report of this process, which `status` shows, to the progress of a step.
    """
    base, busy = _base(memory.store), False
    lock = FileLock(base.with_suffix(".lock"))
    with contextlib.suppress(FailedError), _state_folder(base):  # no state folder: no other process can be noticed
        try:
            lock.acquire(timeout=LOOKING_SECONDS)
        except Timeout:
            busy = True
    if busy:
        working = filling(memory.store)
        doing = f" ({working})" if working and not working.error else ""
        message = f"another process is computing vectors of this store{doing}; nothing was changed"
        raise FailedError(message, hint="run it again when that one has ended; `recollect status` shows it")
    report = _Reporting(base.with_suffix(".json"), memory.embeddings.name, threading.Event())
    try:
        yield report.beside
    finally:
        report.end()
        lock.release()


def fill_in_background(memory: Memory, *, move: bool) -> int:
    """Compute missing vectors at low priority and report how far that is.

    While another process does so it waits; after ten seconds it ends if that one has the same embedder.
    """
    if hasattr(os, "nice"):
        os.nice(max(0, NICE - os.nice(0)))
    return _fill(memory, threading.Event(), move=move)


def _fill(memory: Memory, stop: threading.Event, *, move: bool = False) -> int:
    with _locked(memory, HANDOVER_SECONDS, stop) as base:
        return _Reporting(base.with_suffix(".json"), memory.embeddings.name, stop).fill(memory, move) if base else 0


class FillingThread:
    """Computes missing vectors and reports how far that is, beside other work of this process."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._stop, self._lock = memory, threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._again = False

    @property
    def running(self) -> bool:
        """Whether it computes vectors now."""
        return (thread := self._thread) is not None and thread.is_alive()

    def begin(self) -> None:
        """Compute what is missing; if it does so already, records that were added meanwhile, too."""
        with self._lock:
            self._again = True
            if not self.running:
                self._thread = threading.Thread(target=self._run, name="recollect-vectors")
                self._thread.start()

    def close(self) -> None:
        """Wait until the batch that is being computed is saved."""
        self._stop.set()
        if thread := self._thread:
            thread.join()

    def _run(self) -> None:
        while self._is_due():
            try:
                _fill(self._memory, self._stop)
            except (RecollectError, OSError) as error:  # also a full disk: the next change tries again
                self._memory.announce(f"vectors are missing: {getattr(error, 'message', error)}")

    def _is_due(self) -> bool:
        with self._lock:
            due = self._again and not self._stop.is_set()
            self._again = False
            if not due:
                self._thread = None
            return due


class _Stopped(Exception):
    """The work was asked to end."""


class _Reporting:
    """Computes vectors and writes the report of this process every few seconds."""

    def __init__(self, path: Path, embedder: str, stop: threading.Event) -> None:
        self._path, self._stop, self._rate, self._written = path, stop, Rate(), -math.inf
        self._fields: dict[str, Any] = {"pid": os.getpid(), "embedder": embedder}

    def fill(self, memory: Memory, move: bool) -> int:
        """Compute what is missing, and leave a report only if that fails."""
        self(0, 0)
        count = 0
        try:
            count = memory.embed(move=move, progress=self)
        except _Stopped:
            pass
        except RecollectError as error:
            self._write(error=" – ".join(filter(None, (error.message, error.hint))))
            raise
        self.end()
        return count

    def beside(self, progress: Progress | None) -> Progress:
        """A progress that also writes the report."""

        def both(done: int, total: int) -> None:
            self(done, total)
            if progress:
                progress(done, total)

        return both

    def end(self) -> None:
        """Remove the report: the work has ended."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def __call__(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        rate = self._rate(done)
        self._fields |= {"done": done, "total": total, "seconds_left": (total - done) / rate if rate else None}
        if time.monotonic() - self._written > REPORT_SECONDS:
            self._write()
            self._written = time.monotonic()

    def _write(self, **fields: str) -> None:
        new = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):  # on a full disk the work goes on without a report
            new.write_text(json.dumps(self._fields | fields), encoding="utf-8")
            new.replace(self._path)  # a reader sees a whole report


@contextlib.contextmanager
def _locked(
    memory: Memory, patience: float, stop: threading.Event, progress: Progress | None = None
) -> Iterator[Path | None]:
    """Hold the lock of a store, without the report and the errors of an earlier process.

    The path is None after `stop`, or if another process with the same embedder still works after `patience` seconds.
    """
    base, end = _base(memory.store), time.monotonic() + patience
    lock = FileLock(base.with_suffix(".lock"))
    while not stop.is_set():
        with _state_folder(base), contextlib.suppress(Timeout):
            lock.acquire(blocking=False)
            break
        other = filling(memory.store)
        if other and other.embedder == memory.embeddings.name and time.monotonic() > end:
            break
        if other and other.total and progress:
            progress(min(other.done, other.total - 1), other.total)
        stop.wait(POLL_SECONDS)
    if not lock.is_locked:
        yield None
        return
    try:
        with contextlib.suppress(OSError):
            base.with_suffix(".json").unlink(missing_ok=True)
            base.with_suffix(".log").write_bytes(b"")
        yield base
    finally:
        lock.release()


def _base(store: Store) -> Path:
    """The path of a store's files in the state folder, without an ending."""
    return own_folder("state") / "embed" / hashed_name(store.contents.name)


@contextlib.contextmanager
def _state_folder(base: Path) -> Iterator[None]:
    """Make the state folder for a block that uses it; what fails there is an error of that folder."""
    try:
        base.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        hint = "make it writable, or set XDG_STATE_HOME"
        raise FailedError(f"the state folder cannot be used: {error}", hint=hint) from error
