"""A workspace, and settings whose language model is the test's server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Settings
from recollect.config.settings import IngestSettings, LlmSettings


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A separate folder, so that the store beside it is not part of it."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(server: Any) -> Callable[..., Settings]:
    """Settings whose language model is the test's server, without waits."""

    def make(*, llm: dict[str, Any] | None = None, **ingest: Any) -> Settings:
        endpoint = {"base_url": server.url, "model": "scripted", "retries": 2, "timeout": 5.0, **(llm or {})}
        return Settings(llm=LlmSettings(**endpoint), ingest=IngestSettings(**ingest))

    return make


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits between retries, which have their own tests."""
    monkeypatch.setattr("recollect.models.openai.FIRST_WAIT_S", 0.001)
    monkeypatch.delenv("OPENCLAW_WORKSPACE", raising=False)


@pytest.fixture
def line() -> Callable[..., str]:
    """One line of a model's answer; the span is the text unless given."""

    def write(text: str, span: str | None = None, **fields: Any) -> str:
        return json.dumps({"text": text, "span": text if span is None else span, **fields})

    return write
