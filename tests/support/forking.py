"""Commands of `recollect` in processes that are forked from one that has imported everything.

To import the server costs 1.5 seconds of a processor, to fork it a few milliseconds. All else is that of a process of
its own: arguments, environment, folder, output, signals, exit code. Where a test is about the start itself, sets limits
of the process, or looks at the tree of processes, it starts `python -m recollect`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FORKED = Path(__file__).with_name("forked.py")


def recollect_words(*words: object) -> list[str]:
    """The words of a command: those of `recollect`, run in a forked process where that is possible."""
    if sys.platform != "linux":
        return [sys.executable, "-m", "recollect", *map(str, words)]
    return [sys.executable, "-S", "-I", str(FORKED), _forking(), *map(str, words)]


class ForkedProcess:
    """A command of `recollect`, or a Python program, in a forked process that can be killed; its output is in a file.

    The words are those of the command; or the path of the program, which ends with `.py`, and its arguments.
    """

    def __init__(self, *words: object, home: Path, output: Path) -> None:
        folders = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RECOLLECT_MODELS"), str(home))
        environment = {**os.environ, **folders, "RECOLLECT_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
        request = {"words": [str(word) for word in words], "environment": environment, "folder": str(home)}
        self.output = output
        self._code: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_forking())
        with Path(os.devnull).open() as nothing, output.open("w") as file:
            content = json.dumps(request).encode()
            descriptors = [nothing.fileno(), file.fileno(), file.fileno()]
            socket.send_fds(self._connection, [len(content).to_bytes(4, "big")], descriptors)
            self._connection.sendall(content)
        self.pid = int.from_bytes(self._connection.recv(4, socket.MSG_WAITALL), "big")

    def kill(self) -> int:
        """End it with SIGKILL, wait until it has ended, and return its exit code: -9 if it was alive."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self, seconds: float = 120) -> int:
        """Wait for its end and return its exit code."""
        if self._code is None:
            self._connection.settimeout(seconds)
            self._code = int.from_bytes(self._connection.recv(4, socket.MSG_WAITALL), "big", signed=True)
            self._connection.close()
        return self._code


@functools.cache
def _forking() -> str:
    """The socket of the process that forks: one for a run of tests, ended with it."""
    place = f"{tempfile.mkdtemp(prefix='recollect-fork-')}/socket"
    process = subprocess.Popen([sys.executable, "-P", __file__, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        process.stdin.close()
        process.wait()
        process.stdout.close()

    atexit.register(end)
    assert process.stdout.readline() == b"ready\n", "the process that forks did not start"
    return place


def main(place: str) -> int:
    """Fork a process for each connection, until standard input ends; what the forked ones return is their exit code."""
    import recollect.cli
    import recollect.web.app  # noqa: F401
    from recollect.web import workers

    workers.BOUND_SECONDS = 60.0  # a busy machine reaches the limit of scoped callers too soon
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(128)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return watch(connection)
            connection.close()
    shutil.rmtree(Path(place).parent)
    return 0


def watch(connection: socket.socket) -> int:
    """Fork once more for the command, and tell the other end its id and its exit code; end it if the other end does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    request = json.loads(connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    process = os.fork()
    if process == 0:
        connection.close()
        return command(request, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        connection.sendall(process.to_bytes(4, "big"))
    ended = os.pidfd_open(process)
    if ended not in select.select([ended, connection], [], [])[0]:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def command(request: dict[str, Any], descriptors: list[int]) -> int:
    """Run the command with what was sent."""
    from recollect.cli import main as run

    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["recollect", *request["words"]]
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), "utf-8", "backslashreplace", line_buffering=True
    )
    if sys.argv[1].endswith(".py"):
        sys.argv.pop(0)
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    return run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
