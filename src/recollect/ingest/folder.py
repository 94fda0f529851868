"""Index folders as a set difference: store new chunks, forget missing ones, and only stat an unchanged file."""

import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from recollect.dates import date_in_name, moment_of
from recollect.ingest.discovery import (
    MAY_HOLD_SECRETS,
    FoundFile,
    NotAFile,
    PatternSelection,
    read_file,
    reason_of,
    walk,
)
from recollect.ingest.documents import Document, read_document
from recollect.ingest.forgetting import WRITER, stay_forgotten, without_forgotten
from recollect.ingest.properties import metadata_text
from recollect.ingest.readers import Unreadable, kind_of
from recollect.ingest.readers.worker import Worker
from recollect.types import Change, FileState, Forget, Progress, Put, Record, Scope, SetFileState, Store

GROUP = 200  # changes in one transaction
BATCH = 1000  # changes handed to the store at once
BATCH_SECONDS = 0.1  # after this time changes that are ready are stored: an interrupt loses no more
RACY_NS = 20_000_000  # a file changed less than this before it is read may change again without a new modification time
MANY, SHARE = 20, 0.2  # when more files than both vanish at once, a missing disk is more likely than a deletion
EMPTY = "empty"  # why a file of blanks is skipped
UNREAD, MISSING = -1, -2
"""In place of a modification time: the chunks were changed without reading the file; a walk did not find the file."""


@dataclass(slots=True)
class Report:
    """What was done with the files, or with `dry_run` what would be done.

    `moved` is from old path to new. `rescoped` are files whose chunks got another scope or a new tag; they are also in
    `changed`, or in `skipped` if they could not be read now. `skipped` is by path with the reason. `unconfirmed` are
    files that vanished all at once and stay in the index until that is confirmed. `redacted` is how many secrets were
    replaced in texts that an embedding server on another machine got.
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
    redacted: int = 0
    dry_run: bool = False

    def fail(self, path: str, reason: str) -> None:
        """Report a file as skipped because it could not be stored."""
        for paths in (self.added, self.changed, self.removed, self.rescoped):
            if path in paths:
                paths.remove(path)
        self.moved = {old: new for old, new in self.moved.items() if new != path}
        self.skipped[path] = reason


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Options of one indexing run: scope and tags of every chunk, and which files to read.

    `include` and `exclude` are patterns as in `.gitignore`. `force` allows a whole home folder. `confirm` accepts that
    many files vanished at once.
    """

    scope: Scope = field(default_factory=Scope)
    tags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force: bool = False
    confirm: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The options to store with a root, for the next run: all but `confirm`."""
        lists = {name: list(getattr(self, name)) for name in ("tags", "include", "exclude")}
        return {"scope": self.scope.as_dict(), "force": self.force, **lists}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """The options that `as_dict` stored."""
        tags, include, exclude = (tuple(stored[name]) for name in ("tags", "include", "exclude"))
        return cls(Scope(**stored["scope"]), tags, include, exclude, bool(stored["force"]))

    def inside(self, own: Self, outer: Self) -> Self:
        """These options for a folder that was indexed with its `own` and not with those that the `outer` one had."""
        scope = self.scope if own.scope in (Scope(), outer.scope) else own.scope
        return replace(self, scope=scope, tags=self.tags if own.tags in ((), outer.tags) else own.tags)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes for one file, few enough for a short transaction."""

    path: str
    changes: list[Change]


def in_batches(steps: Iterable[FileChanges]) -> Iterator[list[FileChanges]]:
    """Collect steps outside of any transaction: nobody waits for a lock while a file is read and parsed."""
    batch: list[FileChanges] = []
    size, deadline = 0, time.monotonic() + BATCH_SECONDS
    for step in steps:
        batch.append(step)
        size += len(step.changes)
        if size >= BATCH or time.monotonic() > deadline:
            yield batch
            batch, size, deadline = [], 0, time.monotonic() + BATCH_SECONDS
    if batch:
        yield batch


