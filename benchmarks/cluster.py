"""A store on Citus with one, two and three workers: `python -m benchmarks.cluster 20000 1000000`.

The records, vectors and questions are those of `benchmarks.scale`. The servers are those of the tests, started here: a
coordinator without records, and the workers. The records are loaded into one worker; then a second and a third are
added, and a share of the shards is moved to each. Up to 100,000 records, the coordinator also has them in a plain
store, for comparison. `--write` puts the tables into docs/scale.md.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psycopg

from benchmarks.scale import (
    QUERIES,
    ROOT,
    USERS,
    VIEWS,
    WARM,
    WORDS,
    Plane,
    parts,
    percentile,
    rate,
    row,
    searched,
    table,
    timed,
    words,
    write,
)
from recollect.config import Settings
from recollect.memory import Memory
from recollect.stores.postgres.citus.layout import distribute

NODES, SHARDS, ADDS = 3, 32, 202
LOADED = 10_000  # records that are loaded at once: every shard is asked which of them it has
PLAIN_UP_TO = 100_000  # the million in a plain store is in the tables of `benchmarks.scale`
SERVER = {
    "fsync": "on", "full_page_writes": "on", "shared_buffers": "1GB", "maintenance_work_mem": "256MB",
    "max_wal_size": "4GB", "autovacuum": "off", "citus.shard_count": str(SHARDS),
    "citus.node_connection_timeout": "30s",
}  # fmt: skip
TABLES = ("ids", "records", "history", "documents", "blocks", "tallies", "embeddings", "vectors_1")
TICK = 1_000 / os.sysconf("SC_CLK_TCK")


def opened(place: str) -> Memory:
    return Memory.open(place, embedder=Plane(), settings=Settings(), language="none")


def load(memory: Memory, size: int) -> tuple[float, float]:
    """Seconds of two threads that make and load the records, and of making the indexes after it."""
    contents, batches, turn = memory.store.contents, parts(size, LOADED), threading.Lock()
    contents.load(next(batches))
    contents.load(next(batches))

    def work() -> None:
        while True:
            with turn:
                some = list(itertools.islice(batches, 3))
            if not some:
                return
            vectors, records, history = some
            for batch in (records, history, vectors):  # the order of a copy
                contents.load(batch)

    def both() -> None:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(work) for _ in range(2)]:
                done.result()

    return timed(both) / 1_000, timed(contents.finish) / 1_000


def processor(cluster: Any) -> np.ndarray:
    """Milliseconds of processor time of this process, of the coordinator and of the workers (Linux)."""
    nodes = list(map(server_time, cluster.nodes))
    return np.array([time.process_time() * 1_000, nodes[0], sum(nodes[1:])])


def server_time(node: Any) -> float:
    """That of all processes of a server; those that have ended are counted in ticks."""
    postmaster = (node.data / "postmaster.pid").read_text().split("\n")[0]
    ended = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()[13:15]
    total = sum(map(int, ended)) * TICK
    for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e6
    return total


def measured(cluster: Any, place: str) -> Iterator[tuple[str, str]]:
    """What was measured, and the figures."""
    for node in cluster.nodes:
        with psycopg.connect(node.url(port=str(cluster.ports[node])), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
    chance = random.Random(1)
    queries = [words(chance, 5) for _ in range(QUERIES)]
    with opened(place) as memory:
        for view, way in itertools.product(("one user", "all"), ("keyword", "vector", "hybrid")):
            search = functools.partial(searched, way, memory, where=VIEWS[view])
            yield from spent(cluster, f"{way}, {view}", search, queries)
        texts = [words(chance, WORDS) for _ in range(ADDS)]
        yield from spent(cluster, "add", lambda text: memory.add(text, user=str(chance.randrange(USERS))), texts)
    for view in ("one user", "all"):
        yield f"hybrid searches a second, {view}, 2 clients", f"{rate(place, view, 2):,.1f}"
    for clients in (1, 2, 4, 8):
        yield f"adds a second, {clients} client{'s' * (clients > 1)}", f"{rate(place, 'add', clients):,.1f}"


def spent(cluster: Any, name: str, action: Callable[[str], object], texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The time of an action on each text, and the processor time."""
    times = []
    for number, text in enumerate(texts):
        if number == WARM:
            before = processor(cluster)
        times.append(timed(lambda text=text: action(text)))
    used = (processor(cluster) - before) / (len(texts) - WARM)
    yield f"{name}: p50 / p95, ms", f"{median(times[WARM:]):.1f} / {percentile(times[WARM:]):.1f}"
    yield "its CPU, ms: client + coordinator + workers", " + ".join(f"{each:.1f}" for each in used)


