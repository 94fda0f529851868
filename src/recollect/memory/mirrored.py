"""A chunk's file, open at the chunk: as it is now, or as it was indexed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from recollect.errors import FailedError, UsageError
from recollect.ingest.discover import MAX_FILE
from recollect.ingest.ignore import holds_key
from recollect.ingest.text import HEAD, decode, is_text
from recollect.stages import freshness
from recollect.types import FileState, Record, Store

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
