"""Agents, a watched folder and many clients on one store for a while: no error, and nothing that grows."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.agents import Spoken
from support.forking import ForkedProcess
from support.serving import environment
from support.timing import longest
from support.vitals import Vitals

from .killed import OLD, fill, opened, rows

AGENTS, CLIENTS, FILES, RECORDS = 4, 50, 20, 400
REST_S = 11.0  # a thread of the server's pool that was idle for 10 seconds is ended at the next request
ENDING_S = 2.0  # until threads that were asked to end have ended
MOST_RESTS = 6  # on a busy machine threads end late, those that leak never
WORDS = 1_000  # different words of edits: words that never come again would fill caches, of a bounded size, for hours
PAUSE_S = (0.2, 1.0)  # between two requests of a client: it is a person or a program that thinks

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what processes use is read from /proc")


class Soak:
    """Everybody who uses the store, each in a thread of this process, until the time is up."""

    def __init__(self, home: Path, address: str) -> None:
        self.home, self.address = home, address
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.done = threading.Event()
        self.connections: list[http.client.HTTPConnection] = []

    def run(self, agents: list[Spoken], seconds: float, vitals: Vitals) -> None:
        """Let all of them work for so long, look twice a second, and once more after a rest."""
        self.done.clear()
        work = [("agent", self.agent(agent)) for agent in agents] + [("edit", self.edit)]
        work += [("request", self.client()) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=self.repeat, args=(*each, seed)) for seed, each in enumerate(work)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
            vitals.take()
        self.done.set()
        for thread in threads:
            thread.join()
        for connection in self.connections:
            connection.close()
        for _ in range(MOST_RESTS):
            self.rest()
            vitals.retake()
            if not vitals.leaks():
                break

    def rest(self) -> None:
        """Let the server end the threads that it no longer needs."""
        time.sleep(REST_S)
        self.client()(random.Random(0))
        self.connections[-1].close()
        time.sleep(ENDING_S)

    def repeat(self, kind: str, work: Callable[[random.Random], None], seed: int) -> None:
        """Do something again and again, with pauses; the first error of a thread ends it and is noted."""
        chance = random.Random(seed)
        try:
            while not self.done.wait(chance.uniform(*PAUSE_S)):
                work(chance)
                self.counts[kind] += 1
        except Exception as error:  # noqa: BLE001  (any error that reaches a caller is what this looks for)
            self.errors.append(f"{kind}: {type(error).__name__}: {error}")

    def client(self) -> Callable[[random.Random], None]:
        """A client of the HTTP service, on a connection that it keeps."""
        host, port = re.match(r"http://([^:/]+):(\d+)", self.address).groups()
        connection = http.client.HTTPConnection(host, int(port), timeout=120)
        self.connections.append(connection)

        def ask(method: str, path: str, body: Any = None) -> dict[str, Any]:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            assert response.status in {200, 201}, (path, response.status, text)
            return json.loads(text)

        def work(chance: random.Random) -> None:
            number = chance.randrange(RECORDS)
            if chance.random() < 0.1:
                ask("PATCH", f"/v1/records/r{number}", {"text": f"mark{number}mark, edited {chance.randrange(WORDS)}"})
            elif chance.random() < 0.2:
                assert ask("GET", f"/v1/records/r{number}")["id"] == f"r{number}"
            else:
                assert ask("POST", "/v1/search", {"query": f"mark{number}mark garden"})["results"]

        return work

    @staticmethod
    def agent(spoken: Spoken) -> Callable[[random.Random], None]:
        """An agent that remembers, searches and forgets over MCP."""

        def call(name: str, **arguments: Any) -> dict[str, Any]:
            answer = spoken.ask("tools/call", name=name, arguments=arguments)
            assert not answer.get("error"), answer
            assert not answer["result"].get("isError"), answer
            return answer["result"]["structuredContent"]

        def work(chance: random.Random) -> None:
            fact = f"agent{id(spoken)} fact {chance.randrange(WORDS)}"
            stored = call("memory_store", text=fact)["id"]
            found = call("memory_search", query=fact)["results"]
            assert stored in [result["id"] for result in found]
            call("memory_forget", ids=[stored])

        return work

    def edit(self, chance: random.Random) -> None:
        """Write a file of the watched folder anew."""
        number = chance.randrange(FILES)
        (self.home / "notes" / f"{number}.md").write_text(f"# Note {number}\n\nversion {chance.randrange(WORDS)}\n")


@contextlib.contextmanager
def processes(home: Path, store: Path) -> Iterator[tuple[str, dict[str, int], list[Spoken]]]:
    """A server, a watcher and agents on one store: the server's address, the processes by name, and the agents."""
    flags = ["--store", str(store), "--embedder", OLD]
    (home / "notes").mkdir()
    serve = ForkedProcess("serve", "--port", "0", *flags, home=home, output=home / "serve.log")
    watch = ForkedProcess("watch", home / "notes", *flags, home=home, output=home / "watch.log")
    command = [sys.executable, "-P", "-m", "recollect", "mcp", *flags]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    agents = [subprocess.Popen(command, env=environment(home), cwd=home, **pipes) for _ in range(AGENTS)]
    try:
        spoken = [Spoken(agent) for agent in agents]
        for one in spoken:
            one.hello()
        pids = {"serve": serve.pid, "watch": watch.pid}
        pids |= {f"agent {number}": agent.pid for number, agent in enumerate(agents)}
        yield address_of(home / "serve.log"), pids, spoken
    finally:
        for process in (serve, watch, *agents):
            process.kill()
        for agent in agents:
            agent.communicate()


