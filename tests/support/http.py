"""HTTP servers on this machine: one of any behaviour, one that speaks OpenAI's protocol, and a hub of model files."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from recollect.models.catalogue import MODELS
from recollect.models.hashing import HashingEmbedder

ARCTIC_EMBED_S = MODELS["arctic-embed-s"]

DIMENSION = 16
PIECE = 1 << 16


@dataclass
class Request:
    """One request: its path, its headers in lower case, its JSON body if it has one, and when it came."""

    path: str
    headers: dict[str, str]
    body: Any
    at: float

    @property
    def prompt(self) -> str:
        """The text of the user in a chat."""
        return self.body["messages"][-1]["content"]


@dataclass
class Response:
    """What a server sends; `pieces` are sent one by one in place of `content`, which then only gives the length."""

    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] | None = None


class HttpServer:
    """Answers every request by `respond`, in threads of its own; None closes the connection without an answer."""

    def __init__(self, respond: Callable[[Request], Response | None]) -> None:
        self.asked: list[Request] = []
        self.respond = respond
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.server_port

    @property
    def url(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are kept, as real servers do: one that leaks fails a test

            def do_GET(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, json.loads(content) if content else None, time.monotonic())
                server.asked.append(request)
                response = server.respond(request)
                try:
                    if response:
                        self._send(response)
                except OSError:  # the client has stopped waiting
                    response = None
                self.close_connection = self.close_connection or response is None

            def do_POST(self) -> None:
                self.do_GET()

            def _send(self, response: Response) -> None:
                self.send_response(response.status)
                for name, value in {**response.headers, "Content-Length": str(len(response.content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                sent = 0
                for piece in (response.content,) if response.pieces is None else response.pieces:
                    self.wfile.write(piece)
                    sent += len(piece)
                self.close_connection = sent < len(response.content)

            def log_message(self, *_: object) -> None:
                """Write nothing to standard error."""

        return Handler


@dataclass
class Reply:
    """How a model server answers one request: `body` as it stands, else `text` in a chat, else vectors."""

    text: Any = ""
    status: int = 200
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    finish: str = "stop"
    hang_up: bool = False
    reverse: bool = False
    dimension: int = DIMENSION

    def content(self, request: Request) -> bytes:
        if self.body is not None:
            return self.body.encode()
        answer = self._vectors(request) if request.path.endswith("/embeddings") else self._completion()
        return json.dumps(answer).encode()

    def _vectors(self, request: Request) -> dict[str, Any]:
        rows = HashingEmbedder(request.body.get("dimensions", self.dimension)).passages(request.body["input"])
        data = [{"index": number, "embedding": (3 * row).tolist()} for number, row in enumerate(rows)]
        return {"data": data[::-1] if self.reverse else data}

    def _completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {"object": "chat.completion", "choices": [choice]}


class ModelServer(HttpServer):
    """An OpenAI-compatible server of embeddings and chats: the replies of `script` first, in order, then good ones.

    In a chat those are `answer(prompt)`, which is empty unless a test sets it.
    """

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.answer: Callable[[str], str | Reply] = lambda _: ""
        super().__init__(self._respond)

    @property
    def url(self) -> str:
        """The address for `base_url`."""
        return f"{super().url}/v1"

    def _respond(self, request: Request) -> Response | None:
        reply = self.script.pop(0) if self.script else self._good(request)
        time.sleep(reply.delay_s)
        return None if reply.hang_up else Response(reply.status, reply.content(request), reply.headers)

    def _good(self, request: Request) -> Reply:
        if request.path.endswith("/embeddings"):
            return Reply()
        answer = self.answer(request.prompt)
        return answer if isinstance(answer, Reply) else Reply(answer)


class Hub(HttpServer):
    """A model hub: the files it serves by path, how it misbehaves, and how many bytes it sent."""

    @classmethod
    def of_arctic(cls, folder: Path) -> Self:
        """A hub with the files of arctic-embed-s, taken from `folder`, with the line ends that the real hub has."""
        root = f"/{ARCTIC_EMBED_S.repository}/resolve/{ARCTIC_EMBED_S.revision}"
        tokenizer = (folder / "tokenizer.json").read_bytes().replace(b"\r\n", b"\n")
        model = (folder / "model.onnx").read_bytes()
        return cls({f"{root}/onnx/model_int8.onnx": model, f"{root}/tokenizer.json": tokenizer})

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.cut_after: int | None = None
        self.pause_s = 0.0
        self.sent = 0
        super().__init__(self._respond)

    def _respond(self, request: Request) -> Response:
        content = self.files.get(request.path)
        return Response(404) if content is None else Response(content=content, pieces=self._pieces(content))

    def _pieces(self, content: bytes) -> Iterator[bytes]:
        limit = len(content) if self.cut_after is None else self.cut_after
        for start in range(0, limit, PIECE):
            yield content[start : min(start + PIECE, limit)]
            self.sent += min(PIECE, limit - start)
            time.sleep(self.pause_s)
