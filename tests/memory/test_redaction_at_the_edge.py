"""Secrets do not leave the machine: to embedding servers, language models and HTTP sources elsewhere; notes stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http import HttpServer, ModelServer, Response

from recollect import Memory
from recollect.config import LlmSettings, OpenAISettings, Settings, SourceSettings
from recollect.redaction import WARNING

TOKEN = "ghp_" + "k3J9x2QvT7mZ4bN8sLw1Rf6Yc5Hd0PgAeUiO"
PLACEHOLDER = "[redacted: GitHub token]"
NOTE = f"The deploy robot uses {TOKEN} for pushes."


def settings(server: ModelServer, host: str, **more: Any) -> Settings:
    """An embedding server and a language model at an address of this machine, or at one that counts as elsewhere."""
    url = f"http://{host}:{server.port}/v1"
    openai, llm = OpenAISettings(base_url=url, retries=0), LlmSettings(base_url=url, model="m", retries=0)
    return Settings(embedder="openai:m", openai=openai, llm=llm, **more)


def sent(server: ModelServer) -> str:
    return json.dumps([request.body for request in server.asked])


@pytest.fixture
def opened(server: ModelServer, open_memory: Callable[..., Memory]) -> Callable[..., Memory]:
    """Opens a memory whose models are at a host."""
    return lambda host, **more: open_memory(embedder="openai:m", settings=settings(server, host, **more))


def test_embedding_server_elsewhere_gets_a_placeholder(opened, server: ModelServer) -> None:
    """The note is stored as it is, and found by its own words."""
    memory = opened("0.0.0.0")
    record = memory.add(NOTE)
    assert record.text == NOTE
    assert TOKEN not in sent(server)
    assert PLACEHOLDER in sent(server)
    assert memory.search(TOKEN).results[0].record.text == NOTE
    assert TOKEN not in sent(server)


def test_embedding_server_on_this_machine_gets_the_text(opened, server: ModelServer) -> None:
    """Nothing leaves the machine."""
    opened("127.0.0.1").add(NOTE)
    assert TOKEN in sent(server)


def test_index_counts_what_was_not_sent(opened, server: ModelServer, tmp_path: Path) -> None:
    """In its report; on this machine there is nothing to count."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text(f"# Robot\n\n{NOTE}\n")
    (folder / "b.md").write_text("# Tea\n\nAda drinks tea.\n")
    assert opened("0.0.0.0").index(folder).redacted == 1
    assert TOKEN not in sent(server)
    (folder / "a.md").write_text(f"# Robot\n\nNow {NOTE}\n")
    assert opened("127.0.0.1").index(folder).redacted == 0
    assert TOKEN in sent(server)


def test_search_warns_once(opened, server: ModelServer) -> None:
    """Though the embedding server and the language model are both elsewhere."""
    memory = opened("0.0.0.0")
    memory.add("The tram leaves at nine.")
    server.answer = lambda _: "It leaves at nine."
    trace = memory.search(f"who uses {TOKEN}?", hyde=True).trace
    assert trace.warnings.count(WARNING) == 1
    assert TOKEN not in sent(server)
    assert WARNING not in memory.search("who uses it?").trace.warnings


@pytest.fixture
def library() -> Iterator[HttpServer]:
    server = HttpServer(lambda _: Response(content=b'{"results": [{"id": "1", "text": "A book."}]}'))
    yield server
    server.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_source_elsewhere_gets_a_placeholder(open_memory, library: HttpServer, host: str) -> None:
    """In the address and in the body; on this machine it gets the query."""
    options = {"url": f"http://{host}:{library.port}/?q={{query}}", "body": {"q": "{query}"}, "method": "POST"}
    mapping = {"results": "results", "fields": {"id": "id", "text": "text"}}
    source = SourceSettings("library", "http", options=options, **mapping)
    memory = open_memory(embedder="none", settings=Settings(sources=(source,)))
    memory.add("The tram leaves at nine.")
    answer = memory.search(f"who uses {TOKEN}?")
    request = library.asked[0]
    elsewhere = host == "0.0.0.0"
    assert (TOKEN in request.path + json.dumps(request.body)) is not elsewhere
    assert (PLACEHOLDER in json.dumps(request.body)) is elsewhere
    assert (WARNING in answer.trace.warnings) is elsewhere


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_facts_hold_no_secret(opened, server: ModelServer, tmp_path: Path, host: str) -> None:
    """Neither the language model, wherever it is, nor a fact gets it; the lines of a fact are still right."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.md").write_text(f"# Robot\n\n{NOTE}\n\nThe robot is called Bernard.\n")
    server.answer = lambda _: "\n".join(
        json.dumps(fact)
        for fact in (
            {"text": "The robot is called Bernard.", "span": "The robot is called Bernard."},
            {"text": f"The robot uses {TOKEN}.", "span": "The deploy robot uses"},
        )
    )
    memory = opened(host)
    report = memory.ingest_files(tmp_path / "work", paths=["*.md"])
    assert report.redacted == 1
    assert TOKEN not in "".join(request.prompt for request in server.asked if "messages" in request.body)
    facts = {record.text: record.lines for record in memory.list()}
    assert facts == {"The robot is called Bernard.": (5, 5), f"The robot uses {PLACEHOLDER}.": (3, 3)}


def test_ingest_files_leaves_out_files_that_may_hold_secrets(opened, server: ModelServer, tmp_path: Path) -> None:
    """Unless a pattern names them."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "prod.env").write_text("COLOUR=walrus\n")
    memory = opened("127.0.0.1")
    report = memory.ingest_files(tmp_path / "work", paths=["**/*"], mode="dry-run")
    assert list(report.skipped.values()) == ["may hold secrets"]
    assert len(memory.ingest_files(tmp_path / "work", paths=["*.env"], mode="dry-run").pieces) == 1
