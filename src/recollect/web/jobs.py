"""Work that outlives a request: one run of indexing at a time, and what became of the last."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from recollect.errors import Forbidden, RecollectError, UsageError
from recollect.memory import Memory
from recollect.memory.shapes import iso
from recollect.types import now
from recollect.web.errors import INTERNAL, Busy

_log = logging.getLogger("recollect.web")


class _Stopped(Exception):
    """The server ends."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    state: str = "idle"
    paths: tuple[str, ...] = ()
    done: int = 0
    total: int = 0
    report: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    started_at: str | None = None
    took_ms: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "paths": list(self.paths)}


@dataclass(slots=True)
class Indexer:
    """Runs indexing beside the requests. Only folders that are mirrored already, or that were named at the start."""

    memory: Memory
    folders: tuple[str, ...] = ()
    job: Job = field(default_factory=Job)
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def roots(self) -> list[str]:
        """The folders that may be indexed."""
        return list(dict.fromkeys([*self.folders, *self.memory.store.files.roots()]))

    def start(self, paths: Sequence[str], *, dry_run: bool) -> Job:
        """Begin a run; an error where one is under way."""
        wanted = tuple(self._allowed(path) for path in paths) or tuple(self.roots())
        if not wanted:
            raise UsageError("no folder is indexed yet", hint="recollect serve --folder DIR, or `recollect index DIR`")
        with self._lock:
            if self.job.state == "running":
                raise Busy("indexing is under way", hint="GET /v1/index says how far it is")
            started = self.job = Job("running", wanted, started_at=iso(now()))
            self._thread = threading.Thread(target=self._run, args=(wanted, dry_run), name="indexing", daemon=True)
            self._thread.start()
            return started

    def close(self, patience: float = 5.0) -> None:
        """Stop at the next file; what was indexed stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self, paths: tuple[str, ...], dry_run: bool) -> None:
        start = time.monotonic()
        try:
            report = self.memory.reindex(
                paths, new=self.folders, dry_run=dry_run, reading=self._progress, progress=self._progress
            )
            ended = replace(self.job, state="done", report=asdict(report))
        except _Stopped:
            ended = replace(self.job, state="stopped")
        except RecollectError as error:
            ended = replace(self.job, state="failed", error=error.as_dict()["error"])
        except Exception:  # noqa: BLE001  (the edge of a thread)
            _log.exception("indexing failed")
            ended = replace(self.job, state="failed", error=dict(INTERNAL))
        self.job = replace(ended, took_ms=round((time.monotonic() - start) * 1000, 1))

    def _progress(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        self.job = replace(self.job, done=done, total=total)

    def _allowed(self, path: str) -> str:
        try:
            wanted = Path(path).expanduser().resolve()
            inside = any(wanted.is_relative_to(Path(root).resolve()) for root in self.roots())
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise Forbidden("that folder is not indexed, and may not be from here", hint="recollect serve --folder DIR")
        return str(wanted)
