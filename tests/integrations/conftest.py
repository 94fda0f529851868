"""A memory with records, a source that waits, and coroutines run without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings, SourceSettings

SEALED = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"something was fetched: {event} {arguments}")

sys.addaudithook(refuse)
"""
"""Ends a process that looks for the network."""


def in_a_thread(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine gives, run where no other event loop is: a browser test leaves one running in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def pytest_configure(config: pytest.Config) -> None:
    """LangChain's standard tests for other things than retrievers bear marks of plugins that are kept out here."""
    for mark in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{mark}: of LangChain's standard tests")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that are coroutines, as some standard tests are, run without a plugin."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    in_a_thread(lambda: pyfuncitem.obj(**given))
    return True


@pytest.fixture
def stocked(memory: Memory) -> Memory:
    """Seven records about keys: one is Ada's, one has a tag, a title, a category and a path."""
    memory.add_many([{"text": f"The key to room {number} hangs on hook {number}."} for number in range(5)])
    memory.add("Ada keeps the key to the safe herself.", user="ada")
    memory.add(
        "The key to the archive is with the porter.",
        title="Archive",
        category="house",
        tags=["porter"],
        path="house.md",
        lines=(3, 4),
    )
    return memory


@pytest.fixture
def waiting(open_memory: Callable[..., Memory], stand: ModuleType) -> tuple[Memory, threading.Event]:
    """A memory with a source that waits for a signal, and the signal."""
    told = threading.Event()

    def ask(_asked: Any) -> dict[str, Any]:
        if not told.wait(10):
            raise TimeoutError("the one who asked held up everybody else")
        return {"results": []}

    stand.ASK["slow"] = ask
    source = SourceSettings(kind="stand", name="slow", timeout_ms=20_000)
    memory = open_memory(settings=Settings(sources=(source,)))
    memory.add("The key is under the pot.")
    return memory, told


@pytest.fixture
def run_sealed(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs code in a separate process and an empty home, which ends if it uses the network."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        home = {**dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(tmp_path))}
        command = [sys.executable, "-c", SEALED + code]
        return subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True, check=False, timeout=120)

    return run
