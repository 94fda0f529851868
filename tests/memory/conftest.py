"""Memories on real files, with the hashing embedder or the default model, and what a search says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.embedders import open_embedder
from recollect.types import Embedder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of a test is."""
    return tmp_path / "memory.db"


@pytest.fixture
def open_memory(path: Path) -> Iterator[Callable[..., Memory]]:
    """Opens memories on the test's store, and closes them all when the test ends."""
    opened: list[Memory] = []

    def open_one(place: Path = path, *, embedder: Any = "hashing:64", **options: Any) -> Memory:
        opened.append(Memory.open(place, embedder=embedder, **{"settings": Settings(), **options}))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(open_memory: Callable[..., Memory]) -> Memory:
    """A new memory with the hashing embedder."""
    return open_memory()


@pytest.fixture(scope="session")
def arctic() -> Embedder:
    """The default model, loaded once."""
    return open_embedder("arctic-embed-s")


@pytest.fixture
def dump(path: Path) -> Callable[[], dict[str, list[tuple[Any, ...]]]]:
    """Every row of the truth, read by a connection of its own."""

    def read() -> dict[str, list[tuple[Any, ...]]]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tables = ("records", "tags", "history", "files")
            return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in tables}
        finally:
            connection.close()

    return read
