"""One server beside a cluster: the same records, searches of one user and over everything, and adds by several clients.

`python -m benchmarks.cluster PLACE DISTRIBUTED` takes two empty stores: a plain PostgreSQL store, and one that
`recollect postgres distribute` has spread. It prints a table.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

from recollect import Memory
from recollect.config import Settings

WORDS = [f"word{number}" for number in range(2_000)]
QUESTIONS = 40
ADD_SECONDS = 5.0


def text(chance: random.Random) -> str:
    """Twenty words, common ones more often."""
    return " ".join(WORDS[int(len(WORDS) * chance.random() ** 3)] for _ in range(20))


def opened(place: str) -> Memory:
    """A store with vectors that cost nothing."""
    return Memory.open(place, embedder="hashing:384", settings=Settings())


def p50(memory: Memory, questions: Sequence[str], **options: Any) -> float:
    """The median time of a search in milliseconds."""
    times = []
    for question in questions:
        start = time.perf_counter()
        memory.search(question, **options)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1_000


def adds_a_second(place: str, clients: int, users: int) -> float:
    """Records that clients, each with connections of its own, add in a second, each for a user drawn at random."""
    counts, end = [0] * clients, time.monotonic() + ADD_SECONDS

    def add(number: int) -> None:
        chance = random.Random(time.time_ns() + number)
        with opened(place) as memory:
            while time.monotonic() < end:
                memory.add(text(chance), user=f"user{chance.randrange(users)}")
                counts[number] += 1

    threads = [threading.Thread(target=add, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / ADD_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs=2, metavar="PLACE")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=100)
    options = parser.parse_args()
    chance = random.Random(1)
    records = [{"text": text(chance), "user": f"user{chance.randrange(options.users)}"} for _ in range(options.records)]
    questions = [text(chance) for _ in range(QUESTIONS)]
    memories = [opened(place) for place in options.places]
    rows: dict[str, list[float]] = {"load, s": []}
    for memory in memories:
        start = time.perf_counter()
        memory.add_many(records)
        memory.store.contents.finish()
        rows["load, s"].append(time.perf_counter() - start)
    for source in ("keyword", "vector"):
        for name, scope in (("one user", {"user": "user1"}), ("all", {"any_scope": True})):
            times = [p50(memory, questions, sources=[source], **scope) for memory in memories]
            rows[f"{source}, {name}, p50 ms"] = times
    for clients in (1, 2, 4, 8):
        rows[f"adds a second, {clients} clients"] = [
            adds_a_second(place, clients, options.users) for place in options.places
        ]
    print(f"| {options.records:,} records, {options.users} users | one server | cluster |\n| --- | --: | --: |")
    for name, (one, cluster) in rows.items():
        print(f"| {name} | {one:,.1f} | {cluster:,.1f} |")
    for memory in memories:
        memory.close()


if __name__ == "__main__":
    main()
