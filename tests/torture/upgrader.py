"""A process that opens a store, and so brings it to this version's schema (run by test_upgrade.py).

It reads one number from standard input: after so many ticks of SQLite's work it kills itself; 0 is never. It prints
how many ticks the upgrade took.
"""

from __future__ import annotations

import os
import signal
import sys

import apsw

from recollect import Memory
from recollect.config import Settings

TICK = 20  # instructions of SQLite's virtual machine


class Ticks:
    """Counts the work of all connections, and kills the process at a moment of it."""

    def __init__(self) -> None:
        self.count = self.last = 0

    def __call__(self) -> bool:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


if __name__ == "__main__":
    Memory.open(":memory:", embedder="hashing:64", settings=Settings()).close()  # imports everything before the start
    ticks = Ticks()
    apsw.connection_hooks.append(lambda connection: connection.set_progress_handler(ticks, TICK))
    print("ready", flush=True)  # noqa: T201
    ticks.last = int(sys.stdin.readline())
    memory = Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings())
    print(ticks.count, flush=True)  # noqa: T201
    memory.search("heron")
    print("done", flush=True)  # noqa: T201
    memory.close()
