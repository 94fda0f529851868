"""Notebooks are read cell by cell."""

import json

import pytest

from recollect.ingest.readers import Unreadable
from recollect.ingest.readers.notebook import MAX_OUTPUT, read


def notebook(*cells: dict[str, object]) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def test_cells() -> None:
    """Text keeps its structure, code and outputs follow it, and pictures are left out."""
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo="}}
    result = {"output_type": "execute_result", "data": {"text/plain": ["42"], "text/html": "<b>42</b>"}}
    failure = {"output_type": "error", "ename": "ValueError", "evalue": "too deep", "traceback": []}
    text = read(
        notebook(
            {
                "cell_type": "markdown",
                "source": ["# Tides\n", "High *water*.\n", "\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |"],
            },
            {"cell_type": "code", "source": "6 * 7", "outputs": [picture, result, failure]},
            {"cell_type": "raw", "source": "as it is"},
        )
    )
    assert (text.title, text.unit) == ("Tides", "cell")
    assert [(block.part, block.text) for block in text.blocks] == [
        (1, "Tides"),
        (1, "High *water*."),
        (1, "| a | b |\n|---|---|\n| 1 | 2 |"),
        (2, "```python\n6 * 7\n```"),
        (2, "```output\n42\n```"),
        (2, "```output\nValueError: too deep\n```"),
        (3, "as it is"),
    ]


def test_long_output_is_cut() -> None:
    """An output that is data is cut."""
    output = {"output_type": "stream", "text": ["x" * 100] * 1000}
    block = read(notebook({"cell_type": "code", "source": "", "outputs": [output]})).blocks[0]
    assert len(block.text) < MAX_OUTPUT + 30


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cells": 3}', b"[" * 100_000, b"\xff\xfe\x00"])
def test_not_a_notebook(content: bytes) -> None:
    """A file that is not a notebook has that as its reason."""
    with pytest.raises(Unreadable, match="not a notebook"):
        read(content)
