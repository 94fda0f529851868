"""A contender's process, with a limit on its time and memory."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.contender import OWN
from benchmarks.speed.data import HOME, ROOT

MEMORY_LIMIT = 7_000_000_000
"""Bytes of a process that are not of files: what two of them at once and the page cache leave room for here."""

QUIET = {
    "RUST_LOG": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
}


class Failed(Exception):
    """A contender could not do it, and why."""


class Process:
    """Started at once; every command waits for its reply."""

    def __init__(self, name: str, folder: Path, size: int) -> None:
        python = sys.executable if name == OWN else str(HOME / "bin" / "python")
        if not Path(python).exists():
            raise Failed("not installed: run `make .bench/.installed`")
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])} if name == OWN else {}
        self.log = (folder.parent / f"{folder.name}.log").open("ab")
        self.started = time.perf_counter()
        command = [python, "-m", "benchmarks.speed.worker", name, str(folder), str(size)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.child = subprocess.Popen(command, **pipes, cwd=ROOT, env={**os.environ, **QUIET, **path})

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
            self.end()
            raise Failed(f"{do}: more than {MEMORY_LIMIT / 1e9:.0f} GB of memory")
        if time.monotonic() > deadline:
            self.end()
            raise Failed(f"{do}: more than {limit:.0f} s")

    def anonymous(self) -> int:
        """Bytes of memory that are not of files."""
        try:
            status = Path(f"/proc/{self.child.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        return sum(int(kilobytes) * 1024 for kilobytes in re.findall(r"(?:RssAnon|RssShmem):\s+(\d+)", status))

    def ended(self) -> str:
        self.child.wait()
        return f"the process ended with status {self.child.returncode}"

    def end(self) -> None:
        """Close it if it can, else kill it."""
        if self.child.poll() is None:
            self.child.stdin.close()  # type: ignore[union-attr]
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.log.close()
