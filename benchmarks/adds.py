"""Adds to PostgreSQL from two processes, beside bare commits: `python -m benchmarks.adds URL [seconds]`.

The URL names a store that is new or has vectors of `hashing:384`. Rounds of `Memory.add`, with and without a vector,
take turns with rounds of one INSERT of the same bytes into a plain table, every commit flushed. Shown for each: adds a
second, the processor time of the clients and of the server's processes that serve them, how often a client waited for
its connection, bytes of the server's log (WAL), and how often it was flushed. Linux.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks.scale import USERS, WORDS, processor, words
from recollect.config import Settings
from recollect.memory import Memory
from recollect.models.embedders import open_embedder
from recollect.stores.postgres.database import PostgresDatabase

CLIENTS, ROUNDS, SECONDS = 2, 3, 8.0
WORKS = ("bare", "bare with vector", "add", "add with vector")
BARE, MODEL = "bare_commits", "hashing:384"


def main() -> None:
    if sys.argv[1] == "--client":
        client(*sys.argv[2:])
        return
    place, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    with Memory.open(place, embedder=MODEL, settings=Settings(), language="none"):
        pass
    with psycopg.connect(PostgresDatabase(place).url, autocommit=True) as connection:
        connection.execute(
            f"DROP TABLE IF EXISTS {BARE}; CREATE TABLE {BARE} (id text PRIMARY KEY, text text, v bytea)"
        )
        for name in ("synchronous_commit", "fsync", "wal_sync_method"):
            print(f"{name} {connection.execute(f'SHOW {name}').fetchone()[0]}", end="; ")
        print(f"{CLIENTS} processes, {seconds:g} s each", flush=True)
        for work in WORKS * ROUNDS:
            report(work, connection, [place, work, str(seconds)])
        connection.execute(f"DROP TABLE {BARE}")


def report(work: str, connection: psycopg.Connection[Any], arguments: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks.adds", "--client", *arguments]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    clients = [subprocess.Popen(command, **pipes) for _ in range(CLIENTS)]
    for one in clients:
        assert one.stdout.readline() == "ready\n"
    before = counters(connection)
    for one in clients:
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [json.loads(one.stdout.readline()) for one in clients]
    wal, flushes = (after - then for after, then in zip(counters(connection), before, strict=True))
    for one in clients:
        one.communicate()
    done, rate = sum(one["done"] for one in told), sum(one["done"] / one["seconds"] for one in told)
    client_ms, server_ms, trips = (sum(one[name] for one in told) / done for name in ("client", "server", "trips"))
    print(
        f"{work:17} {rate:7.1f} a second; CPU ms: client {client_ms:.2f}, server {server_ms:.2f};"
        f" waits {trips:.1f}; log {wal / done:,.0f} bytes, {flushes / done:.2f} flushes",
        flush=True,
    )


def counters(connection: psycopg.Connection[Any]) -> list[int]:
    """Bytes of the log so far, and its flushes."""
    row = connection.execute(
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, (SELECT coalesce(sum(fsyncs), 0)::bigint"
        " FROM pg_stat_io WHERE object = 'wal')"
    ).fetchone()
    return list(row or ())


def client(place: str, work: str, seconds: str) -> None:
    chance, waits = random.Random(f"{work} {time.time_ns()}"), Waits()
    with Memory.open(place, embedder=MODEL if "vector" in work else "none", settings=Settings()) as memory:
        if work.startswith("bare"):
            bare = psycopg.connect(PostgresDatabase(place).url, autocommit=True)
            add = bare_add(bare, chance, vector="vector" in work)
        else:

            def add() -> None:
                memory.add(words(chance, WORDS), user=str(chance.randrange(USERS)))

        for _ in range(20):
            add()
        print("ready", flush=True)
        sys.stdin.readline()
        backends = waits.backends()
        done, start, served = 0, time.monotonic(), processor(backends) - time.process_time() * 1_000
        used, trips = time.process_time() * 1_000, waits.count
        while time.monotonic() < start + float(seconds):
            add()
            done += 1
        told = {
            "done": done, "seconds": time.monotonic() - start, "client": time.process_time() * 1_000 - used,
            "server": processor(backends) - time.process_time() * 1_000 - served, "trips": waits.count - trips,
        }  # fmt: skip
        time.sleep(0.7)  # a backend that has been idle for a moment reports its counters
        print(json.dumps(told), flush=True)


def bare_add(connection: psycopg.Connection[Any], chance: random.Random, *, vector: bool) -> Callable[[], None]:
    model = open_embedder(MODEL)

    def add() -> None:
        text = words(chance, WORDS)
        values = (f"{chance.getrandbits(96):x}", text, model.passages([text])[0].tobytes() if vector else None)
        connection.execute(f"INSERT INTO {BARE} VALUES (%s, %s, %s)", values, prepare=True)

    return add


class Waits:
    """Counts how often this process waits for the server, and knows the processes that serve it."""

    def __init__(self) -> None:
        self.count = 0
        self._connections: set[psycopg.Connection[Any]] = set()
        wait = psycopg.Connection.wait

        def counted(connection: psycopg.Connection[Any], *arguments: Any, **named: Any) -> Any:
            self.count += 1
            self._connections.add(connection)
            return wait(connection, *arguments, **named)

        psycopg.Connection.wait = counted  # type: ignore[method-assign]

    def backends(self) -> list[int]:
        return [connection.info.backend_pid for connection in self._connections if not connection.closed]


if __name__ == "__main__":
    main()
