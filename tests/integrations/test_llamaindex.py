"""The retriever for LlamaIndex, which has no standard tests for one: its own engine, events and callbacks ask it."""

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
    """The class; imported when a test runs, for LlamaIndex takes its time."""
    from recollect.integrations.llamaindex import RecollectRetriever

    return RecollectRetriever


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What LlamaIndex's instrumentation tells."""
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
def test_a_node_is_the_result_of_a_search(stocked, retriever_of):
    """Text, id and score in their places, all the rest of the answer's JSON as metadata."""
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
    """Filters, scope and settings of the search mean here what they mean there."""
    assert texts(retriever_of(stocked, tags=["porter"]).retrieve("key")) == [
        "The key to the archive is with the porter."
    ]
    assert len(retriever_of(stocked).retrieve("key")) == 6
    assert len(retriever_of(stocked, user="ada", limit=9).retrieve("key")) == 7


def test_a_query_engine_answers_with_it(stocked, retriever_of):
    """LlamaIndex's engine and its own language model, which says the prompt again: what it was shown can be seen."""
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
def test_what_is_empty_is_not_shown_to_a_model(stocked, retriever_of):
    """A record without title or path has no empty lines above its text."""
    (found,) = retriever_of(stocked, similarity_top_k=1).retrieve("hook 3")
    shown, _, text = found.node.get_content("llm").partition("\n\n")
    assert text == "The key to room 3 hangs on hook 3."
    assert shown.startswith("created_at: ")
    assert shown.count("\n") == 0


def test_instrumentation_and_callbacks_hear_of_it(stocked, retriever_of, events):
    """A retrieval begins and ends for both of LlamaIndex's ways to listen."""
    from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
    from llama_index.core.callbacks.schema import EventPayload

    debug = LlamaDebugHandler(print_trace_on_end=False)
    nodes = retriever_of(stocked, similarity_top_k=2, callback_manager=CallbackManager([debug])).retrieve("key")
    assert [event.class_name() for event in events] == ["RetrievalStartEvent", "RetrievalEndEvent"]
    assert events[1].nodes == nodes
    ((start, end),) = debug.get_event_pairs(CBEventType.RETRIEVE)
    assert start.payload == {EventPayload.QUERY_STR: "key"}
    assert end.payload == {EventPayload.NODES: nodes}


def test_a_query_may_come_as_a_bundle(stocked, retriever_of):
    """As the engine passes it on."""
    from llama_index.core import QueryBundle

    retriever = retriever_of(stocked, similarity_top_k=1)
    assert texts(retriever.retrieve(QueryBundle("archive"))) == texts(retriever.retrieve("archive"))


async def test_other_coroutines_go_on_while_it_searches(waiting, retriever_of):
    """The search is in a thread: what it waits for here is done by another coroutine."""
    memory, told = waiting

    async def tell():
        await asyncio.sleep(0)
        told.set()

    nodes, _ = await asyncio.gather(retriever_of(memory, similarity_top_k=1).aretrieve("key"), tell())
    assert texts(nodes) == ["The key is under the pot."]


def test_a_search_that_fails_fails_with_our_error(stocked, retriever_of):
    """The error comes out as it is."""
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
def test_wrong_options_are_refused_at_the_start(stocked, retriever_of, said, error, words):
    """Not by the first retrieval."""
    with pytest.raises(error, match=words):
        retriever_of(stocked, **said)


def test_a_path_is_opened(stocked, path, retriever_of, monkeypatch, tmp_path):
    """With the settings of any other program here."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    retriever = retriever_of(path)
    assert isinstance(retriever.memory, Memory)
    assert len(retriever.retrieve("key")) == 6
    retriever.memory.close()
