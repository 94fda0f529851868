"""A real server process with the SDK's client, and the same server with raw messages."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.agents import Hosted, Served, Spoken, hosting


@pytest.fixture
def served(path: Path, tmp_path: Path) -> Served:
    """The server of a test's store, in an empty home."""
    return Served(path, tmp_path)


@pytest.fixture
def spoken(served: Served) -> Iterator[Callable[..., Spoken]]:
    """Starts servers for raw messages, and ends the remaining ones."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> Spoken:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, **served.environment}
        command = [sys.executable, "-m", "recollect", *served.flags(*flags)]  # not forked: these tests are about it
        started.append(subprocess.Popen(command, env=environment, text=True, **pipes))
        return Spoken(started[-1])

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """One server for a file of tests, with tokens."""
    home = tmp_path_factory.mktemp("hosted")
    with hosting(home, "--tokens", str(home / "tokens.json")) as hosted:
        hosted.token("nobody-else")  # from the first on, each request needs one
        yield hosted


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    """One server for a file of tests, without tokens."""
    with hosting(tmp_path_factory.mktemp("bare"), "--no-token") as bare:
        yield bare
