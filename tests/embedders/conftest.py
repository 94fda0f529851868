"""The default model, and a server on this machine that answers as it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recollect.models.catalogue import ARCTIC_EMBED_S
from recollect.models.fetch import fetch
from recollect.models.hashing import HashingEmbedder
from recollect.models.onnx import OnnxEmbedder

DIMENSION = 16


@dataclass
class Reply:
    """What the server does with one request; without a body it embeds, as OpenAI's would."""

    status: int = 200
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    reverse: bool = False
    dimension: int = DIMENSION
    hang_up: bool = False


@dataclass
class Asked:
    """What one request was."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float


class Server:
    """An OpenAI-compatible server: the scripted replies first, then good ones."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.asked: list[Asked] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What to give as base_url."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, asked: Asked) -> tuple[Reply, bytes]:
        """The next reply of the script, or a good one, and its body."""
        self.asked.append(asked)
        reply = self.script.pop(0) if self.script else Reply()
        time.sleep(reply.delay_s)
        if reply.body is not None:
            return reply, reply.body.encode()
        rows = HashingEmbedder(asked.body.get("dimensions", reply.dimension)).passages(asked.body["input"])
        data = [{"index": number, "embedding": (3 * row).tolist()} for number, row in enumerate(rows)]
        return reply, json.dumps({"data": data[::-1] if reply.reverse else data}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply, answer = server.answer(Asked(self.path, headers, body, time.monotonic()))
                if reply.hang_up:
                    self.close_connection = True
                    return
                try:
                    self._send(reply, answer)
                except OSError:  # the client has stopped waiting
                    self.close_connection = True

            def _send(self, reply: Reply, answer: bytes) -> None:
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler


@pytest.fixture(scope="session")
def arctic_folder() -> Path:
    """The default model's folder in the user's cache, fetched there once if it is not there yet."""
    return fetch(ARCTIC_EMBED_S.name, announce=lambda _: None)


@pytest.fixture(scope="session")
def arctic(arctic_folder: Path) -> OnnxEmbedder:
    """The default embedder, loaded once for all tests."""
    return OnnxEmbedder(ARCTIC_EMBED_S)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the test's own."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.close()


@pytest.fixture
def reply() -> type[Reply]:
    """How a test writes one line of the server's script."""
    return Reply
