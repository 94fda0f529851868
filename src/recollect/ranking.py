"""Texts in a form that can be stored and compared; the mathematics after fusion: decay with age, MMR, confidence.

Pure functions over numbers and strings; the stages apply them to results.
"""

import hashlib
import math
import unicodedata
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from recollect.analysis import word_hashes

DAY = 86_400.0  # seconds

HALF_LIVES: Mapping[str, float] = {  # decay class → seconds after which a record counts half
    "permanent": math.inf, "stable": 90 * DAY, "active": 14 * DAY, "session": DAY, "checkpoint": 4 * 3600.0,
}  # fmt: skip

MOST_MARKS = 30
SHORT = 1000  # characters of a text that is short enough for quadratic time


def clean(text: str) -> str:
    """Text that can be stored and printed: halves of surrogate pairs, which cannot be encoded, become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def well_formed(text: str) -> str:
    """Text that every store, tokenizer and server accepts: without halves of surrogate pairs and zero bytes."""
    return clean(text).replace("\0", "\ufffd")


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


def join_chances(own: float, others: Iterable[float], share: float) -> float:
    """The chance that an event happens by itself, or by one of others that bring it about with this share of theirs."""
    return 1 - math.prod((1 - share * other for other in others), start=1 - own)


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


class Statement(NamedTuple):
    """What a fact says: which words of a query it has, how many words it has, and the different ones, as hashes.

    `asked` is equal for statements that have the same words of the query, and 0 without any. A text that is no
    statement has none.
    """

    asked: Hashable = 0
    length: int = 0
    words: Callable[[], Collection[int]] = tuple


def is_statement(kind: str, text: str) -> bool:
    """Whether a record makes a statement: a chunk does not, and a text that is too long."""
    return kind == "fact" and len(text) <= LONGEST_WORDS * WORD_LETTERS


def statement(kind: str, text: str, asked: Collection[int] = ()) -> Statement:
    """The statement that a record makes. `asked` are the words of a query, as hashes."""
    if not is_statement(kind, text):
        return Statement()
    hashes = word_hashes(text)
    words = set(hashes)
    return Statement(frozenset(words.intersection(asked)), len(hashes), lambda: words)


NEAR, SAME = 1.9, 2.3  # strengths of a match between two facts that are about one thing, and that say the same
BEGINNING, COMMON, NEARLY_ALL, HALF = 0.6, 0.4, 0.8, 0.5  # shares of words; chosen on one set, reported on another


def same_subject(old: str, new: str, strength: float) -> bool:
    """Whether a new fact says something else about the same thing as an old one, or nearly the same.

    "The capital of X is Y" and "… is Z" begin alike and differ in the end, which is the answer; "The capital of W is Z"
    differs before. `strength` is that of the match between their vectors (decision 061).
    """
    if strength < NEAR or max(len(old), len(new)) > LONGEST_WORDS * WORD_LETTERS:
        return False
    one, other = word_hashes(old), word_hashes(new)
    short, long = sorted((len(one), len(other)))
    if short < HALF * long or not short:
        return False
    alike = len(set(one) & set(other)) / len(set(one) | set(other))
    begins = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), short)
    return (alike >= COMMON and begins >= BEGINNING * short) or (alike >= NEARLY_ALL and strength >= SAME)


LOWEST_RANK = 20  # all that is ranked lower counts as this rank, so confidence does not depend on how deep is searched

TRUSTED = 0.5  # the trust from which on what a source says about a record is evidence

FEWEST = 10  # fewer visible records count as so many: how few there are says little of whether one is an answer
MOST = 3_000  # and more count as so many: among thousands more, a match as good is hardly less often an answer

LEAST_SPAN = 0.2  # between the two means of a model; one that hardly tells them apart must not be believed

CONSTANTS: Mapping[tuple[str, ...], tuple[float, float, tuple[tuple[float, float, float], ...]]] = {
    ("keyword",): (-2.86, -0.78, ((11.13, -1.33, -1.26),)),
    ("vector",): (-4.99, -0.37, ((8.18, -1.85, -0.99),)),
    ("keyword", "vector"): (-4.88, -1.08, ((3.44, 0.28, -0.4), (6.41, -0.76, -0.24))),
}
"""Sources → a constant and the weight of the size; then for each source the weights of strength, of strength times
size (`size_of`), and of the logarithm of the rank. Fitted to tuning questions; `python -m benchmarks.confidence --fit`
fits them anew, see docs/decisions/052."""


def size_of(visible: int) -> float:
    """The logarithm, to the base 10, of the number of visible records."""
    return math.log10(min(MOST, max(FEWEST, visible)))


class Evidence(NamedTuple):
    """What a source says about a record: the `strength` of the match, and its rank in the source's list.

    The strength of words is the root of the share of the query's information, as BM25 weighs it, that the record has;
    that of vectors is 0 where the model sees two unrelated texts, and 1 where it sees a question and its answer.
    """

    strength: float
    rank: int


class Closeness(NamedTuple):
    """The mean cosines that a model gives to unrelated texts, and to questions and their answers."""

    unrelated: float
    related: float

    def strength(self, cosine: float) -> float:
        """The strength of a match with this cosine."""
        return (cosine - self.unrelated) / max(LEAST_SPAN, self.related - self.unrelated)


def confidence(evidence: Mapping[str, Evidence], visible: int) -> float:
    """The probability that a record, one of `visible`, is relevant to the query, judging by the sources' evidence.

    It is at least what the vectors alone give: "Lena drives a Skoda" answers "which car do I own?" without its words.
    """
    judges = {tuple(sorted(evidence)), *([("vector",)] if "vector" in evidence else [])}
    return max(_confidence(sources, evidence, visible) for sources in judges)


def _confidence(sources: tuple[str, ...], evidence: Mapping[str, Evidence], visible: int) -> float:
    """The probability, judging by some of the sources."""
    size = size_of(visible)
    logit, by_size, weights = CONSTANTS[sources]
    logit += by_size * size
    for source, (by_strength, by_both, by_rank) in zip(sources, weights, strict=True):
        strength, rank = evidence[source]
        logit += (by_strength + by_both * size) * strength + by_rank * math.log(min(rank, LOWEST_RANK))
    return 1.0 / (1.0 + math.exp(-max(logit, -700.0)))  # an embedder may give any cosine
