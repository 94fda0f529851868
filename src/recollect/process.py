"""Another process of Python, which runs a module of this package and is talked to by its input and output."""

import contextlib
import os
import subprocess
import sys


def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module. It finds the packages that this process finds; what it prints as errors is dropped."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment)  # noqa: S603


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, whatever it does, and close its pipes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close() if pipe else None
    process.wait()
