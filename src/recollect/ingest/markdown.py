"""A markdown note into chunks that follow its structure: a title, some text, and the lines it stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TARGET = 1200
"""Characters of a chunk: about 300 tokens, which every model takes whole and a person reads at a glance."""

ENOUGH = 600
"""From this size on, a heading begins a new chunk."""

MAX_FRONT_MATTER = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a note: its headings, its text, and its first and last line."""

    headings: tuple[str, ...]
    text: str
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Note:
    """A whole note: its title, what its front matter says, its chunks."""

    title: str
    chunks: tuple[Chunk, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Block:
    """A top-level block: where it stands, and for a heading its level and words."""

    start: int
    end: int
    level: int = 0
    heading: str = ""


def read_note(text: str, name: str) -> Note:
    """The note in `text`; `name` is its title where it has none."""
    lines = text.splitlines(keepends=True)
    metadata, first = _front_matter(lines)
    blocks = _blocks("".join(lines[first:]), first)
    title = str(metadata.get("title") or _title(blocks) or name)
    return Note(title, tuple(_chunks(lines, blocks, title)), metadata)


def _blocks(body: str, offset: int) -> list[_Block]:
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    blocks = []
    for position, token in enumerate(tokens):
        if token.level == 0 and token.map and token.nesting >= 0:
            block = _Block(token.map[0] + offset, token.map[1] + offset)
            if token.type == "heading_open":
                block.level, block.heading = int(token.tag[1]), tokens[position + 1].content
            blocks.append(block)
    return blocks


def _title(blocks: list[_Block]) -> str:
    return next((block.heading for block in blocks if block.level == 1), "")


def _chunks(lines: list[str], blocks: list[_Block], title: str) -> Iterator[Chunk]:
    path: dict[int, str] = {}
    open_at, end, size = 0, 0, 0
    headings: tuple[str, ...] = ()
    for block in _split_long(lines, blocks):
        if block.level and block.heading == title and not path:
            continue  # the note's title stands above every chunk already
        length = sum(len(line) for line in lines[block.start : block.end])
        if size and (size + length > TARGET or (block.level and size >= ENOUGH)):
            yield from _chunk(lines, open_at, end, headings)
            size = 0
        if block.level:
            path = {level: words for level, words in path.items() if level < block.level} | {block.level: block.heading}
        if not size:
            open_at, headings = block.start, tuple(words for words in path.values() if words != title)
        end, size = block.end, size + length
    if size:
        yield from _chunk(lines, open_at, end, headings)


def _chunk(lines: list[str], start: int, end: int, headings: tuple[str, ...]) -> Iterator[Chunk]:
    text = "".join(lines[start:end]).strip("\n")
    if text.strip():
        yield Chunk(headings, text, (start + 1, end))


def _split_long(lines: list[str], blocks: list[_Block]) -> Iterator[_Block]:
    """A block that is too long by itself is cut between lines."""
    for block in blocks:
        start, size = block.start, 0
        for at in range(block.start, block.end):
            if size and size + len(lines[at]) > TARGET:
                yield _Block(start, at, block.level, block.heading)
                start, size = at, 0
            size += len(lines[at])
        yield _Block(start, block.end, block.level, block.heading)


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
    except yaml.YAMLError:
        return {}, 0
    return (values, end + 1) if isinstance(values, dict) else ({}, 0)
