"""A process that indexes a folder until it is done or killed (test_interrupted.py)."""

from __future__ import annotations

import sys

from recollect import Memory
from recollect.config import Settings

if __name__ == "__main__":
    store, folder = sys.argv[1:]
    memory = Memory.open(store, embedder="hashing:64", settings=Settings())
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    memory.index(folder, confirm=True, reading=lambda done, _: done == 1 and print("reading", flush=True))  # noqa: T201
    print("done", flush=True)  # noqa: T201
    memory.close()
