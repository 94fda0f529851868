"""A real server process and the SDK's own client, and the same server spoken to by hand."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


def in_a_thread(work: Callable[[], Awaitable[Any]]) -> Any:
    """What a coroutine gives, run where no other event loop is: a browser test leaves one running in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result()


@dataclass
class Served:
    """How a test starts `recollect mcp` on its store, and what that said on standard error."""

    store: Path
    home: Path

    def words(self, *flags: str) -> list[str]:
        return ["-m", "recollect", "mcp", "--store", str(self.store), "--embedder", "hashing:64", *flags]

    @property
    def environment(self) -> dict[str, str]:
        folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RECOLLECT_MODELS")
        return {**dict.fromkeys(folders, str(self.home)), "RECOLLECT_OFFLINE": "1"}

    @contextlib.asynccontextmanager
    async def client(self, *flags: str, mode: str = "auto") -> AsyncIterator[Client]:
        """A session of the SDK's client with a new process."""
        command = StdioServerParameters(command=sys.executable, args=self.words(*flags), env=self.environment)
        with (self.home / "stderr").open("a") as errors:
            async with Client(stdio_client(command, errlog=errors), mode=mode, read_timeout_seconds=60) as client:
                yield client

    def run(self, test: Callable[[Client], Awaitable[Any]], *flags: str, mode: str = "auto") -> Any:
        """What a coroutine of a client gives, for tests that are no coroutines."""

        async def session() -> Any:
            async with self.client(*flags, mode=mode) as client:
                return await test(client)

        return in_a_thread(session)

    @property
    def errors(self) -> str:
        return (self.home / "stderr").read_text()


@pytest.fixture
def served(path: Path, tmp_path: Path) -> Served:
    """The server of a test's own store, in a home with nothing in it."""
    return Served(path, tmp_path)


@dataclass
class Spoken:
    """A server spoken to line by line."""

    process: subprocess.Popen[str]
    number: int = 0

    def send(self, method: str, **params: Any) -> int:
        self.number += 1
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.number

    def write(self, message: Any) -> None:
        self.process.stdin.write(f"{message if isinstance(message, str) else json.dumps(message)}\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.send(method, **params)
        return self.read()

    def hello(self) -> dict[str, Any]:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        answer = self.ask("initialize", **about)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


@pytest.fixture
def spoken(served: Served) -> Iterator[Callable[..., Spoken]]:
    """Starts servers that are spoken to by hand, and ends those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> Spoken:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, **served.environment}
        started.append(subprocess.Popen([sys.executable, *served.words(*flags)], env=environment, text=True, **pipes))
        return Spoken(started[-1])

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
