"""LanceDB beside the embedded store, in one run: `python -m benchmarks.lance 10000 100000`.

Records of 20 words in 1,000 scopes; vectors of 384 numbers that lie about a plane of 48, as those of models do, so that
an approximate index has something to hold on to. Adds and searches are interleaved, because the machine is shared.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from recollect.stores import open_store
from recollect.types import Filter, Put, Record, Scope, Store, VectorSpace

DIMENSION, PLANE = 384, 48
SPACE = VectorSpace("random", "random", DIMENSION)
QUERIES, ADDS, DEPTH = 60, 60, 100
EVERYONE = Filter(any_scope=True)
VIEWS = {
    "all visible": EVERYONE,
    "a tenth visible": Filter(any_scope=True, categories=("tenth",)),
    "1 of 100 agents": Filter(scope=Scope(agent="7")),
    "1 of 1,000 users": Filter(scope=Scope(user="7")),
}


def vectors(count: int, seed: int) -> np.ndarray:
    """Unit vectors near a common plane."""
    plane = np.random.default_rng(0).normal(size=(PLANE, DIMENSION))
    chance = np.random.default_rng(seed)
    made = chance.normal(size=(count, PLANE)) @ plane + chance.normal(size=(count, DIMENSION))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def records(size: int) -> list[Record]:
    """Half of them of a user, half of an agent; a tenth of a category."""
    chance = random.Random(size)
    return [
        Record(
            id=f"r{i}",
            text=f"{i} " + " ".join(chance.choices([f"w{j}x" for j in range(2_000)], k=20)),
            scope=Scope(user=str(i // 2 % 1_000)) if i % 2 else Scope(agent=str(i // 2 % 100)),
            category="tenth" if chance.random() < 0.1 else None,
        )
        for i in range(size)
    ]


def fill(store: Store, size: int) -> float:
    """Records and vectors in; seconds that the vectors took."""
    said = records(size)
    store.records.apply([record] for record in map(Put, said))
    store.spaces.activate(SPACE)
    index = store.spaces.open(SPACE)
    start = time.perf_counter()
    for first in range(0, size, 1_000):
        index.save([record.passage for record in said[first : first + 1_000]], vectors(1_000, first + 1))
    store.spaces.activate(SPACE)
    return time.perf_counter() - start


def add(store: Store, number: int) -> None:
    """One record with its vector, as `Memory.add` does it."""
    store.spaces.open(SPACE).save([f"new {number}"], vectors(1, 10**6 + number))
    store.records.apply([[Put(Record(id=f"n{number}", text=f"new {number}"))]])


def found(store: Store, query: np.ndarray, where: Filter) -> list[str]:
    return [match.record.id for match in store.spaces.open(SPACE).search(query, where, DEPTH).entries]


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    done = action()
    return (time.perf_counter() - start) * 1_000, done


def shown(name: str, times: list[float], more: str = "") -> None:
    p95 = sorted(times)[int(len(times) * 0.95)]
    print(f"  {name:<44} p50 {median(times):8.2f} ms   p95 {p95:8.2f} ms   {more}", flush=True)


def compare(size: int, folder: Path) -> None:
    places = {"SQLite": str(folder / "plain.db"), "LanceDB": f"lancedb://{folder}/lance"}
    stores = {name: open_store(place) for name, place in places.items()}
    print(f"\n{size:,} records")
    for name, store in stores.items():
        print(
            f"  {name}: vectors saved in {fill(store, size):.1f} s, {store.status()['bytes'] / 1e6:,.0f} MB", flush=True
        )
    for view, where in VIEWS.items():
        searches(stores, view, where)
    spent: dict[str, list[float]] = {name: [] for name in stores}
    for number in range(ADDS):
        for name, store in stores.items():
            spent[name].append(timed(lambda store=store, number=number: add(store, number))[0])
    for name, times in spent.items():
        shown(f"{name}: add", times)
    for store in stores.values():
        store.close()
    for name, place in places.items():
        told = json.loads(subprocess.check_output([sys.executable, "-m", "benchmarks.lance", "--cold", place]))
        print(f"  {name}: first search of a new process {told['ms']:,.0f} ms, {told['mb']:,.0f} MB of memory")


def searches(stores: dict[str, Store], view: str, where: Filter) -> None:
    spent: dict[str, list[float]] = {name: [] for name in stores}
    shared = []
    for number, query in enumerate(vectors(QUERIES, 77)):
        answers = {}
        for name, store in stores.items():
            took, answers[name] = timed(lambda store=store, query=query: found(store, query, where))
            spent[name].extend([took] if number > 1 else [])
        exact = answers["SQLite"][:10]
        shared.append(len(set(exact) & set(answers["LanceDB"][:10])) / len(exact))
    for name, times in spent.items():
        recall = f"top ten shared {np.mean(shared):.3f}" if name == "LanceDB" else ""
        shown(f"{name}: vector search, {view}", times, recall)


def commits(folder: Path) -> None:
    """What one commit costs, with one vector in each."""
    store = open_store(f"lancedb://{folder}/commits?batch=1")
    store.spaces.activate(SPACE)
    add(store, 0)
    times = [timed(lambda number=number: add(store, number))[0] for number in range(1, 101)]
    shown("LanceDB: add with a commit each", times, f"{1_000 / np.mean(times):.0f} a second")
    store.close()


def cold(place: str) -> None:
    """One search, first thing in this process."""
    store = open_store(place, read_only=True)
    took, _ = timed(lambda: found(store, vectors(1, 5)[0], EVERYONE))
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    print(json.dumps({"ms": took, "mb": int(peak[1]) / 1_000}))


def main() -> None:
    if sys.argv[1] == "--cold":
        cold(sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as folder:
        commits(Path(folder))
    for size in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            compare(size, Path(folder))


if __name__ == "__main__":
    main()
