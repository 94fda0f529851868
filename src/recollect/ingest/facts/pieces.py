"""A text cut into overlapping pieces that know their lines."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

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
