"""Commits: what is acknowledged is on disk, writers share a flush, and a notification follows its commit."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from support.postgres import Server

from recollect import Memory
from recollect.config import Settings
from recollect.errors import RecollectError
from recollect.stores.postgres import PostgresStore
from recollect.stores.postgres.connections import ConnectionPool


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the test's own, with the settings of a real one."""
    server = Server.make()
    yield server
    server.remove()


def waiting(connection: psycopg.Connection[Any]) -> list[str]:
    """What the clients of a store wait for."""
    rows = connection.execute(
        "SELECT wait_event FROM pg_stat_activity WHERE application_name = 'recollect' AND state = 'active'"
    )
    return [event for (event,) in rows]


@pytest.mark.parametrize("embedder", ["none", "hashing:64"])
def test_writers_wait_for_the_disk_at_the_same_time(server: Server, embedder: str) -> None:
    """No writer holds a lock that the next one needs: here a replica that never answers stands for a slow disk."""
    opened = [Memory.open(server.url(), embedder=embedder, settings=Settings()) for _ in range(2)]
    for memory in opened:
        memory.add("opens the vector space", user="ada")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != ("nobody",):
            time.sleep(0.01)
        threads = [
            threading.Thread(target=memory.add, args=(f"heron {number}",), kwargs={"user": "ada"})
            for number, memory in enumerate(opened)
        ]
        try:
            for thread in threads:
                thread.start()
            end = time.monotonic() + 20
            while (events := waiting(connection)) != ["SyncRep"] * 2 and time.monotonic() < end:
                time.sleep(0.01)
            assert events == ["SyncRep"] * 2
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            for thread in threads:
                thread.join(30)
    assert all(memory.search(f"heron {number}", user="ada").results for number, memory in enumerate(opened))
    for memory in opened:
        memory.close()


def test_commit_stays_if_its_notification_fails(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """The caller must not learn that a change has failed which was made."""
    store = PostgresStore(place)
    pool: ConnectionPool = store._database._main
    insert = "INSERT INTO meta VALUES ('made', 'yes')"
    with pool.transaction(("BEGIN", ()), then=[("SELECT 1 / 0", ())]) as (connection, _):
        connection.execute(insert)
    assert store._database.one("SELECT value FROM meta WHERE key = 'made'") == ("yes",)
    assert "division by zero" in caplog.text
    with pytest.raises(psycopg.errors.UniqueViolation), pool.transaction(("BEGIN", ())) as (connection, _):
        connection.execute(insert)
    assert pool.one("SELECT 1") == (1,)
    store.close()


@pytest.mark.parametrize("embedder", ["none", "hashing:64"])
def test_acknowledged_records_survive_the_end_of_the_server(server: Server, embedder: str) -> None:
    """It is killed in the middle of writing: every record that was acknowledged is there, with its vector."""
    made: list[str] = []
    with Memory.open(server.url(), embedder=embedder, settings=Settings()) as memory:

        def write() -> None:
            with contextlib.suppress(RecollectError):
                while len(made) < 10_000:
                    made.append(memory.add(f"heron {len(made)}").id)

        writer = threading.Thread(target=write)
        writer.start()
        while len(made) < 100:
            time.sleep(0.01)
        server.kill()
        writer.join(60)
        server.start()
    with Memory.open(server.url(), embedder=embedder, settings=Settings()) as memory:
        assert [record.id for record in memory.store.records.get(made)] == made
        if embedder != "none":
            assert memory.embeddings.vectors(made).keys() == set(made)
