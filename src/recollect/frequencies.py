"""How rare a word is among some records, and which words a language is known to have.

A common word does not become rare because the records are few.

Among 32 notes "little" is as rare as "tomato". So a word counts as at least as frequent as if BACKGROUND records of
general text had been seen, too. The table of general text is the same for every store, so a shared store still answers
as a private one; `training/frequencies.py` makes it, from data under CC BY-SA 4.0.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

BACKGROUND = 300  # how many records the table stands for; chosen on tuning questions, see docs/benchmarks.md


def idf(records: int, having: int, share: float) -> float:
    """The inverse document frequency of a term that `having` of some records contain, and a share of general text."""
    expected = records * (having + BACKGROUND * share) / (records + BACKGROUND)
    frequency = max(having, expected)
    return math.log(1 + (records - frequency + 0.5) / (frequency + 0.5))


@cache
def shares(language: str) -> Mapping[str, float]:
    """Each common term of a language → the share of records of general text that contain it; others have none."""
    row = _row("frequencies.txt", language)
    return {term: int(permille) / 1000 for term, permille in zip(row[::2], row[1::2], strict=True)}


@cache
def dictionary(language: str) -> frozenset[str]:
    """The terms of words that a language is known to have; none for most languages. `training/words.py` makes it."""
    return frozenset(_row("words.txt", language))


def _row(file: str, language: str) -> list[str]:
    table = Path(__file__).with_name(file).read_bytes()
    start = table.find(heading := f"\n{language}: ".encode())
    return table[start + len(heading) : table.find(b"\n", start + 1)].decode().split() if start >= 0 else []
