"""Processes that do not outlive their test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python processes that can be talked to, and ends those that are left when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
