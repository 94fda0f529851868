"""`recollect serve` under load: `python -m benchmarks.serving [--clients 50] [--requests 2000] [--keep FOLDER]`.

The store has 10,000 records with vectors (`benchmarks.speed.data`). The server is a process of its own, and each client
has a connection of its own, on which it sends one search after the other: the 60 questions in turn, with the default
model and settings. Beside it runs an application of FastAPI that answers the same requests with a constant of the same
size: what remains when the search costs nothing.

Clients and server share the processors. `cpu_ms` is the processor time of the server for one request, which a busy
machine hardly changes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed import data
from benchmarks.speed.contender import Ready
from benchmarks.speed.parts import Lookup
from recollect.config import Settings
from recollect.memory import Memory
from recollect.models.catalogue import DEFAULT
from recollect.models.onnx import OnnxEmbedder

SIZE, CLIENTS, REQUESTS, MODEL = 10_000, 50, 2_000, DEFAULT
BARE = """
import sys, uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response

app, content = FastAPI(), b"x" * int(sys.argv[1])

@app.post("/v1/search")
async def search(body: dict) -> Response:
    return Response(content, media_type="application/json")

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"serving at http://127.0.0.1:{port}/", file=sys.stderr, flush=True)

Server(uvicorn.Config(app, port=0, log_config=None, access_log=False)).run()
"""


def fill(place: Path) -> None:
    """Store the records, with ready vectors, as the default model would."""
    ready = Ready(*data.questions())
    embedder = Lookup(ready, MODEL, OnnxEmbedder(MODEL).fingerprint)
    with Memory.open(place, embedder=embedder, settings=Settings()) as memory:
        for batch in data.batches(SIZE):
            ready.expect(batch.texts, batch.vectors)
            rows = zip(batch.numbers, batch.texts, strict=True)
            memory.add_many([{"id": f"r{number}", "text": text} for number, text in rows])


@contextlib.contextmanager
def serving(*command: str) -> Iterator[tuple[int, int]]:
    """A server's process number and port."""
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                    yield process.pid, int(found[1])
                    break
            else:
                raise RuntimeError("".join(lines))
        finally:
            process.terminate()


def threads(process: int) -> int:
    return len([*Path(f"/proc/{process}/task").iterdir()])


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: str) -> bytes:
    body = json.dumps({"query": question}).encode()
    head = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    head += f"\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    assert length is not None
    return await reader.readexactly(int(length[1]))


async def load(port: int, clients: int, requests: int) -> tuple[list[float], float, int]:
    """The seconds of each request, the seconds of all, and the bytes of the last answer."""
    asked, _ = data.questions()
    left = iter(range(requests))
    took: list[float] = []
    size = 0

    async def client() -> None:
        nonlocal size
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        for number in left:
            start = time.perf_counter()
            size = len(await ask(reader, writer, asked[number % len(asked)]))
            took.append(time.perf_counter() - start)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return took, time.perf_counter() - start, size


def measure(process: int, port: int, clients: int, requests: int) -> dict[str, Any]:
    asyncio.run(load(port, 1, 2 * data.QUESTIONS))  # loads the model and warms the caches
    before, spent = threads(process), cpu_seconds(process)
    took, seconds, size = asyncio.run(load(port, clients, requests))
    cpu = (cpu_seconds(process) - spent) / requests
    most = threads(process)
    time.sleep(1)
    centiles = statistics.quantiles(took, n=100)
    return {
        "clients": clients, "requests": requests, "a_second": round(requests / seconds, 1),
        "p50_ms": round(centiles[49] * 1000, 1), "p95_ms": round(centiles[94] * 1000, 1),
        "p99_ms": round(centiles[98] * 1000, 1), "cpu_ms": round(cpu * 1000, 2), "bytes": size,
        "threads": {"before": before, "at_the_end": most, "after": threads(process)},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--keep", type=Path, help="a folder for the store, which is made once")
    options = parser.parse_args()
    data.prepare(SIZE)
    with tempfile.TemporaryDirectory() as temporary:
        place = (options.keep or Path(temporary)) / "serving.db"
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            fill(place)
        with serving("-m", "recollect", "serve", "--store", str(place), "--no-token", "--port", "0") as (process, port):
            found = {"recollect serve": measure(process, port, options.clients, options.requests)}
    size = found["recollect serve"]["bytes"]
    with serving("-c", BARE, str(size)) as (process, port):
        found["bare FastAPI"] = measure(process, port, options.clients, options.requests)
    of_bare = found["recollect serve"]["a_second"] / found["bare FastAPI"]["a_second"]
    print(json.dumps({"load_average": os.getloadavg()[0], **found, "share_of_bare": round(of_bare, 3)}, indent=1))


if __name__ == "__main__":
    main()
