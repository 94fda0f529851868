"""Words that are spelled nearly alike: what a word that no record has may stand for.

One edit is a letter that is missing, too much, another one, or exchanged with the next. Index terms are stems, so a
misspelled word is edited before it is stemmed: "confidnce" becomes "confidence", whose term is "confid".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from recollect.frequencies import dictionary, shares

if TYPE_CHECKING:
    from recollect.analysis import Analyzer

LEAST_LETTERS = 4  # of a word that is corrected: most words of three letters are one edit away from each other
MOST_LETTERS = 30  # of a word that is corrected: the edits of a word are as many as its letters, and as long
FAR, FAR_LETTERS = 2, 8  # the most edits of a word, and the letters of a word that may have so many
SAME_FIRST = 5  # up to so many letters, the first one must be right
MOST_NEAR = 3  # words that one unknown word is expanded to
MOST_UNKNOWN = 8  # unknown words of one query that are expanded
MOST_PREFIXED = 50  # terms that one prefix stands for: those that most records have
LEAST_PREFIX = 3  # letters of a prefix
ONE_EDIT, TWO_EDITS, PREFIXED = 0.6, 0.4, 0.7  # how much a match counts, relative to one of the word itself

_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψως")

Known = Callable[[Sequence[str]], Mapping[str, int]]  # terms → those that visible records have, with their number
Vocabulary = Callable[[str], Iterable[str]]  # a prefix → terms that begin with it, perhaps also of hidden records


class NearTerm(NamedTuple):
    """A term of visible records: how much a match counts, how many records have it, and a word with this term."""

    weight: float
    having: int
    word: str


def words_of(text: str, unknown: Collection[str], analyzer: Analyzer) -> dict[str, str]:
    """The words of a text whose terms are unknown: word → term.

    Only plain words of letters can be misspelled, and none that the language is known to have: "hobby" is no typing
    error because no record has it.
    """
    words: dict[str, str] = {}
    common, language = shares(analyzer.language), dictionary(analyzer.language)
    for token in analyzer.tokens(text):
        if token.term in unknown and token.term not in common and token.term not in language:
            word = text[token.start : token.end].lower()
            if _is_plain(word):
                words.setdefault(word, token.term)
    return dict(list(words.items())[:MOST_UNKNOWN])


def spellings(word: str, others: Collection[str], analyzer: Analyzer) -> dict[str, str]:
    """Those of other words, or beginnings of them, that are one edit away from a word, by their terms."""
    near, length, spelled = edits(word), len(word), dict[str, str]()
    beginnings = (other[:end] for other in others for end in (length, length + 1) if len(other) > end)
    words = [other for other in (*others, *beginnings) if other in near]
    for term, other in zip(analyzer.terms(words), words, strict=True):
        spelled.setdefault(term, other)
    return spelled


def reworded(text: str, words: Mapping[str, str]) -> str:
    """The text with other words in the place of some; these are named in lower case."""
    return re.sub(r"\w+", lambda match: words.get(match[0].lower(), match[0]), text)


def _is_plain(word: str) -> bool:
    return word.isalpha() and LEAST_LETTERS <= len(word) <= MOST_LETTERS


def expand(
    words: Mapping[str, str], analyzer: Analyzer, known: Known, vocabulary: Vocabulary
) -> dict[str, dict[str, NearTerm]]:
    """For the term of each unknown word the nearest terms of visible records; of equals, the most frequent ones."""
    expanded: dict[str, dict[str, NearTerm]] = {}
    for word, term in words.items():
        near = _one_edit(word, analyzer, known)
        weight = ONE_EDIT
        if not near and len(word) >= FAR_LETTERS:
            near = {each: (each, count) for each, count in known(_two_edits(term, vocabulary(term[:2]))).items()}
            weight = TWO_EDITS
        best = sorted(near.items(), key=lambda each: (each[1][0][0] != word[0], -each[1][1], each[0]))[:MOST_NEAR]
        if best:
            expanded[term] = {found: NearTerm(weight, count, spelled) for found, (spelled, count) in best}
    return expanded


def _one_edit(word: str, analyzer: Analyzer, known: Known) -> dict[str, tuple[str, int]]:
    """Terms of visible records → a word that is one edit away and has this term, and how many records have it."""
    near = sorted(edited for edited in edits(word) if len(word) > SAME_FIRST or edited[0] == word[0])
    spelled: dict[str, str] = {}
    for term, edited in zip(analyzer.terms(near), near, strict=True):
        spelled.setdefault(term, edited)
    spelled.pop("", None)
    return {term: (spelled[term], count) for term, count in known(list(spelled)).items()}


def _two_edits(term: str, terms: Iterable[str]) -> list[str]:
    """The terms that are at most two edits away. One edit adds or removes at most two of a term's letters."""
    letters, length = set(term), len(term)
    near = (each for each in terms if abs(len(each) - length) <= FAR and len(letters ^ set(each)) <= 2 * FAR)
    return [each for each in near if each != term and distance(term, each, FAR) <= FAR]


