"""A process that adds records until it is killed, and prints the id of each when it is acknowledged (test_kill.py)."""

from __future__ import annotations

import itertools
import sys

from recollect import Memory
from recollect.config import Settings

if __name__ == "__main__":
    path, start = sys.argv[1], int(sys.argv[2])
    memory = Memory.open(path, embedder="hashing:64", settings=Settings())
    for number in itertools.count(start):
        record = memory.add(f"survivor number n{number}n of the round", id=str(number), tags=["kill"])
        print(record.id, flush=True)  # noqa: T201
        if number % 5 == 4:
            memory.supersede(str(number - 1), by=record.id)
        if number % 7 == 6:
            memory.search("survivor of the round")
