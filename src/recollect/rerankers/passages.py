"""What a cross-encoder is given to read: all of a short record, of a long one the part that bears on the question."""

from __future__ import annotations

from collections.abc import Collection

from recollect.analysis import Analyzer, snippet
from recollect.types import Record

WIDTH = 500
"""Characters of a text that are read: about a hundred tokens, as in the passages that such models learn from.

Twice as many cost twice the time and rank no better (docs/reranking.md).
"""

SEEN = 20_000
"""Characters of a text in which the part is looked for: to look through a book takes longer than to read the part."""


def passage(record: Record, terms: Collection[str], analyzer: Analyzer) -> str:
    """The title, and of a text that is too long the stretch with the most different words of the question."""
    text = record.text
    if len(text) > WIDTH:
        text = snippet(text[:SEEN], terms, analyzer, width=WIDTH)
    return f"{record.title[:WIDTH]}\n{text}" if record.title else text
