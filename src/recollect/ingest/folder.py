"""Files as a set difference: what is new is put, what is gone is forgotten, the rest costs a stat."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recollect.ingest.discover import MAX_FILE, Place, Walk, Wishes, roots_of, walk
from recollect.ingest.ignore import READ_FLAGS, holds_key
from recollect.ingest.records import Origin, followed, origin_of, records_of
from recollect.ingest.text import HEAD, is_text
from recollect.types import Change, Files, FileState, Forget, Progress, Put, Record, SawFile, Scope

GROUP = 200
"""Changes that hold or fail as one."""

BATCH = 1000
"""Changes handed to the store at once."""

BATCH_SECONDS = 0.1
"""After so long, what is ready is stored: an interrupt costs no more."""

RACY_NS = 20_000_000
"""A file changed less than this before it is read may change again within the same tick of its clock."""

MANY, SHARE = 20, 0.2
"""When more files than both vanish at once, a disk is missing more often than a person has deleted them."""


@dataclass(slots=True)
class Report:
    """What became of the files, or with `dry_run` what would.

    `moved` is from old path to new. `skipped` is by path with the reason. `unconfirmed` are files that vanished all at
    once and stay in the index until that is confirmed.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unconfirmed: list[str] = field(default_factory=list)
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Telling:
    """What the one who indexes says of every chunk, and of the run."""

    scope: Scope = field(default_factory=Scope)
    tags: tuple[str, ...] = ()
    wishes: Wishes = field(default_factory=Wishes)
    confirm: bool = False


def mirror(
    paths: Iterable[str | Path], files: Files, telling: Telling, report: Report, progress: Progress | None = None
) -> Iterator[list[Change]]:
    """The changes that make the store mirror folders and files, file by file, removals last."""
    return _Mirror(files, telling, report).changes(roots_of(paths, telling.wishes), progress)


def in_batches(groups: Iterable[list[Change]]) -> Iterator[list[list[Change]]]:
    """Groups gathered outside of any transaction: nobody waits for a lock while a file is read and parsed."""
    batch: list[list[Change]] = []
    size, deadline = 0, time.monotonic() + BATCH_SECONDS
    for group in groups:
        batch.append(group)
        size += len(group)
        if size >= BATCH or time.monotonic() > deadline:
            yield batch
            batch, size, deadline = [], 0, time.monotonic() + BATCH_SECONDS
    if batch:
        yield batch


