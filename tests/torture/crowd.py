"""One of several processes that add to and search one store at once (run by test_concurrency.py).

Every acknowledged record is published in a file of this process's own, one line each, after `add` has returned.
Whatever another process had published before a search began must be in that search's answer.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from recollect import Memory
from recollect.config import Settings

LETTERS = "bcfghjkmpq"
"""Ten letters for the digits, none of which a stemmer takes off."""


def text_of(number: int) -> str:
    """A text with one word that no other record has."""
    return f"note w{''.join(LETTERS[int(digit)] for digit in f'{number:08}')}x from the crowd"


def published(path: Path) -> list[str]:
    """The complete lines of a file that another process is writing."""
    return path.read_text(encoding="ascii").split("\n")[:-1] if path.exists() else []


class Member:
    """A process of the crowd."""

    def __init__(self, folder: Path, me: int, others: int) -> None:
        self.folder, self.me, self.others = folder, me, others
        self.chance = random.Random(me)
        self.errors: list[str] = []
        self.counts = {"added": 0, "own": 0, "others": 0}
        self.seen: dict[int, int] = {}

    def run(self, seconds: float) -> None:
        """Add, look for one's own, and look for some of the others', until the time is up."""
        store = self.folder / "memory.db"
        with (
            Memory.open(store, embedder="hashing:64", settings=Settings()) as memory,
            (self.folder / f"acks-{self.me}").open("w", encoding="ascii") as acks,
        ):
            print("ready", flush=True)  # noqa: T201
            sys.stdin.readline()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self.turn(memory, acks)

    def turn(self, memory: Memory, acks: object) -> None:
        """One add and its checks; an error is noted and the turn given up."""
        number = self.me * 1_000_000 + self.counts["added"]
        try:
            record = memory.add(text_of(number), id=str(number))
            acks.write(f"{record.id}\n")
            acks.flush()
            self.counts["added"] += 1
            self.look(memory, number, "own")
            for _ in range(2):
                lines = published(self.folder / f"acks-{self.chance.randrange(self.others)}")
                if lines:
                    # The newest is the hardest; an older one must not have got lost either.
                    self.look(memory, int(self.chance.choice([lines[-1], self.chance.choice(lines)])), "others")
        except Exception as error:  # noqa: BLE001  (any error that reaches a caller is what this looks for)
            self.errors.append(f"{type(error).__name__}: {error}")

    def look(self, memory: Memory, number: int, whose: str) -> None:
        """The record is in the answer, found by its words and by its vector."""
        answer = memory.search(text_of(number))
        found = next((result for result in answer.results if result.record.id == str(number)), None)
        shares = sorted(found.shares) if found else []
        if shares != ["keyword", "vector"] or answer.trace.mode != "hybrid":
            self.errors.append(f"{whose} {number} found by {shares}: {answer.trace}")
        self.counts[whose] += 1


if __name__ == "__main__":
    member = Member(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    member.run(float(sys.argv[4]))
    print(json.dumps({**member.counts, "errors": member.errors[:20], "failed": len(member.errors)}), flush=True)  # noqa: T201
