"""Of two statements that say nearly the same, the newer first: the key was under the pot, it is with Anneke now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from recollect.ranking import fold
from recollect.types import Query, Result

HEAD = 50
"""Results looked at: two that say nearly the same stand near each other."""

ALIKE = 0.5
"""Share of their words that two statements of the same thing have in common: the answers are what differs."""

LONGEST = 60
"""Words of a statement; a longer text says many things."""

_WORD = re.compile(r"\w+")


def newer(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Put a newer fact before an older one that answers the question in the same words.

    Both must hold the same words of the question: what else they share may be about something else.
    """
    if not query.ranking.prefer_newer or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
        return results
    asked = _words(query.text)
    placed: list[tuple[Result, set[str]]] = []
    for result in results[:HEAD]:
        words = _words(result.record.text)
        at = next((i for i, older in enumerate(placed) if _renews(result, words, older, asked)), len(placed))
        placed.insert(at, (result, words))
    order = {result.record.id: rank for rank, result in enumerate(results, 1)}
    head = [_moved(result, order[result.record.id], rank) for rank, (result, _) in enumerate(placed, 1)]
    return [*head, *results[HEAD:]]


def _renews(result: Result, words: set[str], older: tuple[Result, set[str]], asked: set[str]) -> bool:
    before, theirs = older
    if result.record.kind != "fact" or before.record.kind != "fact" or result.record.time <= before.record.time:
        return False
    same = words & asked == theirs & asked and bool(words & asked)
    return same and max(len(words), len(theirs)) <= LONGEST and len(words & theirs) >= ALIKE * len(words | theirs)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(fold(text)))


def _moved(result: Result, old: int, new: int) -> Result:
    return result if old == new else replace(result, moves={**result.moves, "newer": (old, new)})
