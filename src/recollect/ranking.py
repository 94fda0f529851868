"""The mathematics of what follows fusion: duplicates, decay with age, MMR, confidence.

Pure functions over numbers and strings; the stages apply them to results.
"""

import hashlib
import math
import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from recollect.dataclass import dataclass

DAY = 86_400.0  # seconds

HALF_LIVES: Mapping[str, float] = {  # decay class → seconds after which a record counts half
    "permanent": math.inf, "stable": 90 * DAY, "active": 14 * DAY, "session": DAY, "checkpoint": 4 * 3600.0,
}  # fmt: skip

MOST_MARKS = 30
SHORT = 1000  # characters of a text that is short enough for quadratic time


def fold(text: str) -> str:
    """The normal form of a text, equal for duplicates: NFKC, case folded, white space collapsed."""
    if text.isascii():
        return " ".join(text.lower().split())
    # Case folding can undo NFKC (and the reverse), so the Unicode standard normalises on both sides of it.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _stream_safe(text)).casefold())
    return " ".join(folded.split())


def _stream_safe(text: str) -> str:
    """At most thirty marks on one letter, as in Unicode's stream-safe format: sorting them takes quadratic time."""
    if text.isascii() or len(text) <= SHORT:
        return text
    characters, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            characters.append(character)
    return "".join(characters)


def fold_hash(text: str) -> bytes:
    """A hash of 16 bytes of the normal form of a text."""
    return hashlib.blake2b(fold(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def decay(age: float, half_life: float) -> float:
    """The factor for a record of this age in seconds: 1 when new, 1/2 at the half-life. The future counts as now."""
    if not half_life > 0:
        raise ValueError(f"a half-life must be more than 0 seconds, not {half_life!r}")
    return math.exp2(-max(0.0, age) / half_life)


def importance_factor(importance: float, weight: float) -> float:
    """The factor for an importance of 0 to 1: 1 at the middle, `1 ± weight` at the ends."""
    return 1.0 + weight * (2.0 * importance - 1.0)


def mmr(
    relevance: Sequence[float], similarity: Callable[[int], Sequence[float]], *, balance: float, picks: int
) -> list[int]:
    """Maximal Marginal Relevance: positions in the order picked, most relevant first.

    Each pick has the highest `balance · relevance - (1 - balance) · (similarity to the nearest pick)`.
    `similarity(i)` gives the similarities of `i` to all; it is called at most once a pick, so the work is pool × picks.
    Ties go to the more relevant, then to the earlier. A balance of 1 keeps the order by relevance.
    """
    if not 0 <= balance <= 1:
        raise ValueError(f"MMR's balance lies between 0 and 1, not {balance!r}")
    order = sorted(range(len(relevance)), key=lambda i: -relevance[i])
    picks = min(picks, len(order))
    if balance == 1 or picks < 2:  # noqa: PLR2004  (the first pick is the most relevant)
        return order[: max(0, picks)]
    import numpy as np

    weighted = balance * np.array([relevance[i] for i in order])
    nearest = np.full(len(order), -math.inf)
    chosen = [0]  # positions in `order`
    while len(chosen) < picks:
        row = np.asarray(similarity(order[chosen[-1]]), dtype=np.float64)
        np.maximum(nearest, row[order], out=nearest)
        gains = weighted - (1 - balance) * nearest
        gains[chosen] = -math.inf
        chosen.append(int(gains.argmax()))
    return [order[place] for place in chosen]


LONGEST_WORDS = 60  # words of a statement; a longer text says several things
WORD_LETTERS = 12  # letters of a long word, with the space after it

_WORD, _ASCII_WORD = re.compile(r"\w+"), re.compile(rb"\w+")


class Statement(NamedTuple):
    """The different words of a fact, as hashes, and how many words it has; empty for a text that is no statement."""

    words: frozenset[int] = frozenset()
    length: int = 0


def statement(kind: str, text: str) -> Statement:
    """The statement that a record makes; a chunk, and a text too long to be one, make none."""
    if kind != "fact" or len(text) > LONGEST_WORDS * WORD_LETTERS:
        return Statement()
    hashes = word_hashes(text)
    return Statement(frozenset(hashes), len(hashes))


def word_hashes(text: str) -> list[int]:
    """A hash of 32 bits for each word of a text."""
    if text.isascii():
        return list(map(zlib.crc32, _ASCII_WORD.findall(text.lower().encode())))
    return [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in _WORD.findall(text.casefold())]


LENGTHS = (1, 2, 4, 8, 16, 32)
"""Lengths in words of the unrelated queries; values between them are interpolated by the logarithm."""

LEAST_SPREADS: Mapping[str, tuple[float, float]] = {"keyword": (0.03, 0.03), "vector": (0.01, 0.01)}
"""Source → the least spread of level and margin: with few records, all unrelated queries may score alike."""

CONSTANTS: Mapping[tuple[str, ...], tuple[float, tuple[tuple[float, float], ...]]] = {
    ("keyword",): (-0.31, ((0.08, 0.14),)),
    ("vector",): (-0.52, ((0.12, 0.12),)),
    ("keyword", "vector"): (-0.42, ((0.05, 0.09), (0.09, 0.05))),
}
"""Sources → offset, and for each source the weights of level and margin; see docs/confidence.md."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one source for one record: its score (`level`), and its distance to the rank to beat (`margin`).

    A keyword score is divided by the most that any record could get; a vector score is the cosine.
    """

    level: float
    margin: float


@dataclass(frozen=True, slots=True)
class Null:
    """Scores of the best record for unrelated queries in one source, by query length: means and spreads."""

    levels: tuple[float, ...]
    level_spreads: tuple[float, ...]
    margins: tuple[float, ...]
    margin_spreads: tuple[float, ...]


def confidence(found: Mapping[str, Evidence], nulls: Mapping[str, Null], words: int) -> float:
    """The confidence from 0 to 1, rising with the evidence; at 0.5 the record is as likely as not to be an answer.

    The evidence of a source is how many spreads level and margin lie above those of an unrelated query of this length.
    """
    sources = tuple(sorted(found))
    logit, weights = CONSTANTS[sources]
    for source, (by_level, by_margin) in zip(sources, weights, strict=True):
        null, (least_level, least_margin) = nulls[source], LEAST_SPREADS[source]
        level = found[source].level - _at(null.levels, words)
        margin = found[source].margin - _at(null.margins, words)
        logit += by_level * level / max(least_level, _at(null.level_spreads, words))
        logit += by_margin * margin / max(least_margin, _at(null.margin_spreads, words))
    return 1.0 / (1.0 + math.exp(-logit))


def _at(values: Sequence[float], words: int) -> float:
    """The value for a query of this many words."""
    place = math.log2(min(max(words, LENGTHS[0]), LENGTHS[-1]))
    lower = min(int(place), len(values) - 2)
    return values[lower] + (place - lower) * (values[lower + 1] - values[lower])
