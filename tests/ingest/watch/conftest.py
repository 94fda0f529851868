"""Watchers as real processes, in a home of their own, that do not outlive their test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings

RECOLLECT = Path(sys.executable).parent / "recollect"
SOON = 15.0
"""Seconds within which a watcher must have seen a change, on a busy machine; on an idle one it takes about one."""


@dataclass
class Watcher:
    """A running `recollect`, with what it has said so far."""

    process: subprocess.Popen[bytes]
    said: Path

    @property
    def out(self) -> str:
        return self.said.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        return self.said.with_suffix(".err").read_text()

    @property
    def passes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def end(self, signal: int) -> int:
        self.process.send_signal(signal)
        return self.process.wait(SOON)


def eventually(check: Callable[[], bool], why: Callable[[], object] = lambda: "", *, within: float = SOON) -> None:
    """Wait until something is so, and fail if it never is."""
    end = time.monotonic() + within
    while not check():
        assert time.monotonic() < end, why()
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has nothing yet."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RECOLLECT_", "XDG_"))}
    places = {name: str(tmp_path / name.lower()) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    return clean | places | {"RECOLLECT_STORE": str(tmp_path / "memory.db"), "RECOLLECT_EMBEDDER": "hashing:64"}


@pytest.fixture
def run(home: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command to its end."""

    def call(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        command = [str(RECOLLECT), *map(str, words)]
        return subprocess.run(
            command, env=home | more, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return call


@pytest.fixture
def start(home: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Watcher]]:
    """Start `recollect watch …`; with `ready` wait until it has made its first pass."""
    started: list[Watcher] = []

    def begin(*words: object, ready: bool = True, **more: str) -> Watcher:
        said = tmp_path / f"watcher-{len(started)}"
        with said.with_suffix(".out").open("wb") as out, said.with_suffix(".err").open("wb") as err:
            command = [str(RECOLLECT), "watch", "--json", *map(str, words)]
            process = subprocess.Popen(command, env=home | more, stdout=out, stderr=err)
        started.append(Watcher(process, said))
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
    """What the store has now: file name → text of its one chunk."""
    memory = Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings())
    yield lambda: {Path(record.path).name: record.text for record in memory.list(limit=100_000)}
    memory.close()
