"""Other processes of Python: one that runs a module and is talked to, and one that goes on by itself."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, Self


def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module. It finds the packages that this process finds; what it prints as errors is dropped."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment)  # noqa: S603


class ChildProcess:
    """A process that is talked to. It ends with the block, or when `close` is called."""

    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does, and close its pipes."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close() if pipe else None
            process.wait()


def detach(words: Sequence[str], environment: Mapping[str, str], errors: IO[bytes] | int = subprocess.DEVNULL) -> int:
    """Run a command of this program in a process that goes on when this one and its terminal end; return its number.

    `environment` is added to that of this process.
    """
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    nothing = subprocess.DEVNULL
    # -P: a `recollect.py` in the current folder is not this program.
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-m", "recollect", *words],
        stdin=nothing, stdout=nothing, stderr=errors, env={**os.environ, **environment}, **apart,
    )  # fmt: skip
    process.returncode = 0  # nobody waits for it
    return process.pid
