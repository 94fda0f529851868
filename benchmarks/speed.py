"""How fast: `make bench`. Every time stands beside a peer's in the same run, because the machine is shared.

Synthetic records (60 words each, Zipf), random unit vectors; the peers are FTS5's own bm25(), bm25s, and a bare numpy
product of the same matrix.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import apsw
import bm25s
import numpy as np

from recollect.config import Settings
from recollect.memory import Memory
from recollect.stores.sqlite import SqliteStore
from recollect.types import Filter, Put, Record, Scope, VectorSpace

SIZES = (10_000, 50_000)
QUERIES = 60
DIMENSION = 384


class Random:
    """An embedder of random vectors, so that only the search is timed."""

    name = fingerprint = "random"

    def query(self, text: str) -> np.ndarray:
        return unit(np.random.default_rng(abs(hash(text))).normal(size=(1, DIMENSION)))[0]

    def passages(self, texts: list[str]) -> np.ndarray:
        return unit(np.random.default_rng(len(texts)).normal(size=(len(texts), DIMENSION)))


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def words(rng: random.Random, count: int) -> list[str]:
    vocabulary = [f"w{number}x" for number in range(20_000)]
    weights = [1 / (number + 10) for number in range(20_000)]
    return rng.choices(vocabulary, weights, k=count)


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def rows(size: int, folder: Path) -> None:
    rng = random.Random(size)
    texts = [" ".join(words(rng, 60)) for _ in range(size)]
    queries = [" ".join(words(rng, 5)) for _ in range(QUERIES)]
    store = SqliteStore(folder / "store.db", language="none")
    start = time.perf_counter()
    groups = (
        [Put(Record(id=str(number), text=text, scope=Scope(user=str(number % 1000))))]
        for number, text in enumerate(texts)
    )
    store.records.apply(groups)
    print(f"\n{size:,} records stored and indexed in {time.perf_counter() - start:.1f} s")
    space = VectorSpace("random", "random", DIMENSION)
    store.spaces.activate(space)
    index = store.spaces.open(space)
    matrix = unit(np.random.default_rng(0).normal(size=(size, DIMENSION)))
    index.save(texts, matrix)
    everyone, one = Filter(any_scope=True), Filter(scope=Scope(user="7"))
    fts = native_fts(folder, texts)
    peer = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    peer.index([text.split() for text in texts], show_progress=False)
    vector = matrix[5]
    actions: dict[str, Callable[[str], object]] = {
        "keyword, all visible": lambda query: store.keywords.search(query.split(), everyone, 100),
        "keyword, 1 of 1,000 users": lambda query: store.keywords.search(query.split(), one, 100),
        "peer: FTS5 bm25()": lambda query: fts.execute(
            "SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT 100", (" OR ".join(query.split()),)
        ).fetchall(),
        "peer: bm25s (in memory)": lambda query: peer.retrieve([query.split()], k=100, show_progress=False),
        "vector, all visible": lambda _: index.search(vector, everyone, 100),
        "vector, 1 of 1,000 users": lambda _: index.search(vector, one, 100),
        "peer: numpy product, top 100": lambda _: np.argpartition(matrix @ vector, -100)[-100:],
    }
    report(actions, queries)
    store.close()
    with Memory.open(folder / "store.db", embedder=Random(), settings=Settings()) as memory:
        report({"Memory.search, hybrid": lambda query: memory.search(query, any_scope=True)}, queries)


def native_fts(folder: Path, texts: list[str]) -> apsw.Connection:
    connection = apsw.Connection(str(folder / "fts.db"))
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(text); BEGIN")
    connection.executemany("INSERT INTO t VALUES (?)", [(text,) for text in texts])
    connection.execute("COMMIT")
    return connection


def report(actions: dict[str, Callable[[str], object]], queries: list[str]) -> None:
    """Interleaved, so that a busy moment hits all alike; the first two queries warm up."""
    spent: dict[str, list[float]] = {name: [] for name in actions}
    for number, query in enumerate(queries):
        for name, action in actions.items():
            took = timed(lambda action=action, query=query: action(query))
            if number > 1:
                spent[name].append(took)
    for name, times in spent.items():
        print(f"  {name:<30} p50 {median(times):7.2f} ms   p95 {sorted(times)[int(len(times) * 0.95)]:7.2f} ms")


def cold() -> None:
    """A new process for each: help, keyword search, hybrid search."""
    recollect = Path(sys.executable).parent / "recollect"
    with tempfile.TemporaryDirectory() as folder:
        store = ["--store", f"{folder}/s.db"]
        subprocess.run([recollect, "add", "tea with Ada", *store], check=True, capture_output=True)
        commands = {
            "recollect --help": ["--help"],
            "recollect search, keyword only": ["search", "tea", "--embedder", "none", *store],
            "recollect search, with the model": ["search", "tea", *store],
            "peer: python -c 'import numpy'": None,
        }
        print("\ncold starts, best and median of 7")
        for name, arguments in commands.items():
            command = [str(recollect), *arguments] if arguments else [sys.executable, "-c", "import numpy"]
            times = [timed(lambda c=command: subprocess.run(c, check=True, capture_output=True)) for _ in range(7)]
            print(f"  {name:<34} {min(times):6.0f} ms   {median(times):6.0f} ms")


def main() -> None:
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows(size, Path(folder))
    cold()


if __name__ == "__main__":
    main()
