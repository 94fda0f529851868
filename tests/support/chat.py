"""A server on this machine that speaks OpenAI's chat protocol, and says what it is told to say."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What the server does with one request: says `text` as a model would, or sends `body` as it stands."""

    text: Any = ""
    status: int = 200
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    finish: str = "stop"
    hang_up: bool = False

    def content(self) -> bytes:
        if self.body is not None:
            return self.body.encode()
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


@dataclass
class Asked:
    """What one request was."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float

    @property
    def prompt(self) -> str:
        """What the user said."""
        return self.body["messages"][-1]["content"]


class ChatServer:
    """Scripted replies first, in order; after them `answer(prompt)`, which says nothing unless a test sets it."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.asked: list[Asked] = []
        self.answer: Callable[[str], str | Reply] = lambda _: ""
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

    def _reply(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if self.script:
            return self.script.pop(0)
        said = self.answer(asked.prompt)
        return said if isinstance(said, Reply) else Reply(said)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are kept, as real servers do: one that leaks fails a test

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply = server._reply(Asked(self.path, headers, body, time.monotonic()))
                time.sleep(reply.delay_s)
                if reply.hang_up:
                    self.close_connection = True
                    return
                try:
                    self._send(reply)
                except OSError:  # the client has stopped waiting
                    self.close_connection = True

            def _send(self, reply: Reply) -> None:
                content = reply.content()
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler
