"""Taking records out of every answer, wiping them, putting them back; and leaving everything else as it was."""

# ruff: noqa: S101, S311, PLR2004  (these are tests)

from __future__ import annotations

import random

import pytest

from recollect.errors import UnknownRecord, UsageError
from recollect.testing.asking import (
    EMBEDDER,
    NOON,
    SEARCHES,
    all_ids,
    by_meaning,
    by_words,
    ids,
    index_of,
    keep,
    known_of,
)
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, Restore, Scope, Store, Supersede

SECRETS = ("quixotryptic", "zwibblefrotz", "vlorbian", "krelmish", "snorvian", "glimfeed", "drozzel")
EVER = Filter(any_scope=True, superseded=True)


class ForgettingContract:
    """What is forgotten answers nothing, and nothing else changes."""

    @pytest.mark.parametrize("purge", [False, True])
    def test_a_forgotten_record_answers_nothing(self, store: Store, purge: bool) -> None:
        """Not by id, list, search or as of a time when it was there; that it was there stays in its history."""
        keep(store, Record("kept", "heron in the reeds", created_at=NOON))
        keep(store, Record("gone", "heron flew away", created_at=NOON, tags=("bird",), path="/n/bird.md", kind="chunk"))
        store.records.apply([[Forget("gone", purge)]])
        assert store.records.get(["gone"]) == []
        assert all_ids(store) == ["kept"]
        assert store.records.list(Filter(tags=("bird",)), limit=9) == []
        assert store.files.chunks("/n/bird.md") == []
        assert store.joins.by_path(["/n/bird.md"], Filter()) == {}
        for where in (Filter(), Filter(as_of=NOON), EVER):
            for search in SEARCHES:
                assert ids(search(store, "heron flew away", where, 9)) == ["kept"]
        assert [event.action for event in store.records.history("gone")] == ["add", "purge" if purge else "forget"]
        assert store.count(EVERYTHING)["total"] == 1
        assert store.status()["records"]["forgotten"] == 1
        for change in (Supersede("kept", "gone"), Forget("gone")):
            with pytest.raises(UnknownRecord):
                store.records.apply([[change]])

    def test_forgetting_is_all_or_none(self, store: Store) -> None:
        """One unknown id among many leaves all of them."""
        keep(store, *(Record(key, f"text {key}") for key in "abc"))
        with pytest.raises(UnknownRecord):
            store.records.apply([[*(Forget(key) for key in "abc"), Forget("unknown")]])
        assert all_ids(store) == ["a", "b", "c"]
        assert sorted(ids(by_words(store, "text", Filter(), 9))) == ["a", "b", "c"]

    def test_a_forgotten_record_can_be_put_back(self, store: Store) -> None:
        """As it was, found as before, counted as before; but not by one who does not own it, nor after a purge."""
        given = Record("a", "heron at dawn", title="Lake", tags=("x",), scope=Scope("ada"), created_at=NOON)
        keep(store, given, Record("b", "another heron", scope=Scope("ada"), created_at=NOON))
        where = Filter(scope=Scope("ada"), now=NOON)
        before = [search(store, "heron dawn", where, 9) for search in SEARCHES]
        store.records.apply([[Forget("a")]])
        with pytest.raises(UnknownRecord):
            store.records.apply([[Restore("a", Scope("bob"))]])
        store.records.apply([[Restore("a", Scope("ada"))]])
        assert store.records.get(["a"]) == [given]
        assert [search(store, "heron dawn", where, 9) for search in SEARCHES] == before
        assert ids(store.records.list(Filter(scope=Scope("ada"), tags=("x",)), limit=9)) == ["a"]
        assert [event.action for event in store.records.history("a")] == ["add", "forget", "restore"]
        store.records.apply([[Forget("a", purge=True)]])
        with pytest.raises(UsageError, match="purged"):
            store.records.apply([[Restore("a")]])

    def test_a_forgotten_id_can_be_used_again(self, store: Store) -> None:
        """A put with the id stores a new record that is found, and only it."""
        keep(store, Record("p", "first life of the phoenix", tags=("old",), category="work"), Record("q", "q"))
        store.records.apply([[Supersede("p", "q"), Forget("p")]])
        keep(store, Record("p", "second life of the phoenix"))
        (record,) = store.records.get(["p"])
        assert (record.text, record.tags, record.category, record.superseded_by) == (
            "second life of the phoenix", (), None, None,
        )  # fmt: skip
        for search in SEARCHES:
            assert "p" in ids(search(store, "second phoenix", Filter(), 9))
        assert ids(by_words(store, "first", Filter(), 9)) == []

    def test_a_purged_id_can_be_used_again_by_anybody(self, store: Store) -> None:
        """Nothing is left that one scope could learn of the other."""
        keep(store, Record("p", "Ada's words", scope=Scope("ada")))
        store.records.apply([[Forget("p", purge=True)]])
        keep(store, Record("p", "Bob's words", scope=Scope("bob")))
        assert ids(by_words(store, "words", Filter(scope=Scope("bob")), 9)) == ["p"]
        assert ids(by_words(store, "words", Filter(scope=Scope("ada")), 9)) == []

    def test_a_purge_leaves_nothing_that_can_be_asked_for(self, store: Store) -> None:
        """No field, no earlier text in the history, no term, no vector of any version, no facet."""
        keep(
            store,
            Record(
                "s", "earlier: quixotryptic one", title="Vlorbian", tags=("krelmish",), category="snorvian",
                source="glimfeed", path="/home/drozzel.md",
            ),
        )  # fmt: skip
        keep(store, Record("s", "later: zwibblefrotz two", title="Vlorbian second", tags=("krelmish",)))
        keep(store, Record("other", "an innocent bystander"))
        store.records.apply([[Forget("s", purge=True)]])
        store.scrub()
        told = [store.records.history("s"), store.facets(EVERYTHING), store.records.list(EVERYTHING, limit=9)]
        assert [secret for secret in SECRETS if secret in str(told).lower()] == []
        assert [secret for secret in SECRETS if by_words(store, secret, EVER, 9).found] == []
        index = index_of(store)
        passages = ["Vlorbian\nearlier: quixotryptic one", "Vlorbian second\nlater: zwibblefrotz two"]
        assert index.known([*passages, "an innocent bystander"]) == {"an innocent bystander"}
        assert index.vectors(["s", "other"]).keys() == {"other"}
        assert index.coverage() == (1, 0)

    def test_a_purge_leaves_a_vector_that_another_record_needs(self, store: Store) -> None:
        """The same passage in another scope keeps its vector."""
        keep(store, *(Record(user, "shared words", scope=Scope(user)) for user in ("ada", "bob")))
        store.records.apply([[Forget("ada", purge=True)]])
        assert ids(by_meaning(store, "shared words", Filter(scope=Scope("bob")), 9)) == ["bob"]

    def test_forgetting_touches_nothing_else(self, store: Store) -> None:
        """In forty random cases every other record, its history, its vector and its words are what they were."""
        chance = random.Random(20260314)
        words = ["heron", "reed", "lake", "boat", "oar", "mist", "dawn", "ice"]
        made = 0

        def add(count: int) -> list[str]:
            nonlocal made
            new = []
            for number in range(made, made + count):
                said = " ".join([*chance.choices(words, k=chance.randint(1, 5)), chance.choice("αβγ")])
                unique = f" {number}" if chance.random() < 0.7 else ""
                tags = tuple(chance.sample(["red", "blue", "green"], chance.randint(0, 3)))
                scope = chance.choice([Scope(), Scope("ada"), Scope("bob")])
                new.append(Record(f"r{number}", said + unique, title=chance.choice(["", "T"]), tags=tags, scope=scope))
            made += count
            keep(store, *new)
            return [record.id for record in new]

        live = add(30)
        for _ in range(40):
            gone = live.pop(chance.randrange(len(live)))
            before = known_of(store, live), [by_words(store, word, EVER, 99).among for word in words[:1]]
            held = {word: set(ids(by_words(store, word, EVER, 99))) for word in words}
            store.records.apply([[Forget(gone, purge=chance.random() < 0.5)]])
            assert known_of(store, live) == before[0]
            assert by_words(store, words[0], EVER, 99).among == before[1][0] - 1
            for word in words:
                # What had stood behind it as its repeat may now stand in its place.
                assert held[word] - {gone} <= set(ids(by_words(store, word, EVER, 99))) <= set(live)
            assert index_of(store).coverage() == (len(live), 0)
            live += add(1)

    def test_an_update_replaces_words_and_vector(self, store: Store) -> None:
        """What was said before no longer finds the record; what is said now does, and it is there once."""
        keep(store, Record("a", "an aardvark digs"), Record("b", "a different subject"))
        keep(store, Record("a", "zeppelins over the harbour"))
        assert ids(by_words(store, "aardvark", Filter(), 9)) == []
        assert ids(by_words(store, "zeppelins", Filter(), 9)) == ["a"]
        first = by_meaning(store, "zeppelins over the harbour", Filter(), 9).found[0]
        assert (first.record.id, first.score) == ("a", 1.0)
        assert index_of(store).coverage() == (2, 0)
        assert index_of(store).known(["an aardvark digs"]) == set()

    def test_both_indexes_survive_many_changes(self, store: Store) -> None:
        """Hundreds of updates, forgets and puts in turn: both know exactly the live records."""
        chance = random.Random(3)
        live: dict[str, str] = {}
        index = index_of(store)
        for turn in range(240):
            if live and chance.random() < 0.3:
                store.records.apply([[Forget(key := chance.choice(sorted(live)))]])
                del live[key]
            else:
                key = f"k{chance.randrange(40)}"
                live[key] = f"state {turn}"
                index.save([live[key]], EMBEDDER.passages([live[key]]))
                store.records.apply([[Put(Record(key, live[key]))]])
            if turn % 40 == 39:
                for search in SEARCHES:
                    found = search(store, "state", Filter(), 100)
                    assert {match.record.id: match.record.text for match in found.found} == live
                assert found.among in (0, len(live))
