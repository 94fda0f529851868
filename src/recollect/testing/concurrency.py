"""Threads and processes that use one store at once, some of which are killed, and listeners for changes."""

import contextlib
import itertools
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import Any, ClassVar

import pytest

from recollect.errors import RecollectError
from recollect.testing.harness import SEARCHES, OpenStore, all_ids, apply, by_keywords, find, ids, index_of, store_all
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, Scope, Store, Supersede

SPAWN = multiprocessing.get_context("spawn")

_stores: list[Store] = []  # the store of a worker process


def _open(opener: str, place: str) -> None:
    _stores.append(resolve_name(opener)(place))
    index_of(_stores[0])


def _use(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(_stores[0], *arguments)


def _put_many(store: Store, name: str) -> list[str]:
    """Put new records, and one that all processes change; return the acknowledged ids of the new ones."""
    texts = {f"{name}-{number}": f"walrus {name} says {name}x{number}" for number in range(25)}
    return [store_all(store, Record(key, text), Record("all", f"{text} last"))[0].id for key, text in texts.items()]


def _put_groups(opener: str, place: str, start: int, acknowledged: Connection) -> None:
    """Put groups of three without end, and send each number when it is acknowledged, until killed."""
    _open(opener, place)
    for number in itertools.count(start):
        apply(_stores[0], *(Put(Record(f"{number}-{part}", f"walrus number {number}")) for part in "abc"))
        acknowledged.send(number)


class CrowdContract:
    """No acknowledged change is lost, and no group of changes is visible in part."""

    opener: ClassVar[str]

    @pytest.fixture
    def workers(self, place: str, store: Store) -> Iterator[list[ProcessPoolExecutor]]:
        """Processes that open the store when they are first used; they end with the test."""
        index_of(store)
        with contextlib.ExitStack() as started:
            pools = (ProcessPoolExecutor(1, SPAWN, _open, (self.opener, place)) for _ in range(3))
            yield [started.enter_context(pool) for pool in pools]

    def test_a_write_is_visible_to_the_next_search_in_another_process(
        self, store: Store, workers: list[ProcessPoolExecutor]
    ) -> None:
        """In both directions and in both indexes, for puts and forgets."""
        other = workers[0]
        assert other.submit(_use, find, "badger").result() == []
        for turn in range(5):
            here, there = f"badger {turn} was put here", f"badger {turn} was put there"
            store_all(store, Record(f"h{turn}", here))
            assert other.submit(_use, find, here).result() == [f"h{turn}"]
            other.submit(_use, store_all, Record(f"t{turn}", there)).result()
            assert f"t{turn}" in find(store, there)
            apply(store, Forget(f"t{turn}"))
            other.submit(_use, apply, Forget(f"h{turn}")).result()
            assert other.submit(_use, find, "badger").result() == []
            assert find(store, "badger") == []

    def test_concurrent_processes_lose_no_write(self, store: Store, workers: list[ProcessPoolExecutor]) -> None:
        """Every acknowledged record is in both indexes, and a record that all processes change is complete."""
        names = ("w0", "w1", "w2")
        wait([worker.submit(_use, find, "") for worker in workers])
        futures = [worker.submit(_use, _put_many, name) for name, worker in zip(names, workers, strict=True)]
        acknowledged = [key for future in futures for key in future.result()]
        assert sorted(acknowledged) == sorted(f"{name}-{i}" for name in names for i in range(25))
        assert all_ids(store) == sorted([*acknowledged, "all"])
        assert index_of(store).coverage()[0] >= 75
        for search in SEARCHES:
            assert "w1-7" in ids(search(store, "walrus w1 says w1x7"))
        assert by_keywords(store, "walrus").among == 76
        assert Counter(event.action for event in store.records.history("all")) == {"add": 1, "update": 74}
        assert ids(by_keywords(store, "last")) == ["all"]

    def test_concurrent_threads_lose_no_write(self, store: Store) -> None:
        missed: list[str] = []

        def work(me: int) -> None:
            for turn in range(12):
                text = f"thread {me} says word{me}x{turn}"
                store_all(store, Record(f"{me}-{turn}", text))
                missed.extend(text for search in SEARCHES if f"{me}-{turn}" not in ids(search(store, text)))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert missed == []
        assert len(all_ids(store)) == by_keywords(store, "thread").among == 96

    def test_concurrent_puts_of_one_text_make_one_record(self, open_store: OpenStore, place: str) -> None:
        stores = [open_store(place) for _ in range(4)]
        ready = threading.Barrier(4)

        def put(me: int) -> list[str]:
            keys = []
            for turn in range(6):
                ready.wait(60)
                record = Record(f"{turn}-{me}", f"text {turn}", tags=(f"t{me}",))
                keys += ids(apply(stores[me], Put(record, merge=True)))
            return keys

        with ThreadPoolExecutor(4) as threads:
            assert len({tuple(keys) for keys in threads.map(put, range(4))}) == 1
        records = stores[0].records.list(Filter(), limit=99)
        assert [sorted(record.tags) for record in records] == [["t0", "t1", "t2", "t3"]] * 6

    def test_concurrent_supersessions_leave_one_successor_and_no_cycle(self, open_store: OpenStore, place: str) -> None:
        """If four supersede a record at once, one succeeds; two that supersede each other do not form a cycle."""
        stores = [open_store(place) for _ in range(4)]
        store_all(stores[0], *(Record(key, f"version {key}") for key in ("old", "n0", "n1", "n2", "n3", "x", "y")))

        def attempt(me: int) -> str:
            try:
                apply(stores[me], Supersede("old", f"n{me}"))
                apply(stores[me], Supersede(*(("x", "y") if me % 2 else ("y", "x"))))
            except RecollectError as error:
                return error.code
            return "done"

        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(attempt, range(4))) <= {"done", "usage", "supersession_cycle"}
        assert [event.action for event in stores[0].records.history("old")].count("supersede") == 1
        assert stores[0].records.get(["old"])[0].superseded_by in {"n0", "n1", "n2", "n3"}
        assert {"x", "y"} & set(all_ids(stores[0], Filter())), "a cycle would hide both"

    def test_a_record_is_found_while_it_is_updated(self, store: Store) -> None:
        store_all(store, *(Record(f"g{i}", f"gannet {i}") for i in range(60)))
        stop, missed, searches = threading.Event(), Counter[str](), Counter[str]()

        def look() -> None:
            while not stop.is_set():
                for search in SEARCHES:
                    searches[search.__name__] += 1
                    missed[search.__name__] += "g7" not in ids(search(store, "gannet 7", depth=60))

        with ThreadPoolExecutor(2) as threads:
            looking = [threads.submit(look) for _ in range(2)]
            for turn in range(60):
                apply(store, Put(Record("g7", "gannet 7", tags=(f"t{turn}",))))
            stop.set()
            for each in looking:
                each.result()
        assert min(searches.values()) > 3
        assert +missed == Counter()

    def test_a_killed_process_leaves_whole_groups(self, store: Store, place: str) -> None:
        """All acknowledged groups are stored, and every stored group is complete."""
        acknowledged: list[int] = []
        for turn in range(5):
            ours, theirs = SPAWN.Pipe(duplex=False)
            process = SPAWN.Process(target=_put_groups, args=(self.opener, place, turn * 1000, theirs), daemon=True)
            process.start()
            theirs.close()
            acknowledged += [ours.recv() for _ in range(4 + turn)]
            process.kill()
            process.join()
            ours.close()
        stored = all_ids(store)
        parts = Counter(key.split("-")[0] for key in stored)
        assert set(parts.values()) == {3}, "a group is stored as a whole or not at all"
        assert {str(number) for number in acknowledged} <= parts.keys()
        hits = by_keywords(store, "walrus", depth=999)
        assert len(hits.entries) + hits.duplicates == hits.among == len(stored) == store.count(EVERYTHING)["total"]
        assert store.status()["keyword_lag"] == 0
        store_all(store, Record("next", "the walrus lives on"))
        assert ids(by_keywords(store, "lives")) == ["next"]


