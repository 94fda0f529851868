"""The retriever for LangChain: LangChain's own standard tests, and additional ones."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_tests.integration_tests.retrievers import RetrieversIntegrationTests

from recollect import Memory, Scope
from recollect.errors import ConfigError, StoreError, UsageError
from recollect.integrations.langchain import RecollectRetriever
from recollect.memory.shapes import answer_dict
from recollect.types import Filter


class TestStandard(RetrieversIntegrationTests):
    """What LangChain asks of every retriever."""

    @pytest.fixture(autouse=True)
    def _memory(self, stocked):
        self.memory = stocked

    @property
    def retriever_constructor(self):
        return RecollectRetriever

    @property
    def retriever_constructor_params(self):
        return {"memory": self.memory}

    @property
    def retriever_query_example(self):
        return "where is the key?"


class Told(BaseCallbackHandler):
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def on_retriever_start(self, serialized: Any, query: str, **more: Any) -> None:
        self.events.append(("start", query))

    def on_retriever_end(self, documents: Any, **more: Any) -> None:
        self.events.append(("end", documents))

    def on_retriever_error(self, error: BaseException, **more: Any) -> None:
        self.events.append(("error", error))


def texts(documents):
    return [document.page_content for document in documents]


def test_document_is_a_search_result(stocked):
    """Text and id in their fields, the rest of the JSON as metadata."""
    (document,) = RecollectRetriever(stocked, k=1).invoke("archive porter")
    (result,) = answer_dict(stocked.search("archive porter", limit=1))["results"]
    assert document.page_content == result.pop("text")
    assert document.id == result["id"]
    assert document.metadata == result
    assert document.metadata["lines"] == [3, 4]
    assert document.metadata["sources"]["keyword"]["rank"] == 1


def test_model_gets_records_of_trusted_origins(stocked):
    """Text of a web page is retrieved only if the options ask for its origin."""
    stocked.add("The key to the archive is on the internet.", origin="web")
    assert not any("internet" in text for text in texts(RecollectRetriever(stocked).invoke("key archive")))
    assert any("internet" in text for text in texts(RecollectRetriever(stocked, origin="any").invoke("key archive")))
    for origins, given in (((), False), (("web",), True)):
        retriever = RecollectRetriever(stocked, where=Filter(origins=origins))
        assert any("internet" in text for text in texts(retriever.invoke("key archive"))) is given


def test_options_are_those_of_search(stocked):
    """Filters, scope and search settings."""
    assert texts(RecollectRetriever(stocked, category="house").invoke("key")) == [
        "The key to the archive is with the porter."
    ]
    assert len(RecollectRetriever(stocked).invoke("key")) == 6
    assert len(RecollectRetriever(stocked, user="ada").invoke("key")) == 7
    assert len(RecollectRetriever(stocked, scope=Scope(user="ada"), limit=2).invoke("key")) == 2
    (document,) = RecollectRetriever(stocked, k=1, fusion="rrf", sources=["keyword"], decay=False).invoke("archive")
    assert document.metadata["fused"] == pytest.approx(1 / 61)


def test_call_overrides_the_options(stocked):
    """For that call only, also under the project's own name."""
    retriever = RecollectRetriever(stocked, k=4, user="ada")
    assert len(retriever.invoke("key", k=1)) == len(retriever.invoke("key", limit=1)) == 1
    assert len(retriever.invoke("key", verbose=True)) == 4
    assert len(retriever.bind(k=2).invoke("key")) == 2
    assert texts(retriever.invoke("key", tags=["porter"])) == ["The key to the archive is with the porter."]
    assert [len(found) for found in retriever.batch(["key", "porter key"], k=3)] == [3, 3]


def test_tags_are_langchains_and_record_tags_are_an_option(stocked):
    """`tags` of a retriever mark its runs; those of records are a filter."""
    retriever = RecollectRetriever(stocked, tags=["run"], metadata={"team": "house"}, options={"tags": ["porter"]})
    assert (retriever.tags, retriever.metadata) == (["run"], {"team": "house"})
    assert len(retriever.invoke("key")) == 1


