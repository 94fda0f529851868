"""Threads and processes that use one store at once, some of which are killed, and listeners for changes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, ClassVar, TypeAlias

import pytest

from recollect.errors import RecollectError
from recollect.testing.harness import SEARCHES, OpenStore, all_ids, by_keywords, ids, index_of, store_all, texts
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, Scope, Store, Supersede


class WorkerProcess:
    """A process that has the store open (`recollect.testing.harness`)."""

    def __init__(self, opener: str, place: str) -> None:
        command = [sys.executable, "-m", "recollect.testing.harness", opener, place]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603

    def begin(self, command: str, **arguments: Any) -> None:
        """Send a command, and do not wait for the result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The next result."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Send a command and return its result."""
        self.begin(command, **arguments)
        return self.answer()

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]


StartWorkers: TypeAlias = Callable[[int], list[WorkerProcess]]


class CrowdContract:
    """No acknowledged change is lost, and no group of changes is visible in part."""

    opener: ClassVar[str]

    @pytest.fixture
    def start_workers(self, place: str, store: Store) -> Iterator[StartWorkers]:
        """Starts processes that have the store open; they are killed when the test ends."""
        started: list[WorkerProcess] = []

        def start(count: int) -> list[WorkerProcess]:
            new = [WorkerProcess(self.opener, place) for _ in range(count)]
            started.extend(new)
            assert [worker.answer() for worker in new] == ["ready"] * count
            return new

        index_of(store)
        yield start
        for worker in started:
            worker.end()

    def test_a_write_is_visible_to_the_next_search_in_another_process(
        self, store: Store, start_workers: StartWorkers
    ) -> None:
        """In both directions and in both indexes, for puts and forgets."""
        (other,) = start_workers(1)
        for turn in range(5):
            here, there = f"badger {turn} was put here", f"badger {turn} was put there"
            store_all(store, Record(f"h{turn}", here))
            assert other("find", text=here) == [[here], [here]]
            other("put", id=f"t{turn}", text=there)
            assert all(there in texts(search(store, there, Filter(), 9)) for search in SEARCHES)
            store.records.apply([[Forget(f"t{turn}")]])
            other("forget", id=f"h{turn}")
            assert other("find", text="badger") == [[], []]
            assert [texts(search(store, "badger", Filter(), 9)) for search in SEARCHES] == [[], []]

    def test_processes_that_write_at_once_lose_nothing(self, store: Store, start_workers: StartWorkers) -> None:
        """Every acknowledged record is in both indexes, and a record that all processes change is complete."""
        names, workers = [f"w{i}" for i in range(3)], start_workers(3)
        for name, worker in zip(names, workers, strict=True):
            worker.begin("fill", name=name, count=25)
        acknowledged = [key for worker in workers for key in worker.answer()]
        assert sorted(acknowledged) == sorted(f"{name}-{i}" for name in names for i in range(25))
        assert all_ids(store) == sorted([*acknowledged, "all"])
        assert index_of(store).coverage()[0] >= 75
        for search in SEARCHES:
            assert "w1-7" in ids(search(store, "walrus w1 says w1x7", Filter(), 9))
        assert by_keywords(store, "walrus", Filter(), 9).among == 76
        actions = Counter(event.action for event in store.records.history("all"))
        assert actions == {"add": 1, "update": 74}
        assert ids(by_keywords(store, "last", Filter(), 9)) == ["all"]

    def test_threads_that_write_at_once_lose_nothing(self, store: Store) -> None:
        """Each of eight threads finds at once what it has put."""
        missed: list[str] = []

        def work(me: int) -> None:
            for turn in range(12):
                text = f"thread {me} says word{me}x{turn}"
                store_all(store, Record(f"{me}-{turn}", text))
                missed.extend(text for search in SEARCHES if text not in texts(search(store, text, Filter(), 9)))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        assert missed == []
        assert len(all_ids(store)) == 96
        assert by_keywords(store, "thread", Filter(), 9).among == 96

    def test_the_same_text_from_many_at_once_is_one_record(self, open_store: OpenStore, place: str) -> None:
        """The first one adds it, the others merge into it."""
        stores = [open_store(place) for _ in range(4)]
        for turn in range(6):
            ready = threading.Barrier(4)

            def tell(me: int, turn: int = turn, ready: threading.Barrier = ready) -> str:
                ready.wait(60)
                return (
                    stores[me]
                    .records.apply([[Put(Record(f"{turn}-{me}", f"said {turn}", tags=(f"t{me}",)), merge=True)]])[0]
                    .id
                )

            with ThreadPoolExecutor(4) as threads:
                assert len(set(threads.map(tell, range(4)))) == 1
        records = stores[0].records.list(Filter(), limit=99)
        assert len(records) == 6
        assert all(sorted(record.tags) == ["t0", "t1", "t2", "t3"] for record in records)

    def test_only_one_of_many_takes_a_place(self, open_store: OpenStore, place: str) -> None:
        """If four supersede a record at once, one succeeds; two that supersede each other do not form a cycle."""
        stores = [open_store(place) for _ in range(4)]
        store_all(stores[0], *(Record(key, f"version {key}") for key in ("old", "n0", "n1", "n2", "n3", "x", "y")))

        def attempt(me: int) -> str:
            try:
                stores[me].records.apply([[Supersede("old", f"n{me}")]])
                stores[me].records.apply([[Supersede(*(("x", "y") if me % 2 else ("y", "x")))]])
            except RecollectError as error:
                return error.code
            return "done"

        with ThreadPoolExecutor(4) as threads:
            done = list(threads.map(attempt, range(4)))
        assert set(done) <= {"done", "usage", "supersession_cycle"}
        (old,) = stores[0].records.get(["old"])
        assert [event.action for event in stores[0].records.history("old")].count("supersede") == 1
        assert old.superseded_by in {"n0", "n1", "n2", "n3"}
        ends = {record.id for record in stores[0].records.list(Filter(), limit=99)}
        assert ends & {"x", "y"}, "a closed circle would leave neither"

    def test_a_record_that_is_being_updated_is_never_missing(self, store: Store) -> None:
        """While one thread changes it, other threads always find it in both indexes."""
        store_all(store, *(Record(f"g{i}", f"gannet {i}") for i in range(60)))
        stop, missed, searches = threading.Event(), Counter[str](), Counter[str]()

        def look() -> None:
            while not stop.is_set():
                for search in SEARCHES:
                    searches[search.__name__] += 1
                    missed[search.__name__] += "g7" not in ids(search(store, "gannet 7", Filter(), 60))

        with ThreadPoolExecutor(2) as threads:
            watching = [threads.submit(look) for _ in range(2)]
            for turn in range(60):
                store.records.apply([[Put(Record("g7", "gannet 7", tags=(f"t{turn}",)))]])
            stop.set()
            for each in watching:
                each.result()
        assert min(searches.values()) > 3
        assert +missed == Counter()

    def test_a_process_killed_while_it_writes_leaves_whole_groups(
        self, store: Store, start_workers: StartWorkers
    ) -> None:
        """All acknowledged groups are stored, and every stored group is complete."""
        acknowledged: list[int] = []
        workers = start_workers(5)
        for round_, worker in enumerate(workers):
            worker.begin("groups", start=round_ * 1000)
            acknowledged += [worker.answer() for _ in range(4 + round_)]
            worker.end()
        stored = all_ids(store)
        parts = Counter(key.split("-")[0] for key in stored)
        assert set(parts.values()) == {3}, "a group holds or does not"
        assert {str(number) for number in acknowledged} <= parts.keys()
        found = by_keywords(store, "walrus", Filter(), 999)
        assert len(found.entries) + found.duplicates == found.among == len(stored) == store.count(EVERYTHING)["total"]
        assert store.status()["keyword_lag"] == 0
        store_all(store, Record("next", "the walrus lives on"))
        assert ids(by_keywords(store, "lives", Filter(), 9)) == ["next"]


