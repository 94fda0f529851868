"""Plain text and source code into chunks: paragraphs, headings where the format has them, indentation elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recollect.ingest.chunks import BLOCK, LINE, Unit, bounded, pack, split_lines, units_of
from recollect.ingest.markdown import Note

PROSE = frozenset((".txt", ".text", ".rst", ".rest", ".org", ".adoc", ".asciidoc", ".tex", ".log", ".textile", ""))
"""Suffixes of texts whose indentation says nothing of structure; everything else is read as code."""

DEEPEST = 3
"""Lines of context that code carries: the class, the function, the block it stands in."""

_ORG = re.compile(r"(\*+)\s+(\S.*)")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_ADOC = re.compile(r"(={1,6})\s+(\S.*)")


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """Lines up to a blank one: where they stand, what they are below, and how good it is to cut before them."""

    start: int
    end: int
    weight: int
    headings: tuple[str, ...]


def read_text(text: str, name: str, suffix: str) -> Note:
    """The text as a note named for its file; a title of its own goes before that."""
    lines = split_lines(text)
    paragraphs = list(_prose(lines, suffix) if suffix in PROSE else _code(lines))
    title = _own_title(lines, paragraphs, suffix)
    units = [unit for paragraph in paragraphs for unit in _units(lines, paragraph, title)]
    return Note(title or name, tuple(pack(units)), named=not title)


def _units(lines: Sequence[str], paragraph: _Paragraph, title: str) -> Iterator[Unit]:
    headings = tuple(words for words in paragraph.headings if words != title)
    return units_of(lines, paragraph.start, paragraph.end, paragraph.weight, headings)


def _own_title(lines: Sequence[str], paragraphs: Sequence[_Paragraph], suffix: str) -> str:
    if suffix == ".org":
        named = (line.partition(":")[2].strip() for line in lines[:20] if line.lower().startswith("#+title:"))
        return next(named, "")
    if suffix in (".rst", ".rest", ".adoc", ".asciidoc"):
        return next((paragraph.headings[0] for paragraph in paragraphs[:1] if paragraph.headings), "")
    return ""


def _spans(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Runs of lines, each with the blank lines after it."""
    start = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    for at in range(start + 1, len(lines)):
        if lines[at].strip() and not lines[at - 1].strip():
            yield start, at
            start = at
    if start < len(lines):
        yield start, len(lines)


def _prose(lines: Sequence[str], suffix: str) -> Iterator[_Paragraph]:
    path: dict[int, str] = {}
    styles: list[str] = []
    for start, end in _spans(lines):
        level, words = _heading(lines, start, end, suffix, styles)
        if level:
            path = {upper: said for upper, said in path.items() if upper < level} | {level: words}
        yield _Paragraph(start, end, max(10 - level, LINE) if level else BLOCK, tuple(path.values()))


def _heading(lines: Sequence[str], start: int, end: int, suffix: str, styles: list[str]) -> tuple[int, str]:
    """The level and words of the heading that a paragraph begins with; level 0 where it has none."""
    if suffix == ".org" and (match := _ORG.match(lines[start])):
        return len(match[1]), match[2].strip()
    if suffix in (".adoc", ".asciidoc") and (match := _ADOC.match(lines[start])):
        return len(match[1]), match[2].strip()
    if suffix not in (".rst", ".rest"):
        return 0, ""
    return _underlined([line.strip() for line in lines[start : min(end, start + 3)]], styles)


def _underlined(lines: list[str], styles: list[str]) -> tuple[int, str]:
    """A heading of reStructuredText; its levels are in the order in which their lines first occur."""
    match lines:
        case [over, words, under] if over == under and _UNDERLINE.match(over):
            style = over[0] * 2
        case [words, under, *_] if _UNDERLINE.match(under) and len(under) >= len(words):
            style = under[0]
        case _:
            return 0, ""
    if style not in styles:
        styles.append(style)
    return styles.index(style) + 1, words


def _code(lines: Sequence[str]) -> Iterator[_Paragraph]:
    """Paragraphs below the less indented lines above them: the class and the function that a part stands in."""
    above: list[tuple[int, str]] = []
    for start, end in _spans(lines):
        indent = _indent(lines[start])
        while above and above[-1][0] >= indent:
            above.pop()
        yield _Paragraph(start, end, BLOCK + 1 if not indent else BLOCK, tuple(words for _, words in above[-DEEPEST:]))
        for line in lines[start:end]:
            if line.strip():
                while above and above[-1][0] >= _indent(line):
                    above.pop()
                above.append((_indent(line), bounded(line.strip())[:80]))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