def address_of(log: Path) -> str:
    """The address that the server has written to its log."""
    for _ in range(1200):
        if match := re.search(r"serving at (\S+)", log.read_text()):
            return match[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [
        pytest.param(20, 4, id="short", marks=[pytest.mark.ci, pytest.mark.timeout(900)]),
        pytest.param(longest(360, 1_800), 1, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
def test_nothing_grows_and_nothing_fails(tmp_path: Path, tally: Callable[..., None], seconds: int, rounds: int) -> None:
    """Four agents, a watcher and fifty HTTP clients: memory, threads and descriptors stay flat.

    On a busy machine caches still fill after 20 seconds, so a short round may be repeated: a leak goes on in all.
    """
    store = tmp_path / "memory.db"
    fill(store, RECORDS)
    with processes(tmp_path, store) as (address, pids, agents):
        soak = Soak(tmp_path, address)
        for _ in range(rounds):
            vitals = Vitals(pids)
            soak.run(agents, seconds, vitals)
            assert soak.errors == []
            if not vitals.leaks():
                break
        assert not vitals.leaks(), "; ".join(vitals.leaks())
        check_notes(store, tmp_path / "notes")
    assert "error" not in (tmp_path / "watch.log").read_text()
    assert min(soak.counts[kind] for kind in ("agent", "edit", "request")) >= len(agents)
    assert rows(store, "SELECT count(*) FROM records WHERE id LIKE 'r%' AND forgotten_at IS NULL") == [(RECORDS,)]
    memory = ", ".join(f"{name} {factor:.2f}" for name, (factor, _, _) in vitals.growth().items())
    tally("soak", seconds=seconds, errors=0, **soak.counts, memory_in_the_last_third_over_the_middle_one=memory)


def check_notes(store: Path, notes: Path) -> None:
    """The watcher has read the last version of every file."""
    expected = {str(path): path.read_text() for path in notes.iterdir()}
    for _ in range(1200):
        with opened(store) as memory:
            texts = {record.path: record.text for record in memory.list(limit=1000) if record.path}
        if all(expected[path].split("\n")[2] in texts.get(path, "") for path in expected):
            return
        time.sleep(0.1)
    raise AssertionError("the watcher missed a change")


LEAKING = """
import os, sys, threading, time
kept = []
while True:
    kept.append(bytearray(b"x" * 2_000_000))
    if sys.argv[1] == "files":
        kept[-1] = open(os.devnull)
    if sys.argv[1] == "connections":
        kept[-1] = open(sys.argv[2], "w")
    if sys.argv[1] == "threads":
        kept[-1] = threading.Thread(target=time.sleep, args=(60,), daemon=True)
        kept[-1].start()
    time.sleep(0.02)
"""


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["memory", "files", "threads", "connections"])
def test_process_that_grows_is_detected(start: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    """The same measurement finds a process that keeps memory, files, threads or connections to a store."""
    process = start("-c", LEAKING, kind, tmp_path / "memory.db")
    vitals = Vitals({"leaking": process.pid})
    time.sleep(0.5)  # until Python has started
    while not vitals.leaks():
        time.sleep(0.05)
        vitals.take()
    assert len(vitals.samples["leaking"]) > 3
