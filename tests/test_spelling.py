"""Words that are spelled nearly alike."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.analysis import Analyzer
from recollect.spelling import begin_with, distance, edits, expand, words_of

ENGLISH = Analyzer()
STORE = {
    token.term: 3
    for token in ENGLISH.tokens("confidence threshold postgres migration install loss tardigrade retrieval retriever")
}


def known(terms: Sequence[str]) -> dict[str, int]:
    return {term: STORE[term] for term in terms if term in STORE}


def vocabulary(prefix: str) -> list[str]:
    return [term for term in STORE if term.startswith(prefix)]


def corrected(word: str) -> list[str]:
    words = words_of(word, [token.term for token in ENGLISH.tokens(word)], ENGLISH)
    return [each.word for near in expand(words, ENGLISH, known, vocabulary).values() for each in near.values()]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("confidnce", "confid"), ("treshold", "threshold"), ("posgres", "postgr"), ("migartion", "migrat"),
        ("thrshodl", "threshold"), ("tardigardes", "tardigrad"),
    ],
)  # fmt: skip
def test_misspelled_words_are_found(written: str, meant: str) -> None:
    """A missing, wrong, exchanged or superfluous letter, and two of them in a long word."""
    words = words_of(written, [token.term for token in ENGLISH.tokens(written)], ENGLISH)
    assert meant in next(iter(expand(words, ENGLISH, known, vocabulary).values()))


@pytest.mark.parametrize("word", ["joss", "los", "mongolia", "x1y2z3", "12345", "thxyzold", "snake_cases"])
def test_other_words_stay_as_they_are(word: str) -> None:
    """Short words with another first letter, numbers, identifiers, and words that nothing resembles."""
    assert not corrected(word)


def test_two_edits_count_less_than_one() -> None:
    """So a nearer word outweighs a farther one."""
    one, two = (
        next(iter(expand({word: word}, ENGLISH, known, vocabulary).values())) for word in ("treshold", "thrshodl")
    )
    assert next(iter(one.values())).weight > next(iter(two.values())).weight


@given(st.text("abcd", min_size=1, max_size=8), st.text("abcd", min_size=1, max_size=8))
def test_distance_counts_edits(one: str, other: str) -> None:
    """It is symmetric, 0 for equal words, and 1 for exactly the words that `edits` returns."""
    number = distance(one, other, 2)
    assert number == distance(other, one, 2)
    assert (number == 0) == (one == other)
    assert (number == 1) == (other in edits(one))
    assert distance(one, other, 1) == min(2, number)
    assert number > 2 or one == other or not edits(one).isdisjoint({other, *edits(other)})


def test_prefixes() -> None:
    """A prefix stands for the terms that begin with it; that of a longer word for the stem."""
    assert set(begin_with(["tardig"], ENGLISH, known, vocabulary)) == {"tardigrad"}
    assert set(begin_with(["retriev"], ENGLISH, known, vocabulary)) == {"retriev"}
    assert set(begin_with(["Migrati"], ENGLISH, known, vocabulary)) == {"migrat"}
    assert not begin_with(["ta", "12*", "xyz"], ENGLISH, known, vocabulary)


def test_common_words_of_the_language_are_not_misspelled():
    """Words that English is known to have stay as they are, though no record has them; others are corrected."""
    text = "everyone heading hobbies tomatoes dishwsher"
    assert words_of(text, [token.term for token in ENGLISH.tokens(text)], ENGLISH).keys() == {"dishwsher"}


def test_very_long_word_is_not_corrected():
    """The edits of twenty thousand letters would take ten gigabytes."""
    word = "x" * 20_000
    assert words_of(word, [word], ENGLISH) == {}
    assert words_of(word, [token.term for token in ENGLISH.tokens(word)], ENGLISH) == {}
