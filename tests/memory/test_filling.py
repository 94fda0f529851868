"""Vectors computed in the background: by one process, which reports how far it is and may be killed at any moment."""

from __future__ import annotations

import json
import math
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from filelock import FileLock

from recollect.config import Settings
from recollect.errors import FailedError
from recollect.ingest.service import executable
from recollect.memory import Memory
from recollect.memory.filling import (
    SETTLED_SECONDS,
    FillingThread,
    Rate,
    about,
    fill,
    filling,
    missing_vectors_notice,
    start,
)

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
with Memory.open(sys.argv[1], embedder=Slow(SIZE), settings=Settings()) as memory:
    print(filling.fill_in_background(memory, move=True))
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

    def one(*, fails: bool = False, size: int = 64) -> subprocess.Popen[str]:
        code = SLOW.replace("FAILS", str(fails)).replace("SIZE", str(size))
        command = [sys.executable, "-c", code, str(place)]
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


def state_files(pattern: str) -> Iterator[Path]:
    """Files of the background processes."""
    return (Path(os.environ["XDG_STATE_HOME"]) / "recollect" / "embed").glob(pattern)


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
        assert missing_vectors_notice(memory.store).startswith(
            "the background process stopped (it ended before it had finished"
        )
        assert missing_vectors_notice(memory.store).endswith("; `recollect embed` computes the rest")
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


def test_process_with_another_embedder_waits_for_its_turn(place: Path, begin: Callable[..., Any]) -> None:
    """The first does not compute its vectors."""
    first = begin()
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        assert wait_for(lambda: filling(memory.store)).embedder == "hashing:64"
    second = begin(size=32)
    assert first.communicate(timeout=60)[0] == "400\n"
    assert second.communicate(timeout=60)[0] == "400\n"


def test_report_is_found_when_the_file_was_copied_and_put_back(place: Path, begin: Callable[..., Any]) -> None:
    """A copy at another place has reports of its own, and no file of errors is needed."""
    process = begin()
    wait_for(lambda: list(state_files("*.json")))
    process.kill()
    process.wait()
    other = place.with_name("other.db")
    connection = apsw.Connection(str(place))
    connection.execute("VACUUM INTO ?", (str(other),))
    connection.close()
    with Memory.open(other, embedder="none", settings=Settings()) as memory:
        assert filling(memory.store) is None
    for part in place.parent.glob(f"{place.name}*"):
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    other.rename(place)
    for log in state_files("*.log"):
        log.unlink()
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        assert str(filling(memory.store)).endswith("it ended before it had finished")


def test_numbers_of_a_dead_process_are_not_those_of_the_next(place: Path, begin: Callable[..., Any]) -> None:
    """While somebody else holds the lock, nothing is reported."""
    process = begin()
    (report,) = wait_for(lambda: list(state_files("*.json")))
    process.kill()
    process.wait()
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        assert filling(memory.store)
        with FileLock(report.with_suffix(".lock")):
            assert filling(memory.store) is None


def test_full_disk_ends_the_reports_and_not_the_work(place: Path, begin: Callable[..., Any]) -> None:
    """Every vector is computed."""
    process = begin()
    (report,) = wait_for(lambda: list(state_files("*.json")))
    report.with_suffix(".link").symlink_to("/dev/full")
    report.with_suffix(".link").rename(report.with_suffix(".new"))
    report.unlink()
    assert process.communicate(timeout=60)[0] == "400\n"
    assert process.returncode == 0
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        assert memory.status()["vectors"]["without"] == 0


def test_program_in_the_current_folder_is_not_run(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the background process nor by a service: they run this installation."""
    (tmp_path / "recollect.py").write_text("open('hostile', 'w')")
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        start(memory.store, {})
        wait_for(lambda: memory.status()["vectors"]["without"] == 0)
        wait_for(lambda: filling(memory.store) is None)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", "")
    shown = subprocess.run([*executable(), "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert "version" in shown.stdout
    assert not (tmp_path / "hostile").exists()


def test_process_that_cannot_begin_leaves_its_error(place: Path, tmp_path: Path) -> None:
    """In the file of its errors."""
    broken = tmp_path / "broken" / "recollect.py"
    broken.parent.mkdir()
    broken.write_text("raise SystemExit('half an installation')")
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        start(memory.store, {"PYTHONPATH": str(broken.parent)})
    wait_for(lambda: any("half an installation" in log.read_text() for log in state_files("*.log")))


def test_unusable_state_folder_is_an_error_in_the_terminal(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing starts in the background; in the foreground vectors are computed."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        with pytest.raises(FailedError, match=r"the state folder cannot be used: .*Not a directory"):
            start(memory.store, {})
        assert fill(memory) == 400


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


def test_watching_once_waits_for_the_background_process(tmp_path: Path, begin: Callable[..., Any]) -> None:
    """Nothing is computed twice."""
    notes = tmp_path / "notes"
    notes.mkdir()
    process = begin()
    wait_for(lambda: list(state_files("*.json")))
    (notes / "more.md").write_text("capercaillie in the snow\n")
    embedded = json.loads(recollect("watch", "--once", str(notes), "--json"))["embedded"]
    assert embedded + int(process.communicate(timeout=60)[0]) == 401
    assert embedded <= 1


def test_thread_ends_while_it_waits_for_its_turn(
    place: Path, begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing it does not wait for the process whose turn it is."""
    process = begin()
    (report,) = wait_for(lambda: list(state_files("*.json")))
    assert process.wait() == 0
    monkeypatch.setattr("recollect.memory.filling.HANDOVER_SECONDS", math.inf)
    lock, settings = FileLock(report.with_suffix(".lock")), Settings()
    with Memory.open(place, embedder="none", settings=settings) as memory:
        memory.add("A record without a vector.")
    with lock, Memory.open(place, embedder="hashing:64", settings=settings) as memory:
        thread = FillingThread(memory)
        thread.begin()
        thread.close()
        assert not thread.running
        assert memory.embeddings.missing_count() == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_begins_again_after_an_unexpected_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended it."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        thread = FillingThread(memory)
        with monkeypatch.context() as patch:
            patch.setattr(memory, "embed", lambda **_: {}["missing"])
            thread.begin()
            wait_for(lambda: not thread.running)
        thread.begin()
        wait_for(lambda: not thread.running)
        assert memory.status()["vectors"]["without"] == 0


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
