"""Computing missing vectors: the newest records first, the same passage once, and a progress that ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Settings
from recollect.memory import Memory, embeddings
from recollect.models.embedders import open_embedder


class Listing:
    """The hashing embedder, with a list of the batches it has embedded."""

    def __init__(self) -> None:
        self._inner = open_embedder("hashing:64")
        self.name, self.fingerprint, self.query = "hashing:64", self._inner.fingerprint, self._inner.query
        self.batches: list[list[str]] = []

    def passages(self, texts: Sequence[str]) -> Any:
        self.batches.append(list(texts))
        return self._inner.passages(texts)


def store_texts(place: Path, texts: Sequence[str]) -> None:
    """Store texts without vectors."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add_many([{"text": text, "id": f"r{number}"} for number, text in enumerate(texts)])


def test_newest_records_are_embedded_first(tmp_path: Path) -> None:
    """A search for what was stored last finds it by meaning before older records are done."""
    store_texts(tmp_path / "store.db", [f"heron {number}" for number in range(200)])
    embedder = Listing()
    with Memory.open(tmp_path / "store.db", embedder=embedder, settings=Settings()) as memory:
        assert memory.embed() == 200
    first, *_ = embedder.batches
    assert set(first) == {f"heron {number}" for number in range(200 - embeddings.BATCH, 200)}


def test_a_passage_of_many_records_is_embedded_once(tmp_path: Path) -> None:
    """Also when its records are far apart, and the progress reaches the number of records."""
    texts = [f"heron {number}" for number in range(150)]
    store_texts(tmp_path / "store.db", [*texts, "boilerplate", *texts, "boilerplate"])
    embedder, calls = Listing(), list[tuple[int, int]]()
    with Memory.open(tmp_path / "store.db", embedder=embedder, settings=Settings()) as memory:
        missing = memory.status()["vectors"]["without"]
        memory.embed(progress=lambda done, total: calls.append((done, total)))
        assert memory.status()["vectors"]["without"] == 0
    embedded = [text for batch in embedder.batches for text in batch]
    assert sorted(embedded) == sorted({*texts, "boilerplate"})
    assert calls[-1] == (missing, missing)


def test_another_model_computes_only_its_own_vectors(tmp_path: Path) -> None:
    """Two spaces lie side by side: going back to the first model computes only what was added meanwhile."""
    texts = [f"heron {number}" for number in range(100)]
    store_texts(tmp_path / "store.db", texts)
    counts = []
    for embedder in ("hashing:64", "hashing:32", "hashing:64", "hashing:32"):
        with Memory.open(tmp_path / "store.db", embedder=embedder, settings=Settings()) as memory:
            counts.append(memory.embed())
            assert memory.search("heron 7").trace.mode == "hybrid"
            assert memory.status()["vectors"]["embedder"] == embedder
    assert counts == [100, 100, 0, 0]


@pytest.mark.parametrize("stopped_after", [1, 2])
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, stopped_after: int) -> None:
    """Every finished batch is saved; nothing is embedded a second time."""
    store_texts(tmp_path / "store.db", [f"heron {number}" for number in range(300)])
    embedder = Listing()

    def interrupt(_done: int, _total: int) -> None:
        if len(embedder.batches) == stopped_after:
            raise KeyboardInterrupt

    with Memory.open(tmp_path / "store.db", embedder=embedder, settings=Settings()) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.embed(progress=interrupt)
        memory.embed()
        assert memory.status()["vectors"]["without"] == 0
    embedded = [text for batch in embedder.batches for text in batch]
    assert len(embedded) == len(set(embedded)) == 300
