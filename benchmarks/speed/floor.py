"""What the machine itself can do, measured in the same run: nothing that reads or writes the same bytes is faster."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import numpy as np

from benchmarks.speed import data

MEGABYTES, TRIES, SYNCS = 256, 7, 30
BULK = 10_000
"""Rows of the bare bulk insert."""


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(size: int) -> dict[str, float]:
    """Memory bandwidth, the time of a flush, and how fast SQLite takes the same rows without any index."""
    with tempfile.TemporaryDirectory(dir=data.HOME) as folder:
        return measure_in(Path(folder), size)


def measure_in(folder: Path, size: int) -> dict[str, float]:
    block = np.ones(MEGABYTES * 1_000_000 // 4, np.float32)
    copy = np.empty_like(block)
    read = min(seconds(block.sum) for _ in range(TRIES))
    copied = min(seconds(lambda: np.copyto(copy, block)) for _ in range(TRIES))
    with (folder / "synced").open("wb") as file:
        synced = median(seconds(lambda: flush(file)) for _ in range(SYNCS))
    table = BareTable(folder / "bulk.db")
    batch = next(data.batches(size))
    rows = list(zip(batch.numbers, batch.texts, batch.vectors, strict=True))[:BULK]
    return {
        "read_gb_s": MEGABYTES / 1_000 / read,
        "copy_gb_s": 2 * MEGABYTES / 1_000 / copied,
        "fsync_ms": synced * 1e3,
        "bulk_rows_s": len(rows) / seconds(lambda: table.insert(rows)),
    }


def flush(file: Any) -> None:
    file.write(bytes(4096))
    file.flush()
    os.fsync(file.fileno())


class BareTable:
    """A table of texts and vectors: what an add costs at least, because it must be durable."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
        self.connection.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, text TEXT, user TEXT, vector BLOB)")

    def insert(self, rows: list[tuple[int, str, np.ndarray]]) -> None:
        with self.connection:
            self.connection.executemany(
                "INSERT INTO records VALUES (?, ?, ?, ?)",
                [(number, text, data.user_of(number), vector.tobytes()) for number, text, vector in rows],
            )


def machine() -> dict[str, Any]:
    """What a reader must know of the machine."""
    cpu = re.search(r"model name\s*:\s*(.+)", read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s+(\d+)", read("/proc/meminfo"))
    return {
        "cpu": cpu[1].strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(memory[1]) / 1e6) if memory else None,
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
