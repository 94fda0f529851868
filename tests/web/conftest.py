"""Real server processes, forked from one that imported the package, and a real client; most tests share a server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.forking import recollect_words

from recollect.types import Scope
from recollect.web.access import Caller, Tokens

STARTING_SECONDS = 60


@dataclass
class Home:
    """A home with nothing in it but a store and its tokens, and the commands run there."""

    folder: Path
    started: list[Server] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "memory.db"

    @property
    def tokens(self) -> Path:
        return self.folder / "recollect" / "tokens.json"

    @property
    def environment(self) -> dict[str, str]:
        folders = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "RECOLLECT_MODELS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        return {
            **kept,
            **dict.fromkeys(folders, str(self.folder)),
            "RECOLLECT_OFFLINE": "1",
            "NO_PROXY": "*",
            **self.variables,
        }

    def words(self, *words: object) -> list[str]:
        return recollect_words(*words)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(
            self.words(*words), env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip

    def tries(self, *commands: Sequence[object]) -> tuple[list[int], str]:
        """The exit codes of commands that end by themselves, one after the other, and what they said."""
        ran = [self.run(*command) for command in commands]
        return [one.returncode for one in ran], "".join(one.stderr for one in ran)

    def token(self, name: str, *flags: str) -> str:
        """A token that `recollect token add` made."""
        ran = self.run("token", "add", name, *flags)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def serve(
        self, *flags: object, files: int | None = None, forked: bool = True, bound_seconds: float | None = None
    ) -> Server:
        """A server of this home, ready to answer; with `files`, it may open no more than so many.

        It is forked from a process that has imported it, unless the test is about the process itself. `bound_seconds`
        replaces the time limit of scoped callers, which a busy machine reaches too soon.
        """
        words = ["serve", "--port", "0", "--store", str(self.store), "--embedder", "hashing:64", *map(str, flags)]
        command = self.words(*words) if forked and files is None else [sys.executable, "-m", "recollect", *words]
        if bound_seconds is not None:
            code = "import sys; from recollect.cli import main; from recollect.web import workers\n"
            command = [sys.executable, "-c", f"{code}workers.BOUND_SECONDS = {bound_seconds}; sys.exit(main())", *words]
        if files is not None:
            command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
        process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.started.append(Server(process))
        self.started[-1].wait()
        return self.started[-1]

    def end(self) -> None:
        for server in self.started:
            server.end()


@dataclass
class Server:
    """A running `recollect serve`, and clients of it."""

    process: subprocess.Popen[str]
    errors: list[str] = field(default_factory=list)
    url: str = ""
    _clients: list[httpx2.Client] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def wait(self) -> None:
        """Until it says where it serves; what it says later is gathered too, so that no pipe fills up."""
        ready = threading.Event()

        def read() -> None:
            for line in self.process.stderr:
                self.errors.append(line)
                if line.startswith("serving at "):
                    self.url = line.split()[2].rstrip("/")
                    ready.set()
            ready.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        assert ready.wait(STARTING_SECONDS), "it did not start"
        assert self.url, "".join(self.errors)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """Someone who asks, by a token or by none."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        self._clients.append(
            httpx2.Client(base_url=self.url, headers={**shown, **headers}, timeout=60, trust_env=False)
        )
        return self._clients[-1]

    def raw(self, said: bytes, *, then: bytes = b"", patience: float = 10) -> bytes:
        """What comes back for bytes as they are."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as connection:
            connection.sendall(said)
            if then:
                connection.sendall(then)
            return everything(connection)

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit code; what hangs is killed."""
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join()
        self.process.stderr.close()
        return self.process.wait()


def everything(connection: socket.socket, until: bytes = b"") -> bytes:
    """All that comes until the other end has no more to say (or has said that), or says nothing for a while."""
    said = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while not (until and said.endswith(until)) and (part := connection.recv(65536)):
            said += part
    return said


def homes(folder: Path) -> Iterator[Home]:
    home = Home(folder)
    yield home
    home.end()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home folder for one test."""
    yield from homes(tmp_path)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home folder for all tests that share a server."""
    yield from homes(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def server(shared: Home) -> Server:
    """A server without tokens: every local caller is the owner."""
    return shared.serve()


@pytest.fixture(scope="session")
def api(server: Server) -> httpx2.Client:
    """The owner's client."""
    return server.client()


@dataclass(frozen=True)
class Askers:
    """Clients of one server by their tokens."""

    server: Server
    owner: httpx2.Client
    ada: httpx2.Client
    bob: httpx2.Client
    reader: httpx2.Client
    nobody: httpx2.Client
    bot: httpx2.Client

    def named(self, name: str) -> httpx2.Client:
        return getattr(self, name)


@pytest.fixture(scope="session")
def askers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Askers]:
    """A server with tokens: owner, two users, a reader, a token without scope, an agent of Ada."""
    callers = [
        Caller("owner", owner=True), Caller("ada", Scope("ada")), Caller("bob", Scope("bob")),
        Caller("reader", Scope("ada"), read_only=True), Caller("nobody"), Caller("bot", Scope("ada", "bot")),
    ]  # fmt: skip
    for home in homes(tmp_path_factory.mktemp("askers")):
        tokens = Tokens(home.tokens)
        made = {caller.name: tokens.add(caller) for caller in callers}
        server = home.serve("--folder", home.folder)
        yield Askers(server, **{name: server.client(token) for name, token in made.items()})


@pytest.fixture(scope="session")
def add(api: httpx2.Client) -> Callable[..., dict[str, Any]]:
    """Stores a record as the owner."""

    def store(text: str, **fields: Any) -> dict[str, Any]:
        answer = api.post("/v1/records", json={"text": text, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    return store


def refused(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """That an answer is this error, in the one shape, under its own request id; gives back what it says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "hint", "request_id"}
    assert error["code"] == code
    assert error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    return error


def until(answer: Callable[[], Any], holds: Callable[[Any], bool], patience: float = 20) -> Any:
    """What an answer has become when it holds."""
    deadline = time.monotonic() + patience
    while not holds(found := answer()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def head_and_body(said: bytes) -> tuple[int, dict[str, str], Any]:
    """An HTTP answer taken apart."""
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body) if body.startswith(b"{") else body
