"""What a contender can do, and the list of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.speed.data import Batch

TOP, DEPTH, RRF_K = 10, 100, 60
"""Results that are shown; entries of each list that the systems put together here fuse; RRF's constant."""

Found = list[tuple[int, str]]
"""Numbers and texts of the results, best first."""


class Contender:
    """One system with its files in one folder. A process either loads or serves."""

    packages: ClassVar[Sequence[str]] = ()
    note: ClassVar[str] = ""
    hybrid: ClassVar[bool] = True

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size

    def load(self, batches: Iterator[Batch]) -> None:
        """Store all records on disk, ready to be searched."""
        raise NotImplementedError

    def open(self) -> None:
        """Open what was loaded."""
        raise NotImplementedError

    def search(self, text: str, vector: np.ndarray, user: str | None = None) -> Found:
        """The first ten for a question whose vector is ready; with `user`, of this user's records."""
        raise NotImplementedError

    def add(self, number: int, text: str, vector: np.ndarray) -> None:
        """Add one record durably. A contender without this method is not measured in single adds."""
        raise NotImplementedError

    def refresh(self) -> None:
        """See what other processes added, where a search does not by itself."""

    def close(self) -> None:
        """Flush and let go."""

    def versions(self) -> dict[str, str]:
        return {package: version(package) for package in self.packages}


class Ready:
    """Vectors by text, for systems that call an embedder: those of the questions, and of the batch being stored."""

    def __init__(self, texts: Sequence[str] = (), vectors: Sequence[np.ndarray] = ()) -> None:
        self.lasting = dict(zip(texts, vectors, strict=True))
        self.passing: dict[str, np.ndarray] = {}

    def expect(self, texts: Sequence[str], vectors: Sequence[np.ndarray]) -> None:
        self.passing.update(zip(texts, vectors, strict=True))

    def take(self, text: str) -> np.ndarray:
        return self.lasting[text] if text in self.lasting else self.passing.pop(text)


def rrf(*lists: Sequence[int]) -> list[int]:
    """The first ten of several ranked lists of numbers."""
    scores: dict[int, float] = {}
    for numbers in lists:
        for rank, number in enumerate(numbers, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RRF_K + rank)
    return sorted(scores, key=scores.__getitem__, reverse=True)[:TOP]


CONTENDERS = {
    "Recollect": "parts:Recollect",
    "bare parts": "parts:BareParts",
    "bm25s + faiss": "parts:Bm25sFaiss",
    "FTS5 + sqlite-vec": "parts:SqliteVec",
    "LanceDB": "databases:LanceDb",
    "txtai": "databases:Txtai",
    "Milvus Lite": "databases:MilvusLite",
    "Chroma": "databases:Chroma",
    "LlamaIndex": "databases:LlamaIndex",
}
"""Name in the table → where it is."""

OWN, FLOOR = "Recollect", "bare parts"


def contender(name: str) -> type[Contender]:
    module, _, cls = CONTENDERS[name].partition(":")
    found: type[Contender] = getattr(importlib.import_module(f"benchmarks.speed.{module}"), cls)
    return found
