"""A workspace, a chat server of the test's own, and the two brought together."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Settings
from recollect.config.settings import IngestSettings, LlmSettings


def protocol() -> Any:
    """The module in `tests/llm`, which pytest's way of importing does not let us import by name."""
    if "chat_protocol" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "chat_protocol", Path(__file__).parents[1] / "llm" / "protocol.py"
        )
        sys.modules["chat_protocol"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["chat_protocol"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of the test's own."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = protocol().ChatServer()
    yield server
    server.close()


@pytest.fixture
def reply() -> Any:
    """How a test writes one line of the server's script."""
    return protocol().Reply


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder of its own, so that the store beside it is no part of it."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(server: Any) -> Callable[..., Settings]:
    """Settings whose language model is the test's server, and which wait for nothing."""

    def make(*, llm: dict[str, Any] | None = None, **ingest: Any) -> Settings:
        endpoint = {"base_url": server.url, "model": "scripted", "retries": 2, "timeout": 5.0, **(llm or {})}
        return Settings(llm=LlmSettings(**endpoint), ingest=IngestSettings(**ingest))

    return make


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are tested elsewhere."""
    monkeypatch.setattr("recollect.models.endpoint.FIRST_WAIT_S", 0.001)
    monkeypatch.delenv("OPENCLAW_WORKSPACE", raising=False)


@pytest.fixture
def line() -> Callable[..., str]:
    """One line of a model's answer; the span is the text unless it is given."""

    def write(text: str, span: str | None = None, **fields: Any) -> str:
        return json.dumps({"text": text, "span": text if span is None else span, **fields})

    return write
