"""Does memory stay flat? `python -m benchmarks.flat` searches 100,000 times, never twice the same, in one process.

Prints the memory that is not of files (RssAnon) after every tenth of the searches, in a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from benchmarks.speed.worker import memory as resident
from recollect.config import Settings
from recollect.memory import Memory

WORDS = [f"{start}{end}" for start in ("tea", "run", "lake", "code", "note") for end in map(str, range(400))]
USERS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=2_000)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        values = measure(Path(folder), options.records, options.searches)
    print(json.dumps({**vars(options), "megabytes": values, "seconds": round(time.monotonic() - start, 1)}))


def measure(folder: Path, records: int, searches: int) -> list[float]:
    """Megabytes after each tenth of the searches, of all records and of one user's in turn."""
    chance = random.Random(1)
    with Memory.open(folder / "store.db", embedder="hashing", settings=Settings()) as memory:
        memory.add_many({"text": text(chance, 20), "user": f"u{number % USERS}"} for number in range(records))
        values = []
        for number in range(1, searches + 1):
            scope = {"user": f"u{number % USERS}"} if number % 2 else {"any_scope": True}
            assert memory.search(text(chance, 5), **scope).results
            if number % max(1, searches // 10) == 0:
                values.append(round(resident("RssAnon") / 1e6, 2))
    return values


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


if __name__ == "__main__":
    main()
