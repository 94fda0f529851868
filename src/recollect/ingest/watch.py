"""Folders mirrored live: the system says that something changed, a pass over the folder finds out what.

An event is only a hint. The truth is the pass, which compares the whole folder with the store; it runs when a watch
begins, after every burst of events and every few minutes, so that an event that was lost is late and not missed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.errors import FailedError, RecollectError, UsageError
from recollect.ingest.folder import Report

if TYPE_CHECKING:
    from watchfiles import Change

RESCAN_SECONDS = 600.0
"""How often a folder is compared without any event."""

RETRY_SECONDS = 30.0
"""How soon a pass that failed, or a watch that could not begin, is tried again."""

QUIET_MS = 250
"""A pass begins when no new file has been named for this long; a file is seen within two of these."""

LONGEST_MS = 1_500
"""In a storm of events a pass begins after this long all the same."""

TICK_MS = 500
"""How often the watch looks up: whether a pass is due, and whether the folder is still the one it watches."""

RULES = (".gitignore", ".recollectignore")
"""Hidden files that say what is indexed."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One comparison of a folder with the store: its report, or why there is none."""

    root: Path
    took_ms: float
    report: Report | None = None
    error: RecollectError | None = None


def folders(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """The folders named, each once, as the mirror knows them."""
    roots = tuple(dict.fromkeys(absolute(path) for path in paths))
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder", hint="name folders that are there")
    return roots


def absolute(path: str | Path) -> Path:
    """A path from the root on, without links; it need not be there."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{path} cannot be a folder: {error}", hint="name folders that are there") from error


def compare(root: Path, mirror: Callable[[Path], Report]) -> Pass:
    """One pass over a folder. Whatever goes wrong is the pass's result, not the end of the watch."""
    start = time.perf_counter()
    report, error = None, None
    try:
        report = mirror(root)
    except RecollectError as problem:
        error = problem
    except Exception as problem:  # noqa: BLE001  (a watch outlives what one file or one moment does to a pass)
        error = FailedError(f"{root} could not be mirrored: {type(problem).__name__}: {problem}")
    return Pass(root, (time.perf_counter() - start) * 1000, report, error)


def watch(
    roots: Sequence[Path],
    mirror: Callable[[Path], Report],
    *,
    rescan: float = RESCAN_SECONDS,
    ignore: Path | None = None,
    announce: Callable[[str], None],
) -> Iterator[Pass]:
    """Passes over the folders, for ever: one of each to begin with, then whenever one is needed.

    `ignore` is the store's file, whose own changes must not set off the next pass. `announce` is told when a folder
    can only be compared from time to time.
    """
    due = dict.fromkeys(roots, 0.0)
    rested = dict.fromkeys(roots, 0.0)
    for touched in _touched(roots, ignore, announce):
        for root in roots:
            if root in touched:
                due[root] = min(due[root], rested[root])
            if due[root] <= time.monotonic():
                done = compare(root, mirror)
                end = time.monotonic()
                # As much rest as work, so that a large folder that never rests does not take a whole processor.
                rested[root] = end + done.took_ms / 1000
                due[root] = end + (min(rescan, RETRY_SECONDS) if done.error else rescan)
                yield done


@contextlib.contextmanager
def sole_watcher(root: Path, store: str) -> Iterator[None]:
    """Hold the lock of this folder in this store, or say who does; it goes with the process, however that ends."""
    import platformdirs
    from filelock import FileLock, Timeout

    name = hashlib.blake2b("\0".join((store, str(root))).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    folder = Path(platformdirs.user_state_dir("recollect")) / "watch"
    holder = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name}.lock")
        lock.acquire(blocking=False)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder.write_text(json.dumps({"pid": os.getpid(), "since": since, "root": str(root)}))
    except Timeout:
        raise UsageError(
            f"{root} is already watched {_who(holder)}", hint="one watcher of a folder is enough; end that one first"
        ) from None
    except OSError as error:
        raise FailedError(
            f"no lock can be kept in {folder}: {error.strerror}", hint="make it writable, or set XDG_STATE_HOME"
        ) from error
    try:
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _who(holder: Path) -> str:
    """Who holds a lock, as far as they have said so."""
    try:
        said = json.loads(holder.read_text())
        return f"by process {said['pid']} since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "by another process"


def _touched(
    roots: Sequence[Path], ignore: Path | None, announce: Callable[[str], None]
) -> Iterator[frozenset[Path] | set[Path]]:
    """The folders that something happened in, at least one answer a tick; all of them when a watch begins anew."""
    said = ""
    while True:
        before = _identities(roots)
        try:
            yield from _events(roots, ignore, before)
        except FileNotFoundError:
            yield from _ticks(TICK_MS / 1000)  # it went in the moment before the watch began
        except (OSError, RuntimeError) as error:
            # Not the folder's fault: too many folders for the system's watches, a file system that has none.
            if said != str(error):
                announce(f"no live watch, only a look from time to time: {error}")
            said = str(error)
            yield from _ticks(RETRY_SECONDS)


def _events(
    roots: Sequence[Path], ignore: Path | None, before: list[tuple[int, int] | None]
) -> Iterator[frozenset[Path] | set[Path]]:
    """What is touched, until one of the folders is not the one it was any more: deleted, renamed, mounted over."""
    from watchfiles import watch as system_watch

    present = [root for root, identity in zip(roots, before, strict=True) if identity]
    if not present:
        yield from _ticks(TICK_MS / 1000)
        return
    # Something may have happened before the watch began, and after the last one ended: the first answer is "all".
    touched = frozenset(present)
    for changes in system_watch(
        *present,
        watch_filter=_Relevant(roots, ignore),
        debounce=LONGEST_MS,
        step=QUIET_MS,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    ):
        paths = [Path(path) for _, path in changes]
        yield touched | {root for root in roots if any(path.is_relative_to(root) for path in paths)}
        touched = frozenset()
        if _identities(roots) != before or any(path in roots for path in paths):
            return


@dataclass(frozen=True, slots=True)
class _Relevant:
    """Which events may change what is indexed: none of hidden files, behind links, or of the store's own."""

    roots: Sequence[Path]
    ignore: Path | None

    def __call__(self, _change: Change, path: str) -> bool:
        if self.ignore is not None and path in {f"{self.ignore}{end}" for end in ("", "-wal", "-shm", "-journal")}:
            return False
        return any(self._shown(path, root) for root in self.roots)

    @staticmethod
    def _shown(path: str, root: Path) -> bool:
        where = Path(path)
        if not where.is_relative_to(root):
            return False
        *above, name = where.relative_to(root).parts or (str(root),)
        if any(part.startswith(".") for part in above) or (name.startswith(".") and name not in RULES):
            return False
        return not above or where.parent.resolve() == where.parent


def _identities(roots: Sequence[Path]) -> list[tuple[int, int] | None]:
    return [_identity(root) for root in roots]


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        stat = root.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _ticks(seconds: float) -> Iterator[set[Path]]:
    """Nothing that is known of, for a while."""
    end = time.monotonic() + seconds
    while True:
        yield set()
        if time.monotonic() >= end:
            return
        time.sleep(TICK_MS / 1000)
