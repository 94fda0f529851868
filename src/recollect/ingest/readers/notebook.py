"""Jupyter notebooks: text, code and the text of outputs, cell by cell."""

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from recollect.ingest.discovery import decode
from recollect.ingest.markdown import top_blocks
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
    lines, blocks = text.split("\n"), top_blocks(text)
    for block, below in zip_longest(blocks, blocks[1:]):
        start, end = block.start, below.start if below else len(lines)
        if block.level:
            yield TextBlock(" ".join(block.heading.split()), part, block.level)
            start = block.end
        if any(map(str.strip, lines[start:end])):
            yield TextBlock("\n".join(lines[start:end]).strip("\n"), part, is_table=block.kind == "table_open")
