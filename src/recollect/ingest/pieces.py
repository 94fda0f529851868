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

MAX_BYTES = 1024 * 1024
"""Of a file; at 800 characters a request, a longer one costs too much."""

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_SPACE = re.compile(r"\s")
_EXAMPLE = 'for example "skills/**/*.md"'


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file that is sent at once. `name` is the file's path inside the workspace."""

    path: str
    name: str
    text: str
    lines: tuple[int, int]

    def digest(self, *context: str) -> str:
        """A hash of name, text and everything else that the answer depends on: the same piece is not sent twice."""
        content = "\0".join((*context, self.name, self.text))
        return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def find(self, span: str) -> tuple[int, int] | None:
        """The lines in which a span occurs word for word, ignoring white space; None if it does not occur."""
        positions = [at for at, character in enumerate(self.text) if not character.isspace()]
        pattern = "".join(span.split())
        start = "".join(self.text.split()).find(pattern)
        if start < 0 or not pattern:
            return None
        first, last = positions[start], positions[start + len(pattern) - 1]
        return self.lines[0] + self.text.count("\n", 0, first), self.lines[0] + self.text.count("\n", 0, last)


def split(text: str, *, path: str, name: str, size: int, overlap: int) -> Iterator[Piece]:
    """Pieces of at most `size` characters, each beginning with about the last `overlap` of the one before.

    A cut is before a heading if there is one in the second half, and then nothing is repeated: the pieces below it stay
    the same when something above it changes. Otherwise it is at the end of a line or a word.
    """
    newlines = [at for at, character in enumerate(text) if character == "\n"]
    start = 0
    while start < len(text):
        end, at_heading = _cut(text, start, size)
        body = text[start:end].strip("\n")
        if body.strip():
            begin = start + len(text[start:end]) - len(text[start:end].lstrip("\n"))
            first = bisect_right(newlines, begin - 1) + 1
            yield Piece(path, name, body, (first, first + body.count("\n")))
        if end >= len(text):
            return
        start = end if at_heading else max(_word_start(text, end - overlap, end), start + 1)


def _cut(text: str, start: int, size: int) -> tuple[int, bool]:
    """Where the piece ends, and whether a new section begins there."""
    end = start + size
    if end >= len(text):
        return len(text), True
    headings = [match.start() for match in _HEADING.finditer(text, start + size // 2, end + 1)]
    if headings:
        return headings[-1], True
    for mark in ("\n\n", "\n", " "):
        if (at := text.rfind(mark, end - size // 4, end)) >= 0:
            return at + len(mark), False
    return end, False


def _word_start(text: str, position: int, end: int) -> int:
    """The first beginning of a word from `position` on; `position` itself if there is none before `end`."""
    if position <= 0 or text[position - 1].isspace():
        return position
    space = _SPACE.search(text, position, end)
    return space.end() if space else position


def expand(workspace: Path, patterns: Sequence[str]) -> tuple[list[Path], dict[str, str]]:
    """The files that the globs match, each once, in their order; and the skipped ones, with the reason."""
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
    """The text of a file; raises ValueError with the reason if it cannot be read as text."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES // 1024 // 1024} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from error
    if b"\0" in content:
        raise ValueError("not text")
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _matches(root: Path, pattern: str) -> list[Path]:
    parts = PurePath(pattern)
    if not pattern.strip() or parts.is_absolute() or parts.drive or ".." in parts.parts:
        raise UsageError(f"the glob {pattern!r} does not stay inside the workspace", hint=_EXAMPLE)
    try:
        return list(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:  # pathlib raises the latter for patterns it does not read
        raise UsageError(f"the glob {pattern!r} is not valid: {error}", hint=_EXAMPLE) from error


def _refusal(path: Path, root: Path) -> str | None:
    """Why a path is not read: None if it is, an empty reason for a folder, which is not reported."""
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
