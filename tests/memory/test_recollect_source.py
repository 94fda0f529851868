"""Another Recollect as an external source, opened through the registry like any other kind."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import SYSTEMS, Settings, SourceSettings
from recollect.errors import UsageError
from recollect.memory.assembly import PeerStore, open_system
from recollect.types import GLOBAL, ExternalQuery


@pytest.fixture
def source(tmp_path: Path) -> SourceSettings:
    """The table of a source whose store holds one record."""
    with Memory.open(tmp_path / "other.db", embedder="hashing:64", settings=Settings()) as other:
        other.add("The heron stands in the reeds.", id="heron")
    return SourceSettings("other", "recollect", options={"store": str(tmp_path / "other.db")})


def test_registry_loads_the_kind_recollect(source: SourceSettings) -> None:
    """Its entry is called with the table alone, like that of another package, and answers."""
    system = SYSTEMS.load("recollect")(source)
    try:
        answer = system.ask(ExternalQuery("heron", 5, GLOBAL, time.monotonic() + 30))
    finally:
        system.close()
    assert [result["id"] for result in answer["results"]] == ["heron"]


def test_source_with_configure_gets_the_settings(source: SourceSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """`configure` is called on any source that has it, whatever its kind."""
    settings = Settings(embedder="hashing:64")
    opened = open_system(source, settings)
    assert isinstance(opened, PeerStore)
    assert opened.settings is settings

    class Plain:
        def __init__(self, source: SourceSettings) -> None:
            self.source = source

        def ask(self, asked: Any) -> Any:
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr(type(SYSTEMS), "load", lambda *_: Plain)
    assert isinstance(open_system(source, settings), Plain)


def test_external_sources_are_opened_on_first_use(tmp_path: Path) -> None:
    """A memory that only writes opens none; a search that uses one reports its errors."""
    broken = SourceSettings("broken", "command", options={})
    settings = Settings(sources=(broken,))
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=settings) as memory:
        memory.add("The heron stands in the reeds.")
        assert memory.search("heron", sources=["keyword"]).results
        with pytest.raises(UsageError, match="'broken' cannot be set up"):
            memory.search("heron", sources=["broken"])


def test_recall_leaves_out_untrusted_records_of_another_store(tmp_path: Path, source: SourceSettings) -> None:
    """What a model reads has a trusted origin in that store, too; a person sees all."""
    with Memory.open(tmp_path / "other.db", embedder="hashing:64", settings=Settings()) as other:
        other.add("The heron stands on one leg.", origin="web")
    settings = Settings(sources=(replace(source, fields={"id": "id", "text": "text"}, timeout_ms=60_000),))
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=settings) as memory:
        answers = [memory.search("heron stands", for_model=model, min_confidence=0) for model in (False, True)]
        everything, trusted = ({result.record.text for result in answer.results} for answer in answers)
    assert trusted == {"The heron stands in the reeds."}
    assert everything == trusted | {"The heron stands on one leg."}
