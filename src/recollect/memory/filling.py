"""Missing vectors computed in the background: one process of low priority for a store, which reports how far it is.

Its lock and its report are files in the user's state folder. The lock is released when the process ends, however that
happens, so a report that nobody holds the lock of is that of a process that failed or was killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.dataclass import dataclass
from recollect.errors import FailedError, RecollectError
from recollect.sources.local import REST

if TYPE_CHECKING:
    from recollect.memory.memory import Memory
    from recollect.types import Progress, Store

NICE = 10  # the priority of the background process: other programs go first
HANDOVER_SECONDS = 10.0  # how long a new process waits for one that may be about to end
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
        report = base.with_suffix(".json")
        fields: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        from filelock import FileLock, Timeout

        lock = FileLock(base.with_suffix(".lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return Filling(**fields)
        lock.release()
        if report.exists():  # it did not end just now
            log = base.with_suffix(".log")
            more = f"; see {log}" if log.stat().st_size else ""
            return Filling(**{"error": f"it ended before it had finished{more}", **fields})
    return None


def rest(store: Store) -> str:
    """How the vectors that are missing in a store will be computed."""
    now = filling(store)
    if now is None:
        return REST
    if now.error:
        return f"{REST}: the background process stopped, {now.error}"
    return "the rest is being computed" if now.seconds_left is None else f"the rest in {about(now.seconds_left)}"


def start(store: Store, environment: Mapping[str, str], arguments: tuple[str, ...] = ()) -> int:
    """Start a background process for a store, with these additions to the environment, and return its number.

    It has the folder and the settings of this process. It belongs to no terminal, so it goes on when that is closed.
    """
    if (last := filling(store)) and last.error:
        _base(store).with_suffix(".json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "recollect", "embed", "--detached", *arguments]
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603  (this program)
        command, stdin=nothing, stdout=nothing, stderr=nothing, env={**os.environ, **environment}, **apart
    )
    process.returncode = 0  # nobody waits for it
    return process.pid


def fill(memory: Memory, progress: Progress | None = None) -> int:
    """Compute missing vectors; a background process that is doing so finishes first, and its progress is shown."""
    with _turn(memory.store, None, progress) as base:
        count = memory.embed(progress=progress)
        if base is not None:
            base.with_suffix(".json").unlink(missing_ok=True)  # of a process that was killed
        return count


def fill_in_background(memory: Memory) -> int:
    """Compute missing vectors at low priority and report how far that is. Ends at once if another process does so."""
    if hasattr(os, "nice"):
        os.nice(max(0, NICE - os.nice(0)))
    with _turn(memory.store, HANDOVER_SECONDS) as base:
        if base is None:
            return 0
        with base.with_suffix(".log").open("wb") as errors:
            os.dup2(errors.fileno(), 2)  # a crash is written there
        return _Reporting(base.with_suffix(".json"), threading.Event()).fill(memory)


class FillingThread:
    """Computes missing vectors and reports how far that is, beside other work of this process."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._stop, self._lock = memory, threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._again = False

    @property
    def running(self) -> bool:
        """Whether it computes vectors now."""
        return self._thread is not None

    def begin(self) -> None:
        """Compute what is missing; if it does so already, records that were added meanwhile, too."""
        with self._lock:
            self._again = True
            if self._thread is None:
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
                with _turn(self._memory.store, HANDOVER_SECONDS) as base:
                    if base is not None:
                        _Reporting(base.with_suffix(".json"), self._stop).fill(self._memory)
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

    def __init__(self, path: Path, stop: threading.Event) -> None:
        self._path, self._stop, self._rate, self._written = path, stop, Rate(), 0.0
        self._fields: dict[str, Any] = {"pid": os.getpid()}

    def fill(self, memory: Memory) -> int:
        """Compute what is missing, and leave a report only if that fails."""
        self(0, 0)
        count = 0
        try:
            count = memory.embed(progress=self)
        except _Stopped:
            pass
        except RecollectError as error:
            self.write(error=" – ".join(filter(None, (error.message, error.hint))))
            raise
        self._path.unlink(missing_ok=True)
        return count

    def __call__(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        rate = self._rate(done)
        self._fields |= {"done": done, "total": total, "seconds_left": (total - done) / rate if rate else None}
        if time.monotonic() - self._written > REPORT_SECONDS:
            self.write()
            self._written = time.monotonic()

    def write(self, **fields: str) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._fields | fields), encoding="utf-8")
        new.replace(self._path)  # a reader sees a whole report


@contextlib.contextmanager
def _turn(store: Store, patience: float | None, progress: Progress | None = None) -> Iterator[Path | None]:
    """Hold the lock of a store. After `patience` seconds without it, or if there can be none, the path is None."""
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as stack:
        base = None
        try:
            base = _base(store)
            base.parent.mkdir(parents=True, exist_ok=True)
            lock, end = FileLock(base.with_suffix(".lock")), None if patience is None else time.monotonic() + patience
            while True:
                with contextlib.suppress(Timeout):
                    stack.enter_context(lock.acquire(timeout=REPORT_SECONDS))
                    break
                if end is not None and time.monotonic() > end:
                    base = None
                    break
                if progress and (other := filling(store)) and other.total:
                    progress(min(other.done, other.total - 1), other.total)
        except OSError as error:
            if patience is not None:
                hint = "make it writable, or set XDG_STATE_HOME"
                raise FailedError(f"the state folder cannot be used: {error}", hint=hint) from error
            base = None
        yield base


def _base(store: Store) -> Path:
    """The path of a store's files in the state folder, without an ending."""
    import platformdirs

    name = hashlib.blake2b(store.contents.identity.encode(), digest_size=12).hexdigest()
    return Path(platformdirs.user_state_dir("recollect")) / "embed" / name