class ChangesContract:
    """A listener misses no change."""

    def test_a_listener_is_notified_of_each_change_of_another_store(
        self, open_store: OpenStore, place: str, store: Store
    ) -> None:
        """Soon and once for each change, and not for changes before."""
        apply(store, Put(Record("before", "heron")))
        other = open_store(place)
        with store.changes.listen(quiet=0.02) as ticks:
            assert not any(itertools.islice(ticks, 2))
            for change in (Put(Record("a", "badger")), Put(Record("a", "badger", tags=("t",))), Forget("a")):
                apply(other, change)
                assert any(itertools.islice(ticks, 1_000))
                assert not any(itertools.islice(ticks, 2))

    def test_a_scope_is_notified_of_visible_changes_only(self, store: Store) -> None:
        """Changes to its own and to global records, also when they are forgotten; none of other scopes."""
        ada, bob = Scope("ada"), Scope("bob")
        changes = store.changes
        assert changes.newest() == changes.newest(ada) == 0
        store_all(store, Record("all", "heron"), Record("ada", "badger", scope=ada))
        last = changes.newest(ada)
        assert last == changes.newest() > changes.newest(bob) > 0
        store.records.apply([[Put(Record("bob", "walrus", scope=bob))], [Supersede("bob", "all")], [Forget("bob")]])
        assert changes.newest(ada) == last < changes.newest(bob) <= changes.newest()
        assert [number for number in changes.since(last, ada)[0] if number > last] == []
        apply(store, Forget("all"))
        new, following = changes.since(last, ada)
        assert changes.newest(ada) == changes.newest() == max(new) >= following
        assert {number for number in new if number > last} == {max(new)}

    def test_a_scope_counts_visible_changes_only(self, store: Store) -> None:
        """Up to a number, without events of other scopes and without `supersedes`."""
        ada, changes = Scope("ada"), store.changes
        store_all(store, Record("a", "one", scope=ada), Record("b", "two", scope=Scope("bob")), Record("c", "three"))
        first = changes.newest()
        assert (changes.count(0, ada), changes.count(first, ada), changes.count(first, Scope())) == (0, 2, 1)
        store.records.apply([[Supersede("b", "c")], [Forget("a")]])
        assert (changes.count(first, ada), changes.count(changes.newest(), ada)) == (2, 3)
