"""Searches that compute take turns: few at once, the callers one after the other, and no thread for each client."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recollect import Memory
from recollect.types import Scope
from recollect.web.access import Caller
from recollect.web.workers import Searches

ADA, BOB, EVE = (Caller(name, Scope(name)) for name in ("ada", "bob", "eve"))


@pytest.fixture
def searches():
    with Memory.open(":memory:", embedder="none") as memory:
        pool = Searches(memory)
        yield pool
        pool.close()


def in_a_loop(work):
    """What a coroutine returns, in a thread of its own: a browser's test may have left a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def occupied(pool):
    """Requests that hold every thread until the event is set."""
    go = threading.Event()
    count = pool._free
    held = [asyncio.ensure_future(pool.run(EVE, go.wait)) for _ in range(count)]
    await asyncio.sleep(0)
    assert pool._free == 0
    return go, held


def test_callers_take_turns(searches):
    """One request of Bob's does not wait until all of Ada's earlier ones are answered."""

    async def run():
        go, held = await occupied(searches)
        began = []
        asked = [*[(ADA, f"a{n}") for n in range(6)], (BOB, "b0"), (BOB, "b1")]
        waiting = [asyncio.ensure_future(searches.run(caller, began.append, name)) for caller, name in asked]
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*held, *waiting)
        return began

    began = in_a_loop(run())
    assert sorted(began) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]
    cores = searches._free
    assert began.index("b0") <= 1 + cores
    assert began.index("b1") <= 3 + cores


def test_cancelled_requests_pass_their_turn_on(searches):
    """A request that was cancelled while it waited does not hold a place, nor does one that fails."""

    async def run():
        count = searches._free
        go, held = await occupied(searches)
        left = [asyncio.ensure_future(searches.run(ADA, list)) for _ in range(3)]
        stays = asyncio.ensure_future(searches.run(ADA, int, "7"))
        fails = asyncio.ensure_future(searches.run(BOB, int, "seven"))
        await asyncio.sleep(0)
        for one in left:
            one.cancel()
        go.set()
        await asyncio.gather(*held, return_exceptions=True)
        assert await stays == 7
        with pytest.raises(ValueError, match="seven"):
            await fails
        ended = await asyncio.gather(*left, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert searches._free == count
        assert not searches._waiting

    in_a_loop(run())


@pytest.mark.ci
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in Linux's /proc")
def test_no_thread_for_each_client_is_left_behind(home):
    """Thirty clients at once are answered by a few threads, which are all that remain."""
    server = home.serve()
    owner = server.client()
    for number in range(20):
        assert owner.post("/v1/records", json={"text": f"tea number {number}"}).status_code == 201
    clients = [server.client() for _ in range(30)]

    def ask(client):
        return [client.post("/v1/search", json={"query": "tea"}).status_code for _ in range(5)]

    with ThreadPoolExecutor(30) as pool:
        assert {status for answers in pool.map(ask, clients) for status in answers} == {200}
    threads = len([*Path(f"/proc/{server.process.pid}/task").iterdir()])
    assert threads <= 12 + (os.cpu_count() or 1), f"{threads} threads"
