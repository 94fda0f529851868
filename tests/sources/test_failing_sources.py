"""Five sources, three of them failing in every way: real processes, real sockets, and an answer in time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.timing import within

from recollect import Memory, config
from recollect.config import Settings
from recollect.errors import SearchFailed
from recollect.types import Answer, SourceTrace

SLACK_S = 0.25
"""An answer is due within 100 ms of its deadline; a busy machine gets a little more."""

BUDGET_MS = 1000
FIELDS = 'fields = { id = "id", text = "text", score = "score" }'
Start = Callable[..., "subprocess.Popen[str]"]

PROGRAM = """
import json, os, signal, sys, time
how, query, depth, scope = sys.argv[1:5]
rows = [{"id": "p1", "text": f"program: {query}", "score": 2.0}, {"id": "h1", "score": 1.0}]
if how == "hangs":
    time.sleep(600)
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
while how == "floods":
    sys.stdout.write('{"id": "more and more"},' * 10_000)
text = json.dumps({"results": rows, "depth": int(depth), "scope": json.loads(scope)})
print(text[: len(text) // 2] if how == "half" else text)
"""

SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
how = sys.argv[1]
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", flush=True)
        if how == "hangs":
            time.sleep(600)
        body = json.dumps([{"id": "w1", "text": "server: " + self.path, "score": 0.5}]).encode()
        self.send_response(200)
        if how == "floods":
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b" " * 1_000_000)
            except OSError:
                return
        self.send_header("Content-Length", str(len(body) // 2 if how == "half" else len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if how == "half" else body)
    def log_message(self, *words):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""

PEER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from recollect import Memory
from recollect.config import Settings
from recollect.memory.shapes import answer_dict
store, how = sys.argv[1:3]
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps({"path": self.path, **said}), flush=True)
        if how == "hangs":
            time.sleep(600)
        answer = memory.search(said["query"], limit=said["limit"], scope=said["scope"])
        body = json.dumps(answer_dict(answer)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""


@dataclass
class Scene:
    """Our store, another one, and the settings of three outside sources: `program`, `server` and `other`."""

    folder: Path
    start: Start

    @property
    def store(self) -> Path:
        return self.folder / "memory.db"

    @property
    def elsewhere(self) -> Path:
        return self.folder / "other.db"

    @property
    def settings(self) -> Path:
        return self.folder / "settings.toml"

    def serve(self, code: str, *words: object) -> tuple[subprocess.Popen[str], str]:
        """A server in a process of its own, and its address."""
        process = self.start("-c", code, *words)
        return process, f"http://127.0.0.1:{int(process.stdout.readline())}"

    def write(self, *, program: str, server: str, other: str, more: str = "timeout_ms = 20000\n") -> Path:
        """The settings file; `program` is how the program behaves, `server` an address, `other` its own line."""
        script = self.folder / "program.py"
        script.write_text(PROGRAM)
        command = [sys.executable, "-S", "-E", str(script), program, "{query}", "{fetch_k}", "{scope}"]
        self.settings.write_text(
            f'embedder = "hashing:64"\nstore = {json.dumps(str(self.store))}\n\n'
            f'[[sources]]\nname = "program"\nkind = "command"\ncommand = {json.dumps(command)}\n{FIELDS}\n{more}\n'
            f'[[sources]]\nname = "server"\nkind = "http"\nurl = "{server}/?q={{query}}&n={{fetch_k}}"\n{FIELDS}\n'
            f"{more}\n"
            f'[[sources]]\nname = "other"\nkind = "recollect"\n{other}\n{more}'
        )
        return self.settings


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our store and another one, both with records, made once."""
    folder = tmp_path_factory.mktemp("stores")
    with Memory.open(folder / "memory.db", embedder="hashing:64", settings=Settings()) as ours:
        ours.add("A heron by the lake.", id="h1")
        ours.add("The heron in the reeds.", id="h2")
        ours.add("A boat without an oar.", id="b1")
    with Memory.open(folder / "other.db", embedder="hashing:64", settings=Settings()) as other:
        other.add("A heron of another store.", id="o1")
        other.add("Ada's own heron.", id="o2", user="ada")
    return folder


@pytest.fixture
def scene(stores: Path, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Copies of the stores, and no proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    for store in stores.iterdir():
        shutil.copy(store, tmp_path)
    return Scene(tmp_path, start)


@pytest.fixture
def opened(scene: Scene, open_memory: Callable[..., Memory]) -> Callable[[], Memory]:
    """The memory with the settings file."""
    return lambda: open_memory(settings=config.load(config=scene.settings, environment={}).settings)


def traces(answer: Answer) -> dict[str, SourceTrace]:
    """How each source did, by name."""
    return {source.name: source for source in answer.trace.sources}


def ranking(answer: Answer) -> list[tuple[str, float, float]]:
    """What an answer holds, in order, to the last digit."""
    return [(result.record.id, result.fused, result.score) for result in answer.results]


def in_time(memory: Memory, budget_ms: int = BUDGET_MS) -> Answer:
    """The answer, which came within the budget and holds the two local rankings fused."""
    local = memory.search("heron", sources=["keyword", "vector"], decay=False)
    assert len(local.results) >= 2
    began = time.monotonic()
    answer = memory.search("heron", budget_ms=budget_ms, decay=False)
    took = time.monotonic() - began
    assert within(took, budget_ms / 1000 + SLACK_S)
    assert within(answer.trace.took_ms / 1000, budget_ms / 1000 + SLACK_S)
    assert ranking(answer) == ranking(local)
    seen = traces(answer)
    assert list(seen) == ["keyword", "vector", "program", "server", "other"]
    assert (seen["keyword"].status, seen["vector"].status, answer.trace.mode) == ("ok", "ok", "hybrid")
    return answer


def how(answer: Answer, name: str) -> tuple[str, str]:
    """Status and reason of a source that did not answer, which a warning repeats."""
    trace = traces(answer)[name]
    assert trace.took_ms > 0
    assert any(warning.startswith(f"{name} did not answer: ") for warning in answer.trace.warnings)
    return trace.status, trace.reason


def is_late(answer: Answer, name: str, budget_ms: int = BUDGET_MS) -> None:
    """The source was waited for until the budget was spent, and no longer."""
    status, reason = how(answer, name)
    assert status == "timeout"
    assert reason
    assert traces(answer)[name].took_ms >= budget_ms * 0.9


# -- all is well --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["file", "HTTP"])
def test_five_sources_give_one_answer(scene: Scene, opened: Callable[[], Memory], way: str) -> None:
    """All are `ok`, shared documents are one result, and the rest are external records."""
    _, server = scene.serve(SERVER, "good")
    if way == "file":
        asked, other = None, f"store = {json.dumps(str(scene.elsewhere))}"
    else:
        asked, url = scene.serve(PEER, scene.elsewhere, "good")
        other = f'url = "{url}/"'
    scene.write(program="good", server=server, other=other)
    answer = opened().search("heron", decay=False, user="ada")
    assert {name: trace.status for name, trace in traces(answer).items()} == dict.fromkeys(
        ["keyword", "vector", "program", "server", "other"], "ok"
    )
    found = {result.record.id: result for result in answer.results}
    assert {"h1", "h2", "program:p1", "server:w1", "other:o1", "other:o2"} <= set(found)
    assert set(found["h1"].shares) == {"keyword", "vector", "program"}
    assert found["program:p1"].record.text == "program: heron"
    assert found["server:w1"].record.text == "server: /?q=heron&n=20"
    assert found["other:o1"].record.text == "A heron of another store."
    assert answer.trace.warnings == ()
    if asked:
        said = json.loads(asked.stdout.readline())
        body = {"query": "heron", "limit": 20, "scope": {"user": "ada"}, "by": "chunk"}
        assert said == {"path": "/v1/search", **body}


@pytest.mark.parametrize("way", ["file", "HTTP"])
def test_other_recollect_gets_the_scope_of_the_query(scene: Scene, opened: Callable[[], Memory], way: str) -> None:
    """It shows Ada's record to Ada only."""
    url = scene.serve(PEER, scene.elsewhere, "good")[1] if way == "HTTP" else ""
    other = f'url = "{url}"' if url else f"store = {json.dumps(str(scene.elsewhere))}"
    scene.write(program="good", server="http://127.0.0.1:9", other=other)
    memory = opened()
    for scope, seen in (
        ({"user": "ada"}, {"other:o1", "other:o2"}),
        ({"user": "bob"}, {"other:o1"}),
        ({}, {"other:o1"}),
    ):
        answer = memory.search("heron", sources=["other"], **scope)
        assert {result.record.id for result in answer.results} == seen


# -- several failures at once -------------------------------------------------------------------------------


def test_killed_hanging_and_truncated_sources_do_not_delay_the_answer(
    scene: Scene, opened: Callable[[], Memory], gone: Callable[[str], bool]
) -> None:
    """Another Recollect is killed, a server hangs, a program prints half a document."""
    process, url = scene.serve(PEER, scene.elsewhere, "good")
    _, server = scene.serve(SERVER, "hangs")
    scene.write(program="half", server=server, other=f'url = "{url}"')
    memory = opened()
    process.send_signal(signal.SIGKILL)
    process.wait()
    answer = in_time(memory)
    is_late(answer, "server")
    status, reason = how(answer, "program")
    assert status == "failed"
    assert "not JSON" in reason
    assert "p1" in reason
    status, reason = how(answer, "other")
    assert status == "failed"
    assert url.removeprefix("http://") in reason
    memory.close()
    assert gone(str(scene.folder / "program.py"))


def test_source_killed_during_the_query(
    scene: Scene, opened: Callable[[], Memory], gone: Callable[[str], bool]
) -> None:
    """Another Recollect dies during the query, the program hangs, the server cuts its answer short."""
    process, url = scene.serve(PEER, scene.elsewhere, "hangs")
    _, server = scene.serve(SERVER, "half")
    scene.write(program="hangs", server=server, other=f'url = "{url}"')
    memory = opened()
    killing = threading.Thread(target=lambda: (process.stdout.readline(), process.kill()))
    killing.start()
    answer = in_time(memory)
    killing.join()
    is_late(answer, "program")
    assert how(answer, "other")[0] == "failed"
    assert how(answer, "server")[0] == "failed"
    memory.close()
    assert gone(str(scene.folder / "program.py"))


def test_source_stopped_by_a_signal(scene: Scene, opened: Callable[[], Memory]) -> None:
    """Another Recollect is stopped (SIGSTOP), the program kills itself, the server is missing."""
    process, url = scene.serve(PEER, scene.elsewhere, "good")
    killed, server = scene.serve(SERVER, "good")
    killed.kill()
    killed.wait()
    scene.write(program="killed", server=server, other=f'url = "{url}"')
    memory = opened()
    process.send_signal(signal.SIGSTOP)
    try:
        answer = in_time(memory)
    finally:
        process.send_signal(signal.SIGCONT)
    is_late(answer, "other")
    status, reason = how(answer, "program")
    assert (status, "signal 9" in reason) == ("failed", True)
    status, reason = how(answer, "server")
    assert (status, server.removeprefix("http://") in reason) == ("failed", True)
    assert traces(memory.search("heron"))["other"].status == "ok"


def test_flooding_sources_are_cut_off(scene: Scene, opened: Callable[[], Memory], gone: Callable[[str], bool]) -> None:
    """An endless program and an endless server."""
    _, server = scene.serve(SERVER, "floods")
    scene.write(program="floods", server=server, other='store = "/nowhere/at/all.db"')
    memory = opened()
    answer = in_time(memory, 3000)
    for name in ("program", "server"):
        status, reason = how(answer, name)
        assert (status, "16 MiB" in reason) == ("failed", True)
    assert gone(str(scene.folder / "program.py"))


def test_missing_program_is_reported(scene: Scene, opened: Callable[[], Memory]) -> None:
    """With its name."""
    scene.write(program="good", server="http://127.0.0.1:9", other='store = "/nowhere/at/all.db"')
    scene.settings.write_text(scene.settings.read_text().replace(sys.executable, "/nowhere/qmd"))
    status, reason = how(in_time(opened()), "program")
    assert status == "failed"
    assert "/nowhere/qmd" in reason


@pytest.mark.parametrize("state", ["missing", "half", "rubbish"])
def test_other_recollect_with_a_damaged_file(scene: Scene, opened: Callable[[], Memory], state: str) -> None:
    """Missing, cut in half or not a store; the program hangs and the server is missing."""
    content = scene.elsewhere.read_bytes()
    broken = {"missing": None, "half": content[: len(content) // 2], "rubbish": b"this is no database\n" * 1000}[state]
    scene.elsewhere.unlink()
    if broken is not None:
        scene.elsewhere.write_bytes(broken)
    scene.write(program="hangs", server="http://127.0.0.1:9", other=f"store = {json.dumps(str(scene.elsewhere))}")
    memory = opened()
    answer = in_time(memory)
    is_late(answer, "program")
    assert how(answer, "server")[0] == "failed"
    status, reason = how(answer, "other")
    assert status == "failed"
    assert str(scene.elsewhere) in reason
    assert scene.elsewhere.exists() == (broken is not None)
    if broken is not None:
        assert scene.elsewhere.read_bytes() == broken
    scene.elsewhere.write_bytes(content)
    answer = memory.search("heron", sources=["other"])
    assert [result.record.id for result in answer.results] == ["other:o1"]


def test_other_recollect_with_a_locked_file(scene: Scene, opened: Callable[[], Memory]) -> None:
    """A locked file is a timeout; closing does not wait for the lock."""
    keep = (
        "import apsw, sys\nc = apsw.Connection(sys.argv[1])\nc.pragma('locking_mode', 'EXCLUSIVE')\n"
        "c.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\nsys.stdin.read()\n"
    )
    locking = scene.start("-c", keep, scene.elsewhere)
    assert locking.stdout.readline() == "locked\n"
    scene.write(program="good", server="http://127.0.0.1:9", other=f"store = {json.dumps(str(scene.elsewhere))}")
    memory = opened()
    answer = memory.search("heron", sources=["keyword", "other"], budget_ms=1000)
    assert traces(answer)["other"].status == "timeout"
    assert traces(answer)["keyword"].status == "ok"
    began = time.monotonic()
    closing = threading.Thread(target=memory.close)
    closing.start()
    closing.join(2)
    took = time.monotonic() - began
    locking.kill()
    closing.join()
    assert within(took, 2)


def test_searching_another_recollect_does_not_change_its_file(
    scene: Scene, opened: Callable[[], Memory], open_memory: Callable[..., Memory]
) -> None:
    """It has no vectors, and a search with an embedder adds none."""
    scene.elsewhere.unlink()
    owner = open_memory(scene.elsewhere, embedder="none")
    owner.add("A heron of another store.", id="o1")
    before = owner.status()
    scene.write(program="good", server="http://127.0.0.1:9", other=f"store = {json.dumps(str(scene.elsewhere))}")
    memory = opened()
    answer = memory.search("heron", sources=["other"])
    assert [result.record.id for result in answer.results] == ["other:o1"]
    memory.close()
    after = owner.status()
    assert (after["vectors"], after["sequence"]) == (before["vectors"], before["sequence"])


def test_other_recollect_may_be_the_same_store(scene: Scene, opened: Callable[[], Memory]) -> None:
    """Useless but harmless: its hits are our records."""
    scene.write(program="good", server="http://127.0.0.1:9", other=f"store = {json.dumps(str(scene.store))}")
    memory = opened()
    answer = memory.search("heron", sources=["keyword", "other"])
    assert {result.record.id for result in answer.results} >= {"h1", "h2"}
    assert not [result for result in answer.results if result.record.kind == "outside"]
    memory.add("A heron that came later.", id="h3")
    assert "h3" in [result.record.id for result in memory.search("heron", sources=["other"]).results]


# -- by the command line ------------------------------------------------------------------------------------


def run(scene: Scene, *words: object) -> tuple[subprocess.CompletedProcess[str], float]:
    """A command in a process of its own, and the seconds until it had ended."""
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "recollect", *map(str, words), "--config", scene.settings],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "NO_PROXY": "127.0.0.1,localhost"},
    )
    assert "Traceback" not in ran.stderr
    return ran, time.monotonic() - began


@pytest.mark.ci
def test_command_line_answers_in_time_and_names_each_failure(
    scene: Scene, opened: Callable[[], Memory], gone: Callable[[str], bool]
) -> None:
    """As JSON and as text, exit code 0; no process is left, and none is waited for."""
    budget_ms = 5 * BUDGET_MS  # a new process on a busy machine loads its libraries meanwhile
    process, url = scene.serve(PEER, scene.elsewhere, "good")
    process.kill()
    process.wait()
    _, server = scene.serve(SERVER, "hangs")
    scene.write(program="half", server=server, other=f'url = "{url}"')
    local = opened().search("heron", sources=["keyword", "vector"])
    ran, took = run(scene, "search", "heron", "--json", "--budget-ms", budget_ms)
    assert ran.returncode == 0
    answer = json.loads(ran.stdout)
    trace = answer["trace"]
    assert within(trace["took_ms"] / 1000, budget_ms / 1000 + SLACK_S)
    assert within(took, budget_ms / 1000 + 5.0)  # most of it to start a process on a busy machine
    assert trace["mode"] == "hybrid"
    assert trace["grade"] in ("slow", "bad")
    assert [result["id"] for result in answer["results"]] == [result.record.id for result in local.results]
    seen = {source["name"]: source for source in trace["sources"]}
    assert {name: source["status"] for name, source in seen.items()} == {
        "keyword": "ok",
        "vector": "ok",
        "program": "failed",
        "server": "timeout",
        "other": "failed",
    }
    assert all(source["reason"] and source["took_ms"] > 0 for source in seen.values() if source["status"] != "ok")
    said, _ = run(scene, "search", "heron", "--budget-ms", budget_ms)
    assert said.returncode == 0
    for name in ("program", "server", "other"):
        assert f"{name} did not answer" in said.stdout + said.stderr
    assert gone(str(scene.folder / "program.py"))


def test_command_line_fails_if_every_source_fails(scene: Scene) -> None:
    """Exit code 3 with one error that names each, not an empty list."""
    scene.write(program="half", server="http://127.0.0.1:9", other='store = "/nowhere/at/all.db"')
    ran, _ = run(scene, "search", "heron", "--json", "--sources", "program,server,other")
    assert (ran.returncode, ran.stdout) == (3, "")
    error = json.loads(ran.stderr)["error"]
    assert error["code"] == "search_failed"
    for part in ("program: ", "server: ", "other: there is no store at /nowhere/at/all.db"):
        assert part in error["message"]


def test_all_sources_failing_in_process_is_the_same_error(scene: Scene, opened: Callable[[], Memory]) -> None:
    """Also if all of them are only late."""
    _, server = scene.serve(SERVER, "hangs")
    scene.write(program="hangs", server=server, other='store = "/nowhere/at/all.db"')
    began = time.monotonic()
    with pytest.raises(SearchFailed) as caught:
        opened().search("heron", sources=["program", "server", "other"], budget_ms=400)
    assert within(time.monotonic() - began, 0.4 + SLACK_S + 1.0)
    for name in ("program", "server", "other"):
        assert f"{name}: " in caught.value.message


def test_query_never_reaches_a_shell(scene: Scene, opened: Callable[[], Memory]) -> None:
    """It is one argument, one URL value, one JSON string."""
    _, server = scene.serve(SERVER, "good")
    _, url = scene.serve(PEER, scene.elsewhere, "good")
    scene.write(program="good", server=server, other=f'url = "{url}"')
    memory = opened()
    touched = scene.folder / "touched"
    for query in (f"heron; touch {touched}", f"$(touch {touched})", "heron' \"& {fetch_k} %s", "--help", "日本 é\n2"):
        answer = memory.search(query, decay=False)
        assert {trace.status for trace in traces(answer).values()} == {"ok"}, traces(answer)
        texts = [result.record.text for result in answer.results]
        assert f"program: {query}" in texts
    assert not touched.exists()
