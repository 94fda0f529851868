"""Markdown inside other documents, such as the cells of a notebook, as blocks."""

from collections.abc import Iterator
from itertools import pairwise

from recollect.ingest.readers import TextBlock


def markdown_blocks(text: str, part: int) -> Iterator[TextBlock]:
    """The top-level blocks of a text, each with what follows it up to the next one."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    lines = text.split("\n")
    tokens = parser.parse(text)
    starts = [
        (token.map[0], token.map[1], token, inner)
        for token, inner in pairwise((*tokens, *tokens[-1:]))
        if token.level == 0 and token.map and token.nesting >= 0
    ]
    for (start, end, token, inner), below in zip(
        starts, [*(start for start, *_ in starts[1:]), len(lines)], strict=True
    ):
        if token.type == "heading_open":
            yield TextBlock(" ".join(inner.content.split()), part, int(token.tag[1]))
            start = end  # noqa: PLW2901
        if any(map(str.strip, lines[start:below])):
            yield TextBlock("\n".join(lines[start:below]).strip("\n"), part, is_table=token.type == "table_open")
