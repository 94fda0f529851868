"""One of several processes that use one store at once: `crowd.py FOLDER ME ALL SECONDS ROLE` (test_concurrency.py).

Every acknowledged record is published in a file of this process's own, one line each, after `add` has returned.
Whatever another process had published before a search began must be in that search's answer.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect import Memory
from recollect.config import Settings

LETTERS = "bcfghjkmpq"
"""Ten letters for the digits, none of which a stemmer takes off."""

MODELS = ("hashing:64", "hashing:48")


def text_of(number: int) -> str:
    """A text with one word that no other record has."""
    return f"note w{''.join(LETTERS[int(digit)] for digit in f'{number:08}')}x from the crowd"


def published(path: Path) -> list[str]:
    """The complete lines of a file that another process is writing."""
    return path.read_text(encoding="ascii").split("\n")[:-1] if path.exists() else []


class Member:
    """A process of the crowd. Its role is the name of the method that makes one turn."""

    def __init__(self, folder: Path, me: int, others: int) -> None:
        self.folder, self.me, self.others = folder, me, others
        self.chance = random.Random(me)
        self.errors: list[str] = []
        self.counts: Counter[str] = Counter()
        self.longest: dict[str, float] = {}
        self.number = me * 1_000_000
        self.acks = (folder / f"acks-{me}").open("w", encoding="ascii")

    def open(self, embedder: str = MODELS[0]) -> Memory:
        return Memory.open(self.folder / "memory.db", embedder=embedder, settings=Settings())

    def run(self, seconds: float, role: str) -> None:
        """Make turns until the time is up; an error is noted and the turn given up."""
        with self.open() as memory:
            print("ready", flush=True)  # noqa: T201
            while not (self.folder / "go").exists():
                time.sleep(0.02)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    getattr(self, role)(memory)
                    self.counts["turns"] += 1
                except Exception as error:  # noqa: BLE001  (any error that reaches a caller is what this looks for)
                    self.errors.append(f"{role}: {type(error).__name__}: {error}")

    def timed(self, kind: str, work: Callable[[], Any]) -> Any:
        """Do something and note how long it took, if nothing of its kind took longer."""
        began = time.monotonic()
        result = work()
        self.longest[kind] = max(self.longest.get(kind, 0.0), time.monotonic() - began)
        self.counts[kind] += 1
        return result

    # -- roles --------------------------------------------------------------------------------------------

    def adding(self, memory: Memory) -> None:
        """Add a record, look for it, and for some of the others'."""
        number = self.store(memory)
        self.look(memory, number, "own")
        self.searching(memory)

    def searching(self, memory: Memory) -> None:
        """Look for records that others have published."""
        for _ in range(2):
            lines = published(self.folder / f"acks-{self.chance.randrange(self.others)}")
            if lines:
                # The newest is the hardest; an older one must not have got lost either.
                self.look(memory, int(self.chance.choice([lines[-1], self.chance.choice(lines)])), "others")

    def indexing(self, memory: Memory) -> None:
        """Change a file, index its folder, and look for the new text."""
        notes = self.folder / f"notes-{self.me}"
        notes.mkdir(exist_ok=True)
        self.number += 1
        text = text_of(self.number)
        (notes / f"{self.number % 20}.md").write_text(text)
        self.timed("index", lambda: memory.index(notes))
        results = self.timed("search", lambda: memory.search(text)).results
        if text not in [result.record.text for result in results]:
            self.errors.append(f"the indexed {text} is not found")

    def embedding(self, memory: Memory) -> None:
        """Add a record without a vector, then compute what is missing."""
        with self.open("none") as plain:
            self.store(plain)
        self.timed("embed", memory.embed)

    def changing(self, memory: Memory) -> None:
        """Move to another model, and back the next time."""
        with self.open(MODELS[(self.counts["turns"] + 1) % 2]) as other:
            self.timed("change of model", other.embed)

    # -- steps --------------------------------------------------------------------------------------------

    def store(self, memory: Memory) -> int:
        """Add a record and publish its number."""
        self.number += 1
        number = self.number
        self.timed("add", lambda: memory.add(text_of(number), id=str(number)))
        self.acks.write(f"{number}\n")
        self.acks.flush()
        return number

    def look(self, memory: Memory, number: int, whose: str) -> None:
        """The record is in the answer by its words, and by its vector unless the model has just changed."""
        answer = self.timed("search", lambda: memory.search(text_of(number)))
        result = next((result for result in answer.results if result.record.id == str(number)), None)
        shares = sorted(result.shares) if result else []
        if "keyword" not in shares or answer.trace.mode != "hybrid":
            self.errors.append(f"{whose} {number} found by {shares}: {answer.trace}")
        self.counts[whose] += 1
        self.counts["without a vector"] += shares == ["keyword"]


if __name__ == "__main__":
    member = Member(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    member.run(float(sys.argv[4]), sys.argv[5])
    report = {"counts": member.counts, "longest": member.longest, "errors": member.errors[:20]}
    print(json.dumps({**report, "failed": len(member.errors)}), flush=True)  # noqa: T201
