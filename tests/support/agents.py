"""A real server process and the SDK's own client, and the same server spoken to by hand."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from recollect import Memory
from recollect.types import Scope
from recollect.web.access import Caller, Tokens
from recollect.web.app import build
from support.forking import recollect_words


def in_a_thread(work: Callable[[], Awaitable[Any]]) -> Any:
    """What a coroutine gives, run where no other event loop is: a browser test leaves one running in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result()


@dataclass
class Served:
    """How a test starts `recollect mcp` on its store, and what that said on standard error."""

    store: Path
    home: Path

    def flags(self, *more: str) -> list[str]:
        return ["mcp", "--store", str(self.store), "--embedder", "hashing:64", *more]

    def words(self, *flags: str) -> list[str]:
        return recollect_words(*self.flags(*flags))

    @property
    def environment(self) -> dict[str, str]:
        folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RECOLLECT_MODELS")
        return {**dict.fromkeys(folders, str(self.home)), "RECOLLECT_OFFLINE": "1"}

    @contextlib.asynccontextmanager
    async def client(self, *flags: str, mode: str = "auto") -> AsyncIterator[Client]:
        """A session of the SDK's client with a new process."""
        python, *words = self.words(*flags)
        command = StdioServerParameters(command=python, args=words, env=self.environment)
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


HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@dataclass
class Hosted:
    """A running `recollect serve`, who may ask it, and what it said on standard error."""

    store: Path
    home: Path
    process: subprocess.Popen[bytes]
    url: str

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.home / "tokens.json")

    @property
    def errors(self) -> str:
        return (self.home / "stderr").read_text()

    def token(self, name: str, *, read_only: bool = False, **scope: str) -> str:
        """A new token of that scope; the user is called as the token where no scope is said."""
        return self.tokens.add(Caller(name, Scope(**scope or {"user": name}), read_only=read_only))

    @contextlib.asynccontextmanager
    async def client(self, token: str, mode: str = "auto") -> AsyncIterator[Client]:
        """A session of the SDK's client."""
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=mode, read_timeout_seconds=60) as client:
                yield client

    def run(self, test: Callable[[Client], Awaitable[Any]], token: str, mode: str = "auto") -> Any:
        """What a coroutine of a client gives, for tests that are no coroutines."""

        async def session() -> Any:
            async with self.client(token, mode) as client:
                return await test(client)

        return in_a_thread(session)

    def ask(self, method: str = "POST", token: str = "", session: str = "", **options: Any) -> httpx2.Response:
        """One request by hand; a POST says hello where nothing else is said."""
        own = ({"Authorization": f"Bearer {token}"} if token else {}) | ({"Mcp-Session-Id": session} if session else {})
        said = {"json": HELLO} if method == "POST" and not {"json", "content"} & options.keys() else {}
        headers = {**ACCEPT, **own, **options.pop("headers", {})}
        return httpx2.request(method, self.url, headers=headers, timeout=60, **said, **options)

    def hello(self, token: str) -> str:
        """The id of a new session of the handshake's protocol, ready for calls."""
        session = self.ask(token=token).headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert self.ask(token=token, session=session, json=ready).status_code == 202
        return session


@contextlib.contextmanager
def hosting(home: Path, *flags: str) -> Iterator[Hosted]:
    """A server on a store of its own, in a home with nothing in it; it is ended in the end."""
    folders = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RECOLLECT_MODELS"), str(home))
    store = home / "memory.db"
    words = ["serve", "--port", "0", "--store", str(store), "--embedder", "hashing:64", *flags]
    with (home / "stderr").open("wb") as errors:
        environment = {**os.environ, **folders, "RECOLLECT_OFFLINE": "1"}
        process = subprocess.Popen(recollect_words(*words), env=environment, stdout=errors, stderr=errors)
    try:
        yield Hosted(store, home, process, f"{_address(process, home / 'stderr')}mcp")
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], errors: Path) -> str:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if found := re.search(r"serving at (\S+)", errors.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"it does not serve: {errors.read_text()}")


@contextlib.contextmanager
def serving_in_a_thread(memory: Memory, tokens: Tokens) -> Iterator[str]:
    """A real server without a process of its own, which takes seconds to start; its address."""
    config = uvicorn.Config(build(memory, tokens), port=0, log_level="warning", ws="none", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


READING = {"memory_search", "memory_recall", "memory_get", "memory_status", "memory_recent", "memory_history"}
CHANGING = {"memory_supersede", "memory_forget", "memory_undo"}
WRITING = {"memory_store", *CHANGING}


async def call(client, name, **arguments):
    """The structured result of a call that must succeed."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def error(client, name, **arguments):
    """The error of a call that must fail."""
    result = await client.call_tool(name, arguments)
    assert result.is_error
    assert result.structured_content is None
    return json.loads(result.content[0].text)["error"]
