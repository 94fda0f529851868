"""One transaction for all reads of a block: shared by threads, renewed by writes, returned to the pool at the end."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.stores.postgres import PostgresStore, database
from recollect.stores.rows import Condition
from recollect.types import Filter, Put, Record


@pytest.fixture
def store(place: str) -> Iterator[PostgresStore]:
    """A store with one record."""
    store = PostgresStore(place)
    add(store, "a")
    yield store
    store.close()


@pytest.fixture
def other(place: str, store: PostgresStore) -> Iterator[PostgresStore]:
    """The same store, opened a second time as another process would."""
    opened = PostgresStore(place)
    yield opened
    opened.close()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first statements of the transactions and queries that are begun from now on."""
    beginnings: list[str] = []
    first = database.ConnectionPool._first

    def counted(pool: database.ConnectionPool, statements: Sequence[Condition], then: Any) -> object:
        beginnings.append(statements[0][0])
        return first(pool, statements, then)

    monkeypatch.setattr(database.ConnectionPool, "_first", counted)
    return beginnings


def add(store: PostgresStore, key: str) -> None:
    """Store one record."""
    store.records.apply([[Put(Record(key, f"a heron, number {key}"))]])


def keys(store: PostgresStore) -> set[str]:
    """The ids that the store lists now."""
    return {record.id for record in store.records.list(Filter(), limit=10)}


def test_reads_inside_share_one_transaction(store: PostgresStore, begun: list[str]) -> None:
    """However many there are and whichever scope they are for; without it each has its own."""
    begun.clear()
    with store.reading(), store.reading():
        assert keys(store) == {"a"}
        assert store.status()["records"]["total"] == 1
        assert store.spaces.active is None
        assert store.keywords.search(["heron"], Filter(scope=Scope("ada")), 5).entries
    assert len(begun) == 1
    keys(store), keys(store)
    assert len(begun) == 3


def test_a_search_is_few_transactions(place: str, begun: list[str]) -> None:
    """One for each source and one for the stages."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many({"text": f"a heron, number {number}"} for number in range(20))
        memory.search("heron")
        begun.clear()
        assert memory.search("heron").results
        assert len([statement for statement in begun if "BEGIN" in statement]) <= 3


def test_changes_of_others_are_not_seen_inside(store: PostgresStore, other: PostgresStore) -> None:
    """One state until the block ends, and the new one after it."""
    with store.reading():
        assert keys(store) == {"a"}
        add(other, "b")
        assert keys(store) == {"a"}
    assert keys(store) == {"a", "b"}


def test_own_changes_are_seen_inside(store: PostgresStore) -> None:
    """A write starts a new snapshot, also after another process changed the language."""
    with store.reading():
        assert keys(store) == {"a"}
        add(store, "b")
        assert keys(store) == {"a", "b"}
        assert len(store.keywords.search(["heron"], Filter(), 5).entries) == 2


def test_language_changed_by_another_process_is_used(store: PostgresStore, other: PostgresStore) -> None:
    """A search inside waits for no snapshot to end."""
    with store.reading():
        assert keys(store) == {"a"}
        other.keywords.change_language("german")
        assert store.keywords.search(["heron"], Filter(), 5).entries
    assert store.keywords.search(["heron"], Filter(), 5).entries


def test_threads_in_a_copy_of_the_context_share_the_snapshot(store: PostgresStore, other: PostgresStore) -> None:
    """Other threads have their own."""
    with ThreadPoolExecutor(4) as pool, store.reading():
        assert keys(store) == {"a"}
        add(other, "b")
        inside = [pool.submit(contextvars.copy_context().run, keys, store) for _ in range(8)]
        assert all(done.result() == {"a"} for done in inside)
        assert pool.submit(keys, store).result() == {"a", "b"}


def test_abandoned_thread_can_read_to_its_end(store: PostgresStore) -> None:
    """It returns the connection itself, and may read again."""
    entered, go_on, results = threading.Event(), threading.Event(), []

    def late() -> None:
        with store._database.read() as connection:
            entered.set()
            go_on.wait(10)
            results.append(connection.execute("SELECT count(*) FROM records").fetchone()[0])
        results.append(len(keys(store)))

    with store.reading():
        thread = threading.Thread(target=contextvars.copy_context().run, args=(late,))
        thread.start()
        entered.wait(10)
    go_on.set()
    thread.join(10)
    assert results == [1, 1]
    assert store._database._main._slots._value == database.MAX_CONNECTIONS


def test_failed_query_does_not_break_later_reads(store: PostgresStore) -> None:
    """Its transaction is rolled back, and the next read begins another."""
    with store.reading():
        with pytest.raises(StoreError, match="not there"), store._database.read() as connection:
            connection.execute("SELECT * FROM nowhere")
        assert keys(store) == {"a"}
    assert store._database._main._slots._value == database.MAX_CONNECTIONS


def test_old_snapshot_is_replaced(store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the server ends a transaction that was idle for too long."""
    monkeypatch.setattr(database, "MAX_SNAPSHOT_SECONDS", 0)
    with store.reading():
        assert keys(store) == {"a"}
        add(other, "b")
        assert keys(store) == {"a", "b"}
