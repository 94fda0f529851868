"""Of two statements that say nearly the same, the newer first: the key was under the pot, it is with Anneke now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
    asked = frozenset(_words(query.text))
    placed: list[_Said] = []
    for result in results[:HEAD]:
        said = _said(result, asked)
        placed.insert(next((i for i, older in enumerate(placed) if said.renews(older)), len(placed)), said)
    order = {result.record.id: rank for rank, result in enumerate(results, 1)}
    head = [said.result.moved("newer", order[said.result.record.id], rank) for rank, said in enumerate(placed, 1)]
    return [*head, *results[HEAD:]]


@dataclass(frozen=True, slots=True)
class _Said:
    """A result's words, how many they are, and which of them the question has."""

    result: Result
    words: frozenset[str]
    length: int
    asked: frozenset[str]

    def renews(self, older: _Said) -> bool:
        """Whether this says the same thing anew. What is quick to tell comes first: this is asked of every pair."""
        if not self.asked or self.asked != older.asked or self.result.record.time <= older.result.record.time:
            return False
        short, long = sorted((self.length, older.length))
        if long > LONGEST or short < SIZE * long:
            return False
        return len(self.words & older.words) >= ALIKE * len(self.words | older.words)


def _said(result: Result, asked: frozenset[str]) -> _Said:
    """Only facts say something in this sense; the words of a chunk are not looked at."""
    words = _words(result.record.text) if result.record.kind == "fact" else []
    return _Said(result, frozenset(words), len(words), asked.intersection(words))


def _words(text: str) -> list[str]:
    """The words of a statement; none of a text that is too long to be one, which saves the time to read it."""
    return _WORD.findall(text.casefold()) if len(text) <= LONGEST * LETTERS else []
