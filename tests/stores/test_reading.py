"""One snapshot for all reads of a search: shared by threads, renewed by one's own writes, given back at the end."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.stores.sqlite import SqliteStore, visible
from recollect.stores.sqlite.rows import Connection
from recollect.types import Filter, Put, Record


@pytest.fixture
def other(path: Path, store: SqliteStore) -> Iterator[SqliteStore]:
    """The same file, opened a second time as another process would."""
    opened = SqliteStore(path)
    yield opened
    opened.close()


def add(store: SqliteStore, key: str) -> None:
    """Store one record."""
    store.records.apply([[Put(Record(key, f"a heron, number {key}"))]])


def keys(store: SqliteStore) -> set[str]:
    """The ids that the store lists now."""
    return {record.id for record in store.records.list(Filter(), limit=10)}


def begun(store: SqliteStore) -> list[str]:
    """The transactions that are begun from now on."""
    seen: list[str] = []
    database = store._database
    taken = database._take

    def take() -> apsw.Connection:
        connection = taken()
        connection.set_exec_trace(lambda _cursor, sql, _values: not seen.append(sql) if sql == "BEGIN" else True)
        return connection

    database._take = take  # type: ignore[method-assign]
    return seen


def test_reads_inside_share_one_transaction(store: SqliteStore) -> None:
    """However many there are, and however deep they are nested; without it each has its own."""
    add(store, "a")
    seen = begun(store)
    with store.reading(), store.reading():
        assert keys(store) == {"a"}
        assert store.status()["records"]["total"] == 1
        assert [match.record.id for match in store.keywords.search(["heron"], Filter(), 5).entries] == ["a"]
    assert len(seen) == 1
    keys(store), keys(store)
    assert len(seen) == 3


def test_changes_of_others_are_not_seen_inside(store: SqliteStore, other: SqliteStore) -> None:
    """One state until the block ends, and the new one after it."""
    add(store, "a")
    with store.reading():
        assert keys(store) == {"a"}
        add(other, "b")
        assert keys(store) == {"a"}
    assert keys(store) == {"a", "b"}


def test_snapshot_that_sqlite_ended_is_begun_again(store: SqliteStore, other: SqliteStore) -> None:
    """SQLite rolls back after an I/O error; the reads after that share one snapshot again."""
    with store.reading():
        with store._database.read() as connection:
            connection.execute("ROLLBACK")
        assert keys(store) == set()
        add(other, "a")
        assert keys(store) == set()
    assert keys(store) == {"a"}


def test_own_changes_are_seen_inside(store: SqliteStore) -> None:
    """A search that embeds or updates the index goes on with what it wrote."""
    with store.reading():
        assert keys(store) == set()
        add(store, "a")
        assert keys(store) == {"a"}
        assert store.keywords.search(["heron"], Filter(), 5).entries


def test_threads_in_a_copy_of_the_context_share_the_snapshot(store: SqliteStore, other: SqliteStore) -> None:
    """As the sources of one search do; other threads have their own."""
    add(store, "a")
    with ThreadPoolExecutor(4) as pool, store.reading():
        assert keys(store) == {"a"}
        add(other, "b")
        inside = [pool.submit(contextvars.copy_context().run, keys, store) for _ in range(8)]
        assert all(done.result() == {"a"} for done in inside)
        assert pool.submit(keys, store).result() == {"a", "b"}


def test_abandoned_thread_can_read_to_its_end(store: SqliteStore) -> None:
    """It returns the connection itself, and may read again."""
    add(store, "a")
    entered, go_on, results = threading.Event(), threading.Event(), []

    def late() -> None:
        with store._database.read() as connection:
            entered.set()
            go_on.wait(10)
            results.append(connection.execute("SELECT count(*) FROM records").get)
        results.append(len(keys(store)))

    with store.reading():
        thread = threading.Thread(target=contextvars.copy_context().run, args=(late,))
        thread.start()
        entered.wait(10)
    go_on.set()
    thread.join(10)
    assert results == [1, 1]
    assert len(store._database._idle) == len(store._database._all)


def test_visible_set_is_built_once_for_many_threads(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sources need it at the same moment; one builds it, the other waits."""
    add(store, "a")
    select, built = visible._select, []

    def counted(connection: Connection, where: Filter, *more: Any) -> visible.Visible:
        built.append(where)
        threading.Event().wait(0.05)
        return select(connection, where, *more)

    monkeypatch.setattr(visible, "_select", counted)
    with ThreadPoolExecutor(4) as pool:
        where = Filter(kinds=("fact",))
        found = [pool.submit(store.keywords.search, ["heron"], where, 5) for _ in range(4)]
        assert all(len(matches.result().entries) == 1 for matches in found)
    assert len(built) == 1
