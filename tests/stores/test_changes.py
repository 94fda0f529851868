"""Learning of changes: from SQLite and PostgreSQL, behind a wall, after a lost connection, in whatever order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import psycopg
import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.memory.changes import VisibleChanges

MOST_TICKS = 500


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the test's store is: a file, or a schema of a server."""
    if request.param == "sqlite":
        return str(tmp_path / "memory.db")
    new: Callable[[], str] = request.getfixturevalue("new_schema")
    return new()


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


def test_a_memory_hears_of_what_another_process_could_have_done(memory: Memory, place: str) -> None:
    """Each change by another memory of the same store is told once, and a quiet while is `False`."""
    with opened(place) as other, memory.changes(quiet=0.03) as ticks:
        assert not next(ticks)
        record = other.add("The heron is grey.")
        assert told(ticks)
        other.forget(record.id)
        assert told(ticks)
        assert not any(islice(ticks, 3))


def test_behind_a_wall_only_what_is_seen_there_is_heard_of(memory: Memory) -> None:
    """Ada hears of her own and of everybody's; of Bob's, whatever happens to it, nothing."""
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


def test_a_store_that_was_closed_tells_nothing_more(place: str) -> None:
    """Whoever listens on is told that it was closed, and does not wait for ever."""
    memory = opened(place)
    with memory.changes(quiet=0.03) as ticks:
        memory.close()
        with pytest.raises(StoreError, match="has been closed"):
            told(ticks)


def test_a_lost_connection_is_made_again_and_tells(server_place: str, postgres_url: str) -> None:
    """Nobody knows what happened meanwhile, so it is told once that something may have; then all is as before."""
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


def test_a_line_that_comes_late_is_seen_too(server_place: str) -> None:
    """Who took a number first and commits last is below what was told already: it is a change all the same."""
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


def test_many_may_listen_while_many_write(memory: Memory) -> None:
    """Each of three that listen hears of the last of a hundred changes."""
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


def test_a_scope_counts_its_own_changes(memory: Memory) -> None:
    """What Bob does moves nothing; Ada's number rises by one with each change that she may see, and starts the same."""
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
