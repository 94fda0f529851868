"""PostgreSQL beside the embedded store, in one run: `python -m benchmarks.scale 10000 100000 1000000`.

Records of 20 words (Zipf, 20,000 words) of 1,000 users, a tenth of them in one category; vectors of 384 numbers that
lie about a plane of 48, as those of models do, so that an approximate index has something to hold on to. Both stores
hold the same; searches take turns, because the machine is shared. The server is the one of the tests, with its files
on this machine and every commit flushed; SCALE_POSTGRES names another one. SCALE_USERS is the number of users.
`--write` puts the tables into docs/scale.md.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import psycopg

from recollect.config import Settings
from recollect.memory import Memory
from recollect.stores.rows import passage_hash
from recollect.types import Filter, Hit, Result, Scope, VectorSpace
from recollect.types.parts import FIELDS, Part

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
SERVER = {"shared_buffers": "2GB", "maintenance_work_mem": "3GB", "max_wal_size": "8GB", "max_connections": "100"}
DIMENSION, PLANE, WORDS, DEPTH, BATCH = 384, 48, 20, 100, 2_000
USERS = int(os.environ.get("SCALE_USERS", "1000"))
QUERIES, WARM, CLIENTS, SECONDS = 42, 2, 2, 10
BEGAN = 1_700_000_000_000_000
VOCABULARY = [f"w{number}x" for number in range(20_000)]
CHANCES = list(itertools.accumulate(1 / (number + 10) for number in range(20_000)))
AXES = np.random.default_rng(0).normal(size=(PLANE, DIMENSION))
VIEWS = {
    "all": Filter(any_scope=True),
    "a tenth": Filter(any_scope=True, categories=("tenth",)),
    "one user": Filter(scope=Scope(user="7")),
}


class Plane:
    """An embedder that costs nothing, so that the search alone is timed: a text's vector follows from its sum."""

    name = fingerprint = "plane"

    def query(self, text: str) -> np.ndarray:
        return vectors(1, zlib.crc32(text.encode()))[0]

    def passages(self, texts: list[str]) -> np.ndarray:
        return np.stack([self.query(text) for text in texts])


SPACE = VectorSpace(Plane.fingerprint, Plane.name, DIMENSION)


def vectors(count: int, seed: int) -> np.ndarray:
    """Unit vectors near a common plane."""
    chance = np.random.default_rng(seed)
    made = chance.normal(size=(count, PLANE)) @ AXES + chance.normal(size=(count, DIMENSION))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(VOCABULARY, cum_weights=CHANCES, k=count))


def parts(size: int, batch: int = BATCH) -> Iterator[list[Part]]:
    """All that a store of this size holds, in batches."""
    yield [Part("meta", ("language", "none")), Part("meta", ("space", SPACE.fingerprint))]
    yield [Part("space", (SPACE.fingerprint, SPACE.embedder, SPACE.dimension))]
    for first in range(0, size, batch):
        numbers = range(first, min(first + batch, size))
        chance = random.Random(first)
        texts = {number: f"{number} {words(chance, WORDS)}" for number in numbers}
        made = vectors(len(texts), first + 1)
        keys = {passage_hash(text): made[at].tobytes() for at, text in enumerate(texts.values())}
        yield [Part("vector", (SPACE.fingerprint, key, vector)) for key, vector in keys.items()]
        yield [record(number, text) for number, text in texts.items()]
        yield [Part("history", (number + 1, f"r{number}", "add", BEGAN + number, {})) for number in numbers]


def record(number: int, text: str) -> Part:
    blank = dict.fromkeys(FIELDS["record"])
    said = {
        "id": f"r{number}", "kind": "fact", "text": text, "title": "", "tags": (), "user": str(number % USERS),
        "category": "tenth" if zlib.crc32(str(number).encode()) % 10 == 0 else None, "importance": 0.5,
        "created_at": BEGAN + number, "purged": False,
    }  # fmt: skip
    return Part("record", tuple({**blank, **said}.values()))


