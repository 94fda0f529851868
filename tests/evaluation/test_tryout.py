"""A migration is tried out on a copy: the figures are those of the store, and the store stays as it is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from recollect import Memory, moving
from recollect.config import Settings
from recollect.evaluation.datasets import Dataset
from recollect.evaluation.recording import record_set
from recollect.evaluation.scoring import evaluate
from recollect.evaluation.tryout import MEASURES, questions_for, too_few, try_out
from recollect.ingest import documents
from recollect.memory.migration import to_chunks, to_model
from recollect.models.hashing import HashingEmbedder
from recollect.sample import NOTES
from recollect.types import VectorSpace


@pytest.fixture(params=["sqlite", "lancedb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of the test's store, of each kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("new_schema")())
    return str(tmp_path / "memory.db") if request.param == "sqlite" else f"lancedb://{tmp_path}/lance?batch=8"


def content(memory: Memory, tmp_path: Path) -> str:
    """A hash of all that the store holds."""
    return moving.export(memory.store, tmp_path / "export.jsonl").sha256


def test_store_stays_as_it_is_and_the_figures_are_its_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All content is the same before and after, no copy is left, and a search in the store itself measures the same."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with Memory.open(place, embedder="hashing:64", settings=Settings(embedder="hashing:64")) as old:
        old.index(NOTES / "home")
        dataset = questions_for(old, None)
        assert too_few(dataset) == ""
        part = record_set(old, dataset, depth=old.settings.search.fetch_k)
        own = evaluate(part.dataset.qrels, part.run({}, limit=100), MEASURES)
    with Memory.open(place, settings=Settings(embedder="hashing:8")) as memory:
        migration = to_model(memory)
        migration.prepare(memory, None)
        before = content(memory, tmp_path)
        verdict = try_out(memory, migration, dataset)
        assert content(memory, tmp_path) == before
        assert memory.store.spaces.active.embedder == "hashing:64"
    assert list((tmp_path / "temporary").iterdir()) == []
    for measure, values in own.items():
        assert verdict.measures[measure]["old"]["mean"] == pytest.approx(sum(values.values()) / len(values))
        assert verdict.measures[measure]["new"]["mean"] <= verdict.measures[measure]["old"]["mean"]


def test_model_that_the_settings_do_not_name_is_not_opened(tmp_path: Path) -> None:
    """The store cannot decide where texts are sent: the old side is keyword search alone, and a note says so."""
    with Memory.open(tmp_path / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"id": f"r{n}", "text": f"heron number n{n}n"} for n in range(40)])
        foreign = VectorSpace("openai:foreign@x/64d", "openai:foreign", 64)
        texts = [record.passage for record in memory.list()]
        memory.store.spaces.open(foreign).save(texts, HashingEmbedder(64).passages(texts))
        memory.store.spaces.activate(foreign)
    dataset = Dataset(
        "mine", (), {f"q{n}": f"n{n}n" for n in range(40)}, {f"q{n}": {f"r{n}": 1} for n in range(40)}, ""
    )
    with Memory.open(tmp_path / "memory.db", settings=Settings(embedder="hashing:128")) as memory:
        migration = to_model(memory)
        migration.prepare(memory, None)
        verdict = try_out(memory, migration, dataset)
    assert any("openai:foreign, which your settings do not name" in warning for warning in verdict.warnings)
    assert verdict.measures["R@5"]["old"]["mean"] == 1.0
    assert not verdict.fell


def test_judged_chunks_count_as_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of chunks change when files are cut again, so a judged chunk stands for its file."""
    with Memory.open(tmp_path / "memory.db", settings=Settings(embedder="none")) as memory:
        memory.index(NOTES)
        chunks = memory.list(limit=500)
        texts = {chunk.id: chunk.title for chunk in chunks}
        dataset = Dataset("mine", (), texts, {chunk.id: {chunk.id: 1} for chunk in chunks}, "")
        for name, value in (("RULES", documents.RULES + 1), ("MAX_TOKENS", 60), ("MIN_TOKENS", 20)):
            monkeypatch.setattr(documents, name, value)
        migration = to_chunks(memory)
        verdict = try_out(memory, migration, dataset)
        migration.switch(memory, None)
        assert not {chunk.id for chunk in chunks} <= {chunk.id for chunk in memory.list(limit=5000)}
    assert verdict.measures["R@5"]["old"]["mean"] > 0.9
    assert verdict.measures["R@5"]["new"]["mean"] > 0.9
