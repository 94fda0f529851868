"""The part of a sentence that a person would remember: a few words in a row, rare ones, that only one target has."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recollect.analysis import Token
from recollect.evaluation.questions.leakage import Vocabulary

LEAST_CONTENT, MOST_CONTENT = 3, 6
"""Words of a phrase that are no stop words."""

LONGEST = 9
"""Words of a phrase in all."""

SENTENCE = (6, 40)
"""Words of a sentence: a shorter one says too little, a longer one is a list or a table in disguise."""

OWN_WORD = 0.01
"""What a word that only the target has is worth where there is no other."""

EDGE = 0.3
"""How much a clean edge counts, against the words themselves."""

_BREAK = re.compile(r"[;:()\[\]{}|—–=→\\\"“”…<>$]|[.!?]\s|\s[/&-]|--")
"""What no remembered phrase has inside it: another clause, another sentence, signs of code."""

_PAUSES = frozenset(",;:.!?()—–…")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase, what it is worth, and the sentence it is from."""

    text: str
    worth: float
    sentence: str


def words_of(text: str, vocabulary: Vocabulary) -> list[Token]:
    """A token for every word, in order; of a word that has several terms the first, which is the whole word."""
    words: list[Token] = []
    for token in vocabulary.analyzer.tokens(text):
        if not words or token.start >= words[-1].end:
            words.append(token)
    return words


def content_of(text: str, vocabulary: Vocabulary) -> list[str]:
    """The terms of a text that say something."""
    return [word.term for word in words_of(text, vocabulary) if not word.stop and any(map(str.isalpha, word.term))]


def best_phrase(sentence: str, target: str, vocabulary: Vocabulary) -> Phrase | None:
    """The phrase of a sentence with the rarest words whose words together only the target has, if there is one.

    A word that only the target has adds nothing to what a phrase is worth, since it gives the answer away; a phrase
    that has no other words is the last choice.
    """
    words = words_of(sentence, vocabulary)
    if not SENTENCE[0] <= len(words) <= SENTENCE[1]:
        return None
    found = [
        Phrase(sentence[part[0].start : part[-1].end], worth * _edges(sentence, part), sentence)
        for part in _parts(words)
        if (worth := _worth(part, target, vocabulary)) and not _BREAK.search(sentence, part[0].start, part[-1].end)
    ]
    return max(found, key=lambda phrase: (phrase.worth, -len(phrase.text)), default=None)


def _edges(sentence: str, part: Sequence[Token]) -> float:
    """More for a phrase that begins or ends where the sentence pauses, less for one that goes on across a pause."""
    before, after = sentence[: part[0].start].rstrip(), sentence[part[-1].end :].lstrip()
    clean = (not before or before[-1] in _PAUSES) + (not after or after[0] in _PAUSES)
    across = "," in sentence[part[0].start : part[-1].end]
    return 1 + EDGE * (clean - across)


def _parts(words: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Runs of words that begin and end with one that says something."""
    for start, first in enumerate(words):
        for end in range(start + LEAST_CONTENT, min(start + LONGEST, len(words)) + 1):
            part = words[start:end]
            if not first.stop and not part[-1].stop and LEAST_CONTENT <= len(_content(part)) <= MOST_CONTENT:
                yield part


def _worth(part: Sequence[Token], target: str, vocabulary: Vocabulary) -> float:
    """The sum of what the words say, by how few targets have them; nothing where another target has them all."""
    terms = _content(part)
    having = sorted((vocabulary.targets.get(term, set()) for term in terms), key=len)
    if having[0] != {target} and set.intersection(*having) != {target}:
        return 0.0
    shared = sum(math.log(1 + len(vocabulary.passages) / len(targets)) for targets in having if len(targets) > 1)
    return shared or OWN_WORD * len(terms)


def _content(part: Sequence[Token]) -> set[str]:
    return {word.term for word in part if not word.stop and any(map(str.isalpha, word.term))}
