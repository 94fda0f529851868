"""One record in the place of another: chains, cycles, times, and taking it back."""

# ruff: noqa: S101  (these are tests)

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from recollect.errors import SupersessionCycle, UsageError
from recollect.testing.asking import NOON, SEARCHES, by_words, ids, keep
from recollect.types import Filter, Put, Record, Restore, Scope, Store, Supersede, now

ALL = Filter(superseded=True)


class SupersessionContract:
    """What is superseded answers no more, and nobody loses a fact by it."""

    def test_a_chain_leaves_its_end(self, store: Store) -> None:
        """A → B → C: only C is found, by either index and in lists; all three can be had by id and on request."""
        days = {"a": "Monday", "b": "Tuesday", "c": "Friday"}
        keep(store, *(Record(key, f"the deploy day is {day}") for key, day in days.items()))
        store.records.apply([[Supersede("a", "b")], [Supersede("b", "c")]])
        for search in SEARCHES:
            assert ids(search(store, "deploy day Monday", Filter(), 9)) == ["c"]
            assert sorted(ids(search(store, "deploy day Monday", Filter(superseded=True), 9))) == ["a", "b", "c"]
        assert ids(store.records.list(Filter(), limit=9)) == ["c"]
        assert [record.superseded_by for record in store.records.get(["a", "b", "c"])] == ["b", "c", None]
        assert [event.action for event in store.records.history("b")] == ["add", "supersedes", "supersede"]

    @pytest.mark.parametrize("length", [1, 2, 3, 5])
    def test_a_cycle_is_refused_and_changes_nothing(self, store: Store, length: int) -> None:
        """A record cannot come to supersede itself, over however many others."""
        keys = [f"v{i}" for i in range(length)]
        keep(store, *(Record(key, f"version {key}") for key in keys))
        store.records.apply([[Supersede(old, new)] for old, new in itertools.pairwise(keys)])
        before = store.records.get(keys), store.status()["sequence"]
        with pytest.raises(SupersessionCycle):
            store.records.apply([[Supersede(keys[-1], keys[0])]])
        assert (store.records.get(keys), store.status()["sequence"]) == before
        assert ids(by_words(store, "version", Filter(), 9)) == [keys[-1]]

    def test_superseding_twice_is_refused_and_saying_it_again_is_harmless(self, store: Store) -> None:
        """What is superseded already cannot be superseded by another."""
        keep(store, *(Record(key, f"version {key}") for key in "abc"))
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
        """A narrower or foreign successor would take a fact away from someone; it is refused."""
        keep(store, Record("a", "before", scope=old), Record("b", "after", scope=new))
        if allowed:
            store.records.apply([[Supersede("a", "b")]])
        else:
            with pytest.raises(UsageError):
                store.records.apply([[Supersede("a", "b")]])
        found = ids(by_words(store, "before after", Filter(scope=old), 9))
        assert found == ["b"] if allowed else "a" in found

    def test_as_of_answers_as_of_then(self, store: Store) -> None:
        """Before a record was there: nothing; before it was superseded: it; from that very moment on: its successor."""
        later = NOON + timedelta(days=10)
        keep(store, Record("a", "captain Ahab", created_at=NOON), Record("b", "captain Starbuck", created_at=later))
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
        """A supersession and an expiry take effect at their very moment, however often the same was asked before."""
        then = now() + timedelta(days=1)
        keep(store, Record("a", "old rule"), Record("b", "new rule"), Record("c", "passing rule", expires_at=then))
        store.records.apply([[Supersede("a", "b", then)]])
        early, late = Filter(now=then - timedelta(microseconds=1)), Filter(now=then)
        for where, expected in ((late, ["b"]), (early, ["a", "b", "c"]), (late, ["b"]), (Filter(), ["a", "b", "c"])):
            assert sorted(ids(store.records.list(where, limit=9))) == expected
            for search in SEARCHES:
                assert sorted(ids(search(store, "rule", where, 9))) == expected

    def test_a_changed_text_is_not_shown_as_of_before_its_change(self, store: Store) -> None:
        """What was edited since then is not what was known then."""
        keep(store, Record("e", "first wording", created_at=NOON))
        keep(store, Record("e", "second wording"))
        for search in SEARCHES:
            assert ids(search(store, "wording", Filter(as_of=NOON + timedelta(days=1)), 9)) == []
            assert ids(search(store, "wording", Filter(), 9)) == ["e"]

    def test_a_supersession_can_be_taken_back(self, store: Store) -> None:
        """The old record answers again, beside the one that had its place."""
        keep(store, Record("a", "the old rule"), Record("b", "the new rule"))
        store.records.apply([[Supersede("a", "b")], [Restore("a")]])
        for search in SEARCHES:
            assert sorted(ids(search(store, "rule", Filter(), 9))) == ["a", "b"]
        assert store.records.get(["a"])[0].superseded_by is None
        assert store.records.history("a")[-1].action == "restore"
        with pytest.raises(UsageError):
            store.records.apply([[Restore("a")]])

    def test_a_record_and_what_it_supersedes_come_as_one(self, store: Store) -> None:
        """A new record may take another's place in the group that puts it."""
        keep(store, Record("a", "tea at four"))
        store.records.apply([[Put(Record("b", "tea at five")), Supersede("a", "b")]])
        assert ids(by_words(store, "tea", Filter(), 9)) == ["b"]
        assert sorted(ids(by_words(store, "tea", ALL, 9))) == ["a", "b"]
