"""Writes to the embedded store: `python -m benchmarks.writes 10000 100000 1000000`.

A single add, without a vector and with one that is ready, beside a bare commit: one INSERT of the same values into a
plain SQLite table in WAL mode, every commit flushed, in the same process, taking turns. Then bulk loads through
`Memory.add_many` in batches of 10,000, without an embedder, until the keyword index has read all of it, beside a bare
`executemany` of the same values; and moving the first size with export, import and copy. The texts are three real
sentences of the development sets; each record has an id and one of 1,000 users.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import apsw
import numpy as np

from benchmarks.speed.data import sentences, texts, user_of
from recollect import moving
from recollect.memory import Memory
from recollect.models.hashing import HashingEmbedder
from recollect.types import Record

ROUNDS, WARM, BATCH = 2_000, 50, 10_000
COLUMNS = ("id", "kind", "text", "user", "importance", "created_at", "fold", "vector")
INSERT = f"INSERT INTO records VALUES ({', '.join('?' * len(COLUMNS))})"
DIMENSION = 384
CHANCE = np.random.default_rng(1)


class ReadyVectors(HashingEmbedder):
    """Gives each passage another vector in no time: what is measured is storing it."""

    def passages(self, texts: Sequence[str]) -> Any:
        self.last = CHANCE.standard_normal((len(texts), self.dimension), dtype=np.float32)
        return self.last


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [10_000]
    source = sentences()
    with tempfile.TemporaryDirectory(prefix="recollect-writes-") as folder:
        for kind, embedder in (("without", "none"), ("with", ReadyVectors(DIMENSION))):
            single(Path(folder), kind, texts(source, ROUNDS + WARM), embedder)
        for size in sizes:
            bulk(Path(folder) / f"{size}.db", texts(source, size), size)
        move(Path(folder), sizes[0])


def single(folder: Path, kind: str, source: Iterator[str], embedder: str | ReadyVectors) -> None:
    """Medians, means and the fastest tenth, in microseconds, and the ratios of these."""
    bare = bare_table(folder / f"bare-{kind}.db")
    times: dict[str, tuple[list[float], list[float]]] = {"add": ([], []), "bare commit": ([], [])}
    with Memory.open(folder / f"single-{kind}.db", embedder=embedder) as memory:
        for text in islice(source, WARM):
            memory.add(text)
        for number, text in enumerate(source):
            record = clocked(lambda text=text, number=number: memory.add(text, user=user_of(number)), *times["add"])
            vector = None if isinstance(embedder, str) else embedder.last.tobytes()
            row = row_of(record, vector)
            clocked(lambda row=row: insert(bare, [row]), *times["bare commit"])
    bare.close()
    print(f"single adds {kind} a vector (n = {ROUNDS}), µs: wall median / mean / fastest tenth, CPU median / the same")
    figures = {name: summary(*both) for name, both in times.items()}
    figures["ratio"] = [add / alone for add, alone in zip(*figures.values(), strict=True)]
    for name, values in figures.items():
        print(f"  {name:12}", "  ".join(f"{value:9,.2f}" if name == "ratio" else f"{value:9,.0f}" for value in values))


def bare_table(place: Path) -> apsw.Connection:
    bare = apsw.Connection(str(place))
    bare.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
    bare.execute(f"CREATE TABLE records ({', '.join(COLUMNS)})")
    return bare


def row_of(record: Record, vector: bytes | None = None) -> tuple[Any, ...]:
    values = (record.id, record.kind, record.text, record.scope.user, record.importance, str(record.created_at))
    return *values, record.text_hash, vector


def insert(bare: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    bare.execute("BEGIN IMMEDIATE")
    bare.executemany(INSERT, rows)
    bare.execute("COMMIT")


def clocked(action: Callable[[], Record | None], wall: list[float], cpu: list[float]) -> Record | None:
    start, used = time.perf_counter(), time.thread_time()
    result = action()
    cpu.append((time.thread_time() - used) * 1e6)
    wall.append((time.perf_counter() - start) * 1e6)
    return result


def summary(wall: list[float], cpu: list[float]) -> list[float]:
    wall, cpu = sorted(wall), sorted(cpu)
    return [wall[len(wall) // 2], mean(wall), wall[len(wall) // 10], cpu[len(cpu) // 2], cpu[len(cpu) // 10]]


def bulk(place: Path, source: Iterator[str], size: int) -> None:
    bare, plain, plain_cpu = bare_table(place.with_suffix(".bare")), 0.0, 0.0
    with Memory.open(place, embedder="none") as memory:
        stored, cpu, done, records = 0.0, 0.0, 0, list[Record]()
        while batch := [
            {"id": f"r{number}", "text": text, "user": user_of(number)}
            for number, text in enumerate(islice(source, BATCH), done)
        ]:
            seconds, used = timed(lambda batch=batch: records.extend(memory.add_many(batch)))
            stored, cpu, done = stored + seconds, cpu + used, done + len(batch)
            rows = [row_of(record) for record in records]
            seconds, used = timed(lambda rows=rows: insert(bare, rows))
            plain, plain_cpu = plain + seconds, plain_cpu + used
            records.clear()
        indexed, used = timed(memory.store.keywords.catch_up)
        report(
            f"load {size:,}: stored in {stored:.1f} s, indexed in {indexed:.1f} s", size, stored + indexed, cpu + used
        )
    bare.close()
    report(f"bare executemany {size:,}", size, plain, plain_cpu)


def move(folder: Path, size: int) -> None:
    source, file = str(folder / f"{size}.db"), folder / "export.jsonl"
    for name, action in (
        ("copy", lambda: moving.copy(source, str(folder / "copy.db"))),
        ("export", lambda: moving.export(source, file)),
        ("import", lambda: moving.import_(str(folder / "import.db"), file)),
    ):
        report(f"{name} {size:,}", size, *timed(action))


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    start, used = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - start, time.process_time() - used


def report(what: str, size: int, wall: float, cpu: float) -> None:
    print(f"{what}: {size / wall:,.0f} records a second, {size / cpu:,.0f} a CPU second", flush=True)


if __name__ == "__main__":
    main()
