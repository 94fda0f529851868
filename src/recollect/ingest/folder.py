"""Index folders as a set difference: new chunks are put, missing ones forgotten, an unchanged file costs one stat."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from recollect.ingest.discovery import MAX_FILE, READ_FLAGS, Place, Selection, Walk, Wishes, holds_key, walk
from recollect.ingest.documents import Note, Origin, origin_of, word
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

UNREAD, MISSING = -1, -2
"""In place of a file's time of change: its chunks were changed without reading it; a walk did not find it."""


@dataclass(slots=True)
class Report:
    """What became of the files, or with `dry_run` what would.

    `moved` is from old path to new. `rescoped` are files whose chunks got another scope or a new tag; they are also in
    `changed`, or in `skipped` if they could not be read now. `skipped` is by path with the reason. `unconfirmed` are
    files that vanished all at once and stay in the index until that is confirmed.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    rescoped: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unconfirmed: list[str] = field(default_factory=list)
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    dry_run: bool = False

    def fail(self, path: str, reason: str) -> None:
        """Skip a file that was reported as done already: it could not be stored."""
        for paths in (self.added, self.changed, self.removed, self.rescoped):
            if path in paths:
                paths.remove(path)
        self.moved = {old: new for old, new in self.moved.items() if new != path}
        self.skipped[path] = reason


@dataclass(frozen=True, slots=True)
class Telling:
    """What the one who indexes says of every chunk, and of the run."""

    scope: Scope = field(default_factory=Scope)
    tags: tuple[str, ...] = ()
    wishes: Wishes = field(default_factory=Wishes)
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Changes that one file asks for, few enough for a short transaction."""

    path: str
    changes: list[Change]


