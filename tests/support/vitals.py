"""What processes use, read from /proc: memory, threads and descriptors, and whether that stays flat."""

from __future__ import annotations

import contextlib
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

MORE_MEMORY = 1.10  # the memory of the last third over that of the middle one: caches fill, a leak goes on
LEAST = 9  # samples
MORE_THREADS = 4
MORE_FILES = 12
MOST_CONNECTIONS = 48  # to a store: one for each thread that reads at once, of 40 threads of requests and a few others
MOST_INDEX_FILES = 48  # of a store: eight of about one size are merged, of segments and of vectors (two files each)


def peak_mb() -> int:
    """The most memory that this process had; Linux's `ru_maxrss` also counts the process that it was forked from."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024


@dataclass(frozen=True)
class Sample:
    """What a process uses at one moment: `files` are its descriptors but those of stores.

    A store keeps the connections that were in use at once, so that their number grows until it was busiest. The files
    of its index become more until they are merged.
    """

    memory_kb: int
    threads: int
    files: int
    connections: int
    index_files: int

    @classmethod
    def of(cls, pid: int) -> Sample:
        """What the process uses now."""
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text()
        memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))
        places = list(map(_place, (folder / "fd").iterdir()))
        connections = sum(place.endswith(".db") for place in places)
        index = sum(".db-index/" in place for place in places)
        files = sum(not place.endswith((".db", ".db-wal")) for place in places) - index
        return cls(memory, threads, files, connections, index)


def _place(descriptor: Path) -> str:
    with contextlib.suppress(FileNotFoundError):  # it has been closed
        return str(descriptor.readlink())
    return ""


@dataclass
class Vitals:
    """What some processes used, moment by moment."""

    pids: dict[str, int]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def take(self) -> None:
        """Look at all of them now."""
        for name, pid in self.pids.items():
            self.samples.setdefault(name, []).append(Sample.of(pid))

    def retake(self) -> None:
        """Look again: what is seen now takes the place of what was seen last."""
        for samples in self.samples.values():
            samples.pop()
        self.take()

    def growth(self) -> dict[str, tuple[float, float, float]]:
        """For each process how much more it used in the last third of the time than in the middle one.

        That is (the factor of the median memory, threads, descriptors). A pool of threads grows with the work and may
        stay: so the last sample, to be taken after a rest, is compared with the median of the middle third, at work.
        """
        return {name: _growth(samples) for name, samples in self.samples.items() if len(samples) >= LEAST}

    def leaks(self) -> list[str]:
        """The processes that do not stay flat; none before there are a few samples."""
        return [
            f"{name}: memory × {memory:.2f}, {threads:+.0f} threads, {files:+.0f} descriptors"
            for name, (memory, threads, files) in self.growth().items()
            if memory > MORE_MEMORY or threads > MORE_THREADS or files > MORE_FILES
        ] + [
            f"{name}: {samples[-1].connections} connections to its store, {samples[-1].index_files} files of its index"
            for name, samples in self.samples.items()
            if samples[-1].connections > MOST_CONNECTIONS or samples[-1].index_files > MOST_INDEX_FILES
        ]


def _growth(samples: list[Sample]) -> tuple[float, float, float]:
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]

    memory = [statistics.median(sample.memory_kb for sample in part) for part in (middle, last)]
    files = [min(sample.files for sample in part) for part in (middle, last)]
    threads = samples[-1].threads - statistics.median(sample.threads for sample in middle)
    return memory[1] / memory[0], threads, files[1] - files[0]
