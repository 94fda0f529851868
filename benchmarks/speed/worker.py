"""One contender in a process of its own: reads a command a line, answers in a line of JSON, both over pipes.

`python -m benchmarks.speed.worker NAME FOLDER SIZE`. What libraries print goes to standard error.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed import data
from benchmarks.speed.contender import Contender, contender

END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG: the system ends this process when the run ends, even in the middle of a load."""


def main() -> None:
    name, folder, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(contender(name)(folder, size))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            reply = getattr(worker, command.pop("do"))(**command)
        except Exception as error:  # noqa: BLE001  (any failure of a contender is a result)
            reply = {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


class Worker:
    """The commands."""

    def __init__(self, subject: Contender) -> None:
        self.subject = subject
        self.questions, self.vectors = data.questions()
        self.opened = False

    def load(self) -> dict[str, Any]:
        """Store everything, answer one question and close. Importing libraries counts, reading the data does not."""
        source = Source(data.batches(self.subject.size))
        start = time.perf_counter()
        self.subject.load(source)
        self.subject.search(self.questions[0], self.vectors[0])
        self.subject.close()
        seconds = time.perf_counter() - start - source.seconds
        return {"seconds": seconds, "cpu": time.process_time(), "peak": memory("VmHWM")}

    def about(self) -> dict[str, Any]:
        """Whether it is installed, and which version."""
        return {"versions": self.subject.versions(), "hybrid": self.subject.hybrid}

    def search(self, question: int, user: str | None = None) -> dict[str, Any]:
        """Wall and CPU time in milliseconds, and the numbers of the results."""
        if not self.opened:
            self.subject.open()
            self.opened = True
        text, vector = self.questions[question], self.vectors[question]
        wall, cpu = time.perf_counter(), time.process_time()
        found = self.subject.search(text, vector, user)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert all(text for _, text in found)
        return {"wall": wall * 1e3, "cpu": cpu * 1e3, "ids": [number for number, _ in found]}

    def throughput(self, threads: int, seconds: float) -> dict[str, Any]:
        """How many questions were answered, and in which time."""
        numbers, counts = itertools.cycle(range(len(self.questions))), [0] * threads
        start = time.perf_counter()

        def ask(thread: int) -> None:
            while time.perf_counter() - start < seconds:
                number = next(numbers)
                self.subject.search(self.questions[number], self.vectors[number])
                counts[thread] += 1

        runners = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
        for runner in runners:
            runner.start()
        for runner in runners:
            runner.join()
        return {"count": sum(counts), "seconds": time.perf_counter() - start}

    def add(self, number: int) -> dict[str, Any]:
        """One of the records beyond the size, with a word that no other record has."""
        batch, at = self.extra, number - self.subject.size
        wall, cpu = time.perf_counter(), time.process_time()
        self.subject.add(number, f"{batch.texts[at]} {word(number)}", batch.vectors[at])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return {"wall": wall * 1e3, "cpu": cpu * 1e3}

    def find(self, number: int) -> dict[str, Any]:
        """Whether this process finds an added record by its word and its vector."""
        self.subject.refresh()
        found = self.subject.search(word(number), self.extra.vectors[number - self.subject.size])
        return {"found": number in [each for each, _ in found]}

    def prepare(self) -> dict[str, Any]:
        """Read the records for `add` and `find`, so that this is not timed."""
        self.extra = next(data.batches(self.subject.size, first=self.subject.size))
        return {}

    def memory(self) -> dict[str, Any]:
        return {"rss": memory("VmRSS"), "anonymous": memory("RssAnon")}


class Source:
    """Batches, and the seconds that reading them took."""

    def __init__(self, batches: Iterator[data.Batch]) -> None:
        self.batches, self.seconds = batches, 0.0

    def __iter__(self) -> Iterator[data.Batch]:
        return self

    def __next__(self) -> data.Batch:
        start = time.perf_counter()
        try:
            return next(self.batches)
        finally:
            self.seconds += time.perf_counter() - start


def word(number: int) -> str:
    return f"zq{number}xv"


def memory(name: str) -> int:
    """Bytes, as /proc counts them."""
    line = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(line[1]) * 1024 if line else 0


if __name__ == "__main__":
    main()
