"""A real model, and a dump of the store's tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.models.embedders import open_embedder
from recollect.types import Embedder


@pytest.fixture(scope="session")
def arctic() -> Embedder:
    """arctic-embed-s, loaded once."""
    return open_embedder("arctic-embed-s")


@pytest.fixture
def dump(path: Path) -> Callable[[], dict[str, list[tuple[Any, ...]]]]:
    """Every row of the records tables, read through a separate connection."""

    def read() -> dict[str, list[tuple[Any, ...]]]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tables = ("records", "tags", "history", "files")
            return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in tables}
        finally:
            connection.close()

    return read
