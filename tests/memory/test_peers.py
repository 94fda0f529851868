"""Another Recollect as an external source, opened through the registry like any other kind."""

from __future__ import annotations

import time
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


def test_the_kind_recollect_loads_as_it_is_named(source: SourceSettings) -> None:
    """The registry's entry is called with the table alone, as the entry of another package is, and answers."""
    system = SYSTEMS.load("recollect")(source)
    try:
        answer = system.ask(ExternalQuery("heron", 5, GLOBAL, time.monotonic() + 30))
    finally:
        system.close()
    assert [result["id"] for result in answer["results"]] == ["heron"]


def test_a_system_that_wants_the_settings_gets_them(source: SourceSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """`configure` is called on any system that has it, whatever its kind; a system without it is left alone."""
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


def test_external_sources_are_opened_when_they_are_used(tmp_path: Path) -> None:
    """A memory that only writes opens no external system; a search that uses one reports what is wrong with it."""
    broken = SourceSettings("broken", "command", options={})
    settings = Settings(sources=(broken,))
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=settings) as memory:
        memory.add("The heron stands in the reeds.")
        assert memory.search("heron", sources=["keyword"]).results
        with pytest.raises(UsageError, match="'broken' cannot be set up"):
            memory.search("heron", sources=["broken"])
