"""Folders and files kept in the store as chunks: indexing, indexing again, and a chunk's lines in its file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.errors import FailedError, RecollectError, UsageError
from recollect.ingest import FileChanges, IndexOptions, IndexRun, Report, in_batches, resolve_roots
from recollect.ingest.discovery import HEAD, MAX_FILE, NotAFile, decode, holds_key, is_text, open_regular
from recollect.stages import freshness
from recollect.types import FileState, Progress, Record, SetFolderOptions, Store

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

UNKNOWN_OPTIONS = "its indexing options are not known; run `recollect index` on it once more"
MIXED_OPTIONS = "contains folders that were indexed with other options; run `recollect index` on each of them"

AROUND = 200
"""Lines of an excerpt before and after the chunk."""

LINE_CHARACTERS = 2_000
"""Characters of a line that an excerpt shows."""


def index(
    memory: Memory,
    folders: Iterable[tuple[Sequence[str | Path], IndexOptions | str]],
    *,
    dry_run: bool = False,
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> Report:
    """Index paths with their options, and remember these for the next time; or skip paths for a reason."""
    total = Report(dry_run=dry_run)
    for paths, options in folders:
        if isinstance(options, str):
            total.skipped |= {str(path): options for path in paths}
        else:
            _add(total, _index(memory.store, paths, options, dry_run, reading))
    if memory.embeddings.configured and not dry_run:
        try:
            total.embedded = memory.embed(progress=progress)
        except RecollectError as error:
            memory.announce(f"indexed without vectors: {error.message}")
    return total


def indexed_folders(
    memory: Memory, paths: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[Sequence[str], IndexOptions | str]]:
    """These paths, by default all folders, with the options of the nearest indexed folder, or why they cannot be used.

    A folder that contains others with different options is skipped: one set of options would give their chunks
    another scope. `new` folders have default options.
    """
    roots = memory.store.files.roots()
    for path in paths or dict.fromkeys([*new, *roots]):
        if not Path(path).exists():
            yield [path], "not there"
            continue
        around = [root for root in roots if Path(path).is_relative_to(root)]
        if not around and not any(Path(path).is_relative_to(folder) for folder in new):
            raise UsageError(f"{path} is not indexed", hint="index it first: `recollect index`")
        options = roots[max(around, key=len)] if around else IndexOptions(memory.scope).as_dict()
        inside = [other for root, other in roots.items() if root != path and Path(root).is_relative_to(path)]
        if options is None:
            yield [path], UNKNOWN_OPTIONS
        else:
            mixed = any(other != options for other in inside)
            yield [path], MIXED_OPTIONS if mixed else IndexOptions.from_dict(options)


def _index(
    store: Store, paths: Sequence[str | Path], options: IndexOptions, dry_run: bool, reading: Progress | None
) -> Report:
    report = Report(dry_run=dry_run)
    roots = resolve_roots(paths, force=options.force)
    run = IndexRun(roots, store.files, options, report)
    refused: dict[str, str] = {}
    for batch in chain([list(run.missing_marks())], in_batches(run.steps(reading))):
        if not dry_run:
            _apply(store, [step for step in batch if step.path not in refused], refused)
    for path, reason in refused.items():
        report.fail(path, reason)
    if not dry_run:
        store.records.apply([[SetFolderOptions(str(root), options.as_dict()) for root in roots]])
    return report


def _apply(store: Store, steps: Sequence[FileChanges], refused: dict[str, str]) -> None:
    """Store the changes of files. A file that the store refuses stays as it was; the others are stored."""
    try:
        store.records.apply(step.changes for step in steps)
    except UsageError:
        for step in steps:
            if step.path not in refused:
                try:
                    store.records.apply([step.changes])
                except UsageError as error:
                    refused[step.path] = f"not stored: {error.message}"


def _add(total: Report, report: Report) -> None:
    for name, value in asdict(report).items():
        current = getattr(total, name)
        if isinstance(current, dict):
            current.update(value)
        elif isinstance(current, list):
            current.extend(value)
        elif not isinstance(current, bool):
            setattr(total, name, current + value)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file from `first_line` on, of `total_lines`; `freshness` says whether it is still as indexed."""

    path: str
    first_line: int
    text: str
    lines: tuple[int, int]
    total_lines: int
    freshness: str


def excerpt(store: Store, record: Record, *, as_indexed: bool = False) -> Excerpt:
    """The lines around a chunk. Only indexed files are opened: anybody may have written the path of a record.

    With `as_indexed`, the stored text is returned for a file that has changed since: its new content was not indexed
    for the chunk's scope, so a caller of that scope may not be meant to read it.
    """
    if record.kind != "chunk" or record.path is None or record.lines is None:
        raise UsageError(f"{record.id!r} is not a chunk of a file", hint="facts have no file")
    state = store.files.states([record.path]).get(record.path)
    if state is None or record.id not in {chunk.id for chunk in store.files.chunks(record.path)}:
        raise UsageError(f"{record.path} is not indexed", hint="index it first: `recollect index`")
    first, last = record.lines
    content = _content(record.path)
    if content is None:
        return Excerpt(record.path, first, record.text, record.lines, 0, "missing")
    if as_indexed and FileState.digest_of(content) != state.digest:
        return Excerpt(record.path, first, record.text, record.lines, 0, "changed")
    lines = decode(content).replace("\r\n", "\n").split("\n")
    start = max(1, first - AROUND)
    text = "\n".join(line[:LINE_CHARACTERS] for line in lines[start - 1 : last + AROUND])
    state_now = "fresh" if as_indexed else freshness(record.path, state)
    return Excerpt(record.path, start, text, record.lines, len(lines), state_now)


def _content(path: str) -> bytes | None:
    """The content of a file; None if it is gone, or has been replaced by something that `index` would not read."""
    try:
        if os.path.realpath(path) != path:  # indexed paths are resolved: a link in it now leads elsewhere
            return None
        with open_regular(path) as file:
            content = file.read(MAX_FILE) if os.fstat(file.fileno()).st_size <= MAX_FILE else b""
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, NotAFile):
        return None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise FailedError(message, hint="check its permissions") from error
    return content if content and is_text(content[:HEAD]) and not holds_key(content[:HEAD]) else None
