"""Fixtures for external sources: queries, checks for leftover processes and files, and servers that misbehave."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.timing import within

from recollect.config import SourceSettings
from recollect.errors import TimedOut
from recollect.types import ExternalQuery, Scope

SLACK_S = 0.25
"""An answer is due within 100 ms of its deadline; a busy machine gets a little more."""

TRIES = 3
"""A machine that stands still for a moment does not do so three times."""


@pytest.fixture
def ask() -> Callable[..., Any]:
    """Sends a query to a system, with enough time unless a test sets a deadline."""

    def run(system: Any, text: str = "q", *, seconds: float = 30.0, fetch_k: int = 20, **scope: str) -> Any:
        return system.ask(ExternalQuery(text, fetch_k, Scope(**scope), time.monotonic() + seconds))

    return run


@pytest.fixture
def settings() -> Callable[..., SourceSettings]:
    """Settings of one source by its options."""

    def make(kind: str, **options: Any) -> SourceSettings:
        return SourceSettings("wiki", kind, options=options)

    return make


@dataclass(frozen=True)
class Held:
    """What this process holds: open files, children (dead ones too), threads."""

    files: int
    children: tuple[int, ...]
    threads: int


def held() -> Held:
    """What this process holds now."""
    gc.collect()
    me = os.getpid()
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == me:
                children.append(int(stat.parent.name))
    return Held(len(os.listdir("/proc/self/fd")), tuple(sorted(children)), threading.active_count())  # noqa: PTH208


@pytest.fixture
def nothing_left() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Checks that after the block the process has no more children, files and threads than before."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("only Linux's /proc tells which processes and files are left open")

    @contextlib.contextmanager
    def check() -> Iterator[None]:
        before = held()
        yield
        assert _eventually(lambda: held() == before), f"{before} became {held()}"

    return check


@pytest.fixture
def cut_in_time(nothing_left: Any) -> Callable[[Callable[[], Any], float], None]:
    """Checks that a query ends at its deadline, not before and not much after, and leaves nothing behind."""

    def check(run: Callable[[], Any], seconds: float) -> None:
        took: list[float] = []
        with nothing_left():
            while not took or (not within(took[-1], seconds + SLACK_S) and len(took) < TRIES):
                began = time.monotonic()
                with pytest.raises(TimedOut, match=r"in time|its own timeout"):
                    run()
                took.append(time.monotonic() - began)
        assert min(took) > seconds - 0.001
        assert within(min(took), seconds + SLACK_S)

    return check


@pytest.fixture
def gone() -> Callable[[str], bool]:
    """Whether no process of any parent has the marker among its arguments."""

    def check(marker: str) -> bool:
        return _eventually(lambda: not any(marker in line for line in _command_lines()))

    return check


def _command_lines() -> Iterator[str]:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield place.read_bytes().decode("utf-8", "replace")


def _eventually(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    """A killed process, or the thread of a test's server, needs a moment."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@dataclass
class Wire:
    """A server that does with each connection what a test says, byte by byte."""

    behave: Callable[[socket.socket, threading.Event], None]
    reads: bool = True
    requests: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.address}"

    def close(self) -> None:
        """Stop, with all that is under way."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            if self.reads:
                self.requests.append(_request(connection))
            self.behave(connection, self._closing)


def _request(connection: socket.socket) -> bytes:
    """Head and body of one request."""
    read = b""
    while b"\r\n\r\n" not in read:
        piece = connection.recv(65536)
        if not piece:
            return read
        read += piece
    head, _, body = read.partition(b"\r\n\r\n")
    sizes = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < sum(sizes) and (piece := connection.recv(65536)):
        body += piece
    return head + b"\r\n\r\n" + body


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Wire]]:
    """Starts servers with the given behaviour, without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    wires: list[Wire] = []

    def start(behave: Callable[[socket.socket, threading.Event], None], *, reads: bool = True) -> Wire:
        wires.append(Wire(behave, reads))
        return wires[-1]

    yield start
    for one in wires:
        one.close()