def fill(memories: dict[str, Memory], size: int) -> dict[str, tuple[float, float]]:
    """Seconds that loading took, and making the indexes after it."""
    loading = dict.fromkeys(memories, 0.0)
    for batch in parts(size):
        for name, memory in memories.items():
            loading[name] += timed(lambda memory=memory, batch=batch: memory.store.contents.load(batch)) / 1_000
    return {name: (loading[name], timed(memory.store.contents.finish) / 1_000) for name, memory in memories.items()}


def settle(server: str) -> None:
    """Do now what the machine and the server would do after a load, beside the first searches."""
    os.sync()
    with psycopg.connect(without_schema(server), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def without_schema(server: str) -> str:
    return re.sub(r"[?&]schema=\w+", "", server)


def timed(action: Callable[[], object]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1_000


def latencies(memories: dict[str, Memory], server: str) -> Iterator[str]:
    """What is searched, by view: each store's median and 95th percentile; and how much of the exact top is found.

    Processor time is that of this process and, for PostgreSQL, of the server's processes that serve it (Linux).
    """
    chance = random.Random(1)
    queries = [words(chance, 5) for _ in range(QUERIES)]
    for memory in memories.values():
        memory.search(queries[0], where=VIEWS["all"])
    backends = serving(server)
    for (view, where), way in itertools.product(VIEWS.items(), ("keyword", "vector", "hybrid")):
        spent: dict[str, list[float]] = {name: [] for name in memories}
        used: dict[str, list[float]] = {name: [] for name in memories}
        found: dict[str, list[list[str]]] = {name: [] for name in memories}
        for query in queries:
            for name, memory in memories.items():
                start, before = time.perf_counter(), processor(backends)
                answer = searched(way, memory, query, where)
                spent[name].append((time.perf_counter() - start) * 1_000)
                used[name].append(processor(backends) - before)
                found[name].append([match.record.id for match in answer])
        cells = [f"{median(times[WARM:]):.1f} / {percentile(times[WARM:]):.1f}" for times in spent.values()]
        cells += [f"{median(times[WARM:]):.1f}" for times in used.values()]
        ratio = median(spent["PostgreSQL"][WARM:]) / median(spent["embedded"][WARM:])
        shared = [f"{shared_of(found, depth):.3f}" for depth in (10, DEPTH)] if way != "hybrid" else []
        yield row(view, way, *cells, f"{ratio:.2f}", " / ".join(shared) or f"{shared_of(found, 10):.3f}")


def serving(server: str) -> list[int]:
    """The processes of the server that serve a store."""
    with psycopg.connect(without_schema(server)) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'recollect'")
        return [pid for (pid,) in rows]


def processor(backends: list[int]) -> float:
    """Milliseconds of processor time that this process and these have used."""
    stats = [Path(f"/proc/{pid}/schedstat") for pid in backends]
    return time.process_time() * 1_000 + sum(int(stat.read_text().split()[0]) / 1e6 for stat in stats if stat.exists())


def searched(way: str, memory: Memory, query: str, where: Filter) -> Sequence[Hit | Result]:
    match way:
        case "keyword":
            return memory.store.keywords.search(query.split(), where, DEPTH).entries
        case "vector":
            return memory.store.spaces.open(SPACE).search(Plane().query(query), where, DEPTH).entries
    return memory.search(query, where=where).results


def shared_of(found: dict[str, list[list[str]]], depth: int) -> float:
    """How much of the embedded store's top the other one's has; the embedded store compares every vector."""
    pairs = zip(found["embedded"], found["PostgreSQL"], strict=True)
    return mean(
        len(set(ours[:depth]) & set(theirs[:depth])) / len(ours[:depth]) if ours else float(not theirs)
        for ours, theirs in pairs
    )


def percentile(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


def throughput(places: dict[str, str]) -> Iterator[str]:
    """Several processes at once, each with a store of its own open."""
    for work in ("all", "one user", "add"):
        totals = [rate(place, work, CLIENTS) for place in places.values()]
        yield row(work, *(f"{total:,.1f}" for total in totals), f"{totals[1] / max(totals[0], 1e-9):.2f}")


def rate(place: str, work: str, count: int) -> float:
    """What some processes do in a second, together."""
    command = [sys.executable, "-m", "benchmarks.scale", "--client", place, work]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    clients = [subprocess.Popen([*command, str(number)], **pipes) for number in range(count)]
    for one in clients:
        assert one.stdout.readline() == "ready\n"
    for one in clients:
        one.stdin.write("go\n")
        one.stdin.flush()
    return sum(int(one.communicate()[0]) for one in clients) / SECONDS


def client(place: str, work: str, number: str) -> None:
    """Searches or adds for some seconds, and says how many were done."""
    chance = random.Random(f"{number} {time.time()}")
    with Memory.open(place, embedder=Plane(), settings=Settings()) as memory:
        memory.search(words(chance, 5), where=VIEWS["all"])
        print("ready", flush=True)
        sys.stdin.readline()
        done, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            if work == "add":
                memory.add(words(chance, WORDS), user=str(chance.randrange(USERS)))
            elif work == "all":
                memory.search(words(chance, 5), where=VIEWS["all"])
            else:
                memory.search(words(chance, 5), user=str(chance.randrange(USERS)))
            done += 1
        print(done)


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def table(*head: str) -> list[str]:
    return [row(*head), row(*("---" if at == 0 else "--:" for at in range(len(head))))]


def measure(size: int, folder: Path, server: str) -> Iterator[str]:
    places = {"embedded": str(folder / "scale.db"), "PostgreSQL": server}
    opened = {"embedder": Plane(), "settings": Settings(), "language": "none"}
    memories = {name: Memory.open(place, **opened) for name, place in places.items()}
    yield f"\n### {size:,} records\n"
    yield from table("store", "loaded in s", "indexes made in s", "MB on disk")
    for name, (loading, settling) in fill(memories, size).items():
        bytes_ = memories[name].store.status()["bytes"]
        yield row(name, f"{loading:,.0f}", f"{settling:,.0f}", f"{bytes_ / 1e6:,.0f}")
    settle(server)
    yield ""
    times = ("embedded p50 / p95 ms", "PostgreSQL p50 / p95 ms", "CPU ms embedded", "CPU ms PostgreSQL")
    yield from table("seen", "search", *times, "ratio of p50", "shared")
    yield from latencies(memories, server)
    for memory in memories.values():
        memory.close()
    yield ""
    yield from table(f"{CLIENTS} processes", "embedded a second", "PostgreSQL a second", "ratio")
    yield from throughput(places)


def _server() -> Any:
    """A PostgreSQL server of our own, started as the tests start theirs."""
    sys.path.insert(0, str(ROOT / "tests"))
    return importlib.import_module("support.postgres").Server.make(**SERVER)


def main() -> None:
    if sys.argv[1] == "--client":
        client(*sys.argv[2:])
        return
    sizes = [int(size) for size in sys.argv[1:] if size != "--write"]
    told: list[str] = []
    given = os.environ.get("SCALE_POSTGRES")
    server = None if given else _server()
    try:
        for size in sizes:
            place = f"{given or server.url()}{'&' if '?' in (given or server.url()) else '?'}schema=scale_{size}"
            with tempfile.TemporaryDirectory() as folder:
                for line in measure(size, Path(folder), place):
                    print(line, flush=True)
                    told.append(line)
    finally:
        if server:
            server.remove()
    if "--write" in sys.argv:
        write("results", told)


def write(name: str, lines: Sequence[str]) -> None:
    """Put lines between the markers of that name in the page."""
    results = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(results.sub(lambda found: f"{found[1]}{chr(10).join(lines)}\n{found[2]}", text), "utf-8")


if __name__ == "__main__":
    main()
