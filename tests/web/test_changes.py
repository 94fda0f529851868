"""Waiting for changes over HTTP: who is notified, when, how many may wait, and that waiting blocks no other request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import httpx2
import psycopg
import pytest
from support.timing import within

from recollect import Memory
from recollect.config import Settings
from recollect.web.operations import MOST_WAITING, Waiting

from .conftest import Home, Server, everything, head_and_body, refused, until

AWAITED = 30
Waits = Callable[..., "Future[tuple[dict[str, object], float]]"]


@pytest.fixture(scope="module")
def waits() -> Iterator[Waits]:
    """Waits in a separate thread; returns the answer and the time it took."""
    with ThreadPoolExecutor(8) as threads:

        def wait(client: httpx2.Client, after: int, seconds: float = AWAITED) -> tuple[dict[str, object], float]:
            start = time.monotonic()
            answer = client.get("/v1/changes", params={"after": after, "wait": seconds})
            assert answer.status_code == 200, answer.text
            return answer.json(), time.monotonic() - start

        yield lambda *said: threads.submit(wait, *said)


def newest(client: httpx2.Client) -> int:
    """Where things stand for who asks."""
    answer = client.get("/v1/changes").json()
    assert answer["changed"] is False
    return int(answer["seq"])


def test_waiter_is_notified_of_another_processs_change(server: Server, shared: Home, api, add, waits: Waits) -> None:
    """Soon after the change, with its sequence number."""
    add("There is something already.")
    before = newest(api)
    waiting = waits(server.client(), before)
    time.sleep(0.3)
    assert not waiting.done()
    with Memory.open(shared.store, embedder="none", settings=Settings()) as memory:
        record = memory.add("Told by another process.")
        (event,) = memory.history(record.id)
    told, took = waiting.result(AWAITED)
    assert told == {"seq": event.seq, "changed": True}
    assert within(took, 5)
    assert newest(api) == event.seq


def test_wait_ends_at_its_timeout(api, add, waits: Waits) -> None:
    """The answer is "nothing changed"; a change before the request is answered at once."""
    change = add("Something to begin with.")["change"]
    told, took = waits(api, change["seq"], 0.4).result(AWAITED)
    assert told == {"seq": change["seq"], "changed": False}
    assert took > 0.35
    assert within(took, 3)
    for other in (0, change["seq"] - 1, change["seq"] + 1_000):
        told, took = waits(api, other).result(AWAITED)
        assert told == {"seq": change["seq"], "changed": True}
        assert within(took, 3)


def test_waiters_are_notified_only_of_visible_changes(askers, waits: Waits) -> None:
    """Bob's changes wake Bob and the owner; Ada's number moves only with her or global records."""
    stand, bobs = newest(askers.ada), newest(askers.bob)
    ada, bob = waits(askers.ada, stand), waits(askers.bob, bobs)
    owner = waits(askers.owner, newest(askers.owner))
    time.sleep(0.3)
    key = askers.bob.post("/v1/records", json={"text": "Bob's badger."}).json()["id"]
    assert bob.result(AWAITED)[0] == {"seq": bobs + 1, "changed": True}
    theirs = askers.owner.get(f"/v1/history/{key}").json()["events"][-1]["seq"]
    assert owner.result(AWAITED)[0] == {"seq": theirs, "changed": True}
    assert newest(askers.ada) == stand
    assert not ada.done()
    askers.owner.post("/v1/records", json={"text": "Everybody's badger."})
    assert ada.result(AWAITED)[0] == {"seq": stand + 1, "changed": True}


def test_waiting_requires_a_token_and_valid_input(askers, api) -> None:
    """No token is 401; invalid parameters are refused."""
    refused(askers.server.client().get("/v1/changes"), 401, "unauthorized")
    for said in ({"after": -1}, {"after": "x"}, {"wait": 56}, {"wait": -1}, {"wait": "nan"}):
        refused(api.get("/v1/changes", params=said), 422, "invalid")


def asking(server: Server, after: int, token: str = "") -> socket.socket:
    """A connection that has asked to wait."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    line = f"GET /v1/changes?after={after}&wait=50 HTTP/1.1\r\nHost: localhost\r\n{shown}Connection: close\r\n\r\n"
    connection.sendall(line.encode())
    return connection


