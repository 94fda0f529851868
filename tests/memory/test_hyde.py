"""HyDE against a real server that speaks the protocol: a list of its own, kept, and never in the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recollect import Memory
from recollect.config import LlmSettings, SearchOptions, Settings
from recollect.memory.shapes import answer_dict

HERON = "The heron stood in the reeds at dawn."


@pytest.fixture
def settings(server: Any) -> Settings:
    """HyDE by the test's server, with little patience."""
    search = SearchOptions(hyde=True, hyde_timeout=0.5)
    return Settings(search=search, llm=LlmSettings(base_url=server.url, model="scripted"))


@pytest.fixture
def memory(path: Any, settings: Settings) -> Any:
    with Memory.open(path, embedder="hashing:256", settings=settings) as opened:
        opened.add(HERON, id="heron")
        opened.add("Invoices are due on Friday.", id="invoice")
        yield opened


def test_the_hypothetical_answer_adds_a_list_of_its_own(memory: Memory, server: Any) -> None:
    """The question shares nothing with the record, the written answer does: its list puts the record first."""
    server.answer = lambda _: HERON
    answer = memory.search("wading bird?")
    assert [source.name for source in answer.trace.sources] == ["keyword", "vector", "hyde"]
    assert answer.results[0].record.id == "heron"
    assert answer.results[0].shares["hyde"].rank == 1
    assert answer.results[0].shares["hyde"].score == pytest.approx(1.0, abs=1e-6)
    assert answer_dict(answer)["results"][0]["sources"]["hyde"]["contribution"] > 0
    assert "wading bird?" in server.asked[0].prompt
    assert server.asked[0].body["model"] == "scripted"


def test_an_answer_is_kept_by_question_and_model(memory: Memory, server: Any, path: Any, settings: Settings) -> None:
    """The same question is asked once, in another process too; another model is asked anew."""
    server.answer = lambda _: HERON
    memory.search("wading bird?")
    memory.search("wading bird?", limit=1)
    assert len(server.asked) == 1
    with Memory.open(path, embedder="hashing:256", settings=settings) as again:
        again.search("wading bird?")
        assert len(server.asked) == 1
        again.search("wading bird?", hyde_model="other")
    assert [asked.body["model"] for asked in server.asked] == ["scripted", "other"]


@pytest.mark.parametrize("trouble", ["slow", "failing", "empty", "rubbish"])
def test_a_model_in_trouble_leaves_the_plain_query(memory: Memory, server: Any, reply: Any, trouble: str) -> None:
    """The other sources answer within the model's own time limit, the trace names the reason, nothing is kept."""
    replies = {
        "slow": reply(HERON, delay_s=60),
        "failing": reply(status=500),
        "empty": reply(" "),
        "rubbish": reply(body="x"),
    }
    server.script = [replies[trouble]]
    answer = memory.search("heron")
    hyde = answer.trace.sources[2]
    assert (hyde.name, hyde.status) == ("hyde", "failed")
    assert hyde.reason
    assert any("hyde" in warning for warning in answer.trace.warnings)
    assert set(answer.results[0].shares) == {"keyword", "vector"}
    assert answer.results[0].score == pytest.approx(1.0)
    server.answer = lambda _: HERON
    assert memory.search("heron").trace.sources[2].status == "ok"


def test_replace_searches_with_the_answer_alone_and_falls_back(memory: Memory, server: Any, reply: Any) -> None:
    """`hyde = "replace"` stands in for the vector source; without an answer the question's own vector is used."""
    server.answer = lambda _: HERON
    answer = memory.search("wading bird?", hyde="replace")
    assert [source.name for source in answer.trace.sources] == ["keyword", "vector"]
    assert answer.results[0].similarity == pytest.approx(1.0, abs=1e-6)
    server.script = [reply(status=500)]
    plain = memory.search("heron at dawn", hyde="replace")
    assert plain.trace.mode == "hybrid"
    assert any("fell back" in warning for warning in plain.trace.warnings)
    assert plain.results[0].record.id == "heron"


def test_without_an_endpoint_hyde_says_what_to_set(path: Any, server: Any) -> None:
    """No key and no endpoint: the search goes on, and the warning says what to set."""
    with Memory.open(path, embedder="hashing:256", settings=Settings(search=SearchOptions(hyde=True))) as memory:
        memory.add(HERON)
        answer = memory.search("heron")
    assert answer.results
    assert any("OPENAI_API_KEY" in warning for warning in answer.trace.warnings)


def test_off_is_off(memory: Memory, server: Any) -> None:
    """Nothing is sent to anybody unless it was asked for."""
    memory.search("heron", hyde=False)
    assert server.asked == []
    assert replace(Settings()).search.hyde is False