MOST_TICKS = 1_000


class ChangesContract:
    """A listener misses no change."""

    def test_who_listens_is_told_of_what_another_does(self, open_store: OpenStore, place: str, store: Store) -> None:
        """Soon and once for each change, and not for changes before."""
        store.records.apply([[Put(Record("before", "heron"))]])
        other = open_store(place)
        with store.changes.listen(quiet=0.02) as ticks:
            assert not any(islice(ticks, 2))
            for change in (Put(Record("a", "badger")), Put(Record("a", "badger", tags=("t",))), Forget("a")):
                other.records.apply([[change]])
                assert any(islice(ticks, MOST_TICKS))
                assert not any(islice(ticks, 2))

    def test_a_scope_is_told_of_what_it_sees(self, store: Store) -> None:
        """Changes to its own and to global records, also when they are forgotten; none of other scopes."""
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
        """Up to a number, without events of other scopes and without `supersedes`."""
        ada, changes = Scope("ada"), store.changes
        store_all(store, Record("a", "one", scope=ada), Record("b", "two", scope=Scope("bob")), Record("c", "three"))
        first = changes.newest()
        assert (changes.count(0, ada), changes.count(first, ada), changes.count(first, Scope())) == (0, 2, 1)
        store.records.apply([[Supersede("b", "c")], [Forget("a")]])
        assert (changes.count(first, ada), changes.count(changes.newest(), ada)) == (2, 3)
