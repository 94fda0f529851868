"""The top-level blocks of a Markdown text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


class TopBlock(NamedTuple):
    """A top-level block: its kind and lines, and its level and text as a heading."""

    kind: str
    start: int
    end: int
    level: int = 0
    heading: str = ""


def top_blocks(text: str, offset: int = 0) -> list[TopBlock]:
    """The top-level blocks of a text whose first line has the number `offset`."""
    tokens = block_parser().parse(text)
    blocks = []
    for token, inner in pairwise((*tokens, *tokens[-1:])):
        if token.level == 0 and token.map and token.nesting >= 0:
            start, end = (offset + line for line in token.map)
            heading = (int(token.tag[1]), inner.content) if token.type == "heading_open" else ()
            blocks.append(TopBlock(token.type, start, end, *heading))
    return blocks


@cache
def block_parser(wikilink: Callable[[Any, bool], bool] | None = None) -> MarkdownIt:
    """One parser of blocks for all texts; with `wikilink`, its inline parser has that rule.

    Parsers refer to themselves: unused ones stay in memory until a full collection.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # inline markup stays in the text
    if wikilink:
        parser.inline.ruler.before("link", "wikilink", wikilink)
    parser.parse("text")  # its rules are complete before another thread uses it
    return parser
