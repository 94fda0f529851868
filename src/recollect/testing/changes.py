"""Changes: whoever listens is told of them, and a scope of no others than it sees."""

# ruff: noqa: S101  (these are tests)

from __future__ import annotations

from itertools import islice

from recollect.testing.asking import OpenStore, keep
from recollect.types import Forget, Put, Record, Scope, Store, Supersede

MOST_TICKS = 1_000


class ChangesContract:
    """Nobody who listens misses a change."""

    def test_who_listens_is_told_of_what_another_does(self, open_store: OpenStore, place: str, store: Store) -> None:
        """Soon, once for a change, and not before there is one; what happened before does not count."""
        store.records.apply([[Put(Record("before", "heron"))]])
        other = open_store(place)
        with store.changes.listen(quiet=0.02) as ticks:
            assert not any(islice(ticks, 2))
            for change in (Put(Record("a", "badger")), Put(Record("a", "badger", tags=("t",))), Forget("a")):
                other.records.apply([[change]])
                assert any(islice(ticks, MOST_TICKS))
                assert not any(islice(ticks, 2))

    def test_a_scope_is_told_of_what_it_sees(self, store: Store) -> None:
        """Its own and everybody's records, also when they are forgotten; of another's not even that they are there."""
        ada, bob = Scope("ada"), Scope("bob")
        changes = store.changes
        assert changes.newest() == changes.newest(ada) == 0
        store.records.apply([[Put(Record("all", "heron"))], [Put(Record("ada", "badger", scope=ada))]])
        seen = changes.newest(ada)
        assert seen == changes.newest() > changes.newest(bob) > 0
        store.records.apply([[Put(Record("bob", "walrus", scope=bob))], [Supersede("bob", "all")], [Forget("bob")]])
        assert changes.newest(ada) == seen < changes.newest(bob) <= changes.newest()
        assert [number for number in changes.since(seen, ada)[0] if number > seen] == []
        store.records.apply([[Forget("all")]])
        new, following = changes.since(seen, ada)
        assert changes.newest(ada) == changes.newest() == max(new)
        assert {number for number in new if number > seen} == {max(new)}
        assert following <= max(new)

    def test_a_scope_counts_the_lines_that_tell_it_anything(self, store: Store) -> None:
        """Up to a number; what another scope did is not among them, nor that a record took another's place."""
        ada, changes = Scope("ada"), store.changes
        keep(store, Record("a", "one", scope=ada), Record("b", "two", scope=Scope("bob")), Record("c", "three"))
        first = changes.newest()
        assert (changes.count(0, ada), changes.count(first, ada), changes.count(first, Scope())) == (0, 2, 1)
        store.records.apply([[Supersede("b", "c")], [Forget("a")]])
        assert (changes.count(first, ada), changes.count(changes.newest(), ada)) == (2, 3)