def in_batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Steps gathered outside of any transaction: nobody waits for a lock while a file is read and parsed."""
    batch: list[Step] = []
    size, deadline = 0, time.monotonic() + BATCH_SECONDS
    for step in steps:
        batch.append(step)
        size += len(step.changes)
        if size >= BATCH or time.monotonic() > deadline:
            yield batch
            batch, size, deadline = [], 0, time.monotonic() + BATCH_SECONDS
    if batch:
        yield batch


class Mirror:
    """One run: what the store knows, what the walk found, and the difference.

    A walk notes in the store which files are missing (`notes`) before anything is read. So a file that is missing is
    counted as vanished by one walk only, and runs that are interrupted before their removals do not add up to what
    looks like a missing disk.
    """

    def __init__(self, roots: Sequence[Path], files: Files, telling: Telling, report: Report) -> None:
        self._files = files
        self._telling = telling
        self._report = report
        self._found = walk(roots, telling.wishes)
        self._known = self._recall(roots)
        self._differing = self._compare(roots)
        self._ignored = {path for path in self._unseen() if self._found.ignores(path)}
        self._missing = {path for path in self._unseen() - self._ignored if self._is_missing(path)}
        self._noted = {path for path in self._missing if self._known[path].mtime_ns == MISSING}
        self._vanished: dict[str, list[str]] = {}
        for path in sorted(self._ignored | self._missing):
            self._vanished.setdefault(self._known[path].digest, []).append(path)
        self._naming: Naming | None = None

    def notes(self) -> Iterator[Step]:
        """Note the files that are missing since this walk, unless too many are, and those that are there again."""
        new = self._missing - self._noted
        if new and self._is_plausible(len(new)):
            self._noted |= new
            yield from _steps("", [self._note(path, MISSING) for path in sorted(new)])
        back = [path for path, state in self._known.items() if state.mtime_ns == MISSING and path not in self._missing]
        yield from _steps("", [self._note(path, 0) for path in sorted(back)])

    def steps(self, progress: Progress | None = None) -> Iterator[Step]:
        """The changes that make the store mirror the files, file by file, removals last."""
        found = self._found
        listed = {place.path for place in found.places}
        for path in sorted(self._differing - listed - self._missing - self._ignored):
            yield from _steps(path, self._rescope(path))
        for done, place in enumerate(found.places, 1):
            yield from _steps(place.path, self._file(place))
            if progress:
                progress(done, len(found.places))
        # Removals come last, so that the vectors of text that moved to another file are still there for it.
        yield from self._removals()
        self._report.skipped = dict(sorted(found.skipped.items()))

    def _recall(self, roots: Sequence[Path]) -> dict[str, FileState]:
        """What is known of the files below these roots, under whichever root they were indexed."""
        known = self._files.states([place.path for place in self._found.places])
        nested = {Path(state.root) for state in known.values()} | set(map(Path, self._files.roots()))
        for folder in nested:
            if any(folder.is_relative_to(root) or root.is_relative_to(folder) for root in roots):
                for path, state in self._files.known(str(folder)).items():
                    if any(Path(path).is_relative_to(root) for root in roots):
                        known[path] = state
        return known

    def _compare(self, roots: Sequence[Path]) -> set[str]:
        """The known files whose chunks have another scope, or lack a tag, and that this run is to look at."""
        wishes = self._telling.wishes
        differing = self._files.differing(list(self._known), self._telling.scope, self._telling.tags)
        if not (wishes.include or wishes.exclude):
            return differing
        chosen = Selection.of(wishes)
        below = {path: next(root for root in roots if Path(path).is_relative_to(root)) for path in differing}
        return {path for path, root in below.items() if chosen.reaches(Path(path).relative_to(root).parts)}

    def _unseen(self) -> set[str]:
        return self._known.keys() - {place.path for place in self._found.places}

    def _is_missing(self, path: str) -> bool:
        """Whether a file is gone for sure, or is nothing to read any more. What cannot be read now is neither."""
        return self._found.refuses(path) or (path not in self._found.skipped and _is_gone(path))

    def _is_plausible(self, count: int) -> bool:
        """Whether so many files may have been deleted since the last walk."""
        left = len(self._known) - len(self._noted)
        return self._telling.confirm or not (count > MANY and count > SHARE * left)

    def _note(self, path: str, mark: int) -> Change:
        return SawFile(path, replace(self._known[path], mtime_ns=mark))

    def _file(self, place: Place) -> list[Change]:
        """What one file asks for."""
        known = self._known.get(place.path)
        differs = place.path in self._differing
        current = known if not differs else None
        if current and (current.mtime_ns, current.size) == (place.stat.st_mtime_ns, place.stat.st_size):
            self._report.unchanged += 1
            root = self._root(place)
            return [] if current.root == root else [SawFile(current.path, replace(current, root=root))]
        read = _read(place.path, self._found)
        if read is None:
            return self._rescope(place.path) if differs and place.path not in self._found.refused else []
        content, state = read
        origin = FileState(place.path, self._root(place), _settled(state), len(content), FileState.digest_of(content))
        if current and current.digest == origin.digest and current.mtime_ns != UNREAD:
            self._report.unchanged += 1
            return [SawFile(origin.path, origin)]
        return self._difference(origin, origin_of(content, place.path), known)

    def _difference(self, state: FileState, origin: Origin, known: FileState | None) -> list[Change]:
        path = state.path
        before = self._files.chunks(path)
        ids = self._ids(path, [chunk.text for chunk in origin.note.chunks], before)
        after = records_of(origin, self._telling.scope, self._telling.tags, ids)
        self._report.chunks += len(after)
        old = self._came_from(state) if known is None else None
        if old is not None:
            self._report.moved[old] = path
            left = self._files.chunks(old)
            return [
                *(Put(record) for record in followed(after, left, keep_title=origin.note.named)),
                *_forget(before, after),
                *_forget(left, after),
                SawFile(old, None),
                SawFile(path, state),
            ]
        (self._report.changed if known or before else self._report.added).append(path)
        if path in self._differing:
            self._report.rescoped.append(path)
            after = list(followed(after, before, keep_title=origin.note.named))
        return [*(Put(record) for record in after), *_forget(before, after), SawFile(path, state)]

    def _rescope(self, path: str) -> list[Change]:
        """The stored chunks of a file that is not read in this run, under its scope and tags; to be read the next time.

        Nothing must stay visible to others because a file could not be read.
        """
        before = sorted(self._files.chunks(path), key=lambda record: record.lines or (0, 0))
        ids = self._ids(path, [record.text for record in before], before)
        scope, tags = self._telling.scope, self._telling.tags
        after = [
            replace(record, id=key, scope=scope, tags=tuple(dict.fromkeys((*record.tags, *tags))))
            for key, record in zip(ids, before, strict=True)
        ]
        self._report.rescoped.append(path)
        return [*(Put(record) for record in after), *_forget(before, after), self._note(path, UNREAD)]

    def _ids(self, path: str, texts: Sequence[str], before: Sequence[Record]) -> list[str]:
        if self._naming is None:
            key = b"" if self._report.dry_run else self._files.chunk_key()  # a dry run stores nothing, no key either
            self._naming = Naming(self._telling.scope, key)
        return self._naming.ids(path, texts, before)

    def _came_from(self, state: FileState) -> str | None:
        """The vanished file of the same content, each only once."""
        same = self._vanished.get(state.digest)
        return same.pop(0) if same else None

    def _removals(self) -> Iterator[Step]:
        """Forget what is ignored, what a walk has noted as missing, and the rest unless it is too much at once."""
        refused = {path for path in self._known if path in self._found.refused}  # also those that turned out so
        gone = (self._ignored | self._missing | refused) - self._report.moved.keys()
        new = gone - self._ignored - self._noted
        if not self._is_plausible(len(new)):
            self._report.unconfirmed = sorted(new)
            gone -= new
            for path in sorted(new & self._differing):
                yield from _steps(path, self._rescope(path))
        for path in sorted(gone):
            self._report.removed.append(path)
            yield from _steps(path, [*_forget(self._files.chunks(path), ()), SawFile(path, None)])

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


def _forget(before: Iterable[Record], after: Iterable[Record]) -> list[Change]:
    kept = {record.id for record in after}
    return [Forget(record.id, purge=True) for record in before if record.id not in kept]


def _steps(path: str, changes: list[Change]) -> Iterator[Step]:
    """Groups small enough for a short transaction.

    A file counts as seen with its last one, so that a crash between two of them only means that it is read again.
    """
    for start in range(0, len(changes), GROUP):
        yield Step(path, changes[start : start + GROUP])


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


@dataclass(frozen=True, slots=True)
class Naming:
    """How the chunks of a scope get their ids: by content, with the store's key, so that nobody can guess them."""

    scope: Scope
    key: bytes

    def ids(self, path: str, texts: Iterable[str], before: Iterable[Record]) -> list[str]:
        """One id a chunk, in order. A chunk that is in the store already (`before`) keeps the id that it has."""
        stored = sorted((record for record in before if record.scope == self.scope), key=_first_line)
        known = dict(zip(_counted(record.text for record in stored), (record.id for record in stored), strict=True))
        return [known.get((text, nth)) or self._new(path, text, nth) for text, nth in _counted(texts)]

    def _new(self, path: str, text: str, nth: int) -> str:
        """By content, not by place: a line inserted above changes nothing below but line numbers."""
        whose = (part for pair in sorted(self.scope.as_dict().items()) for part in pair)
        name = "\0".join((path, text, str(nth), *whose))
        return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12, key=self.key).hexdigest()


