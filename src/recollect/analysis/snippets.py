"""The part of a text that is shown for a query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from recollect.analysis.analyzer import Analyzer

WIDTH = 240
"""Characters of a snippet: three or four lines of a terminal."""


SEEN = 20_000
"""Characters of a text that are searched for the window: a whole book would take half a second."""


def snippet(text: str, terms: Collection[str], analyzer: Analyzer, *, width: int = WIDTH) -> str:
    """The window of `text` with the most different query terms, on one line; its beginning if none matches.

    Only the first characters of a very long text are searched.
    """
    wanted = set(terms)
    hits = [(token.start, token.end, token.term) for token in analyzer.tokens(text[:SEEN]) if token.term in wanted]
    if not hits:
        return lead(text, width=width)
    first, last = _best_stretch(hits, width)
    # At most a third of the window is what comes before, so that the match is read in its sentence.
    start = max(0, first - min(width // 3, width - (last - first)))
    if start > 0:
        start = _after_space(text, start, first)
    return _line(text, start, _before_space(text, min(len(text), start + width), last))


def lead(text: str, *, width: int = WIDTH) -> str:
    """The beginning of `text` on one line."""
    return _line(text, 0, _before_space(text, min(len(text), width), width // 2))


def _best_stretch(hits: list[tuple[int, int, str]], width: int) -> tuple[int, int]:
    """The stretch of at most `width` characters with the most different terms: its start and end."""
    best, stretch, left = 0, (0, 0), 0
    inside: Counter[str] = Counter()
    for start, end, term in hits:
        inside[term] += 1
        while end - hits[left][0] > width and hits[left][0] < start:
            inside[hits[left][2]] -= 1
            inside += Counter()
            left += 1
        if len(inside) > best:
            best, stretch = len(inside), (hits[left][0], min(end, hits[left][0] + width))
    return stretch


def _after_space(text: str, start: int, limit: int) -> int:
    """The first start of a word from `start` on, if there is one before `limit`."""
    if text[start - 1].isspace():
        return start
    return next((at + 1 for at in range(start, limit) if text[at].isspace()), start)


def _before_space(text: str, end: int, limit: int) -> int:
    """The last end of a word up to `end`, if there is one after `limit`."""
    if end == len(text) or text[end].isspace():
        return end
    return next((at for at in range(end - 1, limit - 1, -1) if text[at].isspace()), end)


def _line(text: str, start: int, end: int) -> str:
    words = text[start:end].split()
    return " ".join([*["…"] * (start > 0), *words, *["…"] * (end < len(text))])
