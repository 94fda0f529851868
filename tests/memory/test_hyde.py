"""HyDE against a real server with the OpenAI protocol: a separate list, cached, and never blocking a search."""

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
    """HyDE through the test's server, with a short timeout."""
    search = SearchOptions(hyde=True, hyde_timeout=0.5)
    return Settings(search=search, llm=LlmSettings(base_url=server.url, model="scripted"))


@pytest.fixture
def memory(path: Any, settings: Settings) -> Any:
    with Memory.open(path, embedder="hashing:256", settings=settings) as opened:
        opened.add(HERON, id="heron")
        opened.add("Invoices are due on Friday.", id="invoice")
        yield opened


def test_hypothetical_answer_adds_its_own_list(memory: Memory, server: Any) -> None:
    """The query shares no word with the record, the written answer does: its list ranks the record first."""
    server.answer = lambda _: HERON
    answer = memory.search("wading bird?")
    assert [source.name for source in answer.trace.sources] == ["keyword", "vector", "hyde"]
    assert answer.results[0].record.id == "heron"
    assert answer.results[0].shares["hyde"].rank == 1
    assert answer.results[0].shares["hyde"].score == pytest.approx(1.0, abs=1e-6)
    assert answer_dict(answer)["results"][0]["sources"]["hyde"]["contribution"] > 0
    assert "wading bird?" in server.asked[0].prompt
    assert server.asked[0].body["model"] == "scripted"


def test_hypothetical_answer_is_cached_by_query_and_model(
    memory: Memory, server: Any, path: Any, settings: Settings
) -> None:
    """The same query is sent once, also in another process; another model is called again."""
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
def test_failing_model_leaves_the_plain_query(memory: Memory, server: Any, reply: Any, trouble: str) -> None:
    """The other sources answer within its timeout, the trace names the reason, nothing is cached."""
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


def test_replace_uses_only_the_answer_and_falls_back(memory: Memory, server: Any, reply: Any) -> None:
    """`hyde = "replace"` replaces the vector source; without an answer the query's own vector is used."""
    server.answer = lambda _: HERON
    answer = memory.search("wading bird?", hyde="replace")
    assert [source.name for source in answer.trace.sources] == ["keyword", "vector"]
    assert answer.results[0].similarity == pytest.approx(1.0, abs=1e-6)
    server.script = [reply(status=500)]
    plain = memory.search("heron at dawn", hyde="replace")
    assert plain.trace.mode == "hybrid"
    assert any("fell back" in warning for warning in plain.trace.warnings)
    assert plain.results[0].record.id == "heron"


def test_hyde_without_an_endpoint_names_the_setting(path: Any, server: Any) -> None:
    """The search goes on, and the warning says what to set."""
    with Memory.open(path, embedder="hashing:256", settings=Settings(search=SearchOptions(hyde=True))) as memory:
        memory.add(HERON)
        answer = memory.search("heron")
    assert answer.results
    assert any("OPENAI_API_KEY" in warning for warning in answer.trace.warnings)


def test_nothing_is_sent_when_hyde_is_off(memory: Memory, server: Any) -> None:
    """The language model is called only on request."""
    memory.search("heron", hyde=False)
    assert server.asked == []
    assert replace(Settings()).search.hyde is False
