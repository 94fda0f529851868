"""Real SQLite files: memories and stores that close themselves, and a look at what is really in the file."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.stores.sqlite import SqliteStore

TABLES = ("records", "tags", "history", "embeddings", "spaces", "files")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of a test is."""
    return tmp_path / "memory.db"


@pytest.fixture
def open_memory(path: Path) -> Iterator[Callable[..., Memory]]:
    """Opens memories on the test's store (or another place), and closes them all when the test ends."""
    opened: list[Memory] = []

    def open_one(place: Path = path, *, embedder: Any = "hashing:64", **options: Any) -> Memory:
        opened.append(Memory.open(place, embedder=embedder, settings=Settings(), **options))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(open_memory: Callable[..., Memory]) -> Memory:
    """A new memory with the hashing embedder."""
    return open_memory()


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """A new store, without the façade."""
    store = SqliteStore(path)
    yield store
    store.close()


@pytest.fixture
def dump(path: Path) -> Callable[[], dict[str, list[tuple[Any, ...]]]]:
    """Every row of every table of the test's store, read by a connection of its own."""

    def read() -> dict[str, list[tuple[Any, ...]]]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in TABLES}
        finally:
            connection.close()

    return read


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs a script in a process of its own and gives back what it printed."""

    def run(script: str, *arguments: object, code: int = 0) -> str:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python processes that can be talked to, and ends those that are left when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