def records_of(origin: Origin, scope: Scope, tags: tuple[str, ...], ids: Sequence[str]) -> list[Record]:
    """The chunks as records, with what the front matter and the one who indexes say of all of them."""
    common = _common(origin.note, scope, tags)
    return [
        Record(
            id=key,
            kind="chunk",
            title=" › ".join((origin.note.title, *chunk.headings)),
            text=chunk.text,
            path=origin.path,
            lines=chunk.lines,
            **common,
        )
        for key, chunk in zip(ids, origin.note.chunks, strict=True)
    ]


def followed(after: Sequence[Record], before: Sequence[Record], *, keep_title: bool) -> Iterator[Record]:
    """Records of a file that moved, with what was known of them at the old place.

    `keep_title` is for a title that is only the file's name: it stays until the text changes, since the title is
    part of what is embedded, and a move is to cost no embedding.
    """
    # Records come in no order, so that texts that occur twice are told apart by their lines.
    old: dict[str, list[Record]] = {}
    for record in sorted(before, key=_first_line, reverse=True):
        old.setdefault(record.text, []).append(record)
    for record in after:
        same = old.get(record.text)
        if not same:
            yield record
            continue
        was = same.pop()
        yield replace(
            record,
            title=was.title if keep_title else record.title,
            created_at=was.created_at,
            importance=was.importance,
            decay=was.decay,
            superseded_by=was.superseded_by,
            superseded_at=was.superseded_at,
        )


def _first_line(record: Record) -> tuple[int, int]:
    return record.lines or (0, 0)


def _counted(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each text with how often it has occurred so far."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
        yield text, counts[text]


def _common(note: Note, scope: Scope, tags: Iterable[str]) -> dict[str, Any]:
    said = note.metadata.get("tags") or ()
    named: Iterable[object] = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    own = tuple(tag for said in named if (tag := word(said).lstrip("#")))
    category = word(note.metadata.get("category"))
    return {
        "scope": scope,
        "tags": tuple(dict.fromkeys((*own, *tags))),
        "category": category or None,
        "happened_at": _when(note.metadata.get("date")),
        "source": "index",
    }


def _when(value: object) -> datetime | None:
    match value:
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None
