"""Fixtures: stores with LanceDB in a folder, and an S3 server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.stores.lance import table, vectors

pytest.importorskip("lancedb")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a store in a folder that commits every ten vectors."""
    return f"lancedb://{tmp_path}/memory?batch=10"


@pytest.fixture
def opened() -> Iterator[Callable[..., Memory]]:
    """Opens memories by URL or path, and closes them when the test ends."""
    memories: list[Memory] = []

    def open_one(place: object, embedder: object = "hashing:64") -> Memory:
        memories.append(Memory.open(str(place), embedder=embedder, settings=Settings()))
        return memories[-1]

    yield open_one
    for memory in memories:
        memory.close()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make searches ask LanceDB even for few vectors, for no more candidates than needed, and build its index early."""
    for name, value in (("SCAN_UP_TO", 0), ("CANDIDATES", 1), ("MORE_CANDIDATES", 0)):
        monkeypatch.setattr(vectors, name, value)
    monkeypatch.setattr(table, "INDEX_FROM", 300)


@pytest.fixture(scope="session")
def s3() -> Iterator[int]:
    """The port of an S3 server in a process of its own."""
    pytest.importorskip("moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), contextlib.closing(socket.create_connection(("127.0.0.1", port), 1)):
            break
        time.sleep(0.1)
    yield port
    server.kill()
    server.wait()


@pytest.fixture
def bucket(s3: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket; its keys are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    name = f"vectors-{uuid.uuid4().hex}"
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", s3, timeout=30)) as client:
        client.request("PUT", f"/{name}")
        assert client.getresponse().status == 200
    return name


@pytest.fixture
def on_s3(s3: int, bucket: str) -> Callable[..., str]:
    """Returns the URL of a store whose LanceDB table is in the bucket."""

    def make(truth: Path, **more: object) -> str:
        said = {"truth": truth, "endpoint": f"http://127.0.0.1:{s3}", "region": "us-east-1", "batch": 10, **more}
        return f"lancedb://s3://{bucket}/team?" + "&".join(f"{name}={value}" for name, value in said.items())

    return make
