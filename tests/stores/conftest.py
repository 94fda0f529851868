"""Stores without `Memory`, and a dump of the tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.stores.sqlite import SqliteStore

TABLES = ("records", "tags", "history", "embeddings", "spaces", "files")


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """A new store, without `Memory`."""
    store = SqliteStore(path)
    yield store
    store.close()


@pytest.fixture
def dump(path: Path) -> Callable[[], dict[str, list[tuple[Any, ...]]]]:
    """Every row of every table of the test's store, read through a separate connection."""

    def read() -> dict[str, list[tuple[Any, ...]]]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in TABLES}
        finally:
            connection.close()

    return read


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Runs a script in a separate process and returns its output."""

    def run(script: str, *arguments: object, code: int = 0) -> str:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    return run
