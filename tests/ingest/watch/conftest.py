"""Watchers in a thread or as real processes, in their own home; none outlives its test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.cli import main
from recollect.config import Settings
from recollect.ingest.watch import Pass, folders, watch

RECOLLECT = Path(sys.executable).parent / "recollect"
SOON = 15.0
"""Seconds within which a watcher must have seen a change, on a busy machine; on an idle one it takes about one."""

QUIET_MS = 20
"""For a watcher in a thread: tests do not wait for the quiet time of a real one."""


@dataclass
class Watcher:
    """A running `recollect` process, with its output so far."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def out(self) -> str:
        return self.output.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        return self.output.with_suffix(".err").read_text()

    @property
    def passes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def end(self, signal: int) -> int:
        self.process.send_signal(signal)
        return self.process.wait(SOON)


@dataclass
class ThreadWatcher:
    """A watch that runs in a thread, with its passes and messages so far."""

    passes: list[Pass] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    @property
    def errors(self) -> list[str]:
        return [done.error.message for done in self.passes if done.error]

    def end(self) -> None:
        self.stop.set()
        self.thread.join(SOON)
        assert not self.thread.is_alive()


def eventually(check: Callable[[], bool], why: Callable[[], object] = lambda: "", *, within: float = SOON) -> None:
    """Wait until something is so, and fail if it never is."""
    end = time.monotonic() + within
    while not check():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a new user."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RECOLLECT_", "XDG_"))}
    places = {name: str(tmp_path / name.lower()) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    return clean | places | {"RECOLLECT_STORE": str(tmp_path / "memory.db"), "RECOLLECT_EMBEDDER": "hashing:64"}


@pytest.fixture
def run(
    home: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in this process, in the home of the test."""

    def call(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name in os.environ.keys() - home.keys():
                patch.delenv(name)
            for name, value in (home | more).items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            capsys.readouterr()
            code = main(list(map(str, words)))
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, captured.out, captured.err)

    return call


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., ThreadWatcher]]:
    """Watch folders in a thread, and wait for the first pass of each; `options` are those of `Memory.index`."""
    started: list[ThreadWatcher] = []

    def start(*paths: Path, store: Path = tmp_path / "memory.db", rescan: float = 600.0, **options: Any) -> Any:
        watcher = ThreadWatcher()
        roots = folders(paths)

        def run() -> None:
            with Memory.open(store, embedder="hashing:64", settings=Settings()) as memory:
                for done in watch(
                    roots,
                    lambda root: memory.index(root, **options),
                    rescan=rescan,
                    ignore=store,
                    quiet_ms=QUIET_MS,
                    stop=watcher.stop,
                    announce=watcher.messages.append,
                ):
                    watcher.passes.append(done)

        watcher.thread = threading.Thread(target=run, daemon=True)
        started.append(watcher)
        watcher.thread.start()
        eventually(lambda: {done.root for done in watcher.passes} == set(roots), lambda: watcher.messages)
        return watcher

    yield start
    for watcher in started:
        watcher.end()


@pytest.fixture
def start(home: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Watcher]]:
    """Starts `recollect watch …` as a process; with `ready` waits for its first pass."""
    started: list[Watcher] = []

    def begin(*words: object, ready: bool = True, **more: str) -> Watcher:
        output = tmp_path / f"watcher-{len(started)}"
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            command = [str(RECOLLECT), "watch", "--json", *map(str, words)]
            process = subprocess.Popen(command, env=home | more, stdout=out, stderr=err)
        started.append(Watcher(process, output))
        if ready:
            watcher = started[-1]
            eventually(lambda: "\n" in watcher.out, lambda: watcher.err)
        return started[-1]

    yield begin
    for watcher in started:
        watcher.process.kill()
        watcher.process.wait()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """An empty folder of notes."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """The content of the store: file name → text of its one chunk."""
    memory = Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings())
    yield lambda: {Path(record.path).name: record.text for record in memory.list(limit=100_000)}
    memory.close()
