"""The retriever for LlamaIndex, tested through its own engine, events and callbacks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from recollect import Memory
from recollect.errors import ConfigError, StoreError, UsageError
from recollect.memory.shapes import answer_dict


@pytest.fixture
def retriever_of() -> Any:
    """The class, imported when a test runs because LlamaIndex is slow to load."""
    from recollect.integrations.llamaindex import RecollectRetriever

    return RecollectRetriever


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """The events of LlamaIndex's instrumentation."""
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler

    seen: list[Any] = []

    class Seen(BaseEventHandler):
        def handle(self, event: Any, **more: Any) -> None:
            seen.append(event)

    root = get_dispatcher()
    handler = Seen()
    root.add_event_handler(handler)
    yield seen
    root.event_handlers.remove(handler)


def texts(nodes):
    return [node.text for node in nodes]


@pytest.mark.ci
def test_node_is_a_search_result(stocked, retriever_of):
    """Text, id and score in their fields, the rest of the JSON as metadata."""
    (found,) = retriever_of(stocked, similarity_top_k=1).retrieve("archive porter")
    (result,) = answer_dict(stocked.search("archive porter", limit=1))["results"]
    assert found.text == result.pop("text")
    assert found.node_id == result["id"]
    assert found.score == pytest.approx(result.pop("score"), rel=1e-3)
    assert {name: found.metadata[name] for name in ("title", "path", "lines", "tags", "category", "rank")} == {
        "title": "Archive",
        "path": "house.md",
        "lines": [3, 4],
        "tags": ["porter"],
        "category": "house",
        "rank": 1,
    }
    assert found.metadata["sources"]["keyword"]["rank"] == 1
    assert found.metadata.keys() == result.keys() | {"score"}


def test_options_are_those_of_search(stocked, retriever_of):
    """Filters, scope and search settings."""
    assert texts(retriever_of(stocked, tags=["porter"]).retrieve("key")) == [
        "The key to the archive is with the porter."
    ]
    assert len(retriever_of(stocked).retrieve("key")) == 6
    assert len(retriever_of(stocked, user="ada", limit=9).retrieve("key")) == 7


def test_query_engine_answers_with_it(stocked, retriever_of):
    """LlamaIndex's engine with an echoing language model, which shows its prompt."""
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    retriever = retriever_of(stocked, similarity_top_k=2, tags=["porter"])
    response = RetrieverQueryEngine.from_args(retriever, llm=MockLLM()).query("who has the key to the archive?")
    assert texts(response.source_nodes) == ["The key to the archive is with the porter."]
    prompt = str(response)
    assert re.search(
        r"^title: Archive\ncreated_at: .*\npath: house.md\nlines: \[3, 4\]\n\nThe key to", prompt, re.MULTILINE
    )
    assert "score" not in prompt
    assert response.source_nodes[0].node_id not in prompt


@pytest.mark.ci
def test_empty_fields_are_not_shown_to_a_model(stocked, retriever_of):
    """A record without title or path has no empty lines above its text."""
    (found,) = retriever_of(stocked, similarity_top_k=1).retrieve("hook 3")
    shown, _, text = found.node.get_content("llm").partition("\n\n")
    assert text == "The key to room 3 hangs on hook 3."
    assert shown.startswith("created_at: ")
    assert shown.count("\n") == 0


def test_instrumentation_and_callbacks_are_notified(stocked, retriever_of, events):
    """A retrieval begins and ends in both of LlamaIndex's mechanisms."""
    from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
    from llama_index.core.callbacks.schema import EventPayload

    debug = LlamaDebugHandler(print_trace_on_end=False)
    nodes = retriever_of(stocked, similarity_top_k=2, callback_manager=CallbackManager([debug])).retrieve("key")
    assert [event.class_name() for event in events] == ["RetrievalStartEvent", "RetrievalEndEvent"]
    assert events[1].nodes == nodes
    ((start, end),) = debug.get_event_pairs(CBEventType.RETRIEVE)
    assert start.payload == {EventPayload.QUERY_STR: "key"}
    assert end.payload == {EventPayload.NODES: nodes}


def test_query_may_be_a_bundle(stocked, retriever_of):
    """As the engine passes it."""
    from llama_index.core import QueryBundle

    retriever = retriever_of(stocked, similarity_top_k=1)
    assert texts(retriever.retrieve(QueryBundle("archive"))) == texts(retriever.retrieve("archive"))


async def test_other_coroutines_run_during_a_search(waiting, retriever_of):
    """The search is in a thread: another coroutine does what it waits for."""
    memory, told = waiting

    async def tell():
        await asyncio.sleep(0)
        told.set()

    nodes, _ = await asyncio.gather(retriever_of(memory, similarity_top_k=1).aretrieve("key"), tell())
    assert texts(nodes) == ["The key is under the pot."]


def test_failing_search_raises_our_error(stocked, retriever_of):
    """Unchanged."""
    retriever = retriever_of(stocked)
    stocked.close()
    with pytest.raises(StoreError, match="has been closed"):
        retriever.retrieve("key")


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ({"colour": "blue"}, ConfigError, "colour"),
        ({"similarity_top_k": 0}, ConfigError, "limit"),
        ({"similarity_top_k": 3, "limit": 4}, UsageError, "two names"),
        ({"user": ""}, UsageError, "user"),
    ],
)
def test_wrong_options_are_refused_at_construction(stocked, retriever_of, said, error, words):
    """Not by the first retrieval."""
    with pytest.raises(error, match=words):
        retriever_of(stocked, **said)


def test_path_is_opened(stocked, path, retriever_of, monkeypatch, tmp_path):
    """With the usual settings."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    retriever = retriever_of(path)
    assert isinstance(retriever.memory, Memory)
    assert len(retriever.retrieve("key")) == 6
    retriever.memory.close()
