"""How rare a word is among records."""

import math

import pytest

from recollect.analysis import LANGUAGES, Analyzer
from recollect.frequencies import idf, shares


def lucene(records: int, having: int) -> float:
    return math.log(1 + (records - having + 0.5) / (having + 0.5))


def test_common_words_are_common_everywhere():
    """In the form in which the index has them."""
    found = {word: shares("english").get(Analyzer().query(word)[0], 0.0) for word in ("little", "people", "tomato")}
    assert found["people"] > found["little"] > 0.02
    assert found["tomato"] == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_shares_are_shares(language):
    """A language without a table has none."""
    assert all(0 < share < 1 for share in shares(language).values())
    assert not any(letter.isnumeric() for term in shares(language) for letter in term)


def test_unknown_word_is_weighed_as_in_lucene():
    assert idf(32, 1, 0.0) == pytest.approx(lucene(32, 1))
    assert idf(32, 30, 0.0) == pytest.approx(lucene(32, 30))


def test_common_word_is_not_rare_among_few_records():
    """Among many, their own frequency counts; and a word is never rarer than it is among the records."""
    share = shares("english")["littl"]
    assert idf(32, 1, share) < idf(32, 1, 0.0)
    assert idf(10**6, 10**3, share) == pytest.approx(idf(10**6, 10**3, 0.0), abs=0.02)
    assert idf(32, 20, share) == pytest.approx(lucene(32, 20))


def test_empty_store_has_a_finite_weight():
    assert math.isfinite(idf(0, 0, 0.5))
