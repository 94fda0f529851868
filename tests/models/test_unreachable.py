"""No key and no network: the default model is part of the package; without a named one, keyword search works."""

import time

import pytest

from recollect.config import Settings
from recollect.errors import ModelError
from recollect.memory import Memory
from recollect.models.fetch import RETRY_AFTER_S, fetch_automatically


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty cache, an index that has nothing, and a hub that refuses connections."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return tmp_path


def test_defaults_search_by_meaning_without_a_network(nowhere):
    """The first search of a new store finds a record that shares no word with the question; nothing is fetched."""
    said = []
    with Memory.open(nowhere / "m.db", settings=Settings(), announce=said.append) as memory:
        memory.add("The cat sleeps on the sofa.")
        memory.add("Our car needs new tyres before winter.")
        answer = memory.search("vehicle maintenance")
    assert answer.results[0].record.text == "Our car needs new tyres before winter."
    assert (answer.trace.mode, answer.trace.warnings, said) == ("hybrid", (), [])
    assert not (nowhere / "models").exists()


@pytest.mark.ci
def test_search_falls_back_to_keywords_with_the_reason(nowhere):
    """The record is stored without a vector, and the reason names the command."""
    said = []
    with Memory.open(nowhere / "m.db", embedder="arctic-embed-s", settings=Settings(), announce=said.append) as memory:
        memory.add("Tea with Ada.")
        answer = memory.search("tea")
    assert [result.record.text for result in answer.results] == ["Tea with Ada."]
    assert answer.trace.mode == "keyword-only"
    assert any("fetching arctic-embed-s" in message for message in said)
    assert any("stored without vectors" in message for message in said)
    assert "could not be fetched" in answer.trace.warnings[0]


@pytest.mark.ci
def test_failed_download_is_not_retried_at_once(nowhere):
    """The second try fails with the first reason; later it is tried again."""
    with pytest.raises(ModelError, match="could not be fetched"):
        fetch_automatically("arctic-embed-s", announce=lambda _: None)
    said = []
    with pytest.raises(ModelError, match="a short while ago") as refused:
        fetch_automatically("arctic-embed-s", announce=said.append)
    assert said == []
    assert "recollect model fetch arctic-embed-s" in refused.value.hint
    (note,) = (nowhere / "models").glob("*.failed")
    old = time.time() - RETRY_AFTER_S - 1
    import os

    os.utime(note, (old, old))
    with pytest.raises(ModelError, match="could not be fetched"):
        fetch_automatically("arctic-embed-s", announce=said.append)
    assert said


def test_offline_is_reported_at_once(nowhere, monkeypatch):
    """RECOLLECT_OFFLINE forbids the network, without recording a failure."""
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(ModelError, match="offline: "):
        fetch_automatically("arctic-embed-s", announce=lambda _: None)
    assert not list(nowhere.rglob("*.failed"))


def test_record_added_without_a_model_gets_its_vector_later(nowhere, monkeypatch):
    """The next search with a model embeds it."""
    with Memory.open(nowhere / "m.db", embedder="none", settings=Settings()) as memory:
        memory.add("Tea with Ada.")
    with Memory.open(nowhere / "m.db", embedder="hashing", settings=Settings()) as memory:
        answer = memory.search("tea")
        assert answer.trace.mode == "hybrid"
        assert set(answer.results[0].shares) == {"keyword", "vector"}
