"""Slow clients and many connections: neither blocks other clients, and neither fills the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.exceptions import HTTPException
from support.timing import within

from recollect.web import middleware
from recollect.web.middleware import HEAD_SECONDS, AcceptFilter, most_connections

from .conftest import everything

HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: local"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(server, said=b""):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=HEAD_SECONDS + 20)
    connection.sendall(said)
    return connection


def closed(connection):
    """Seconds until the other end has closed the connection."""
    start = time.monotonic()
    with connection:
        everything(connection)
    return time.monotonic() - start


@pytest.mark.ci
def test_incomplete_head_is_cut_off_after_a_timeout(server, api):
    """Nothing, half a head, or half of a second head is cut off; waiting for changes is not."""
    waiting = []
    seq = api.get("/v1/changes?wait=0").json()["seq"]
    poll = threading.Thread(
        target=lambda: waiting.append(server.client().get(f"/v1/changes?after={seq}&wait={HEAD_SECONDS + 3:g}"))
    )
    poll.start()
    second = connect(server, WHOLE)
    assert second.recv(65536).startswith(b"HTTP/1.1 200")
    second.sendall(HALF_HEAD)
    trickling = connect(server, b"G")
    stop = threading.Event()
    trickle = threading.Thread(target=drip, args=(trickling, stop))
    trickle.start()
    connections = [connect(server), connect(server, HALF_HEAD), second, trickling]
    took = [closed(connection) for connection in connections]
    stop.set()
    trickle.join()
    poll.join()
    assert within(max(took), HEAD_SECONDS + 10)
    assert waiting[0].status_code == 200


def drip(connection, stop):
    """Send a head byte by byte, and never its end."""
    while not stop.wait(0.5):
        with contextlib.suppress(OSError):
            connection.sendall(b"x")


def test_incomplete_body_is_cut_off_after_a_timeout(monkeypatch):
    """408 after the timeout; a complete body has no limit."""
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)

    async def slow():
        await asyncio.sleep(0.3)
        return {"type": "http.disconnect"}

    async def receive():
        with pytest.raises(HTTPException) as late:
            await middleware._limited(slow)()
        messages = iter([{"type": "http.request", "body": b"{}", "more_body": False}])

        async def whole():
            return next(messages, None) or await slow()

        received = middleware._limited(whole)
        return late.value, [await received(), await received()]

    with ThreadPoolExecutor(1) as pool:  # a browser test leaves an event loop running in this thread
        error, messages = pool.submit(asyncio.run, receive()).result()
    assert (error.status_code, error.headers) == (408, {"Connection": "close"})
    assert [message["type"] for message in messages] == ["http.request", "http.disconnect"]


@pytest.mark.ci
def test_more_connections_than_files_block_no_client(home):
    """The oldest idle connections are closed for new ones, and the log has one line about it."""
    server = home.serve(files=256)
    connections = [connect(server, HALF_HEAD) for _ in range(700)]
    answers = []
    for _ in range(20):
        with contextlib.closing(connect(server, WHOLE)) as honest:
            answers.append(honest.recv(65536)[:12])
        connections.append(connect(server, HALF_HEAD))
    for connection in connections:
        connection.close()
    assert answers == [b"HTTP/1.1 200"] * 20
    with server.client() as client:
        assert client.post("/v1/records", json={"text": "The spare key is under the pot."}).status_code == 201
    assert server.end() == 0
    assert "Traceback" not in "".join(server.errors)
    assert len(server.errors) == 2, server.errors
    assert "more than 128 connections" in server.errors[1]


@pytest.mark.ci
def test_running_request_is_not_cut_off(home):
    """If every connection has a running request, the new one is closed."""
    server = home.serve(files=128)
    with server.client() as client:
        seq = client.get("/v1/changes?wait=0").json()["seq"]
    poll = f"GET /v1/changes?after={seq}&wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    polls = [connect(server, poll) for _ in range(64)]
    time.sleep(1)
    assert closed(connect(server, WHOLE)) < 5
    polls.pop().close()
    with server.client() as client:
        assert client.post("/v1/records", json={"text": "Something new."}).status_code == 201
    assert all(connection.recv(65536).startswith(b"HTTP/1.1 200") for connection in polls)
    for connection in polls:
        connection.close()


def test_connections_leave_file_descriptors_for_the_store():
    """At most half of what the process may open."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert most_connections() <= 1_000
    assert soft == resource.RLIM_INFINITY or most_connections() <= soft / 2


def test_lack_of_file_descriptors_is_logged_once_a_minute():
    """Otherwise asyncio logs a traceback for each connection that it cannot accept."""
    kept = AcceptFilter()
    lines = [
        logging.LogRecord("asyncio", logging.ERROR, "", 0, "socket.accept() out of system resource\nmore", (), True)
        for _ in range(1_000)
    ]
    assert [kept.filter(line) for line in lines].count(True) == 1
    assert lines[0].exc_info is None
    assert kept.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, "something else", (), None))


def test_answer_is_sent_at_once_on_a_reused_connection(server):
    """Its second part does not wait for the client's acknowledgement of the first."""
    with contextlib.closing(connect(server)) as connection:
        took = []
        for _ in range(30):
            start = time.monotonic()
            connection.sendall(WHOLE)
            said = b""
            while not said.endswith(b"}"):
                said += connection.recv(65536)
            took.append(time.monotonic() - start)
    assert within(min(took[5:]), 0.03)
