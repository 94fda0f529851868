"""Folders and files, mirrored; and mirrored again as they were told to be the last time."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from recollect.errors import FailedError, RecollectError, UsageError
from recollect.ingest import FileChanges, IndexOptions, IndexRun, Report, in_batches, resolve_roots
from recollect.ingest.discovery import MAX_FILE
from recollect.ingest.text import HEAD, decode, holds_key, is_text
from recollect.stages import freshness
from recollect.types import FileState, Mirrors, Progress, Record, Scope, Store

UNTOLD = "how it was indexed is not known; `recollect index` it once more"
APART = "holds folders that were indexed in another way; `recollect index` them one by one"


@dataclass(frozen=True, slots=True)
class Showing:
    """Whether anything is stored, and who is told how far it is: while reading, while embedding."""

    dry_run: bool = False
    reading: Progress | None = None
    embedding: Progress | None = None


@dataclass(frozen=True, slots=True)
class Mirroring:
    """Keeps one store's chunks as the files are."""

    store: Store
    embed: Callable[[Progress | None], int] | None
    announce: Callable[[str], None]

    def index(self, paths: Sequence[str | Path], telling: IndexOptions, showing: Showing) -> Report:
        """Mirror these, and keep what was told of them for the next time."""
        report = self._mirrored(paths, telling, showing)
        self._embed(report, showing)
        return report

    def again(self, paths: Sequence[str], new: Sequence[str], scope: Scope, showing: Showing) -> Report:
        """Mirror folders, or what is inside them, as the last time; folders that are `new` for that scope."""
        whole = Report(dry_run=showing.dry_run)
        kept = self.store.files.roots()
        for path in paths:
            telling = _as_before(path, kept, new, scope) if Path(path).exists() else "not there"
            if isinstance(telling, str):
                whole.skipped[path] = telling
            else:
                _add(whole, self._mirrored([path], telling, showing))
        self._embed(whole, showing)
        return whole

    def _mirrored(self, paths: Sequence[str | Path], telling: IndexOptions, showing: Showing) -> Report:
        report = Report(dry_run=showing.dry_run)
        roots = resolve_roots(paths, force=telling.force)
        mirror = IndexRun(roots, self.store.files, telling, report)
        failed: dict[str, str] = {}
        for batch in chain([list(mirror.missing_marks())], in_batches(mirror.steps(showing.reading))):
            if not showing.dry_run:
                self._store(batch, failed)
        for path, reason in failed.items():
            report.fail(path, reason)
        if not showing.dry_run:
            self.store.records.apply([[Mirrors(str(root), telling.as_dict()) for root in roots]])
        return report

    def _store(self, batch: Sequence[FileChanges], failed: dict[str, str]) -> None:
        """Store what files ask for. A file that the store refuses is left as it was, and the others are stored."""
        steps = [step for step in batch if step.path not in failed]
        try:
            self.store.records.apply(step.changes for step in steps)
        except UsageError:
            for step in steps:
                if step.path not in failed:
                    try:
                        self.store.records.apply([step.changes])
                    except UsageError as error:
                        failed[step.path] = f"not stored: {error.message}"

    def _embed(self, report: Report, showing: Showing) -> None:
        if self.embed is not None and not showing.dry_run:
            try:
                report.embedded = self.embed(showing.embedding)
            except RecollectError as error:
                self.announce(f"indexed without vectors: {error.message}")


def _as_before(
    path: str, kept: Mapping[str, Mapping[str, Any] | None], new: Sequence[str], scope: Scope
) -> IndexOptions | str:
    """What was told of the nearest folder around a path; or why it cannot be mirrored in one way.

    Nobody who asks for a second look has given what was kept from some to all.
    """
    around = [root for root in kept if Path(path).is_relative_to(root)]
    if not around and not any(Path(path).is_relative_to(folder) for folder in new):
        raise UsageError(f"{path} is not indexed", hint="`recollect index` mirrors it")
    said = kept[max(around, key=len)] if around else IndexOptions(scope).as_dict()
    if said is None:
        return UNTOLD
    inside = [told for root, told in kept.items() if root != path and Path(root).is_relative_to(path)]
    return APART if any(told != said for told in inside) else IndexOptions.from_dict(said)


def _add(whole: Report, more: Report) -> None:
    """One run told together with those before it."""
    for name, value in asdict(more).items():
        held = getattr(whole, name)
        if isinstance(held, dict):
            held.update(value)
        elif isinstance(held, list):
            held.extend(value)
        elif not isinstance(held, bool):
            setattr(whole, name, held + value)


AROUND = 200
"""Lines before and after the chunk."""

LINE_CHARACTERS = 2_000
"""Of a line that are shown."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file from `first_line` on, of `total_lines`, and whether it is still the file that was indexed."""

    path: str
    first_line: int
    text: str
    lines: tuple[int, int]
    total_lines: int
    freshness: str


def excerpt(store: Store, record: Record, *, as_indexed: bool = False) -> Excerpt:
    """The lines around a chunk. Only files that were indexed are opened: a path in a record is anybody's word.

    With `as_indexed`, a file whose content is not the indexed one is not shown: the chunk's stored text is. What was
    written since then was not indexed for the chunk's scope, and may be meant for nobody in it.
    """
    if record.kind != "chunk" or record.path is None or record.lines is None:
        raise UsageError(
            f"{record.id!r} is no part of a file", hint="facts have no file; `recollect index` makes chunks"
        )
    state = store.files.states([record.path]).get(record.path)
    if state is None or record.id not in {chunk.id for chunk in store.files.chunks(record.path)}:
        raise UsageError(f"{record.path} is not indexed", hint="`recollect index` mirrors it")
    first, last = record.lines
    content = _content(record.path)
    if content is None:
        return Excerpt(record.path, first, record.text, record.lines, 0, "missing")
    if as_indexed and FileState.digest_of(content) != state.digest:
        return Excerpt(record.path, first, record.text, record.lines, 0, "changed")
    lines = decode(content).replace("\r\n", "\n").split("\n")
    start = max(1, first - AROUND)
    shown = [line[:LINE_CHARACTERS] for line in lines[start - 1 : last + AROUND]]
    mark = "fresh" if as_indexed else freshness(record.path, state)
    return Excerpt(record.path, start, "\n".join(shown), record.lines, len(lines), mark)


def _content(path: str) -> bytes | None:
    """What stands in a file; None where there is none, or something else took its place that `index` would not read."""
    try:
        # A path is kept as it resolved; a link in it leads elsewhere by now. A pipe would keep us waiting.
        if os.path.realpath(path) != path:
            return None
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123  (of a descriptor)
            state = os.fstat(file.fileno())
            content = file.read(MAX_FILE) if stat.S_ISREG(state.st_mode) and state.st_size <= MAX_FILE else b""
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise FailedError(f"{path} cannot be read: {error.strerror or error}", hint="may you read it?") from error
    return content if content and is_text(content[:HEAD]) and not holds_key(content[:HEAD]) else None
