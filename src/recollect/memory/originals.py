"""The file of a chunk: the lines around the chunk, images that the file shows, the file itself if it is a PDF."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UsageError, file_errors
from recollect.ingest.discovery import NotAFile, decode, read_file
from recollect.ingest.documents import split_lines
from recollect.ingest.readers import kind_of
from recollect.stages import freshness
from recollect.types import Record, Store
from recollect.types.records import FileState

AROUND = 200  # lines of an excerpt before and after the chunk
LINE_CHARACTERS = 2_000  # of a line in an excerpt
IMAGES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp", ".svg": "svg+xml"}
MOST_IMAGE = 8 * 2**20
PDF_BEGINNING = b"%PDF-"  # a file with another beginning is not sent, whatever it is named


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
    path, (first, last), state, chunks = _indexed(store, record)
    content = _content(path)
    if content is not None and kind_of(path):
        return _document_excerpt(record, (first, last), chunks, freshness(path, state))
    if content is None or (as_indexed and FileState.digest_of(content) != state.content_digest):
        state_now = "missing" if content is None else "changed"
        return Excerpt(path, first, record.text, (first, last), 0, state_now)
    whole = decode(content).replace("\r\n", "\n").replace("\r", "\n")
    start = max(1, first - AROUND)
    text = "\n".join(line[:LINE_CHARACTERS] for line in whole.split("\n")[start - 1 : last + AROUND])
    state_now = "fresh" if as_indexed else freshness(path, state)
    return Excerpt(path, start, text, (first, last), len(split_lines(whole)), state_now)


def pdf(store: Store, record: Record, *, as_indexed: bool = False) -> bytes:
    """The PDF file of a chunk. Only indexed files are opened, and with `as_indexed` only one that has not changed."""
    path, _, state, _ = _indexed(store, record)
    content = _content(path) or b""
    if not content.startswith(PDF_BEGINNING):
        raise UsageError(f"{path} is no longer there, or not a PDF file", hint="index its folder again")
    if as_indexed and FileState.digest_of(content) != state.content_digest:
        raise UsageError(f"{path} has changed since it was indexed", hint="index its folder again")
    return content


def _indexed(store: Store, record: Record) -> tuple[str, tuple[int, int], FileState, Sequence[Record]]:
    """The path and lines of a chunk, and the state and the chunks of its file. An error if it is not indexed."""
    if record.kind != "chunk" or record.path is None or record.lines is None:
        raise UsageError(f"{record.id!r} is not a chunk of a file", hint="facts have no file")
    state, chunks = store.files.states([record.path]).get(record.path), store.files.chunks(record.path)
    if state is None or record.id not in {chunk.id for chunk in chunks}:
        raise UsageError(f"{record.path} is not indexed", hint="index it first: `recollect index`")
    return record.path, record.lines, state, chunks


def _document_excerpt(record: Record, around: tuple[int, int], chunks: Iterable[Record], state_now: str) -> Excerpt:
    """The lines around a chunk of a document, put together from the stored chunks: the file itself has no lines."""
    lines = lines_of(chunks)
    start, end = max(1, around[0] - AROUND), min(max(lines), around[1] + AROUND)
    text = "\n".join(lines.get(number, "")[:LINE_CHARACTERS] for number in range(start, end + 1))
    return Excerpt(record.path or "", start, text, around, max(lines), state_now)


def lines_of(chunks: Iterable[Record]) -> dict[int, str]:
    """The lines of a file by number, as far as its chunks hold them; of another record, the lines of its text."""
    lines: dict[int, str] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.lines or (1, 1)):
        for number, line in enumerate(split_lines(chunk.text), chunk.lines[0] if chunk.lines else 1):
            lines[number] = lines.get(number, "") + line.rstrip("\r\n")  # a long line is in several chunks
    return lines


def image(store: Store, record: Record, name: str) -> tuple[bytes, str]:
    """An image beside an indexed file, and its media type. It must be in the folder that was indexed."""
    with contextlib.suppress(OSError, ValueError):  # the name is no path, or the file is gone
        path = Path(os.path.realpath(Path(record.path or ".").parent / name))
        roots = [root for root in store.files.roots() if record.path and Path(record.path).is_relative_to(root)]
        kind = IMAGES.get(path.suffix.lower())
        inside = any(path.is_relative_to(root) for root in roots)
        if kind and inside and path.is_file() and path.stat().st_size <= MOST_IMAGE:
            return path.read_bytes(), f"image/{kind}"
    raise UsageError(f"there is no image {name!r} beside {record.path}", hint="images are shown from indexed folders")


def _content(path: str) -> bytes | None:
    """The content of a file; None if it is gone, or has been replaced by something that `index` would not read."""
    if os.path.realpath(path) != path:  # indexed paths are resolved: a link in it now leads elsewhere
        return None
    with file_errors(path, "read", hint="check its permissions"):
        try:
            return read_file(path)[0] or None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, NotAFile):
            return None
