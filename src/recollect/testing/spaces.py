"""Vector spaces: two models are never mixed, one answers, and what is missing is known."""

# ruff: noqa: S101  (these are tests)

from __future__ import annotations

import numpy as np
import pytest

from recollect.errors import EmbedderError
from recollect.testing.asking import EMBEDDER, SPACE, OpenStore, by_meaning, by_words, ids, index_of, keep
from recollect.types import Filter, Forget, Put, Record, Scope, Store, VectorSpace

OTHER = VectorSpace("another-model@1/64d", "another-model", 64)
LONGER = VectorSpace("longer@1/96d", "longer", 96)


class SpacesContract:
    """Vectors belong to the model that made them."""

    def test_two_models_of_one_dimension_are_never_mixed(self, store: Store) -> None:
        """A space knows its own vectors only, whatever the other holds of the same passages."""
        keep(store, Record("a", "heron"), Record("b", "lake"))
        other = store.spaces.open(OTHER)
        assert other.coverage() == (0, 2)
        assert other.search(EMBEDDER.query("heron"), Filter(), 9).found == ()
        assert other.known(["heron", "lake"]) == set()
        assert sorted(other.missing(9)) == ["heron", "lake"]
        other.save(["heron"], EMBEDDER.passages(["lake"]))
        (match,) = other.search(EMBEDDER.query("lake"), Filter(), 9).found
        assert (match.record.id, match.score) == ("a", 1.0)
        assert ids(by_meaning(store, "lake", Filter(), 1)) == ["b"]
        assert other.coverage() == (1, 1)
        assert index_of(store).coverage() == (2, 0)

    def test_the_active_space_is_the_same_in_every_process(self, open_store: OpenStore, place: str) -> None:
        """None at first; then the one that was activated last, for whoever has the store open."""
        first, second = open_store(place), open_store(place)
        assert (first.spaces.active, second.spaces.active) == (None, None)
        for store, space in ((first, SPACE), (second, OTHER), (first, LONGER), (second, SPACE)):
            store.spaces.activate(space)
            assert (first.spaces.active, second.spaces.active) == (space, space)

    def test_a_vector_of_another_length_is_refused(self, store: Store) -> None:
        """By name of what is wrong, not with numbers that mean nothing."""
        keep(store, Record("a", "heron"))
        with pytest.raises(EmbedderError, match="96"):
            index_of(store).search(np.zeros(96, dtype=np.float32), Filter(), 9)

    def test_vectors_come_back_as_they_were_saved(self, store: Store) -> None:
        """Every bit of them, by record; those of no record, or none, are left out."""
        chance = np.random.default_rng(11)
        rows = chance.normal(size=(5, 96)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        index = store.spaces.open(LONGER)
        store.records.apply([[Put(Record(f"r{i}", f"text {i}", title="T" * (i % 2)))] for i in range(6)])
        index.save([record.passage for record in store.records.get([f"r{i}" for i in range(5)])], rows)
        kept = index.vectors([f"r{i}" for i in range(6)] + ["nobody"])
        assert kept.keys() == {f"r{i}" for i in range(5)}
        for i in range(5):
            assert kept[f"r{i}"].dtype == np.float32
            assert kept[f"r{i}"].tobytes() == rows[i].tobytes()

    def test_what_is_missing_is_known_and_can_be_saved_later(self, store: Store) -> None:
        """Each passage once, with its title; saved ones are missing no more, and moving a text costs nothing."""
        index = index_of(store)
        store.records.apply(
            [[Put(Record("a", "text", title="Title")), Put(Record("b", "same")), Put(Record("c", "gone"))]]
        )
        store.records.apply([[Put(Record("d", "same", scope=Scope("ada"))), Forget("c")]])
        assert index.coverage() == (0, 3)
        assert sorted(index.missing(99)) == ["Title\ntext", "same"]
        assert len(index.missing(1)) == 1
        index.save(["Title\ntext", "same"], EMBEDDER.passages(["Title\ntext", "same"]))
        assert index.missing(99) == []
        assert index.coverage() == (3, 0)
        assert index.known(["Title\ntext", "same", "gone"]) == {"Title\ntext", "same"}
        store.records.apply([[Put(Record("e", "same", scope=Scope("bob")))]])
        assert index.coverage() == (4, 0)
        assert ids(index.search(EMBEDDER.query("same"), Filter(scope=Scope("bob")), 1)) in (["b"], ["e"])

    def test_a_vector_that_came_before_its_record_waits_for_it(self, store: Store) -> None:
        """Saved first, then put: found at once."""
        index_of(store).save(["heron at dawn"], EMBEDDER.passages(["heron at dawn"]))
        store.records.apply([[Put(Record("a", "heron at dawn"))]])
        assert ids(by_meaning(store, "heron at dawn", Filter(), 9)) == ["a"]
        assert index_of(store).coverage() == (1, 0)

    def test_vectors_saved_elsewhere_are_found_here(self, open_store: OpenStore, place: str) -> None:
        """By a store that had looked before they were there."""
        here, there = open_store(place), open_store(place)
        here.records.apply([[Put(Record(f"r{i}", f"walrus on floe {i}"))] for i in range(9)])
        assert by_meaning(here, "walrus", Filter(), 9).found == ()
        passages = index_of(there).missing(99)
        index_of(there).save(passages, EMBEDDER.passages(passages))
        assert ids(by_meaning(here, "walrus on floe 7", Filter(), 1)) == ["r7"]

    def test_saving_twice_is_harmless(self, store: Store) -> None:
        """The first vector of a passage stays."""
        keep(store, Record("a", "heron"))
        index_of(store).save(["heron"], EMBEDDER.passages(["lake"]))
        assert by_meaning(store, "heron", Filter(), 1).found[0].score == 1.0

    def test_another_language_is_followed_by_who_has_the_store_open(self, open_store: OpenStore, place: str) -> None:
        """The language is the store's: changing it has all words read again, also those that come in later."""
        first = open_store(place)
        first.records.apply([[Put(Record("a", "Die Häuser am See"))]])
        assert ids(by_words(first, "Haus", Filter(), 9)) == []
        second = open_store(place)
        second.keywords.change_language("german")
        for store in (second, first, second):
            assert ids(by_words(store, "Haus", Filter(), 9)) == ["a"]
        first.records.apply([[Put(Record("b", "Viele Häuser"))]])
        for store in (first, second, open_store(place)):
            assert store.keywords.analyzer.language == store.status()["language"] == "german"
            assert sorted(ids(by_words(store, "Haus", Filter(), 9))) == ["a", "b"]
            assert store.status()["keyword_lag"] == 0

    def test_a_language_is_set_when_a_store_is_made_and_not_when_it_is_opened(
        self, open_store: OpenStore, place: str
    ) -> None:
        """Whoever opens it with another language gets the store's own, and no word is read again."""
        first = open_store(place, language="german")
        first.records.apply([[Put(Record("a", "Die Häuser am See"))]])
        for store in (open_store(place, language="english"), open_store(place), first):
            assert store.keywords.analyzer.language == store.status()["language"] == "german"
            assert ids(by_words(store, "Haus", Filter(), 9)) == ["a"]
            assert store.status()["keyword_lag"] == 0
