"""What processes use, read from /proc: memory, threads and descriptors, and whether that stays flat."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

MORE_MEMORY = 1.10  # the memory of the last third over that of the middle one: caches fill, a leak goes on
LEAST = 9  # samples
MORE_THREADS = 16  # far fewer than a leak of one a request; 5 were seen on a busy machine, and not traced
MORE_FILES = 60  # likewise: 15 were seen


def peak_mb() -> int:
    """The most memory that this process had; Linux's `ru_maxrss` also counts the process that it was forked from."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024


@dataclass(frozen=True)
class Sample:
    """What a process uses at one moment."""

    memory_kb: int
    threads: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Sample:
        """What the process uses now."""
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text()
        memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))
        return cls(memory, threads, len(list((folder / "fd").iterdir())))


@dataclass
class Vitals:
    """What some processes used, moment by moment."""

    pids: dict[str, int]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def take(self) -> None:
        """Look at all of them now."""
        for name, pid in self.pids.items():
            self.samples.setdefault(name, []).append(Sample.of(pid))

    def growth(self) -> dict[str, tuple[float, float, float]]:
        """For each process how much more it used in the last third of the time than in the middle one.

        That is (the factor of the memory, threads, descriptors), each of the medians.
        """
        return {name: _growth(samples) for name, samples in self.samples.items() if len(samples) >= LEAST}

    def leaks(self) -> list[str]:
        """The processes that do not stay flat; none before there are a few samples."""
        return [
            f"{name}: memory × {memory:.2f}, {threads:+.0f} threads, {files:+.0f} descriptors"
            for name, (memory, threads, files) in self.growth().items()
            if memory > MORE_MEMORY or threads > MORE_THREADS or files > MORE_FILES
        ]


def _growth(samples: list[Sample]) -> tuple[float, float, float]:
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]

    def medians(name: str) -> tuple[float, float]:
        before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (middle, last))
        return before, after

    memory, threads, files = (medians(name) for name in ("memory_kb", "threads", "files"))
    return memory[1] / memory[0], threads[1] - threads[0], files[1] - files[0]
