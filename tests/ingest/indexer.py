"""A process that indexes a folder until it is done or killed (test_interrupted.py).

With a third argument it stops for good once that share of the files has been read, and waits to be killed.
"""

from __future__ import annotations

import sys

from recollect import Memory
from recollect.config import Settings

if __name__ == "__main__":
    store, folder, *share = sys.argv[1:]
    until = float(share[0]) if share else 2.0

    def reading(done: int, total: int) -> None:
        """Say when it begins to read, and stop where it is told to."""
        if done == 1:
            print("reading", flush=True)  # noqa: T201
        if done >= until * total:
            sys.stdin.readline()

    memory = Memory.open(store, embedder="hashing:64", settings=Settings())
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    memory.index(folder, reading=reading)
    print("done", flush=True)  # noqa: T201
    memory.close()
