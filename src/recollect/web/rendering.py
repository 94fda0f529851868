"""Markdown as nested lists of `[tag, attributes, children]`, of which the page builds elements.

Nothing that somebody wrote becomes HTML: raw HTML in a note is text, and only the tags and attributes below are made.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from recollect.ingest.links import read_wikilink, wikilink
from recollect.memory.conversations import StoredTurn
from recollect.memory.originals import IMAGES

Node: TypeAlias = str | list[Any]  # a text, or [tag, attributes, children]

TAGS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "s", "ul", "ol", "li", "blockquote", "table", "thead",
    "tbody", "tr", "th", "td", "hr", "br", "a",
))  # fmt: skip
SAFE_LINK = re.compile(r"(https?://|mailto:)", re.IGNORECASE)
MOST_RENDERED = 50_000  # characters of one reading that are rendered as Markdown, at most 30 microseconds each
TURNS_AROUND = 20  # of a conversation, before and after the one that is read
FRONT_MATTER = re.compile(r"---\n.*?\n(---|\.\.\.)\n", re.DOTALL)


def nodes(text: str, first_line: int = 1, *, around: int = 1) -> list[Node]:
    """The blocks of a text. Each knows its lines, counted from `first_line`; front matter is left out.

    Of a text that is longer than `MOST_RENDERED`, only the part around the line `around` is rendered; what comes before
    and after it is plain text.
    """
    if first_line == 1 and (head := FRONT_MATTER.match(text)):
        first_line += head[0].count("\n")
        text = text[head.end() :]
    start, end = _window(text, max(0, around - first_line))
    before, part, after = text[:start].removesuffix("\n"), text[start:end], text[end:]
    line, next_line = (first_line + text.count("\n", 0, place) for place in (start, end))
    return [
        *(code_nodes(before, first_line) if before else ()),
        *_rendered(part, line),
        *(code_nodes(after, next_line) if after else ()),
    ]


def _window(text: str, line: int) -> tuple[int, int]:
    """Where the part around a line, counted from 0, begins and ends: at the ends of lines, if they are not too long."""
    if len(text) <= MOST_RENDERED:
        return 0, len(text)
    line_start = len(text) - len(text.split("\n", line)[-1])
    start = max(0, line_start - MOST_RENDERED // 2)
    start = start and (text.find("\n", start, line_start) + 1 or line_start)
    end = start + MOST_RENDERED
    return start, end if end >= len(text) else text.rfind("\n", start, end) + 1 or end


def _rendered(text: str, first_line: int) -> list[Node]:
    try:
        blocks = SyntaxTreeNode(_parser().parse(text)).children
        return [node for block in blocks for node in _nodes(block, first_line)]
    except RecursionError:  # emphasis inside emphasis, hundreds of times
        return code_nodes(text, first_line)


@cache
def _parser() -> MarkdownIt:
    """One parser for all texts. Parsers refer to themselves: unused ones stay in memory until a full collection."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "wikilink", read_wikilink)
    parser.parse("text")  # its rules are complete before another thread uses it
    return parser


def code_nodes(text: str, first_line: int) -> list[Node]:
    """A text that is not Markdown, as one block."""
    return [["pre", {"lines": [first_line, first_line + text.count("\n")]}, [text]]]


def turn_nodes(turns: Sequence[StoredTurn], key: str) -> tuple[list[Node], tuple[int, int]]:
    """The turns around the one with this id, each below its speaker, and the lines that the one stands on."""
    at = next(place for place, turn in enumerate(turns) if key in turn.ids)
    places = range(max(0, at - TURNS_AROUND), min(len(turns), at + TURNS_AROUND + 1))
    nearest = sorted(places, key=lambda place: abs(place - at))
    lengths = accumulate(len(turns[place].text) for place in nearest)
    rendered = {at, *(place for place, length in zip(nearest, lengths, strict=True) if length <= MOST_RENDERED)}
    blocks: list[Node] = []
    own, line = (1, 1), 1
    for place in places:
        turn = turns[place]
        last = line + turn.text.count("\n") + 1
        speaker = f"{turn.speaker}, {turn.time:%Y-%m-%d %H:%M}"
        content = (nodes if place in rendered else code_nodes)(turn.text, line + 1)
        blocks += [["h4", {"lines": [line, line]}, [speaker]], *content]
        own = (line, last) if place == at else own
        line = last + 1
    return blocks, own


def _nodes(node: SyntaxTreeNode, first_line: int) -> list[Node]:
    match node.type:
        case "text" | "softbreak":
            return [node.content or "\n"]
        case "code_inline":
            return [["code", {}, [node.content]]]
        case "fence" | "code_block":
            return [["pre", _lines(node, first_line), [["code", {}, [node.content]]]]]
        case "wikilink":
            return [_wikilink(node)]
        case "image":
            alt = "".join(str(child.content) for child in node.children)
            return [["img", {"src": str(node.attrs.get("src", "")), "alt": alt}, []]]
    children = [one for child in node.children for one in _nodes(child, first_line)]
    known = node.tag in TAGS and not node.hidden  # the paragraphs of a tight list are hidden
    return [[node.tag, _attributes(node) | _lines(node, first_line), children]] if known else children


def _wikilink(node: SyntaxTreeNode) -> Node:
    path, _, label = wikilink(node.content)
    if node.markup.startswith("!") and PurePosixPath(path).suffix.lower() in IMAGES:
        return ["img", {"src": path, "alt": label}, []]
    return ["a", {"file": path}, [label]] if path else label


def _attributes(node: SyntaxTreeNode) -> dict[str, Any]:
    link = str(node.attrs.get("href", ""))
    if node.tag == "a":
        path = re.split(r"[?#]", link)[0]
        return {"href": link} if SAFE_LINK.match(link) else {"file": unquote(path) or link}
    if align := re.fullmatch(r"text-align:(left|right|center)", str(node.attrs.get("style", ""))):
        return {"align": align[1]}
    return {"start": node.attrs["start"]} if "start" in node.attrs else {}


def _lines(node: SyntaxTreeNode, first_line: int) -> dict[str, Any]:
    return {"lines": [first_line + node.map[0], first_line + node.map[1] - 1]} if node.map else {}