def sizes(cluster: Any, schema: str, records: int) -> Iterator[str]:
    """Bytes of each table for a record, with its indexes; and those of HNSW, which are a part of them."""
    yield from table("table", "bytes a record")
    for name in TABLES:
        ((size,),) = cluster.execute(f"SELECT citus_total_relation_size('{schema}.{name}')")
        yield row(f"`{name}`", f"{size / records:,.0f}")
    near = (
        "SELECT sum(result::bigint) FROM run_command_on_shards('{0}.vectors_1', $$SELECT"
        " coalesce(sum(pg_relation_size(indexrelid)), 0) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " JOIN pg_am ON pg_am.oid = relam WHERE indrelid = '%s'::regclass AND amname = 'hnsw'$$)"
    )
    ((size,),) = cluster.execute(near.format(schema))
    yield row("of `vectors_1`: HNSW", f"{size / records:,.0f}")


def rebalanced(cluster: Any) -> tuple[float, int]:
    """Add a worker, move its share of the shards to it; seconds, and the bytes that are there then."""
    cluster.add(new := cluster.start_node())
    start = time.perf_counter()
    cluster.execute("SELECT citus_rebalance_start()")
    while (state := cluster.execute("SELECT state FROM citus_rebalance_status()")[0][0]) != "finished":
        assert state in ("scheduled", "running"), cluster.execute("SELECT details FROM citus_rebalance_status()")
        time.sleep(0.5)
    seconds = time.perf_counter() - start
    cluster.execute(f"ANALYZE {', '.join(f'scale_citus.{name}' for name in TABLES[1:])}")  # autovacuum is off
    ((size,),) = cluster.execute(f"SELECT sum(shard_size) FROM citus_shards WHERE nodeport = {cluster.ports[new]}")
    return seconds, int(size)


def measure(cluster: Any, size: int) -> Iterator[str]:
    """The tables of one size."""
    columns: dict[str, list[tuple[str, str]]] = {}
    yield from (f"\n### {size:,} records on Citus\n", *table("store", "loaded in s", "indexes made in s", "moved"))
    for name in ("plain", *range(1, NODES + 1)) if size <= PLAIN_UP_TO else range(1, NODES + 1):
        place, title = f"{cluster.url}&schema=scale_{name if name == 'plain' else 'citus'}", f"{name} nodes"
        if name in ("plain", 1):
            title = "one server, plain" if name == "plain" else "1 node"
            if name == 1:
                cluster.add(cluster.start_node())
                distribute(place)
            with opened(place) as memory:
                loading, indexing = load(memory, size)
            yield row(title, f"{loading:,.0f}", f"{indexing:,.0f}", "")
        else:
            seconds, moved = rebalanced(cluster)
            yield row(title, "", "", f"{moved / 1e9:.2f} GB in {seconds:,.0f} s")
        columns[title] = []
        for what, figures in measured(cluster, place):
            print(f"{title}, {what}: {figures}", file=sys.stderr, flush=True)
            columns[title].append((what, figures))
        if name == 1:
            bytes_ = list(sizes(cluster, "scale_citus", size))
    yield from ("", *table("", *columns))
    for cells in zip(*columns.values(), strict=True):
        yield row(cells[0][0], *(figure for _, figure in cells))
    yield from ("", *bytes_)


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    start = importlib.import_module("support.cluster").Cluster
    for size in (int(size) for size in sys.argv[1:] if size != "--write"):
        lines = []
        with contextlib.closing(start(0, **SERVER)) as cluster:
            for line in measure(cluster, size):
                print(line, flush=True)
                lines.append(line)
        if "--write" in sys.argv:
            write(f"cluster {size}", lines)


if __name__ == "__main__":
    main()
