"""Runs a command of `recollect` in a process that `forking` forks, and stands for it: output, signals and exit code.

`python -S -I forked.py SOCKET WORDS...`; it imports as little as it can.
"""

import json
import os
import signal
import socket
import sys


def main(place: str, *words: str) -> int:
    """The exit code of the command."""
    folder = os.getcwd()  # noqa: PTH109  (pathlib takes time to import)
    request = json.dumps({"words": words, "environment": dict(os.environ), "folder": folder}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(request)
        process = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(process, number))
        os.close(0)
        os.close(1)
        code = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big", signed=True)
    if code < 0:  # it was ended by a signal, and so are we
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
