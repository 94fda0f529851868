"""Words that follow each other in a query count more where they stand near each other in a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import Memory
from recollect.analysis import Analyzer
from recollect.config import Settings
from recollect.fusion import METHODS
from recollect.proximity import Pairs, places

ENGLISH = Analyzer("english")
WORDS = st.sampled_from(
    ["heron", "Herons", "the", "lake,", "lake-side", "parseConfig", "don't", "café", "“ice”", "鷺と", "C++"]
)


def shares(query: str, *texts: str) -> list[float]:
    """The share of the pairs of a query in each text."""
    return [Pairs(query, ENGLISH).share(text) for text in texts]


def test_words_of_a_pair_may_have_two_others_between_them() -> None:
    """In either order, and in another form; stop words of the query are skipped."""
    texts = ("a river bank", "banks by the river", "banks by the wide river")
    assert shares("the banks of a river", *texts) == [1.0, 1.0, 0.0]


def test_share_counts_the_pairs_of_the_query() -> None:
    """Each pair once, however often it occurs."""
    assert shares("red heron lake ice", "red heron, red heron", "heron lake red", "lake ice red heron") == [
        pytest.approx(1 / 3), pytest.approx(2 / 3), pytest.approx(3 / 3),
    ]  # fmt: skip


@pytest.mark.parametrize("query", ["", "heron", "heron heron", "鷺は湖にいる"])
def test_query_without_pairs(query: str) -> None:
    """One word has no neighbour; scripts without spaces have pairs of characters as terms already."""
    assert not Pairs(query, ENGLISH).pairs


@given(
    st.lists(WORDS, max_size=12).map(" ".join),
    st.frozensets(st.sampled_from(["heron", "lake", "config", "cafe", "c++"])),
)
def test_places_are_those_of_the_analyzer(text: str, terms: frozenset[str]) -> None:
    """A word is found where the analyzer finds its term."""
    expected = [
        (number, token.term)
        for number, word in enumerate(text.split())
        for token in ENGLISH.tokens(word)
        if token.term in terms
    ]
    assert places(text, terms, "english") == expected


NEAR = "We saw a night heron on the ice."
FAR = "At night the moon was full, and in the morning there was a heron."


def test_record_with_the_words_together_is_first(memory: Memory) -> None:
    """The shorter record would be first by its words alone; the factor explains the score."""
    far = memory.add("At night the ice was thin. Later a heron came.")
    near = memory.add("We saw a night heron on the ice, and nobody else was about in the snow.")
    for text in ("A heron.", "The night was cold.", "Lentils."):
        memory.add(text)
    by_rrf = memory.search("night heron", fusion="rrf", sources=["keyword"]).results
    first, second, *_ = memory.search("night heron", sources=["keyword"]).results
    assert by_rrf[0].record.id == second.record.id == far.id
    assert first.record.id == near.id
    assert first.total == pytest.approx(first.base * first.factors["proximity"])
    assert first.factors["proximity"] > second.factors["proximity"]


def test_no_score_exceeds_one(memory: Memory) -> None:
    """The best result has 1 at most, and the others keep their distance to it."""
    for text in (NEAR, FAR, "A heron.", "The night."):
        memory.add(text)
    results = memory.search("night heron", sources=["keyword"]).results
    assert results[0].total == pytest.approx(1.0)
    assert all(one.total == pytest.approx(one.base * one.factors["proximity"]) for one in results)
    assert results[1].factors["proximity"] == pytest.approx(1 / 1.35)


def test_other_methods_and_vectors_alone_keep_their_scores(memory: Memory) -> None:
    """People know the formulas of other methods; who asks for vectors asks for meaning alone."""
    for text in (NEAR, FAR):
        memory.add(text)
    for method in METHODS:
        results = memory.search("night heron", fusion=method).results
        assert any("proximity" in one.factors for one in results) == (method == "blend")
    assert not any(one.factors for one in memory.search("night heron", sources=["vector"]).results)


def test_words_of_code_do_not_stand_in_sentences(memory: Memory) -> None:
    """Among code nothing changes."""
    memory.add("def night_heron(self, ice):\n    return [self.night, self.heron]")
    memory.add("def heron(ice):\n    return {ice: [night(ice)]}")
    assert not any(one.factors for one in memory.search("night heron", sources=["keyword"]).results)


def test_text_of_a_book_is_read_in_part(memory: Memory) -> None:
    """Its first 4,000 characters."""
    memory.add("word " * 800 + NEAR)
    memory.add(FAR)
    assert not any(one.factors for one in memory.search("night heron", sources=["keyword"]).results)


def test_language_of_the_store_is_used() -> None:
    """German words meet by their German stems."""
    with Memory.open(":memory:", embedder="none", settings=Settings(language="german")) as memory:
        memory.add("Die alten Häuser der Stadt.")
        memory.add("Das Haus ist schön, und was man von der Stadt sagt, ist alt.")
        first, second = memory.search("altes Haus").results
        assert first.record.text.startswith("Die alten")
        assert first.factors.get("proximity", 1.0) > second.factors.get("proximity", 1.0)
