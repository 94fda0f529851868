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
    return run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