class IndexRun:
    """One run over some roots: the files that the store knows, the files of the walk, and the difference.

    A run first marks the missing files in the store (`missing_marks`), before it reads any file. So a missing file
    counts as newly vanished in one run only, and runs that are interrupted before their removals do not add up to what
    looks like a missing disk.
    """

    def __init__(self, roots: Sequence[Path], store: Store, options: IndexOptions, report: Report) -> None:
        self._store, self._files = store, store.files
        self._options = options
        self._inner = _inner_folders(roots, self._files.roots(), options)
        self._report = report
        self._worker = Worker()
        self._walk = walk(roots, include=options.include, exclude=options.exclude)
        self._known = {path: state for root in roots for path, state in self._files.known(str(root)).items()}
        self._differing = self._find_differing(roots)
        absent = self._known.keys() - {file.path for file in self._walk.files}
        exclusions = {path: self._walk.exclusion(path) for path in absent}
        self._ignored = {path for path in absent if exclusions[path] in ("", MAY_HOLD_SECRETS)}
        # Gone for sure, or not a file to read any more. A file that cannot be read now is neither.
        self._missing = {
            path
            for path in absent - self._ignored
            if exclusions[path] is not None or (path not in self._walk.skipped and _is_gone(path))
        }
        self._marked = {path for path in self._missing if self._known[path].mtime_ns == MISSING}
        self._vanished: dict[str, list[str]] = {}
        for path in sorted(self._ignored | self._missing):
            self._vanished.setdefault(self._known[path].digest, []).append(path)

    def missing_marks(self) -> Iterator[FileChanges]:
        """Mark the files that are missing since this run, unless too many are; unmark those that are back."""
        new = self._missing - self._marked
        if new and self._is_plausible(len(new)):
            self._marked |= new
            yield from _steps("", [self._mark(path, MISSING) for path in sorted(new)])
        back = [path for path, state in self._known.items() if state.mtime_ns == MISSING and path not in self._missing]
        yield from _steps("", [self._mark(path, 0) for path in sorted(back)])

    def steps(self, progress: Progress | None) -> Iterator[FileChanges]:
        """The changes that bring the store up to date, file by file."""
        files = self._walk.files
        for path in sorted(self._differing - {file.path for file in files} - self._missing - self._ignored):
            yield from _steps(path, self._rescope(path))
        with self._worker:
            for done, file in enumerate(files, 1):
                yield from _steps(file.path, self._compare(file))
                if progress:
                    progress(done, len(files))
        # Removals come last, so that the vectors of text that moved to another file are still there for it.
        yield from self._removals()
        self._report.skipped |= sorted(self._walk.skipped.items())

    def _find_differing(self, roots: Sequence[Path]) -> set[str]:
        """The known files whose chunks have another scope or lack a tag, and that the patterns select."""
        selected = set()
        selection = PatternSelection(self._options.include, self._options.exclude)
        by_options: dict[IndexOptions, list[str]] = {}
        for known in self._known:
            by_options.setdefault(self._options_of(known), []).append(known)
        for options, paths in by_options.items():
            for path in map(Path, self._files.differing(paths, options.scope, options.tags)):
                root = next(root for root in roots if path.is_relative_to(root))
                if path == root or selection.has(path.relative_to(root).as_posix()):
                    selected.add(str(path))
        return selected

    def _options_of(self, path: str) -> IndexOptions:
        """The options for a file: those of the run, or of an inner folder that was indexed on its own."""
        around = [folder for folder in self._inner if Path(path).is_relative_to(folder)]
        return self._inner[max(around, key=len)] if around else self._options

    def _is_plausible(self, count: int) -> bool:
        """Whether so many files may have been deleted since the last run."""
        remaining = len(self._known) - len(self._marked)
        return self._options.confirm or not (count > MANY and count > SHARE * remaining)

    def _mark(self, path: str, mark: int) -> Change:
        return SetFileState(path, replace(self._known[path], mtime_ns=mark))

    def _compare(self, file: FoundFile) -> list[Change]:
        known = self._known.get(file.path)
        # The outermost root that a file was indexed under stays its root.
        root = known.root if known and Path(file.root).is_relative_to(known.root) else file.root
        differs = file.path in self._differing
        kind = kind_of(file.path)
        reader = kind.mark if kind else ""
        current = known if not differs and known and known.reader == reader else None
        if current and (current.mtime_ns, current.size) == (file.stat.st_mtime_ns, file.stat.st_size):
            self._count_unchanged(current)
            return [] if current.root == root else [SetFileState(current.path, replace(current, root=root))]
        try:
            content, modified = read_file(file.path, explicit=file.explicit)
        except NotAFile as error:
            self._walk.refuse(file.path, reason_of(error))
            return []
        except OSError as error:
            self._walk.skipped[file.path] = reason_of(error)
            return self._rescope(file.path) if differs else []
        # A file that may still change without another time is read again in the next run.
        modified = 0 if time.time_ns() - modified < RACY_NS else modified
        digest = FileState.digest_of(content)
        state = FileState(file.path, root, modified, len(content), f"{digest} {reader}".rstrip())
        if current and current.content_digest == digest and current.mtime_ns != UNREAD:
            self._count_unchanged(current)
            return [SetFileState(state.path, replace(state, digest=current.digest))]
        try:
            document = read_document(content, file.path, self._worker)
            problem = "" if document.chunks else EMPTY
        except Unreadable as error:
            problem = str(error)
        if problem:
            return self._drop_chunks(replace(state, digest=f"{digest} {reader} {problem}"))
        return self._replace_chunks(state, document, known)

    def _count_unchanged(self, state: FileState) -> None:
        if state.problem:
            self._walk.skipped[state.path] = state.problem
        else:
            self._report.unchanged += 1

    def _drop_chunks(self, state: FileState) -> list[Change]:
        """Forget what is indexed of a document that cannot be read, and remember the reason until it changes."""
        before = self._files.chunks(state.path)
        self._walk.skipped[state.path] = state.problem
        self._report.removed += [state.path] if before else []
        return _changes(state.path, state, before, ())

    def _replace_chunks(self, state: FileState, document: Document, known: FileState | None) -> list[Change]:
        path = state.path
        before, after = self._new_chunks(path, document)
        if known is None and (vanished := self._vanished.get(state.digest)):
            old = vanished.pop(0)
            self._report.moved[old] = path
            previous, remaining = self._new_chunks(old, document)
            texts = {record.text for record in remaining}
            unwanted = [record for record in after if record.text not in texts]
            after = [record for record in after if record.text in texts]
            self._report.chunks += len(after)
            after = _carry_over(after, previous, keep_title=document.untitled)
            stay = stay_forgotten(self._files.chunks(old, forgotten=True), unwanted, path)
            changes = _changes(path, state, [*before, *previous], after)
            return [*changes[:-1], *stay, SetFileState(old, None), changes[-1]]
        self._report.chunks += len(after)
        (self._report.changed if known or before else self._report.added).append(path)
        if path in self._differing:
            self._report.rescoped.append(path)
            after = _carry_over(after, before, keep_title=document.untitled)
        return _changes(path, state, before, after)

    def _new_chunks(self, path: str, document: Document) -> tuple[list[Record], list[Record]]:
        """The stored chunks of a file, and those that the document has, without those that somebody has forgotten."""
        before, forgotten = self._files.chunks(path), self._files.chunks(path, forgotten=True)
        options = self._options_of(path)
        after = chunk_records(path, document, options=options, before=[*before, *forgotten], key=self._key)
        return before, without_forgotten(self._store, self._with_free_ids(after, before), before, forgotten)

    def _with_free_ids(self, after: list[Record], before: Sequence[Record]) -> list[Record]:
        """These chunks, with other ids where a renamed folder, whose old path is theirs now, keeps its own."""
        new = {record.id for record in after} - {record.id for record in before}
        while taken := {one.id for one in self._store.records.get(sorted(new)) if one.kind == "chunk"}:
            after = [replace(one, id=_hash(one.id, self._key)) if one.id in taken else one for one in after]
            new = {_hash(key, self._key) for key in taken}
        return after

    def _rescope(self, path: str) -> list[Change]:
        """Give the chunks of a file that is not read now the new scope and tags: others must not go on seeing them."""
        before = sorted(self._files.chunks(path), key=_line_range)
        options = self._options_of(path)
        scope, tags = options.scope, options.tags
        ids = _ids(path, [record.text for record in before], before=before, scope=scope, key=self._key)
        after = [
            replace(record, id=key, scope=scope, tags=tuple(dict.fromkeys((*record.tags, *tags))))
            for key, record in zip(ids, before, strict=True)
        ]
        self._report.rescoped.append(path)
        return _changes(path, replace(self._known[path], mtime_ns=UNREAD), before, after)

    @cached_property
    def _key(self) -> bytes:
        return b"" if self._report.dry_run else self._files.chunk_key()  # a dry run stores nothing, no key either

    def _removals(self) -> Iterator[FileChanges]:
        """Forget ignored files, files marked as missing, and newly missing ones unless too many vanished at once."""
        refused = {path for path in self._known if path in self._walk.refused}  # also files refused after the walk
        gone = (self._ignored | self._missing | refused) - self._report.moved.keys()
        new = gone - self._ignored - self._marked
        if not self._is_plausible(len(new)):
            self._report.unconfirmed += sorted(new)
            gone -= new
            for path in sorted(new & self._differing):
                yield from _steps(path, self._rescope(path))
        for path in sorted(gone):
            self._report.removed.append(path)
            yield from _steps(path, _changes(path, None, self._files.chunks(path), ()))


def _inner_folders(
    roots: Sequence[Path], known: Mapping[str, Mapping[str, Any] | None], options: IndexOptions
) -> dict[str, IndexOptions]:
    """The indexed folders inside the roots, with the options for their files: a scope and tags of their own stay."""
    stored = {folder: IndexOptions.from_dict(fields) for folder, fields in known.items() if fields}
    inner: dict[str, IndexOptions] = {}
    for folder in sorted(stored, key=len):
        if any(Path(folder) != root and Path(folder).is_relative_to(root) for root in roots):
            outer = max((each for each in map(str, Path(folder).parents) if each in stored), key=len, default="")
            outer_options = inner.get(outer, options)
            inner[folder] = outer_options.inside(stored[folder], stored.get(outer, IndexOptions()))
    return inner


def _ids(path: str, texts: Iterable[str], *, before: Iterable[Record], scope: Scope, key: bytes) -> list[str]:
    """One id a chunk: its old one, or a hash of its content (not its position) with the store's secret key."""
    known = _by_occurrence(record for record in before if record.scope == scope)
    names = [part for pair in sorted(scope.as_dict().items()) for part in pair]
    return [
        known[text, nth].id if (text, nth) in known else _hash("\0".join((path, text, str(nth), *names)), key)
        for text, nth in _numbered(texts)
    ]


