"""A contender's process, with a limit on its time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.contender import OWN
from benchmarks.speed.data import HOME, ROOT

MEMORY_LIMIT = 7_000_000_000
"""Bytes of a process that are not of files."""

LEAST_FREE = 1_500_000_000
"""Bytes of the machine's memory that must stay available while a contender works."""

QUIET = {
    "RUST_LOG": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
}


class Failed(Exception):
    """A contender could not do it, and why."""


class NotTried(Failed):
    """It would not fit into a limit."""


class Process:
    """Started at once; every command waits for its reply."""

    def __init__(self, command: Sequence[str], log: Path, path: str = "") -> None:
        self.log = log.open("ab")
        self.started = time.perf_counter()
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        environment = {**os.environ, **QUIET, "PYTHONPATH": path}
        self.child = subprocess.Popen(command, **pipes, cwd=ROOT, env=environment, start_new_session=True)

    @classmethod
    def of(cls, name: str, folder: Path, size: int) -> Process:
        """The process of a contender, whose files are in the folder; what it prints goes into a file beside it."""
        python = sys.executable if name == OWN else str(HOME / "bin" / "python")
        if not Path(python).exists():
            raise Failed("not installed: run `make .bench/.installed`")
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)]) if name == OWN else ""
        command = [python, "-m", "benchmarks.speed.worker", name, str(folder), str(size)]
        return cls(command, folder.with_suffix(".log"), path)

    def ask(self, do: str, limit: float, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for the reply, at most `limit` seconds."""
        assert self.child.stdin
        assert self.child.stdout
        deadline = time.monotonic() + limit
        try:
            self.child.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise Failed(self.ended()) from None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.child.stdout, selectors.EVENT_READ)
            while not waiting.select(0.5):
                self.check(do, limit, deadline)
        line = self.child.stdout.readline()
        if not line:
            raise Failed(self.ended())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply

    def check(self, do: str, limit: float, deadline: float) -> None:
        if self.anonymous() > MEMORY_LIMIT:
            self.kill()
            raise Failed(f"{do}: more than {MEMORY_LIMIT / 1e9:.0f} GB of memory")
        if (free := kilobytes("/proc/meminfo", "MemAvailable")) and free < LEAST_FREE:
            self.kill()
            raise Failed(f"{do}: less than {LEAST_FREE / 1e9} GB of the machine's memory were left")
        if time.monotonic() > deadline:
            self.kill()
            raise Failed(f"{do}: more than {limit:.0f} s")

    def anonymous(self) -> int:
        """Bytes of memory that are not of files."""
        return kilobytes(f"/proc/{self.child.pid}/status", "RssAnon|RssShmem")

    def ended(self) -> str:
        self.child.wait()
        return f"the process ended with status {self.child.returncode}"

    def end(self) -> None:
        """Let it close, for at most five seconds, and kill what is left."""
        assert self.child.stdin
        assert self.child.stdout
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        self.kill()
        self.child.stdout.close()
        self.log.close()

    def kill(self) -> None:
        """End it and the processes that it has started, if they run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def kilobytes(file: str, names: str) -> int:
    """The sum of lines like `RssAnon: 12 kB` in a file of /proc, in bytes; 0 without it."""
    try:
        text = Path(file).read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(number) * 1024 for number in re.findall(rf"(?:{names}):\s+(\d+)", text))