def edits(word: str) -> set[str]:
    """All words that are one edit away."""
    letters = next((each for each in _ALPHABETS if any(letter in each for letter in word)), "")
    letters += "".join(sorted(set(word) - set(letters)))
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    missing = {before + after[1:] for before, after in parts if after}
    exchanged = {before + after[1] + after[0] + after[2:] for before, after in parts if len(after) > 1}
    others = {before + letter + after[1:] for before, after in parts if after for letter in letters}
    more = {before + letter + after for before, after in parts for letter in letters}
    return (missing | exchanged | others | more) - {word}


def distance(one: str, other: str, most: int) -> int:
    """The number of edits between two words, or `most + 1` if there are more."""
    n, m, places = len(one), len(other), {(0, 0)}  # places in both words, up to which they are alike after some edits
    for count in range(most + 1):
        further: set[tuple[int, int]] = set()
        for i, j in places:
            while i < n and j < m and one[i] == other[j]:
                i, j = i + 1, j + 1  # noqa: PLW2901
            if i == n and j == m:
                return count
            if count == most or i > n or j > m:
                continue
            further.add((i + 1, j))
            further.add((i, j + 1))
            if i < n and j < m:
                further.add((i + 1, j + 1))
                if i + 1 < n and j + 1 < m and one[i] == other[j + 1] and one[i + 1] == other[j]:
                    further.add((i + 2, j + 2))
        places = further
    return most + 1


def begin_with(prefixes: Iterable[str], analyzer: Analyzer, known: Known, vocabulary: Vocabulary) -> dict[str, float]:
    """The terms of visible records that begin with one of the prefixes, with their weights.

    A term is a stem, so the prefix of a longer word is stemmed, too: "migrati" stands for "migrat".
    """
    weights: dict[str, float] = {}
    for prefix in prefixes:
        tokens = [token.term for token in analyzer.tokens(prefix)]
        if len(prefix) < LEAST_PREFIX or not prefix.isalpha() or not tokens:
            continue
        found = {*vocabulary(prefix.lower()), *_stems(prefix.lower(), analyzer)}
        counts = known(sorted(found))
        best = sorted(counts, key=lambda term: (-counts[term], term))[:MOST_PREFIXED]
        weights |= dict.fromkeys(best, PREFIXED)
    return weights


_ENDINGS = ("e", "s", "es", "ed", "y", "ing", "ng", "ion", "on", "n", "tion", "ce", "nce", "er", "en", "ung", "ment")


def _stems(prefix: str, analyzer: Analyzer) -> set[str]:
    """The terms of words that a prefix may be the greater part of, where the stem is shorter than the prefix."""
    return {
        token.term
        for ending in _ENDINGS
        for token in analyzer.tokens(prefix + ending)
        if len(token.term) < len(prefix) and prefix.startswith(token.term[: LEAST_PREFIX + 1])
    }
