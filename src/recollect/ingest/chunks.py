"""Pieces of a text packed into chunks: as long as a model likes, cut where the text itself says so.

A cut stands before a heading rather than between paragraphs, between paragraphs rather than between lines; among
equal places the text's own hash decides. So the same text is cut at the same places whatever stands above it, and an
inserted line changes the chunk it is in, not those below. No line is in two chunks: what a chunk needs of its
surroundings (title, headings, the line that introduces a long list) is its context and stands in its title.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LEAST = 100
"""Tokens from which on a chunk may end."""

MOST = 400
"""Tokens of a chunk: with its title still below the 512 that small models read."""

CONTEXT = 64
"""Tokens of context at most, about a sixth of a chunk: what other systems repeat as overlap."""

BLOCK, LINE, SENTENCE, GLUED = 3, 2, 1, 0
"""How good a place is to cut before: a heading of level n counts 10 - n; after a heading is no place at all."""

_WORD = re.compile(r"[A-Za-z0-9]+|[^\W_]|[^\w\s]|_")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|(?<=,)\s+")
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_SHORT_WORD, _LONG_WORD = 8, 24


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: its context, the text, and its first and last line."""

    headings: tuple[str, ...]
    text: str
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is not cut: its text with line ends, its lines, how good it is to cut before it, and its context."""

    text: str
    lines: tuple[int, int]
    weight: int
    headings: tuple[str, ...] = ()


def tokens(text: str) -> int:
    """About how many tokens a model makes of a text, without asking it.

    Short words and signs are one, long words one every four letters, keys and hashes one every two, letters beyond
    ASCII one each. Against the tokenizer of arctic-embed-s: 1.02 on 10,011 pieces of documentation, 0.99 on Python.
    """
    total = 0
    for word in _WORD.findall(text):
        size = len(word)
        total += 1 if size < _SHORT_WORD else (size + 3) // 4 if size < _LONG_WORD else size // 2
    return total


def split_lines(text: str) -> list[str]:
    """Lines with their ends as editors and markdown count them: other separators of Unicode end no line."""
    return _LINES.findall(text)


def units_of(lines: Sequence[str], start: int, end: int, weight: int, headings: tuple[str, ...]) -> Iterator[Unit]:
    """The lines from `start` to `end` (from 0, end excluded) as one unit if that fits, else cut into lines."""
    whole = "".join(lines[start:end])
    if tokens(whole) <= MOST:
        yield Unit(whole, (start + 1, end), weight, headings)
        return
    for at in range(start, end):
        for piece in _pieces(lines[at]):
            yield Unit(piece, (at + 1, at + 1), weight, headings)
            weight = SENTENCE
        weight = LINE


def pack(units: Sequence[Unit]) -> Iterator[Chunk]:
    """Chunks of at most `MOST` tokens, in order, every unit in one of them."""
    sizes = [tokens(unit.text) for unit in units]
    start = 0
    while start < len(units):
        end = _cut(units, sizes, start)
        text = "".join(unit.text for unit in units[start:end])
        if text.strip():
            lines = split_lines(text)
            first, last = units[start].lines[0] + _blank(lines), units[end - 1].lines[1] - _blank(lines[::-1])
            yield Chunk(units[start].headings, text.strip("\r\n"), (first, last))
        start = end


def bounded(context: str) -> str:
    """A context line, without more than it may cost."""
    line = " ".join(context[: CONTEXT * _LONG_WORD].split())
    while tokens(line) > CONTEXT:
        line = line[: len(line) * 3 // 4].rstrip() + "…"
    return line


def _cut(units: Sequence[Unit], sizes: Sequence[int], start: int) -> int:
    """Where the chunk that begins at `start` ends: the best place between `LEAST` and `MOST` tokens."""
    size, best, rank = sizes[start], start + 1, (-1, b"")
    for at in range(start + 1, len(units)):
        place = units[at].weight, _hash(units[at].text)
        if size < LEAST or place >= rank:
            # Before there is enough text every later place is better.
            best, rank = at, place if size >= LEAST else (-1, b"")
        if size + sizes[at] > MOST:
            return best
        size += sizes[at]
    # The rest fits. It is cut once more only where a heading says that something else begins, and that has some length.
    return best if rank[0] > BLOCK and sum(sizes[best:]) >= LEAST else len(units)


def _pieces(line: str) -> Iterator[str]:
    """A line that is too long by itself, between sentences, then words, then anywhere."""
    if tokens(line) <= MOST:
        yield line
        return
    piece, size = "", 0
    for part in _parts(line):
        cost = tokens(part)
        if piece and size + cost > LEAST:
            yield piece
            piece, size = "", 0
        piece, size = piece + part, size + cost
    yield piece


def _parts(line: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE.finditer(line):
        yield from _words(line[start : match.end()])
        start = match.end()
    yield from _words(line[start:])


def _words(part: str) -> Iterator[str]:
    """A sentence if it is short, else its words, each no longer than a chunk may be."""
    if tokens(part) <= LEAST:
        yield part
        return
    for word in re.findall(r"\S+\s*|\s+", part):
        yield from (word[at : at + LEAST] for at in range(0, len(word), LEAST))


def _blank(lines: Sequence[str]) -> int:
    """How many lines at the beginning are empty: a chunk's range leaves them out."""
    return next(at for at, line in enumerate(lines) if line.strip("\r\n"))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()
