"""Misspelled words and beginnings of words, in a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.memory.shapes import answer_dict
from recollect.models.hashing import HashingEmbedder
from recollect.types import Scope


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A few notes, of which one is Bob's."""
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings()) as memory:
        memory.add("The threshold of confidence is 0.2.", id="threshold")
        memory.add("Tardigrades survive in space.", id="tardigrades")
        memory.add("Bob's treasure is buried under the oak.", id="treasure", user="bob")
        yield memory


def found(memory: Memory, query: str, **options: object) -> list[str]:
    return [result.record.id for result in memory.search(query, **options).results]


def test_misspelled_words_find_their_record_and_say_so(memory: Memory) -> None:
    """The answer names what was searched; exact words count more; the option switches it off."""
    answer = memory.search("confidnce treshold")
    assert [result.record.id for result in answer.results] == ["threshold"]
    assert answer_dict(answer)["trace"]["also_searched"] == ["confidence", "threshold"]
    assert "threshold" in answer.results[0].snippet
    assert not found(memory, "confidnce treshold", typos=False)
    exact, near = memory.search("threshold").results[0], memory.search("treshold").results[0]
    assert exact.shares["keyword"].score > near.shares["keyword"].score
    assert "also_searched" not in answer_dict(memory.search("threshold"))["trace"]
    assert near.confidence is not None
    assert near.confidence >= 0.2, "what was taken for another word is not unrelated"


def test_suggestions_reveal_no_hidden_word(memory: Memory) -> None:
    """A word that only another's records have is not searched, named, or completed."""
    for view in (memory, memory.within(Scope("ada"))):
        for query in ("tresure", "treasur*", "burried"):
            answer = view.search(query)
            assert not answer.results
            assert not answer.trace.also_searched
    assert memory.within(Scope("bob")).search("tresure").trace.also_searched == ("treasure",)
    memory.forget("treasure")
    assert not memory.search("tresure", user="bob").trace.also_searched


def test_prefixes_and_typing(memory: Memory) -> None:
    """`tardig*` finds the word; while one types, the last word is a prefix; in between it is not."""
    assert found(memory, "tardig*") == ["tardigrades"]
    assert not found(memory, "tardig")
    assert found(memory, "space tardig", typing=True) == ["tardigrades"]
    assert found(memory, "tardig", typing=True) == ["tardigrades"]
    assert not found(memory, "tardig ", typing=True)


def test_terms_survive_files_and_merges(tmp_path: Path) -> None:
    """A store that is opened again, with segments in files and in memory, completes and corrects the same words."""
    place = tmp_path / "memory.db"
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add_many({"text": f"number{letter} heron threshold"} for letter in "abcdefghij" for _ in range(60))
        memory.add_many({"text": f"word {i} lake"} for i in range(600))
        before = [found(memory, query, limit=3) for query in ("numbera*", "treshold", "hron")]
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add("A pelican in the reeds.", id="pelican")
        assert [found(memory, query, limit=3) for query in ("numbera*", "treshold", "hron")] == before
        assert all(before[1:])
        assert found(memory, "pelcian") == found(memory, "pelic*") == ["pelican"]


def test_store_whose_records_are_all_forgotten_has_no_terms(tmp_path: Path) -> None:
    """Segments of which nothing is left are merged, too."""
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings()) as memory:
        added = memory.add_many({"text": f"heron number {i}"} for i in range(600))
        assert found(memory, "hron")
        memory.forget(*(record.id for record in added), purge=True)
        assert not found(memory, "hron heron her*")
        memory.add("A pelican.", id="pelican")
        assert found(memory, "pelcian") == ["pelican"]


class RecordingEmbedder(HashingEmbedder):
    """The hashing embedder, which remembers the queries that it embeds and knows the word "kitten"."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[str] = []

    def query(self, text: str) -> Any:
        self.queries.append(text)
        return super().query(text)

    def is_word(self, word: str) -> bool:
        return word == "kitten"


@pytest.mark.parametrize("options", [{}, {"budget_ms": 60_000}])
@pytest.mark.parametrize(
    ("asked", "embedded"),
    [
        ("Which confidnce treshold?", "Which confidence threshold?"),
        ("the threshold of confidence", ""),  # nothing is misspelled
        ("kitten", ""),  # a word that no record has, though one has "mitten"
        ("reshold", ""),  # the first letter is missing
        ("tresure", ""),  # only Bob has this word
        ("surviev in spcae", "survive in space"),
    ],
)
def test_vectors_are_searched_for_the_corrected_text(options: dict[str, float], asked: str, embedded: str) -> None:
    """A query is embedded once, with or without a deadline, and the trace has the text if it was corrected."""
    embedder = RecordingEmbedder()
    with Memory.open(":memory:", embedder=embedder, settings=Settings()) as memory:
        memory.add("The threshold of confidence is 0.2.")
        memory.add("Tardigrades survive in space, and a mitten is warm.")
        memory.add("Bob's treasure is buried under the oak.", user="bob")
        memory.search("oak")  # the first search measures how the cosines of the model are read
        embedder.queries.clear()
        answer = memory.search(asked, **options)
        assert embedder.queries == [embedded or asked]
        vector = next(source for source in answer_dict(answer)["trace"]["sources"] if source["name"] == "vector")
        assert vector.get("read_as", "") == embedded
        embedder.queries.clear()
        assert not memory.search(asked, sources=["vector"]).trace.also_searched
        memory.search(asked, typos=False)
        assert embedder.queries == [asked, asked]


def test_misspelled_query_ranks_vectors_like_the_right_one(tmp_path: Path) -> None:
    """With arctic-embed-s, which splits "tresure" into pieces that mean something else."""
    with Memory.open(tmp_path / "memory.db", embedder="arctic-embed-s", settings=Settings()) as memory:
        for text in (
            "The treasure is buried.",
            "The trees are bare.",
            "We had to restructure.",
            "Gold lies in the cave.",
        ):
            memory.add(text)
        right, wrong = (memory.search(text) for text in ("treasure", "tresure"))
        assert [one.similarity for one in wrong.results] == [one.similarity for one in right.results]
