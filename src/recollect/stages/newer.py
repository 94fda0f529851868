"""Of two statements that say nearly the same, the newer first: the key was under the pot, it is with Anneke now."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recollect.types import Query, Result

HEAD = 50
"""Results looked at: two that say nearly the same stand near each other."""

ALIKE = 0.4
"""Share of their words that two statements of the same thing have in common: the answers are what differs."""

SIZE = 0.7
"""The shorter of the two over the longer: what one says more may be the very thing."""

LONGEST = 60
"""Words of a statement; a longer text says many things."""

LETTERS = 12
"""Of a long word, with the space behind it."""

_WORD = re.compile(r"\w+")


def newer(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Put a newer fact before an older one that answers the question in the same words.

    Both must hold the same words of the question: what else they share may be about something else.
    """
    if not query.ranking.prefer_newer or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
        return results
    asked = _words(query.text)
    placed: list[tuple[Result, list[str]]] = []
    for result in results[:HEAD]:
        words = _words(result.record.text)
        at = next((i for i, older in enumerate(placed) if _renews(result, words, older, asked)), len(placed))
        placed.insert(at, (result, words))
    order = {result.record.id: rank for rank, result in enumerate(results, 1)}
    head = [result.moved("newer", order[result.record.id], rank) for rank, (result, _) in enumerate(placed, 1)]
    return [*head, *results[HEAD:]]


def _renews(result: Result, words: list[str], older: tuple[Result, list[str]], asked: list[str]) -> bool:
    before, theirs = older
    if result.record.kind != "fact" or before.record.kind != "fact" or result.record.time <= before.record.time:
        return False
    mine, other, question = set(words), set(theirs), set(asked)
    short, long = sorted((len(words), len(theirs)))
    fits = long <= LONGEST and short >= SIZE * long
    same = mine & question == other & question and bool(mine & question)
    return fits and same and len(mine & other) >= ALIKE * len(mine | other)


def _words(text: str) -> list[str]:
    """The words of a statement; none of a text that is too long to be one, which saves the time to read it."""
    return _WORD.findall(text.casefold()) if len(text) <= LONGEST * LETTERS else []