def _hash(name: str, key: bytes) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12, key=key).hexdigest()


def chunk_records(
    path: str, document: Document, *, options: IndexOptions, before: Sequence[Record], key: bytes
) -> list[Record]:
    """The chunks of a file as records. A chunk whose text is stored already, in one of `before`, keeps its id."""
    metadata = document.metadata
    ids = _ids(path, [chunk.text for chunk in document.chunks], before=before, scope=options.scope, key=key)
    tags = metadata.get("tags") or ()
    values: Iterable[object] = tags.split(",") if isinstance(tags, str) else tags if isinstance(tags, list) else ()
    own = (tag for value in values if (tag := metadata_text(value).lstrip("#")))
    begins = moment_of(metadata.get("valid_from")) or moment_of(metadata.get("date")) or date_in_name(Path(path).name)
    ends = moment_of(metadata.get("valid_until"), end=True)
    common: dict[str, Any] = {
        "scope": options.scope,
        "tags": tuple(dict.fromkeys((*own, *options.tags))),
        "category": metadata_text(metadata.get("category")) or None,
        "source": "index",
        "origin": "file",
        "kind": "chunk",
        "path": path,
    }
    return [
        Record(
            id=key,
            title=" › ".join((document.title, *chunk.headings)),
            text=chunk.text,
            lines=chunk.lines,
            place=chunk.place,
            happened_at=chunk.date or begins,
            expires_at=chunk.expires or ends,
            **common,
        )
        for key, chunk in zip(ids, document.chunks, strict=True)
    ]


def _carry_over(after: Sequence[Record], before: Sequence[Record], *, keep_title: bool) -> list[Record]:
    """New records with the dates and history of old ones of the same text; a title that stays costs no embedding."""
    old = _by_occurrence(before)
    names = ("created_at", "importance", "decay", "superseded_by", "superseded_at", *(["title"] if keep_title else []))
    records = []
    for record, key in zip(after, _numbered(record.text for record in after), strict=True):
        carried = {name: getattr(old[key], name) for name in names} if key in old else {}
        records.append(replace(record, **carried))
    return records


def _by_occurrence(records: Iterable[Record]) -> dict[tuple[str, int], Record]:
    """Stored records, which come in no order, by text; a text that occurs twice is told apart by its lines."""
    ordered = sorted(records, key=_line_range)
    return dict(zip(_numbered(record.text for record in ordered), ordered, strict=True))


def _line_range(record: Record) -> tuple[int, int]:
    return record.lines or (0, 0)


def _numbered(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts[text] += 1
        yield text, counts[text]


def _changes(path: str, state: FileState | None, before: Iterable[Record], after: Sequence[Record]) -> list[Change]:
    """Store the new chunks of a file, forget the old ones, and then mark it as seen."""
    return [*chunk_changes(before, after), SetFileState(path, state)]


def chunk_changes(before: Iterable[Record], after: Sequence[Record]) -> list[Change]:
    """Store the new chunks of a file, and forget the old ones."""
    remaining = {record.id for record in after}
    forgotten = [Forget(record.id, purge=True, writer=WRITER) for record in before if record.id not in remaining]
    return [*map(Put, after), *forgotten]


def _steps(path: str, changes: list[Change]) -> Iterator[FileChanges]:
    """Changes in groups. The last one marks the file as seen, so after a crash between two the file is read again."""
    for start in range(0, len(changes), GROUP):
        yield FileChanges(path, changes[start : start + GROUP])


def _is_gone(path: str) -> bool:
    """Whether a file is gone for sure: a folder has its name, or the nearest existing folder above it can be read."""
    for place in (path, *map(str, Path(path).parents)):
        try:
            if stat.S_ISDIR(os.lstat(place).st_mode):
                os.scandir(place).close()
                return True
            if place == path:
                return False
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return False
    return False
