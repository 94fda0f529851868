"""The part of a text worth showing for a query."""

from __future__ import annotations

from collections.abc import Collection

from recollect.analysis.chain import Analyzer

WIDTH = 240
"""Characters of a snippet: three or four lines of a terminal."""


def snippet(text: str, terms: Collection[str], analyzer: Analyzer, *, width: int = WIDTH) -> str:
    """The window of `text` that holds the most different query terms, in one line; its beginning where none match."""
    wanted = set(terms)
    hits = [(token.start, token.end, token.term) for token in analyzer.tokens(text) if token.term in wanted]
    start = _best_start(hits, width)
    # Let a third of the window be what comes before, so that the match is read in its sentence.
    start = _word_start(text, max(0, start - width // 3)) if start + width * 2 // 3 > width else 0
    end = _word_end(text, min(len(text), start + width), start)
    line = " ".join(text[start:end].split())
    return f"{'… ' if start else ''}{line}{' …' if end < len(text) else ''}"


def lead(text: str, *, width: int = WIDTH) -> str:
    """The beginning of `text` in one line."""
    end = _word_end(text, min(len(text), width), 0)
    return " ".join(text[:end].split()) + (" …" if end < len(text) else "")


def _best_start(hits: list[tuple[int, int, str]], width: int) -> int:
    best, place, left = 0, 0, 0
    counts: dict[str, int] = {}
    for start, end, term in hits:
        counts[term] = counts.get(term, 0) + 1
        while end - hits[left][0] > width and hits[left][0] < start:
            gone = hits[left][2]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            left += 1
        if len(counts) > best:
            best, place = len(counts), hits[left][0]
    return place


def _word_start(text: str, at: int) -> int:
    while at > 0 and not text[at - 1].isspace():
        at -= 1
        if text[at].isspace():
            break
    return at


def _word_end(text: str, at: int, start: int) -> int:
    if at >= len(text):
        return len(text)
    cut = max(text.rfind(" ", start + 1, at), text.rfind("\n", start + 1, at))
    return cut if cut > start + (at - start) // 2 else at
