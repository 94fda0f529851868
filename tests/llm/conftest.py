"""A chat server of the test's own, and no key or address from outside."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def protocol() -> Any:
    """The module beside this one, which pytest's way of importing does not let us import by name."""
    if "chat_protocol" not in sys.modules:
        spec = importlib.util.spec_from_file_location("chat_protocol", Path(__file__).parent / "protocol.py")
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