def test_fields_can_be_configured_at_run_time(stocked):
    """LangChain rebuilds the retriever from its fields."""
    fields = {"k": ConfigurableField(id="many"), "options": ConfigurableField(id="how")}
    retriever = RecollectRetriever(stocked, k=2, user="ada").configurable_fields(**fields)
    assert len(retriever.invoke("key")) == 2
    configured = retriever.with_config(configurable={"many": 5, "how": {"tags": ["porter"]}})
    assert len(configured.invoke("key")) == 1


def test_retriever_works_in_a_chain_with_callbacks(stocked):
    """Its run starts and ends with the query and the documents."""
    told = Told()
    chain = RecollectRetriever(stocked, k=2) | RunnableLambda(len)
    assert chain.invoke("key", config={"callbacks": [told]}) == 2
    (start, query), (end, documents) = told.events
    assert (start, query, end, len(documents)) == ("start", "key", "end", 2)


async def test_other_coroutines_run_during_a_search(waiting):
    """The search is in a thread: another coroutine does what it waits for."""
    memory, told = waiting

    async def tell():
        await asyncio.sleep(0)
        told.set()

    documents, _ = await asyncio.gather(RecollectRetriever(memory).ainvoke("key", k=1), tell())
    assert texts(documents) == ["The key is under the pot."]


def test_failing_search_raises_our_error(stocked):
    """Unchanged, and callbacks get it."""
    told, retriever = Told(), RecollectRetriever(stocked)
    stocked.close()
    with pytest.raises(StoreError, match="has been closed") as raised:
        retriever.invoke("key", config={"callbacks": [told]})
    assert told.events[-1] == ("error", raised.value)


def test_search_warnings_are_logged(stocked, open_memory, caplog):
    """For example a source that is left out."""
    with caplog.at_level(logging.WARNING, "recollect"):
        assert RecollectRetriever(open_memory(embedder="none"), k=1).invoke("key")
    assert "vector was left out: no embedder is configured" in caplog.messages


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ({"colour": "blue"}, ConfigError, "colour"),
        ({"fusion": "best"}, ConfigError, "fusion"),
        ({"k": 0}, ConfigError, "limit"),
        ({"k": "three"}, ConfigError, "limit"),
        ({"k": 3, "limit": 4}, UsageError, "two names"),
        ({"sources": ["web"]}, UsageError, "unknown source"),
        ({"options": {"user": ""}}, UsageError, "user"),
        ({"since": "soon"}, UsageError, "not a time"),
    ],
)
def test_wrong_options_are_refused_at_construction(stocked, said, error, words):
    """Not by the first search, and not as a pydantic error."""
    with pytest.raises(error, match=words):
        RecollectRetriever(stocked, **said)
    retriever = RecollectRetriever(stocked)
    with pytest.raises(error, match=words):
        retriever.invoke("key", **{**said.get("options", {}), **{k: v for k, v in said.items() if k != "options"}})


def test_path_is_closed_again_if_the_options_are_wrong(stocked, path, monkeypatch, tmp_path):
    """The usual settings apply; nothing stays open."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    closed = []
    monkeypatch.setattr(Memory, "close", lambda memory, close=Memory.close: (closed.append(memory), close(memory)))
    with pytest.raises(ConfigError):
        RecollectRetriever(path, colour="blue")
    assert len(closed) == 1
    retriever = RecollectRetriever(str(path), k=2)
    assert len(retriever.invoke("key")) == 2
    retriever.memory.close()


@pytest.mark.parametrize("memory", [None, 3, {"path": "notes.db"}])
def test_invalid_memory_is_refused(memory):
    """By its type."""
    with pytest.raises(UsageError, match=f"not {type(memory).__name__}"):
        RecollectRetriever(memory)


def test_retriever_is_not_serializable(stocked):
    """LangChain's serialisation reports it."""
    assert '"not_implemented"' in dumps(RecollectRetriever(stocked))
