"""Notification of changes: from SQLite and PostgreSQL, for a scope, after a lost connection, in any commit order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from itertools import islice

import psycopg
import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.memory.watching import VisibleChanges

MOST_TICKS = 500


@pytest.fixture
def server_place(new_schema: Callable[[], str]) -> str:
    """A schema of a PostgreSQL server."""
    return new_schema()


def opened(place: str) -> Memory:
    return Memory.open(place, embedder="none", settings=Settings())


@pytest.fixture
def memory(place: str) -> Iterator[Memory]:
    """The owner's memory."""
    with opened(place) as memory:
        yield memory


def told(ticks: Iterator[bool]) -> bool:
    """Whether a change is heard of soon."""
    return any(islice(ticks, MOST_TICKS))


def test_memory_is_notified_of_another_processs_changes(memory: Memory, place: str) -> None:
    """Each change is reported once, and a quiet period is `False`."""
    with opened(place) as other, memory.changes(quiet=0.03) as ticks:
        assert not next(ticks)
        record = other.add("The heron is grey.")
        assert told(ticks)
        other.forget(record.id)
        assert told(ticks)
        assert not any(islice(ticks, 3))


def test_scoped_caller_is_notified_only_of_visible_changes(memory: Memory) -> None:
    """Ada gets her own and global ones; of Bob's none, whatever happens to them."""
    ada = memory.within(Scope("ada"))
    with ada.changes(quiet=0.03) as ticks:
        theirs = memory.add("Bob's badger", user="bob")
        memory.edit(theirs.id, tags=["seen"])
        memory.supersede(theirs.id, text="Bob's other badger")
        memory.forget(theirs.id)
        assert not any(islice(ticks, 12))
        shared = memory.add("Everybody's badger")
        assert told(ticks)
        memory.forget(shared.id, purge=True)
        assert told(ticks)
        memory.add("Ada's badger", user="ada")
        assert told(ticks)


def test_closed_store_ends_the_wait(place: str) -> None:
    """A listener gets an error that the store was closed, and does not wait forever."""
    memory = opened(place)
    with memory.changes(quiet=0.03) as ticks:
        memory.close()
        with pytest.raises(StoreError, match="has been closed"):
            told(ticks)


def test_lost_connection_is_restored(server_place: str, postgres_url: str) -> None:
    """One notification says that something may have changed; then it works as before."""
    name = server_place.rpartition("=")[2]
    with opened(f"{server_place}&application_name={name}") as memory, memory.changes(quiet=0.03) as ticks:
        assert not next(ticks)
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            ended = owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN recollect' AND"
                " application_name = %s", (name,)
            ).fetchall()  # fmt: skip
        assert ended == [(True,)]
        assert told(ticks)
        assert not any(islice(ticks, 3))
        memory.add("The heron is grey.")
        assert told(ticks)


def test_late_commit_is_noticed(server_place: str) -> None:
    """A transaction with a lower number that commits last is still a change."""
    url, _, schema = server_place.rpartition("&schema=")
    with opened(server_place) as memory, psycopg.connect(url) as slow:
        first = memory.add("The heron is grey.")
        sight = VisibleChanges(memory.store.changes, Scope("ada"))
        assert not sight.refresh()
        slow.execute(
            f"INSERT INTO {schema}.history (row, scope, id, action, at, detail)"
            f" SELECT row, scope, id, 'update', 0, '{{}}' FROM {schema}.history WHERE id = %s",
            (first.id,),
        )
        memory.add("The badger is grey.")
        assert sight.refresh()
        assert not sight.refresh()
        newest = sight.newest
        slow.commit()
        assert sight.refresh()
        assert sight.newest == newest + 1
        assert not sight.refresh()


def test_many_listeners_and_writers(memory: Memory) -> None:
    """Each of three listeners notices the last of a hundred changes."""
    heard, ready = [], threading.Barrier(4)

    def listen() -> None:
        sight = VisibleChanges(memory.store.changes, None)
        with memory.changes(quiet=0.03) as ticks:
            ready.wait(30)
            for tick in itertools.islice(ticks, MOST_TICKS):
                if tick:
                    sight.refresh()
                if memory.get("last") and sight.newest == memory.store.changes.newest():
                    break
            heard.append(sight.newest)

    listeners = [threading.Thread(target=listen) for _ in range(3)]
    for listener in listeners:
        listener.start()
    ready.wait(30)
    memory.add_many({"text": f"fact {number}"} for number in range(100))
    memory.add("the last", id="last")
    for listener in listeners:
        listener.join(30)
    assert heard == [memory.store.changes.newest()] * 3


def test_sequence_numbers_are_per_scope(memory: Memory) -> None:
    """Bob's changes move nothing; Ada's number rises by one with each change visible to her."""
    ada = VisibleChanges(memory.store.changes, Scope("ada"))
    assert ada.newest == 0
    first = memory.add("Ada's badger", user="ada")
    memory.add("Everybody's badger", id="all")
    memory.add("Bob's badger", id="bobs", user="bob")
    memory.supersede("bobs", "all")
    memory.undo("all")
    memory.forget("bobs")
    assert ada.refresh()
    assert ada.newest == 2
    memory.forget("bobs", purge=True)
    assert not ada.refresh()
    memory.add("Ada's own now", id="bobs", user="ada")
    memory.edit(first.id, title="Badger")
    assert ada.refresh()
    assert ada.newest == VisibleChanges(memory.store.changes, Scope("ada")).newest == 4
