"""Superseding, forgetting, purging and restoring records."""

import itertools
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recollect.errors import SupersessionCycle, UnknownRecord, UsageError
from recollect.testing.harness import NOON, SEARCHES, all_ids, apply, by_keywords, find, ids, index_of, store_all
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, Restore, Scope, Store, Supersede, now

ALL = Filter(superseded=True)
EVER = Filter(any_scope=True, superseded=True)
SECRETS = ("quixotryptic", "zwibblefrotz", "vlorbian", "krelmish", "snorvian", "glimfeed", "drozzel")


def details(store: Store, keys: list[str]) -> tuple[Any, ...]:
    """Everything that a store holds of some records: their fields, history and vectors."""
    vectors = index_of(store).vectors(keys)
    histories = [store.records.history(key) for key in keys]
    return store.records.get(keys), histories, {key: vector.tobytes() for key, vector in vectors.items()}


class SupersessionContract:
    """A superseded record is in no answer, and every caller can still read a successor."""

    def test_only_the_last_record_of_a_chain_is_found(self, store: Store) -> None:
        """Of A → B → C, searches and lists return C; all three are available by id and on request."""
        days = {"a": "Monday", "b": "Tuesday", "c": "Friday"}
        store_all(store, *(Record(key, f"the deploy day is {day}") for key, day in days.items()))
        store.records.apply([[Supersede("a", "b")], [Supersede("b", "c")]])
        assert find(store, "deploy day Monday") == all_ids(store, Filter()) == ["c"]
        assert find(store, "deploy day Monday", ALL) == ["a", "b", "c"]
        assert [record.superseded_by for record in store.records.get(["a", "b", "c"])] == ["b", "c", None]
        assert [event.action for event in store.records.history("b")] == ["add", "supersedes", "supersede"]

    @pytest.mark.parametrize("length", [1, 2, 3, 5])
    def test_a_cycle_is_refused(self, store: Store, length: int) -> None:
        keys = [f"v{i}" for i in range(length)]
        store_all(store, *(Record(key, f"version {key}") for key in keys))
        store.records.apply([[Supersede(old, new)] for old, new in itertools.pairwise(keys)])
        before = store.records.get(keys), store.status()["sequence"]
        with pytest.raises(SupersessionCycle):
            apply(store, Supersede(keys[-1], keys[0]))
        assert (store.records.get(keys), store.status()["sequence"]) == before
        assert find(store, "version") == [keys[-1]]

    def test_a_second_successor_is_refused(self, store: Store) -> None:
        store_all(store, *(Record(key, f"version {key}") for key in "abc"))
        apply(store, Supersede("a", "b"))
        before = store.records.get(["a", "b", "c"]), store.status()["sequence"]
        with pytest.raises(UsageError, match="'b'"):
            apply(store, Supersede("a", "c"))
        apply(store, Supersede("a", "b"))
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
    def test_a_successor_must_be_visible_wherever_the_old_record_is(
        self, store: Store, old: Scope, new: Scope, allowed: bool
    ) -> None:
        """A successor with a narrower or another scope would hide a fact from someone, and is refused."""
        store_all(store, Record("a", "before", scope=old), Record("b", "after", scope=new))
        if allowed:
            apply(store, Supersede("a", "b"))
        else:
            with pytest.raises(UsageError):
                apply(store, Supersede("a", "b"))
        hits = ids(by_keywords(store, "before after", Filter(scope=old)))
        assert hits == ["b"] if allowed else "a" in hits

    def test_as_of_finds_the_records_of_that_time(self, store: Store) -> None:
        """Before a record existed: nothing; then the record; from the moment it is superseded: its successor."""
        later, moment = NOON + timedelta(days=10), timedelta(microseconds=1)
        captains = Record("a", "captain Ahab", created_at=NOON), Record("b", "captain Starbuck", created_at=later)
        store_all(store, *captains)
        apply(store, Supersede("a", "b", later))
        for time, expected in ((NOON - moment, []), (NOON, ["a"]), (later - moment, ["a"]), (later, ["b"])):
            where = Filter(as_of=time)
            assert all_ids(store, where) == find(store, "captain", where) == expected, time

    def test_a_text_edited_later_is_not_found_as_of_before(self, store: Store) -> None:
        store_all(store, Record("e", "first wording", created_at=NOON))
        store_all(store, Record("e", "second wording"))
        assert find(store, "wording", Filter(as_of=NOON + timedelta(days=1))) == []
        assert find(store, "wording") == ["e"]

    def test_a_supersession_and_an_expiry_take_effect_at_their_time(self, store: Store) -> None:
        then = now() + timedelta(days=1)
        store_all(store, Record("a", "old rule"), Record("b", "new rule"), Record("c", "passing rule", expires_at=then))
        apply(store, Supersede("a", "b", then))
        early, late = Filter(now=then - timedelta(microseconds=1)), Filter(now=then)
        for where, expected in ((late, ["b"]), (early, ["a", "b", "c"]), (late, ["b"]), (Filter(), ["a", "b", "c"])):
            assert all_ids(store, where) == find(store, "rule", where) == expected

    def test_a_superseded_record_can_be_restored(self, store: Store) -> None:
        store_all(store, Record("a", "the old rule"), Record("b", "the new rule"))
        store.records.apply([[Supersede("a", "b")], [Restore("a")]])
        assert find(store, "rule") == ["a", "b"]
        assert store.records.get(["a"])[0].superseded_by is None
        assert store.records.history("a")[-1].action == "restore"
        with pytest.raises(UsageError):
            apply(store, Restore("a"))

    def test_one_group_can_put_a_record_and_supersede_another_by_it(self, store: Store) -> None:
        store_all(store, Record("a", "tea at four"))
        apply(store, Put(Record("b", "tea at five")), Supersede("a", "b"))
        assert ids(by_keywords(store, "tea")) == ["b"]
        assert sorted(ids(by_keywords(store, "tea", ALL))) == ["a", "b"]


