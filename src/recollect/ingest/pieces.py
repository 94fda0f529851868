"""The files of a workspace, cut into overlapping pieces that know their lines.

No file outside the workspace is read, whatever a glob or a link names.
"""

from __future__ import annotations

import hashlib
import re
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from recollect.errors import UsageError

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file: what is sent at once. `name` is the file's path inside the workspace."""

    path: str
    name: str
    text: str
    lines: tuple[int, int]

    def digest(self, *context: str) -> str:
        """What tells that this piece was read before: file, text, and all else that the answer depends on."""
        said = "\0".join((*context, self.name, self.text))
        return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def find(self, span: str) -> tuple[int, int] | None:
        """The lines on which a span stands word for word, whatever the white space; None where it does not."""
        places = [place for place, character in enumerate(self.text) if not character.isspace()]
        start = "".join(self.text.split()).find(sought := "".join(span.split()))
        if start < 0 or not sought:
            return None
        first, last = places[start], places[start + len(sought) - 1]
        return self.lines[0] + self.text.count("\n", 0, first), self.lines[0] + self.text.count("\n", 0, last)


def split(text: str, *, path: str, name: str, size: int, overlap: int) -> Iterator[Piece]:
    """Pieces of at most `size` characters, each beginning with about the last `overlap` of the one before.

    A cut falls before a heading if there is one in the second half, and then nothing is repeated: below it the
    pieces stay what they were when something above it changes. Else it falls at a line's or a word's end.
    """
    newlines = [place for place, character in enumerate(text) if character == "\n"]
    start = 0
    while start < len(text):
        end, fresh = _cut(text, start, size)
        body = text[start:end].strip("\n")
        if body.strip():
            begin = start + len(text[start:end]) - len(text[start:end].lstrip("\n"))
            first = bisect_right(newlines, begin - 1) + 1
            yield Piece(path, name, body, (first, first + body.count("\n")))
        if end >= len(text):
            return
        start = end if fresh else max(_word_start(text, end - overlap, end), start + 1)


def _cut(text: str, start: int, size: int) -> tuple[int, bool]:
    """Where the piece ends, and whether a new section begins there."""
    end = start + size
    if end >= len(text):
        return len(text), True
    headings = [match.start() for match in _HEADING.finditer(text, start + size // 2, end + 1)]
    if headings:
        return headings[-1], True
    least = end - size // 4
    for mark in ("\n\n", "\n", " "):
        if (place := text.rfind(mark, least, end)) >= 0:
            return place + len(mark), False
    return end, False


def _word_start(text: str, wanted: int, end: int) -> int:
    """The first beginning of a word from `wanted` on, so that no piece begins inside one where that can be helped."""
    if wanted <= 0 or text[wanted - 1].isspace():
        return wanted
    space = _SPACE.search(text, wanted, end)
    return space.end() if space else wanted


MAX_FILE = 1024 * 1024
"""Bytes; at 800 characters a call, a longer file is a bill and not a note."""


def expand(workspace: Path, patterns: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    """The files that the globs name, each once, in their order; and what was skipped, with the reason."""
    if not workspace.is_dir():
        raise UsageError(f"the workspace {workspace} is not a folder", hint="name one with --workspace")
    root = workspace.resolve()
    files: dict[Path, Path] = {}
    skipped: dict[str, str] = {}
    for pattern in patterns:
        for path in sorted(_matches(root, pattern)):
            reason = _refusal(path, root)
            if reason is None:
                files.setdefault(path.resolve(), path)
            elif reason:
                skipped[str(path)] = reason
    return list(files), skipped


def read(path: Path) -> str:
    """The text of a file; raises ValueError with the reason where it has none."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise ValueError(f"larger than {MAX_FILE // 1024 // 1024} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from error
    if b"\0" in content:
        raise ValueError("not text")
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _matches(root: Path, pattern: str) -> list[Path]:
    parts = PurePath(pattern)
    if not pattern.strip() or parts.is_absolute() or parts.drive or ".." in parts.parts:
        raise UsageError(
            f"the glob {pattern!r} does not stay inside the workspace", hint='for example "skills/**/*.md"'
        )
    try:
        return list(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:  # pathlib's own, for a pattern it does not take
        raise UsageError(
            f"the glob {pattern!r} cannot be read: {error}", hint='for example "skills/**/*.md"'
        ) from error


def _refusal(path: Path, root: Path) -> str | None:
    """Why a path is not read: None where it is, an empty reason where nobody meant it (a folder)."""
    try:
        target = path.resolve(strict=True)
        mode = target.stat().st_mode
    except (OSError, RuntimeError):  # RuntimeError: a circle of links, before Python 3.13
        return "cannot be read"
    if not target.is_relative_to(root):
        return "a link out of the workspace"
    if stat.S_ISDIR(mode):
        return ""
    return None if stat.S_ISREG(mode) else "not a file"
