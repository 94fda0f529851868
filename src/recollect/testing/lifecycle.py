"""Superseding, forgetting, purging and restoring records."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pytest

from recollect.errors import SupersessionCycle, UnknownRecord, UsageError
from recollect.testing.harness import (
    EMBEDDER,
    NOON,
    SEARCHES,
    all_ids,
    by_keywords,
    by_vector,
    details,
    ids,
    index_of,
    store_all,
)
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, Restore, Scope, Store, Supersede, now

ALL = Filter(superseded=True)


class SupersessionContract:
    """A superseded record is in no answer, and nobody loses access to a fact."""

    def test_a_chain_leaves_its_end(self, store: Store) -> None:
        """Of A → B → C, searches and lists return C; all three are available by id and on request."""
        days = {"a": "Monday", "b": "Tuesday", "c": "Friday"}
        store_all(store, *(Record(key, f"the deploy day is {day}") for key, day in days.items()))
        store.records.apply([[Supersede("a", "b")], [Supersede("b", "c")]])
        for search in SEARCHES:
            assert ids(search(store, "deploy day Monday", Filter(), 9)) == ["c"]
            assert sorted(ids(search(store, "deploy day Monday", Filter(superseded=True), 9))) == ["a", "b", "c"]
        assert ids(store.records.list(Filter(), limit=9)) == ["c"]
        assert [record.superseded_by for record in store.records.get(["a", "b", "c"])] == ["b", "c", None]
        assert [event.action for event in store.records.history("b")] == ["add", "supersedes", "supersede"]

    @pytest.mark.parametrize("length", [1, 2, 3, 5])
    def test_a_cycle_is_refused_and_changes_nothing(self, store: Store, length: int) -> None:
        """A record cannot supersede itself, directly or through others."""
        keys = [f"v{i}" for i in range(length)]
        store_all(store, *(Record(key, f"version {key}") for key in keys))
        store.records.apply([[Supersede(old, new)] for old, new in itertools.pairwise(keys)])
        before = store.records.get(keys), store.status()["sequence"]
        with pytest.raises(SupersessionCycle):
            store.records.apply([[Supersede(keys[-1], keys[0])]])
        assert (store.records.get(keys), store.status()["sequence"]) == before
        assert ids(by_keywords(store, "version", Filter(), 9)) == [keys[-1]]

    def test_superseding_twice_is_refused_and_saying_it_again_is_harmless(self, store: Store) -> None:
        """A superseded record cannot be superseded by another one."""
        store_all(store, *(Record(key, f"version {key}") for key in "abc"))
        store.records.apply([[Supersede("a", "b")]])
        before = store.records.get(["a", "b", "c"]), store.status()["sequence"]
        with pytest.raises(UsageError, match="'b'"):
            store.records.apply([[Supersede("a", "c")]])
        store.records.apply([[Supersede("a", "b")]])
        assert (store.records.get(["a", "b", "c"]), store.status()["sequence"]) == before

    @pytest.mark.parametrize(
        ("old", "new", "allowed"),
        [
            (Scope(), Scope("ada"), False),
            (Scope("ada"), Scope("bob"), False),
            (Scope("ada"), Scope("ada", session="s"), False),
            (Scope("ada"), Scope(agent="x"), False),
            (Scope("ada"), Scope(), True),
            (Scope("ada", "x"), Scope(agent="x"), True),
            (Scope("ada"), Scope("ada"), True),
        ],
    )
    def test_a_successor_must_be_seen_by_all_who_saw_the_old(
        self, store: Store, old: Scope, new: Scope, allowed: bool
    ) -> None:
        """A successor with a narrower or another scope would hide a fact from someone, and is refused."""
        store_all(store, Record("a", "before", scope=old), Record("b", "after", scope=new))
        if allowed:
            store.records.apply([[Supersede("a", "b")]])
        else:
            with pytest.raises(UsageError):
                store.records.apply([[Supersede("a", "b")]])
        found = ids(by_keywords(store, "before after", Filter(scope=old), 9))
        assert found == ["b"] if allowed else "a" in found

    def test_as_of_answers_as_of_then(self, store: Store) -> None:
        """Before a record existed: nothing; then the record; from the moment it is superseded: its successor."""
        later = NOON + timedelta(days=10)
        store_all(
            store, Record("a", "captain Ahab", created_at=NOON), Record("b", "captain Starbuck", created_at=later)
        )
        store.records.apply([[Supersede("a", "b", later)]])
        expected = {
            NOON - timedelta(microseconds=1): [],
            NOON: ["a"],
            later - timedelta(microseconds=1): ["a"],
            later: ["b"],
            later + timedelta(days=1): ["b"],
        }
        for moment, found in expected.items():
            where = Filter(as_of=moment)
            assert ids(store.records.list(where, limit=9)) == found, moment
            for search in SEARCHES:
                assert ids(search(store, "captain", where, 9)) == found, (moment, search)

    def test_what_is_set_for_later_begins_then(self, store: Store) -> None:
        """A supersession and an expiry take effect at their exact time, whatever was searched before."""
        then = now() + timedelta(days=1)
        store_all(store, Record("a", "old rule"), Record("b", "new rule"), Record("c", "passing rule", expires_at=then))
        store.records.apply([[Supersede("a", "b", then)]])
        early, late = Filter(now=then - timedelta(microseconds=1)), Filter(now=then)
        for where, expected in ((late, ["b"]), (early, ["a", "b", "c"]), (late, ["b"]), (Filter(), ["a", "b", "c"])):
            assert sorted(ids(store.records.list(where, limit=9))) == expected
            for search in SEARCHES:
                assert sorted(ids(search(store, "rule", where, 9))) == expected

    def test_a_changed_text_is_not_shown_as_of_before_its_change(self, store: Store) -> None:
        """A text that was edited later was not known then."""
        store_all(store, Record("e", "first wording", created_at=NOON))
        store_all(store, Record("e", "second wording"))
        for search in SEARCHES:
            assert ids(search(store, "wording", Filter(as_of=NOON + timedelta(days=1)), 9)) == []
            assert ids(search(store, "wording", Filter(), 9)) == ["e"]

    def test_a_supersession_can_be_taken_back(self, store: Store) -> None:
        """The old record is found again, as is the one that superseded it."""
        store_all(store, Record("a", "the old rule"), Record("b", "the new rule"))
        store.records.apply([[Supersede("a", "b")], [Restore("a")]])
        for search in SEARCHES:
            assert sorted(ids(search(store, "rule", Filter(), 9))) == ["a", "b"]
        assert store.records.get(["a"])[0].superseded_by is None
        assert store.records.history("a")[-1].action == "restore"
        with pytest.raises(UsageError):
            store.records.apply([[Restore("a")]])

    def test_a_record_and_what_it_supersedes_come_as_one(self, store: Store) -> None:
        """A record can supersede another in the group that puts it."""
        store_all(store, Record("a", "tea at four"))
        store.records.apply([[Put(Record("b", "tea at five")), Supersede("a", "b")]])
        assert ids(by_keywords(store, "tea", Filter(), 9)) == ["b"]
        assert sorted(ids(by_keywords(store, "tea", ALL, 9))) == ["a", "b"]


SECRETS = ("quixotryptic", "zwibblefrotz", "vlorbian", "krelmish", "snorvian", "glimfeed", "drozzel")
EVER = Filter(any_scope=True, superseded=True)


class ForgettingContract:
    """A forgotten record is in no answer, and nothing else changes."""

    @pytest.mark.parametrize("purge", [False, True])
    def test_a_forgotten_record_answers_nothing(self, store: Store, purge: bool) -> None:
        """By id, list, search or at an earlier time; only its history remains."""
        store_all(store, Record("kept", "heron in the reeds", created_at=NOON))
        store_all(
            store, Record("gone", "heron flew away", created_at=NOON, tags=("bird",), path="/n/bird.md", kind="chunk")
        )
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
        """If one id of a group is unknown, no record is forgotten."""
        store_all(store, *(Record(key, f"text {key}") for key in "abc"))
        with pytest.raises(UnknownRecord):
            store.records.apply([[*(Forget(key) for key in "abc"), Forget("unknown")]])
        assert all_ids(store) == ["a", "b", "c"]
        assert sorted(ids(by_keywords(store, "text", Filter(), 9))) == ["a", "b", "c"]

    def test_a_forgotten_record_can_be_put_back(self, store: Store) -> None:
        """Unchanged, and found as before; but not by another scope, nor after a purge."""
        given = Record("a", "heron at dawn", title="Lake", tags=("x",), scope=Scope("ada"), created_at=NOON)
        store_all(store, given, Record("b", "another heron", scope=Scope("ada"), created_at=NOON))
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
        """A put with the id stores a new record without fields of the old one."""
        store_all(store, Record("p", "first life of the phoenix", tags=("old",), category="work"), Record("q", "q"))
        store.records.apply([[Supersede("p", "q"), Forget("p")]])
        store_all(store, Record("p", "second life of the phoenix"))
        (record,) = store.records.get(["p"])
        assert (record.text, record.tags, record.category, record.superseded_by) == (
            "second life of the phoenix", (), None, None,
        )  # fmt: skip
        for search in SEARCHES:
            assert "p" in ids(search(store, "second phoenix", Filter(), 9))
        assert ids(by_keywords(store, "first", Filter(), 9)) == []

    def test_a_purged_id_can_be_used_again_by_anybody(self, store: Store) -> None:
        """Nothing is left that one scope could learn about the other."""
        store_all(store, Record("p", "Ada's words", scope=Scope("ada")))
        store.records.apply([[Forget("p", purge=True)]])
        store_all(store, Record("p", "Bob's words", scope=Scope("bob")))
        assert ids(by_keywords(store, "words", Filter(scope=Scope("bob")), 9)) == ["p"]
        assert ids(by_keywords(store, "words", Filter(scope=Scope("ada")), 9)) == []

    def test_a_purge_leaves_nothing_that_can_be_asked_for(self, store: Store) -> None:
        """No field, no earlier text in the history, no term, no vector, no facet."""
        store_all(
            store,
            Record(
                "s", "earlier: quixotryptic one", title="Vlorbian", tags=("krelmish",), category="snorvian",
                source="glimfeed", path="/home/drozzel.md",
            ),
        )  # fmt: skip
        store_all(store, Record("s", "later: zwibblefrotz two", title="Vlorbian second", tags=("krelmish",)))
        store_all(store, Record("other", "an innocent bystander"))
        store.records.apply([[Forget("s", purge=True)]])
        store.scrub()
        told = [store.records.history("s"), store.facets(EVERYTHING), store.records.list(EVERYTHING, limit=9)]
        assert [secret for secret in SECRETS if secret in str(told).lower()] == []
        assert [secret for secret in SECRETS if by_keywords(store, secret, EVER, 9).entries] == []
        index = index_of(store)
        passages = ["Vlorbian\nearlier: quixotryptic one", "Vlorbian second\nlater: zwibblefrotz two"]
        assert index.known([*passages, "an innocent bystander"]) == {"an innocent bystander"}
        assert index.vectors(["s", "other"]).keys() == {"other"}
        assert index.coverage() == (1, 0)

    def test_a_purge_leaves_a_vector_that_another_record_needs(self, store: Store) -> None:
        """The same text in another scope keeps its vector."""
        store_all(store, *(Record(user, "shared words", scope=Scope(user)) for user in ("ada", "bob")))
        store.records.apply([[Forget("ada", purge=True)]])
        assert ids(by_vector(store, "shared words", Filter(scope=Scope("bob")), 9)) == ["bob"]

    def test_forgetting_touches_nothing_else(self, store: Store) -> None:
        """In forty random cases all other records, their history, vectors and terms are unchanged."""
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
            store_all(store, *new)
            return [record.id for record in new]

        live = add(30)
        for _ in range(40):
            gone = live.pop(chance.randrange(len(live)))
            before = details(store, live), [by_keywords(store, word, EVER, 99).among or 0 for word in words[:1]]
            held = {word: set(ids(by_keywords(store, word, EVER, 99))) for word in words}
            store.records.apply([[Forget(gone, purge=chance.random() < 0.5)]])
            assert details(store, live) == before[0]
            assert by_keywords(store, words[0], EVER, 99).among == before[1][0] - 1
            for word in words:
                # A duplicate of the forgotten record may now be returned in its place.
                assert held[word] - {gone} <= set(ids(by_keywords(store, word, EVER, 99))) <= set(live)
            assert index_of(store).coverage() == (len(live), 0)
            live += add(1)

    def test_an_update_replaces_words_and_vector(self, store: Store) -> None:
        """The old text does not find the record, the new one does, and it is found once."""
        store_all(store, Record("a", "an aardvark digs"), Record("b", "a different subject"))
        store_all(store, Record("a", "zeppelins over the harbour"))
        assert ids(by_keywords(store, "aardvark", Filter(), 9)) == []
        assert ids(by_keywords(store, "zeppelins", Filter(), 9)) == ["a"]
        first = by_vector(store, "zeppelins over the harbour", Filter(), 9).entries[0]
        assert (first.record.id, first.score) == ("a", 1.0)
        assert index_of(store).coverage() == (2, 0)
        assert index_of(store).known(["an aardvark digs"]) == set()

    def test_both_indexes_survive_many_changes(self, store: Store) -> None:
        """After hundreds of updates, forgets and puts both contain exactly the live records."""
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
                    assert {match.record.id: match.record.text for match in found.entries} == live
                assert found.among in (None, 0, len(live))
