"""A folder of notes, and a memory that counts what it embeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Settings
from recollect.memory import Memory
from recollect.models.embedders import open_embedder


class Counting:
    """The hashing embedder, counting what it is asked to embed."""

    def __init__(self) -> None:
        self._inner = open_embedder("hashing:64")
        self.name, self.fingerprint = "hashing:64", self._inner.fingerprint
        self.embedded: list[str] = []

    def passages(self, texts: Sequence[str]) -> Any:
        self.embedded += texts
        return self._inner.passages(texts)

    def query(self, text: str) -> Any:
        return self._inner.query(text)


@pytest.fixture
def counting() -> Counting:
    """The embedder of `memory`."""
    return Counting()


@pytest.fixture
def memory(tmp_path: Path, counting: Counting) -> Iterator[Memory]:
    """A memory whose embedder counts."""
    with Memory.open(tmp_path / "store.db", embedder=counting, settings=Settings()) as opened:
        yield opened


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder
