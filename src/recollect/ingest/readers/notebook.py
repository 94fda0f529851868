"""Jupyter notebooks: text, code and the text of outputs, cell by cell."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from recollect.ingest.discovery import decode
from recollect.ingest.readers import MAX_PARTS, DocumentText, TextBlock, Unreadable

MAX_OUTPUT = 2_000  # characters of one output; a longer one is data


def read(content: bytes) -> DocumentText:
    """Read a notebook of version 3 or later."""
    try:
        notebook = json.loads(decode(content))
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable("damaged: not a notebook") from error
    if not isinstance(cells, list) or len(cells) > MAX_PARTS:
        raise Unreadable("damaged: not a notebook" if not isinstance(cells, list) else f"more than {MAX_PARTS:,} cells")
    blocks = [
        block
        for number, cell in enumerate(cells, 1)
        if isinstance(cell, dict)
        for block in _cell(cell, number, language if isinstance(language, str) else "")
    ]
    title = next((block.text for block in blocks if block.level == 1), "")
    return DocumentText(blocks, title, "cell")


def _cell(cell: Mapping[str, Any], number: int, language: str) -> Iterator[TextBlock]:
    source = _text(cell.get("source", cell.get("input", "")))
    match cell.get("cell_type"):
        case "markdown" | "heading":
            yield from _markdown_blocks(source, number)
        case "code":
            if source.strip():
                yield TextBlock(f"```{language}\n{source.rstrip()}\n```", number)
            outputs = cell.get("outputs")
            for output in outputs if isinstance(outputs, list) else ():
                if isinstance(output, dict) and (text := _output(output).strip()):
                    cut = text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]} …"
                    yield TextBlock(f"```output\n{cut}\n```", number)
        case _ if source.strip():
            yield TextBlock(source.strip(), number)


def _output(output: Mapping[str, Any]) -> str:
    """The text of an output; pictures and widgets have none."""
    data = output.get("data")
    if isinstance(data, dict):
        return _text(data.get("text/markdown") or data.get("text/plain") or "")
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    return _text(output.get("text", ""))


def _text(value: object) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _markdown_blocks(text: str, part: int) -> Iterator[TextBlock]:
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