def test_waiters_are_limited_and_block_no_other_request(server: Server, api, add) -> None:
    """More waiters than threads: others are answered; one too many is refused until one leaves."""
    after = add("All wait for the next.")["change"]["seq"]
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(asking(server, after)) for _ in range(MOST_WAITING + 2)]
        refusals = until(lambda: select.select(waiting, [], [], 0.1)[0], lambda ready: len(ready) == 2)
        for connection in refusals:
            waiting.remove(connection)
            status, headers, body = head_and_body(everything(connection))
            assert (status, body["error"]["code"], headers["retry-after"]) == (503, "crowded", "1")
        refused(api.get("/v1/changes", params={"after": after}), 503, "crowded")
        assert newest(api) == after
        start = time.monotonic()
        assert api.get("/v1/status").status_code == 200
        assert api.post("/v1/search", json={"query": "next"}).status_code == 200
        assert within(time.monotonic() - start, 3)
        waiting.pop().close()
        briefly = {"after": after, "wait": 0.01}
        until(lambda: api.get("/v1/changes", params=briefly).status_code, lambda status: status == 200)
        seq = add("This is the next.")["change"]["seq"]
        answers = [head_and_body(everything(connection))[2] for connection in waiting]
    assert answers == [{"seq": seq, "changed": True}] * (MOST_WAITING - 1)


@pytest.mark.ci
def test_waiting_does_not_count_as_request_time(api, add) -> None:
    """Neither among requests nor among searches."""
    after = add("Nothing comes after this.")["change"]["seq"]

    def figures(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", api.get("/metrics").text, flags=re.MULTILINE)
        return float(found[1]) if found else 0.0

    seconds, count = (f'recollect_request_seconds_{what}{{route="/v1/changes"}}' for what in ("sum", "count"))
    searches = api.get("/v1/status").json()["latency"]["search"]["count"]
    before, asked = figures(seconds), figures(count)
    api.get("/v1/changes", params={"after": after, "wait": 5})
    assert figures(count) == asked + 1
    assert figures(seconds) - before < 5
    assert api.get("/v1/status").json()["latency"]["search"]["count"] == searches


def test_sigterm_answers_all_waiters_and_exits(home: Home) -> None:
    """Their answer says that the server ends; exit code 0 and nothing on standard error."""
    server = home.serve()
    client = server.client()
    after = newest(client)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(asking(server, after)) for _ in range(3)]
        time.sleep(0.5)
        start = time.monotonic()
        assert server.end() == 0
        took = time.monotonic() - start
        answers = [head_and_body(everything(connection)) for connection in waiting]
    assert within(took, 4.5)  # a request under way would have five seconds
    assert [(status, body["error"]["message"]) for status, _, body in answers] == [(503, "the server is ending")] * 3
    assert len(server.errors) == 1


def test_change_that_commits_late_is_not_missed(new_schema, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction with an earlier number that commits later still wakes waiters and those just answered."""
    monkeypatch.setattr("recollect.web.operations.SETTLING_SECONDS", 0.4)
    place = new_schema()
    url, _, schema = place.rpartition("&schema=")

    async def nothing() -> dict[str, str]:
        await asyncio.sleep(AWAITED)
        return {"type": "http.disconnect"}

    async def ask() -> None:
        request = SimpleNamespace(receive=nothing)
        first, _ = await waiting.changed(request, memory, None, 0)
        slow.execute(
            f"INSERT INTO {schema}.history (row, scope, id, action, at, detail)"
            f" SELECT row, scope, id, 'update', 0, '{{}}' FROM {schema}.history"
        )
        slow.execute("SELECT pg_notify('recollect', %s)", (schema,))
        memory.add("The badger is grey.")
        newest, changed = await waiting.changed(request, memory, first, AWAITED)
        assert (changed, newest) == (True, first + 2)
        told = asyncio.create_task(waiting.changed(request, memory, newest, AWAITED))
        await asyncio.sleep(0.3)
        assert not told.done()
        slow.commit()
        assert await told == (newest, True)
        assert await waiting.changed(request, memory, newest, AWAITED) == (newest, True)
        assert await waiting.changed(request, memory, newest, 0.1) == (newest, False)

    with Memory.open(place, embedder="none", settings=Settings()) as memory, psycopg.connect(url) as slow:
        memory.add("The heron is grey.")
        waiting = Waiting(memory)
        with ThreadPoolExecutor(1) as pool:  # a browser test leaves an event loop running in this thread
            pool.submit(asyncio.run, ask()).result(AWAITED)
        waiting.close()
