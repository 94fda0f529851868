"""A request that is not waited for longer than it may take, on a connection that is cut when that time is up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.types import Asked

GRACE_S = 0.08
"""How long a request whose connection was cut is waited for, so that it gives everything back."""


def in_time(exchange: Callable[[Line], bytes], asked: Asked) -> bytes:
    """What comes of an exchange on a line; TimeoutError at the deadline, whatever it hangs in, even a name's lookup."""
    line = Line()
    asking = _Asking(exchange, line)
    asking.start()
    try:
        asking.join(asked.seconds_left)
        late = asking.is_alive()
    finally:
        line.cut()
        asking.join(GRACE_S)
    if late:
        raise TimeoutError
    return asking.result()


@dataclass(slots=True)
class Line:
    """The connection of one request, by a handle of our own, so that it can be cut from another thread at any time.

    The client's socket changes hands (TLS takes it over) and may be closed, and its number given to another, while we
    reach for it; a duplicate is ours until we close it.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _socket: socket.socket | None = None
    _cut: bool = False

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """What the client calls at each step (httpx2's extension `trace`)."""
        if event.endswith(".connect_tcp.complete"):
            self._take(info["return_value"].get_extra_info("socket"))

    def _take(self, theirs: socket.socket) -> None:
        with self._lock:
            if self._cut:
                _shut(theirs)
                return
            try:
                self._socket = theirs.dup()
            except OSError:  # no file is left to open; the client does not close what it was not yet given
                theirs.close()
                raise

    def cut(self) -> None:
        """End the connection, now or as soon as there is one; who reads or writes there finds it closed."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                _shut(self._socket)
                self._socket.close()
                self._socket = None


class _Asking(threading.Thread):
    """An exchange under way, in a thread that nobody has to wait for."""

    def __init__(self, exchange: Callable[[Line], bytes], line: Line) -> None:
        super().__init__(name="asks a source", daemon=True)
        self._exchange = exchange
        self._line = line
        self._content = b""
        self._error: Exception | None = None

    def run(self) -> None:
        """Keep what comes of it."""
        try:
            self._content = self._exchange(self._line)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            self._error = error

    def result(self) -> bytes:
        """What came of it."""
        if self._error is not None:
            raise self._error
        return self._content


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