class _Mirror:
    """One run: what the store knows, what the walk found, and the difference."""

    def __init__(self, files: Files, telling: Telling, report: Report) -> None:
        self._files = files
        self._telling = telling
        self._report = report
        self._known: dict[str, FileState] = {}
        self._vanished: dict[str, list[str]] = {}

    def changes(self, roots: Sequence[Path], progress: Progress | None) -> Iterator[list[Change]]:
        found = walk(roots, self._telling.wishes)
        self._known = self._recall(roots, found)
        retold = self._is_retold(found)
        missing = self._missing(found)
        for path in missing:
            self._vanished.setdefault(self._known[path].digest, []).append(path)
        for done, place in enumerate(found.places, 1):
            yield from _slices(self._file(place, found, retold))
            if progress:
                progress(done, len(found.places))
        self._report.skipped = dict(sorted(found.skipped.items()))
        # Removals come last, so that the vectors of text that moved to another file are still there for it.
        yield from self._removals([*missing, *(path for path in self._known if path in found.refused)])

    def _recall(self, roots: Sequence[Path], found: Walk) -> dict[str, FileState]:
        """What is known of the files below these roots, under whichever root they were indexed."""
        known = self._files.states([place.path for place in found.places])
        inner = {Path(state.root) for state in known.values()}
        outer = {folder for root in roots for folder in root.parents}
        for folder in {*inner, *roots, *outer}:
            for path, state in self._files.known(str(folder)).items():
                if any(Path(path).is_relative_to(asked) for asked in roots):
                    known[path] = state
        return known

    def _is_retold(self, found: Walk) -> bool:
        """Whether scope or tags are others than last time, by the last file: it is the last to be told."""
        known = [place.path for place in found.places if place.path in self._known]
        chunks = next((chunks for path in known[:-4:-1] if (chunks := self._files.chunks(path))), [])
        return any(
            chunk.scope != self._telling.scope or not set(self._telling.tags) <= set(chunk.tags) for chunk in chunks
        )

    def _missing(self, found: Walk) -> list[str]:
        """Known files that are gone for sure, or that the folder now keeps out. What cannot be read is neither."""
        seen = {place.path for place in found.places}
        unseen = sorted(self._known.keys() - seen - found.skipped.keys())
        return [path for path in unseen if found.refuses(path) or _is_gone(path)]

    def _file(self, place: Place, found: Walk, retold: bool) -> list[Change]:
        """What one file asks for."""
        known = self._known.get(place.path)
        if known and not retold and (known.mtime_ns, known.size) == (place.stat.st_mtime_ns, place.stat.st_size):
            self._report.unchanged += 1
            return [] if known.root == self._root(place) else [SawFile(known.path, _rooted(known, self._root(place)))]
        read = _read(place.path, found)
        if read is None:
            return []
        content, state = read
        origin = FileState(place.path, self._root(place), _settled(state), len(content), FileState.digest_of(content))
        if known and not retold and known.digest == origin.digest:
            self._report.unchanged += 1
            return [SawFile(origin.path, origin)]
        return self._difference(origin, origin_of(content, place.path), known)

    def _difference(self, state: FileState, origin: Origin, known: FileState | None) -> list[Change]:
        before = self._files.chunks(state.path)
        after = records_of(origin, self._telling.scope, self._telling.tags)
        self._report.chunks += len(after)
        old = self._came_from(state) if known is None else None
        if old is not None:
            self._report.moved[old] = state.path
            left = self._files.chunks(old)
            return [
                *(Put(record) for record in followed(after, left, keep_title=origin.note.named)),
                *_forget(before, after),
                *_forget(left, after),
                SawFile(old, None),
                SawFile(state.path, state),
            ]
        (self._report.changed if known or before else self._report.added).append(state.path)
        return [*(Put(record) for record in after), *_forget(before, after), SawFile(state.path, state)]

    def _came_from(self, state: FileState) -> str | None:
        """The vanished file of the same content, each only once."""
        same = self._vanished.get(state.digest)
        return same.pop(0) if same else None

    def _removals(self, paths: Sequence[str]) -> Iterator[list[Change]]:
        gone = sorted(set(paths) - self._report.moved.keys())
        if len(gone) > MANY and len(gone) > SHARE * len(self._known) and not self._telling.confirm:
            self._report.unconfirmed = gone
            return
        for path in gone:
            self._report.removed.append(path)
            yield from _slices([*_forget(self._files.chunks(path), ()), SawFile(path, None)])

    def _root(self, place: Place) -> str:
        """The outermost root that a file was indexed under."""
        known = self._known.get(place.path)
        return known.root if known and Path(place.root).is_relative_to(known.root) else place.root


def _read(path: str, found: Walk) -> tuple[bytes, os.stat_result] | None:
    """A file's content and its state when it was opened; None, with the reason noted, if it is not text."""
    try:
        with open(os.open(path, READ_FLAGS), "rb") as file:  # noqa: PTH123  (of a descriptor)
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                found.refuse(path, "not a file")
                return None
            head = file.read(HEAD)
            if holds_key(head) or not is_text(head):
                found.refuse(path, "looks like a secret" if holds_key(head) else "binary")
                return None
            return head + file.read(MAX_FILE), state
    except OSError as error:
        found.skipped[path] = (error.strerror or "cannot be read").lower()
        return None


def _settled(state: os.stat_result) -> int:
    """The time of change, or 0 where the file may still change without changing it: then it is read again."""
    return 0 if time.time_ns() - state.st_mtime_ns < RACY_NS else state.st_mtime_ns


def _rooted(state: FileState, root: str) -> FileState:
    return FileState(state.path, root, state.mtime_ns, state.size, state.digest)


def _forget(before: Iterable[Record], after: Iterable[Record]) -> list[Change]:
    kept = {record.id for record in after}
    return [Forget(record.id, purge=True) for record in before if record.id not in kept]


def _slices(changes: list[Change]) -> Iterator[list[Change]]:
    """Groups small enough for a short transaction.

    A file counts as seen with its last one, so that a crash between two of them only means that it is read again.
    """
    for start in range(0, len(changes), GROUP):
        yield changes[start : start + GROUP]


def _is_gone(path: str) -> bool:
    """Gone for sure: the nearest folder above that is there can be read. What cannot be looked at is not gone."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)  # a folder has taken its name
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return False
    for folder in Path(path).parents:
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return False
        return True
    return False
