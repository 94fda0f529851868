"""Stores without the façade, and a look at what is really in the file."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest

from recollect.stores.sqlite import SqliteStore

TABLES = ("records", "tags", "history", "embeddings", "spaces", "files")


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


def load_postgres() -> ModuleType:
    """The module `postgres.py` beside this one, which pytest's way of importing does not let us import by name."""
    if "postgres_server" not in sys.modules:
        spec = importlib.util.spec_from_file_location("postgres_server", Path(__file__).with_name("postgres.py"))
        sys.modules["postgres_server"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["postgres_server"]


@pytest.fixture(scope="session")
def postgres_module() -> ModuleType:
    """How servers of a test's own are made."""
    return load_postgres()


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """A PostgreSQL server, one for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "postgres"
    folder.mkdir(exist_ok=True)
    with load_postgres().shared_server(folder) as url:
        yield url


@pytest.fixture
def new_schema(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Names a place in PostgreSQL where nothing is kept yet, a new one at each call."""
    with load_postgres().new_schemas(postgres_url) as name:
        yield name