class ForgettingContract:
    """A forgotten record is in no answer, and nothing else changes."""

    @pytest.mark.parametrize("purge", [False, True])
    def test_a_forgotten_record_is_not_found(self, store: Store, purge: bool) -> None:
        """By id, list, search or at an earlier time; only its history remains."""
        gone = Record("gone", "heron flew away", created_at=NOON, tags=("bird",), path="/n/bird.md", kind="chunk")
        store_all(store, Record("kept", "heron in the reeds", created_at=NOON), gone)
        apply(store, Forget("gone", purge))
        assert store.records.get(["gone"]) == store.files.chunks("/n/bird.md") == []
        assert ids(store.files.chunks("/n/bird.md", forgotten=True)) == ([] if purge else ["gone"])
        assert all_ids(store) == ["kept"]
        assert all_ids(store, Filter(tags=("bird",))) == []
        assert store.joins.by_path(["/n/bird.md"], Filter()) == {}
        for where in (Filter(), Filter(as_of=NOON), EVER):
            assert find(store, "heron flew away", where) == ["kept"]
        assert [event.action for event in store.records.history("gone")] == ["add", "purge" if purge else "forget"]
        counts = store.status()["records"]
        assert (counts["total"], counts["forgotten"]) == (1, 0 if purge else 1)
        for change in (Supersede("kept", "gone"), Forget("gone")):
            with pytest.raises(UnknownRecord):
                apply(store, change)

    def test_a_forgotten_record_can_be_restored(self, store: Store) -> None:
        """Unchanged, and found as before; but not by another scope, nor after a purge."""
        ada = Scope("ada")
        record = Record("a", "heron at dawn", title="Lake", tags=("x",), scope=ada, created_at=NOON)
        store_all(store, record, Record("b", "another heron", scope=ada, created_at=NOON))
        where = Filter(scope=ada, now=NOON)
        before = [search(store, "heron dawn", where) for search in SEARCHES]
        apply(store, Forget("a"))
        with pytest.raises(UnknownRecord):
            apply(store, Restore("a", Scope("bob")))
        apply(store, Restore("a", ada))
        assert store.records.get(["a"]) == [record]
        assert [search(store, "heron dawn", where) for search in SEARCHES] == before
        assert all_ids(store, Filter(scope=ada, tags=("x",))) == ["a"]
        assert [event.action for event in store.records.history("a")] == ["add", "forget", "restore"]
        apply(store, Forget("a", purge=True))
        with pytest.raises(UsageError, match="purged"):
            apply(store, Restore("a"))

    def test_the_id_of_a_forgotten_record_can_be_used_again(self, store: Store) -> None:
        store_all(store, Record("p", "first life of the phoenix", tags=("old",), category="work"), Record("q", "q"))
        apply(store, Supersede("p", "q"), Forget("p"))
        store_all(store, Record("p", "second life of the phoenix"))
        (record,) = store.records.get(["p"])
        assert record.text == "second life of the phoenix"
        assert (record.tags, record.category, record.superseded_by) == ((), None, None)
        assert all("p" in ids(search(store, "second phoenix")) for search in SEARCHES)
        assert ids(by_keywords(store, "first")) == []

    def test_the_id_of_a_purged_record_can_be_used_by_another_scope(self, store: Store) -> None:
        store_all(store, Record("p", "Ada's words", scope=Scope("ada")))
        apply(store, Forget("p", purge=True))
        store_all(store, Record("p", "Bob's words", scope=Scope("bob")))
        assert find(store, "words", Filter(scope=Scope("bob"))) == ["p"]
        assert find(store, "words", Filter(scope=Scope("ada"))) == []

    def test_a_purge_erases_the_content(self, store: Store) -> None:
        """No field, no earlier text in the history, no term, no vector, no facet."""
        first = Record("s", "earlier: quixotryptic one", title="Vlorbian", tags=("krelmish",), category="snorvian")
        store_all(store, replace(first, source="glimfeed", path="/home/drozzel.md"))
        store_all(store, Record("s", "later: zwibblefrotz two", title="Vlorbian second", tags=("krelmish",)))
        store_all(store, Record("other", "an innocent bystander"))
        apply(store, Forget("s", purge=True))
        store.scrub()
        contents = [store.records.history("s"), store.facets(EVERYTHING), store.records.list(EVERYTHING, limit=9)]
        assert [secret for secret in SECRETS if secret in str(contents).lower()] == []
        assert [secret for secret in SECRETS if by_keywords(store, secret, EVER).entries] == []
        index = index_of(store)
        passages = ["Vlorbian\nearlier: quixotryptic one", "Vlorbian second\nlater: zwibblefrotz two"]
        assert index.known([*passages, "an innocent bystander"]) == {"an innocent bystander"}
        assert index.vectors(["s", "other"]).keys() == {"other"}
        assert index.coverage() == (1, 0)

    def test_a_purge_leaves_a_vector_that_another_record_needs(self, store: Store) -> None:
        store_all(store, *(Record(user, "shared words", scope=Scope(user)) for user in ("ada", "bob")))
        apply(store, Forget("ada", purge=True))
        assert find(store, "shared words", Filter(scope=Scope("bob"))) == ["bob"]

    def test_an_update_replaces_words_and_vector(self, store: Store) -> None:
        store_all(store, Record("a", "an aardvark digs"), Record("b", "a different subject"))
        store_all(store, Record("a", "zeppelins over the harbour"))
        assert ids(by_keywords(store, "aardvark")) == []
        keyword, vector = (search(store, "zeppelins over the harbour") for search in SEARCHES)
        assert (ids(keyword), ids(vector)[0], vector.scores[0]) == (["a"], "a", 1.0)
        assert index_of(store).coverage() == (2, 0)
        assert index_of(store).known(["an aardvark digs"]) == set()

    def test_a_change_touches_no_other_record(self, store: Store) -> None:
        """After each of 150 random puts, updates, forgets and purges, both indexes contain exactly the live records."""
        chance = random.Random(20260314)
        scopes, tags = (Scope(), Scope("ada"), Scope("bob")), ["red", "blue", "green"]
        live: dict[str, str] = {}
        index_of(store)
        for turn in range(150):
            number = chance.randrange(30)
            key = f"r{number}"
            others = [other for other in live if other != key]
            before = details(store, others)
            if key in live and chance.random() < 0.5:
                apply(store, Forget(key, purge=chance.random() < 0.5))
                del live[key]
            else:
                live[key] = f"heron {chance.choice('αβγ')}{turn if chance.random() < 0.7 else ''}"
                chosen = tuple(chance.sample(tags, chance.randint(0, 3)))
                store_all(store, Record(key, live[key], tags=chosen, scope=scopes[number % 3]))
            assert details(store, others) == before
            assert index_of(store).coverage() == (len(live), 0)
            for search in SEARCHES:
                hits = search(store, "heron", EVER, 99)
                # Of several records with the same text, one is returned.
                assert {hit.record.text for hit in hits.entries} == set(live.values())
                assert {hit.id: hit.record.text for hit in hits.entries}.items() <= live.items()
                assert len(hits.entries) + hits.duplicates == len(live)
