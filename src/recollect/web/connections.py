"""Connections: how many there may be, and how long a client may take to say what it wants.

uvicorn has no such limits. A client that sends half a request would keep its connection for ever, and enough of them
would take every file that the process may open.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger("recollect.web")

HEAD_SECONDS = 10.0
"""From the connection, or the first byte of a further request, to the end of the request's head."""

MOST_CONNECTIONS = 1_000
"""Open at once; fewer where the process may open fewer than twice as many files."""

ACCEPTED_AT_ONCE = 20
"""Connections that asyncio accepts in one go, before any of them is counted."""

LOG_SECONDS = 60.0
"""Between two lines of the log about too many connections."""


def most_connections() -> int:
    """Half of the files that this process may open, up to a bound: the other half is for the store and the models."""
    try:
        import resource
    except ImportError:  # not on this system
        return MOST_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, files // 2))


@dataclass(slots=True)
class Connections:
    """All connections of one server, and those that have not sent a complete request, the longest waiting first."""

    most: int = field(default_factory=most_connections)
    open: set[LimitedProtocol] = field(default_factory=set)
    incomplete: dict[LimitedProtocol, None] = field(default_factory=dict)
    _logged: float = -LOG_SECONDS

    def admit(self, new: LimitedProtocol) -> None:
        """Take a connection in. Where there are too many, the one that has been incomplete for longest is closed."""
        self.open.add(new)
        self.incomplete[new] = None
        if len(self.open) > self.most:
            self._log()
            next(iter(self.incomplete)).drop()

    def _log(self) -> None:
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            _log.warning("more than %d connections are open; those without a complete request are closed", self.most)


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, with a time limit for the head of a request and a limit on connections."""

    connections_of_server: Connections

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for its first request."""
        super().connection_made(transport)
        if (connection := transport.get_extra_info("socket")) is not None:
            # asyncio does this only for sockets that were made with their protocol named. Without it the second part
            # of an answer waits 40 ms for the client to acknowledge the first.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections_of_server.admit(self)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Note whether a request is complete, begun, or not there yet."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self.connections_of_server.incomplete.setdefault(self)
            self._expect_head()
        else:
            self._stop_timer()
            if not self.cycle.more_body:
                self.connections_of_server.incomplete.pop(self, None)

    def on_response_complete(self) -> None:
        """Between two requests a connection may be closed to make room."""
        self.connections_of_server.incomplete[self] = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._stop_timer()
        self.connections_of_server.open.discard(self)
        self.connections_of_server.incomplete.pop(self, None)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once, whatever is still to be sent."""
        self.connections_of_server.open.discard(self)
        self.connections_of_server.incomplete.pop(self, None)
        self.transport.abort()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.drop)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def limited_protocol() -> type[LimitedProtocol]:
    """The protocol of one server, with connections of its own to count."""
    return type("LimitedProtocol", (LimitedProtocol,), {"connections_of_server": Connections()})


class AcceptFilter(logging.Filter):
    """Lets through one line a minute about connections that the system could not open, without its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._logged = -LOG_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        if not record.getMessage().startswith("socket.accept() out of system resource"):
            return True
        now, before = time.monotonic(), self._logged
        if now - before < LOG_SECONDS:
            return False
        self._logged, record.exc_info = now, None
        return True
