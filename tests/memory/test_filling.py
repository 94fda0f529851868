"""Vectors computed in the background: by one process, which reports how far it is and may be killed at any moment."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Settings
from recollect.memory import Memory
from recollect.memory.filling import SETTLED_SECONDS, FillingThread, Rate, about, fill, filling, rest

SLOW = """
import sys, time
from recollect.config import Settings
from recollect.errors import EmbedderError
from recollect.memory import Memory, filling
from recollect.models.hashing import HashingEmbedder

class Slow(HashingEmbedder):
    def passages(self, texts):
        if FAILS:
            raise EmbedderError("the model is damaged", hint="fetch it again")
        time.sleep(0.3)
        return super().passages(texts)

filling.HANDOVER_SECONDS = filling.REPORT_SECONDS = 0.1
with Memory.open(sys.argv[1], embedder=Slow(64), settings=Settings()) as memory:
    print(filling.fill_in_background(memory))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home, with the reports of background processes."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store of 400 records without vectors."""
    with Memory.open(tmp_path / "store.db", embedder="none", settings=Settings()) as memory:
        memory.add_many([{"text": f"heron number {number}"} for number in range(400)])
    return tmp_path / "store.db"


@pytest.fixture
def begin(place: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts slow background processes, and ends them with the test."""
    started = []

    def one(*, fails: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SLOW.replace("FAILS", str(fails)), str(place)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until something is true; pytest's timeout ends a wait in vain."""
    while not (value := condition()):
        time.sleep(0.05)
    return value


def recollect(*arguments: str) -> str:
    """The output of a command."""
    command = [sys.executable, "-m", "recollect", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


def test_killed_process_loses_nothing_and_is_reported(place: Path, begin: Callable[..., Any]) -> None:
    """A search says how far it is, `status` and `doctor` say that it ended, and the next run does only the rest."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        process = begin()
        wait_for(lambda: (state := filling(memory.store)) and state.done)
        assert f"(process {process.pid})" in memory.status()["vectors"]["background"]
        answer = memory.search("heron number 7")
        assert any("the rest is being computed" in warning for warning in answer.trace.warnings)
        assert answer.trace.mode == "hybrid"
        scoped = memory.within(memory.scope).search("heron number 7")
        assert not any("being computed" in warning for warning in scoped.trace.warnings)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert "it ended before it had finished" in memory.status()["vectors"]["background"]
        assert "`recollect embed` computes the rest: the background process stopped" in rest(memory.store)
        missing = memory.status()["vectors"]["without"]
        checks = json.loads(recollect("doctor", "--json"))["checks"]
        assert any("it ended before" in one["message"] and one["mend"] == "recollect embed" for one in checks)
        assert 0 < missing < 400
        assert fill(memory) == missing
        assert (filling(memory.store), "background" in memory.status()["vectors"]) == (None, False)


def test_second_process_leaves_the_work_to_the_first(place: Path, begin: Callable[..., Any]) -> None:
    """The first holds a lock, and finishes."""
    first = begin()
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        wait_for(lambda: filling(memory.store))
        second = begin()
        assert second.communicate(timeout=60)[0] == "0\n"
        assert first.communicate(timeout=60)[0] == "400\n"
        assert filling(memory.store) is None


def test_command_waits_for_the_background_process(place: Path, begin: Callable[..., Any]) -> None:
    """Nothing is computed twice, and its progress is shown."""
    process, shown = begin(), list[tuple[int, int]]()
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        wait_for(lambda: (state := filling(memory.store)) and state.total)
        assert fill(memory, lambda done, total: shown.append((done, total))) == 0
        assert memory.status()["vectors"]["without"] == 0
    assert process.communicate(timeout=60)[0] == "400\n"


def test_thread_computes_what_is_missing_beside_other_work(place: Path) -> None:
    """What is added meanwhile, too. It reports as a process does, and ends when it is closed."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        thread = FillingThread(memory)
        thread.begin()
        thread.begin()  # records were added: it is asked again while it runs
        wait_for(lambda: not thread.running)
        assert (memory.status()["vectors"]["without"], filling(memory.store)) == (0, None)
        thread.close()
        thread.begin()  # after the end nothing begins
        wait_for(lambda: not thread.running)


def test_error_in_the_background_is_shown_later(place: Path, begin: Callable[..., Any]) -> None:
    """By `status`, with what to do."""
    begin(fails=True).wait()
    state = json.loads(recollect("status", "--json"))["vectors"]["background"]
    assert state == "stopped at 0 of 400: the model is damaged – fetch it again"


def test_index_returns_when_keywords_are_ready(tmp_path: Path) -> None:
    """The vectors follow by themselves. A script gets a complete store, unless it says otherwise."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(12):
        (notes / f"{number}.md").write_text(f"walrus on floe {number}\n")
    assert json.loads(recollect("index", str(notes), "--json"))["embedded"] == 12
    (notes / "more.md").write_text("capercaillie in the snow\n")
    report = json.loads(recollect("index", str(notes), "--background", "--json"))
    assert (len(report["added"]), report["embedded"]) == (1, 0)
    assert "capercaillie" in recollect("search", "capercaillie", "--sources", "keyword")
    wait_for(lambda: json.loads(recollect("status", "--json"))["vectors"]["without"] == 0)
    with Memory.open(tmp_path / "store.db", embedder="none", settings=Settings()) as memory:
        wait_for(lambda: filling(memory.store) is None)


@pytest.mark.ci
@pytest.mark.parametrize("flags", [(), ("--wait",)])
def test_many_vectors_are_computed_in_the_background_on_a_terminal(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The command says so; with --wait it ends when all are computed."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(500):
        (notes / f"{number}.md").write_text(f"walrus on floe {number}\n")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "recollect", "index", str(notes), *flags]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True, timeout=120)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert ("computing 500 vectors in the background" in shown) is not bool(flags)
    assert ("embedding" in shown and "500 of 500" in shown.rpartition("embedding")[2]) is bool(flags)
    wait_for(lambda: json.loads(recollect("status", "--json"))["vectors"]["without"] == 0)


def test_time_left_is_named_when_the_rate_has_settled() -> None:
    """Not before some seconds of work, without the time in which a model is loaded, and by the rate of late."""
    rate = Rate()
    assert rate(0, 0.0) == 0  # the model is loaded for a minute
    assert rate(64, 60.0) == 0
    assert rate(64 + 30, 63.0) == 0
    assert rate(64 + 60, 60.0 + SETTLED_SECONDS + 1) == pytest.approx(10)
    for second in range(70, 200):
        latest = rate(124 + 5 * (second - 66), float(second))  # the machine has become busy
    assert latest == pytest.approx(5)
    assert [about(seconds) for seconds in (3, 42, 89, 340, 7300)] == [
        "about 10 s", "about 40 s", "about 90 s", "about 6 min", "about 2 h",
    ]  # fmt: skip
