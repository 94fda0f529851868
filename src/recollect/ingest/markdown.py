"""A markdown note into chunks that follow its structure: a title, some text, and the lines it stands on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from recollect.ingest.chunks import BLOCK, GLUED, Chunk, Unit, bounded, pack, split_lines, units_of

MAX_FRONT_MATTER = 64 * 1024


@dataclass(frozen=True, slots=True)
class Note:
    """A whole text: its title, what its front matter says, its chunks; `named` where the title is only its name."""

    title: str
    chunks: tuple[Chunk, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False


@dataclass(slots=True)
class _Block:
    """A top-level block: its kind, where it stands, where the next begins, and for a heading its level and words."""

    kind: str
    start: int
    end: int
    rest: int = 0
    level: int = 0
    heading: str = ""


def read_note(text: str, name: str) -> Note:
    """The note in `text`; `name` is its title where it has none."""
    lines = split_lines(text)
    metadata, first = _front_matter(lines)
    blocks = _blocks(lines, first)
    own = word(metadata.get("title")) or _title(blocks)
    title = own or name
    return Note(bounded(title), tuple(pack(list(_units(lines, blocks, title)))), metadata, named=not own)


def word(value: object) -> str:
    """What front matter says in one word or line; a list or a mapping there is none."""
    return str(value).strip() if isinstance(value, str | int | float | date) else ""


def _blocks(lines: Sequence[str], offset: int) -> list[_Block]:
    """Top-level blocks; what is between two of them (blank lines, link definitions) belongs to the one above."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # what stands inside a line is kept as it is
    tokens = parser.parse("".join(lines[offset:]))
    blocks = [_Block("start", offset, offset)]
    for position, token in enumerate(tokens):
        if token.level == 0 and token.map and token.nesting >= 0:
            block = _Block(token.type, token.map[0] + offset, token.map[1] + offset)
            if token.type == "heading_open":
                block.level, block.heading = int(token.tag[1]), tokens[position + 1].content
            blocks.append(block)
    for block, after in itertools.pairwise(blocks):
        block.rest = after.start
    blocks[-1].rest = len(lines)
    return blocks


def _title(blocks: list[_Block]) -> str:
    return next((block.heading for block in blocks if block.level == 1), "")


def _units(lines: Sequence[str], blocks: list[_Block], title: str) -> Iterator[Unit]:
    """Every line but the title in one unit."""
    path: dict[int, str] = {}
    begun = after_heading = False
    for position, block in enumerate(blocks):
        start = block.start
        if block.level and block.heading == title == bounded(title) and not begun and _has_text(lines[block.end :]):
            start = block.end  # the note's title stands above every chunk already; a note that is no more keeps it
        elif block.level:
            path = {level: words for level, words in path.items() if level < block.level} | {block.level: block.heading}
        if not "".join(lines[start : block.rest]).strip():
            continue
        weight = GLUED if after_heading else 10 - block.level if block.level else BLOCK
        headings = tuple(bounded(words) for words in path.values() if words and words != title)
        first, *rest = units_of(lines, start, block.rest, weight, headings)
        yield first
        begun = True
        lead = _lead(lines, blocks, position)
        yield from (Unit(unit.text, unit.lines, unit.weight, (*headings, *lead)) for unit in rest)
        after_heading = bool(block.level) and start == block.start


def _has_text(lines: Sequence[str]) -> bool:
    return any(line.strip() for line in lines)


def _lead(lines: Sequence[str], blocks: list[_Block], position: int) -> tuple[str, ...]:
    """What the later parts of a long block need to be understood: a table's head, the line that ends in a colon."""
    block = blocks[position]
    if block.kind == "table_open":
        return (bounded(lines[block.start].strip().strip("|")),)
    above = blocks[position - 1] if position else None
    if above is not None and above.kind == "paragraph_open":
        line = lines[above.end - 1].strip()
        return (bounded(line),) if line.endswith(":") else ()
    return ()


def _front_matter(lines: list[str]) -> tuple[dict[str, Any], int]:
    """The YAML between two lines of `---` at the top, and the line after it; what is not YAML is text."""
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    block = "".join(lines[1:end]) if end else ""
    if end is None or len(block) > MAX_FRONT_MATTER:
        return {}, 0
    import yaml

    try:
        values = yaml.safe_load(block)
    except (yaml.YAMLError, ValueError, RecursionError):
        # A date of the 45th of May is a ValueError, a thousand brackets are a RecursionError.
        return {}, 0
    return (values, end + 1) if isinstance(values, dict) else ({}, 0)
