"""Watch folders: the system reports that something changed, and a pass over the folder finds out what."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.disk import at_home, hashed_name, own_folder
from recollect.errors import FailedError, RecollectError, UsageError
from recollect.ingest.discovery import IGNORE_FILES
from recollect.ingest.folder import Report

if TYPE_CHECKING:
    from watchfiles import Change

RESCAN_SECONDS = 600.0  # how often a folder is compared without any event, in case one was lost
RETRY_SECONDS = 30.0  # when a pass that failed, or a watch that could not begin, is tried again
QUIET_MS = 250  # a pass begins after this long without an event, and in a storm of events after six times this


@dataclass(frozen=True, slots=True)
class Pass:
    """One comparison of a folder with the store: its report, or its error."""

    root: Path
    took_ms: float
    report: Report | None = None
    error: RecollectError | None = None


def folders(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """The folders, absolute and each once. Raises UsageError for a path that is not a folder."""
    roots = tuple(dict.fromkeys(absolute(path) for path in paths))
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder", hint="name folders that exist")
    return roots


def absolute(path: str | Path) -> Path:
    """An absolute path without links; it need not exist."""
    try:
        return at_home(path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{path} cannot be a folder: {error}", hint="name folders that exist") from error


def compare(root: Path, index: Callable[[Path], Report]) -> Pass:
    """One pass over a folder. An error is the result of the pass and does not end the watch."""
    start = time.perf_counter()
    report: Report | None = None
    error: RecollectError | None = None
    try:
        report = index(root)
    except RecollectError as problem:
        error = problem
    except Exception as problem:  # noqa: BLE001  (the watch goes on, whatever one file does to a pass)
        error = FailedError(f"{root} could not be indexed: {type(problem).__name__}: {problem}")
    return Pass(root, (time.perf_counter() - start) * 1000, report, error)


def watch(
    roots: Sequence[Path],
    index: Callable[[Path], Report],
    *,
    rescan: float = RESCAN_SECONDS,
    ignore: Path | None = None,
    quiet_ms: int = QUIET_MS,
    stop: threading.Event | None = None,
    announce: Callable[[str], None],
) -> Iterator[Pass]:
    """Passes over the folders: one of each to begin with, then whenever one is needed, until `stop` is set.

    `ignore` is the store's file, whose own changes must not cause a pass. `announce` gets a message when the system
    cannot watch a folder, which is then only compared every `rescan` seconds.
    """
    due = dict.fromkeys(roots, 0.0)
    rested = dict.fromkeys(roots, 0.0)
    for touched in _events(roots, ignore, quiet_ms, stop or threading.Event(), announce):
        for root in roots:
            if root in touched:
                due[root] = min(due[root], rested[root])
            if due[root] <= time.monotonic():
                done = compare(root, index)
                end = time.monotonic()
                # As much rest as work, so that a large folder that always changes does not take a whole processor.
                rested[root] = end + done.took_ms / 1000
                due[root] = end + (min(rescan, RETRY_SECONDS) if done.error else rescan)
                yield done


@contextlib.contextmanager
def sole_watcher(root: Path, store: str) -> Iterator[None]:
    """Hold the lock of this folder in this store, which no crash leaves; UsageError if another process has it."""
    from filelock import FileLock, Timeout

    name = hashed_name(store, str(root))
    folder = own_folder("state") / "watch"
    holder = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name}.lock")
        lock.acquire(blocking=False)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder.write_text(json.dumps({"pid": os.getpid(), "since": since, "root": str(root)}))
    except Timeout:
        by = "another process"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(holder.read_text())
            by = f"process {state['pid']} since {state['since']}"
        hint = "one watcher of a folder is enough; end that one first"
        raise UsageError(f"{root} is already watched by {by}", hint=hint) from None
    except OSError as error:
        hint = "make it writable, or set XDG_STATE_HOME"
        raise FailedError(f"the lock cannot be created in {folder}: {error.strerror}", hint=hint) from error
    try:
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _events(
    roots: Sequence[Path], ignore: Path | None, quiet_ms: int, stop: threading.Event, announce: Callable[[str], None]
) -> Iterator[set[Path]]:
    """The folders in which something happened; an empty set at every tick without an event."""
    message = ""
    while not stop.is_set():
        wait = 0.0
        try:
            yield from _system_events(roots, ignore, quiet_ms, stop)
            if any(map(_identity, roots)):
                continue
        except FileNotFoundError:
            pass  # the folder vanished just before the watch began
        except (OSError, RuntimeError) as error:
            # Too many folders for the system's watches, or a file system that has none.
            if message != str(error):
                announce(f"changes are not reported, folders are only compared now and then: {error}")
            message, wait = str(error), RETRY_SECONDS
        end = time.monotonic() + wait
        yield set()
        while not stop.wait(2 * quiet_ms / 1000) and time.monotonic() < end:
            yield set()


def _system_events(
    roots: Sequence[Path], ignore: Path | None, quiet_ms: int, stop: threading.Event
) -> Iterator[set[Path]]:
    """Events of the system until a folder must be watched anew; first all folders, for what came before."""
    from watchfiles import Change
    from watchfiles import watch as system_watch

    store_files = {f"{_place(str(ignore))}{end}" for end in ("", "-wal", "-shm", "-journal")} if ignore else set()

    def is_relevant(_change: Change, path: str) -> bool:
        place = _place(path)
        return str(place) not in store_files and any(_is_visible(place, root) for root in roots)

    before = [_identity(root) for root in roots]
    touched = {root for root, identity in zip(roots, before, strict=True) if identity}
    if not touched:
        return
    closed = {root: _closed_folders(root) for root in touched}
    for changes in system_watch(
        *(folder for root in touched for folder in _watchable(root, closed[root])),
        watch_filter=is_relevant,
        debounce=6 * quiet_ms,
        step=quiet_ms,
        rust_timeout=2 * quiet_ms,
        yield_on_timeout=True,
        stop_event=stop,
        ignore_permission_denied=True,
    ):
        paths = [_place(path) for _, path in changes]
        yield touched | _above(roots, paths)
        # A new folder is watched a moment after its event: what happens in it before is found at the next tick.
        touched = _above(
            roots, (_place(path) for change, path in changes if change == Change.added and _is_folder(path))
        )
        # Permissions that changed before the watch began have no event; none is missed after this comparison.
        if any(_closed_folders(root) != folders for root, folders in closed.items()):
            return
        closed = {}
        if [_identity(root) for root in roots] != before or any(path in roots for path in paths):
            return
        if any(_may_be_unwatched(path, is_new=change == Change.added) for change, path in changes):
            return


def _place(path: str) -> Path:
    """Where an event happened. The system names a folder by the last link to it that it found."""
    folder, name = os.path.split(path)
    return Path(os.path.realpath(folder), name)


def _above(roots: Sequence[Path], paths: Iterable[Path]) -> set[Path]:
    """The roots that have one of the paths."""
    return {root for path in paths for root in roots if path.is_relative_to(root)}


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  (False for what may not be looked at)


def _closed_folders(root: Path) -> frozenset[str]:
    """On Linux, the folders below one that cannot be read. There each folder is watched by itself."""
    if sys.platform != "linux":
        return frozenset()
    inside = (f"{folder}/{name}" for folder, names, _ in os.walk(root) for name in names)
    return frozenset(folder for folder in inside if not os.access(folder, os.R_OK))


def _watchable(root: Path, closed: frozenset[str]) -> Sequence[str | Path]:
    """The folder; with every folder below it, if some are closed.

    Those that the system's own walk would reach after the first one that cannot be read would not be watched.
    """
    return [folder for folder, _, _ in os.walk(root)] if closed else [root]


def _may_be_unwatched(path: str, *, is_new: bool) -> bool:
    """Whether a folder with an event may be one that is not watched, for lack of permission, or have one inside.

    On Linux an event of a folder that is not new means that its permissions or times have changed. Elsewhere what is
    below a folder is watched with it, and it has an event whenever its content changes.
    """
    if sys.platform != "linux" or not _is_folder(path):
        return False
    return not is_new or bool(_closed_folders(Path(path)))


def _is_visible(path: Path, root: Path) -> bool:
    """Whether an event may change the index: not one outside, or of a hidden file."""
    if not path.is_relative_to(root):
        return False
    *above, name = path.relative_to(root).parts or (str(root),)
    return not any(part.startswith(".") for part in above) and (not name.startswith(".") or name in IGNORE_FILES)


def _identity(root: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        state = root.stat()
        return state.st_dev, state.st_ino
    return None
