"""ASGI middleware for every request: id, host, origin, size, connection limits and metrics."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.errors import FailedError, RecollectError
from recollect.types import Trace
from recollect.web import responses
from recollect.web.responses import ForbiddenHost, ForbiddenOrigin

_log = logging.getLogger("recollect.web")

MOST_BYTES = 8 * 1024 * 1024
"""The largest request body: the longest record, with six bytes a character in JSON, and its fields."""

BODY_SECONDS = 60.0
"""Seconds from the end of a request's head to the end of its body."""

TOO_LARGE = f"a request may have {MOST_BYTES:,} bytes at the most"
TOO_SLOW = f"a request's body must be sent within {BODY_SECONDS:g} seconds"
ENDING = FailedError("the server is ending", hint="ask again when it is back")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

OWN_SITES = (None, "same-origin", "none")
"""Values of `Sec-Fetch-Site` that a page of another site cannot cause."""

_SOUND_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]\s/@]+)(?::\d{1,5})?", re.ASCII)

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
"""Headers of every answer. The page may contact only this server."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The host names of this server. Requests under other names are refused, against DNS rebinding."""

    bound: str
    allowed: Collection[str] = ()
    origins: Collection[str] = ()

    def check(self, host: str, origin: str | None, *, site: str | None = None) -> None:
        """Refuse a request with a foreign host name, or from a page of another site.

        `site` is what a browser says in `Sec-Fetch-Site`. A page of another site can make it send a GET without an
        `Origin`: by an image, a script or a link. `same-site` is refused as well: to a browser another port of this
        machine, or another subdomain, is the same site.
        """
        match = _HOST.fullmatch(host)
        if match is None or not self._known(match["name"].strip("[]").lower().rstrip(".")):
            raise ForbiddenHost("this server does not go by that name", hint="--allow-host NAME lets it")
        same = origin is None or origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
        if not same and origin not in self.origins:
            raise ForbiddenOrigin("pages of other sites may not ask here", hint="--allow-origin URL lets one")
        if site not in OWN_SITES and origin not in self.origins:
            raise ForbiddenOrigin("pages of other sites may not ask here", hint="--allow-origin URL lets one")

    def _known(self, name: str) -> bool:
        if name in (*LOOPBACK_NAMES, self.bound.strip("[]").lower(), *(one.lower() for one in self.allowed)):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A number is no name: whoever sends it has reached that very address.
        return address.is_loopback or not is_loopback(self.bound)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Guard:
    """The outermost middleware."""

    app: ASGIApp
    hosts: Hosts
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; every answer carries the request's id."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        watched = _Watched(send, request_id, stored=_is_page(scope))
        start = time.monotonic()
        try:
            site = None if _is_page(scope) else _only(headers, "sec-fetch-site")
            self.hosts.check(_only(headers, "host") or "", _only(headers, "origin"), site=site)
            _check_length(headers.get("content-length"))
            await self.app(scope, _limited(receive), watched)
        except RecollectError as error:
            owner = scope["state"].get("owner", False)
            await watched.answer(responses.answer(error, request_id, owner=owner), scope, receive)
        except HTTPException as error:
            await watched.answer(responses.plain(error, request_id), scope, receive)
        except asyncio.CancelledError:  # the server ends, and has waited as long as it does
            await watched.answer(responses.answer(ENDING, request_id), scope, receive)
        except Exception:  # noqa: BLE001  (the edge: what is left is a defect, and must not end the server)
            _log.exception("request %s failed", request_id)
            await watched.answer(responses.body(500, request_id, None, **responses.INTERNAL), scope, receive)
        finally:
            took = time.monotonic() - start - scope["state"].get("waited", 0.0)  # who waits is not slow
            self.metrics.saw_request(_route(scope), scope["method"], watched.status, took)


@dataclass(slots=True)
class _Watched:
    """Sends an answer with the headers, and records its status. Answers that are not `stored` must not be cached."""

    send: Send
    request_id: str
    stored: bool = False
    status: int = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if not self.stored:
                headers["Cache-Control"] = "no-store"
        await self.send(message)

    async def answer(self, response: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Send an answer instead of the application's, unless that has begun."""
        if not self.status:
            await response(scope, receive, self)


def _request_id(said: str | None) -> str:
    return said if said and _SOUND_ID.fullmatch(said) else uuid4().hex


def _only(headers: Headers, name: str) -> str | None:
    """The value of a header; an empty one if it is sent twice, since a proxy may have read the other."""
    return ", ".join(headers.getlist(name)) if name in headers else None


def _check_length(said: str | None) -> None:
    if said is not None and said.isascii() and said.isdigit() and int(said[:20]) > MOST_BYTES:
        raise HTTPException(413, TOO_LARGE)


def _limited(receive: Receive) -> Receive:
    """The body, up to the largest number of bytes and seconds; a chunked body has no length in advance.

    When the body is complete there is no limit any more: who waits for a change waits for the client to leave.
    """
    seen, complete = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def limited() -> Message:
        nonlocal seen, complete
        try:
            async with asyncio.timeout_at(None if complete else deadline):
                message = await receive()
        except TimeoutError:
            # The framework passes on no other kind from inside a body.
            raise HTTPException(408, TOO_SLOW, {"Connection": "close"}) from None
        complete = not message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > MOST_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return limited


def _is_page(scope: Scope) -> bool:
    """Whether the path is the page or one of its files, which hold no data of the memory."""
    path: str = scope["path"]
    return path == "/" or path.startswith("/static/")


def _route(scope: Scope) -> str:
    """The route's template: metrics must not contain ids."""
    if scope["path"] == "/mcp":
        return "/mcp"
    route = scope.get("route")
    return str(getattr(route, "path_format", None) or getattr(route, "path", "other"))


BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
REMEMBERED = 1000
"""Number of last searches for the percentiles."""


class Metrics:
    """The metrics of one server: counts and durations, never content."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        seconds = [edge / 1000 for edge in BUCKETS_MS]
        kept: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("recollect_requests", "Requests answered.", ["route", "method", "status"], **kept)
        self._request_seconds = Histogram(
            "recollect_request_seconds", "How long requests took.", ["route"], buckets=seconds, **kept
        )
        self._searches = Histogram(
            "recollect_search_seconds", "How long searches took.", ["mode"], buckets=seconds, **kept
        )
        self._sources = Histogram(
            "recollect_source_seconds", "How long sources took.", ["source", "status"], buckets=seconds, **kept
        )
        self._held = Gauge("recollect_records", "Records in the store.", ["kind"], **kept)
        self._without = Gauge("recollect_records_without_vector", "Records that only words can find yet.", **kept)
        self._bytes = Gauge("recollect_store_bytes", "Size of the store.", **kept)
        self._counts = [0] * (len(BUCKETS_MS) + 1)
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def saw_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        method = method if method in ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS") else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def saw_search(self, trace: Trace) -> None:
        """Count one search."""
        self._searches.labels(trace.mode).observe(trace.took_ms / 1000)
        for source in trace.sources:
            self._sources.labels(source.name, source.status).observe(source.took_ms / 1000)
        with self._lock:
            self._counts[bisect_left(BUCKETS_MS, trace.took_ms)] += 1
            self._recent.append(trace.took_ms)

    def latency(self) -> dict[str, Any]:
        """The histogram of searches since the start, and percentiles of the last ones."""
        with self._lock:
            counts, recent = list(self._counts), sorted(self._recent)
        edges: list[float | None] = [*BUCKETS_MS, None]
        return {
            "count": sum(counts),
            "p50_ms": _percentile(recent, 0.5),
            "p95_ms": _percentile(recent, 0.95),
            "buckets": [{"le_ms": edge, "count": count} for edge, count in zip(edges, counts, strict=True)],
        }

    def exposition(self, status: Mapping[str, Any]) -> bytes:
        """All metrics in Prometheus's text format, with the size of the store."""
        for kind, count in status["records"].items():
            self._held.labels(kind).set(count)
        self._without.set(status["vectors"]["without"])
        self._bytes.set(status["bytes"])
        return generate_latest(self.registry)


def _percentile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


_log = logging.getLogger("recollect.web")

HEAD_SECONDS = 10.0
"""Seconds from the connection, or the first byte of a further request, to the end of the request's head."""

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
        """Add a connection. If there are too many, close the one that has been incomplete for longest."""
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
        """Record whether a request is complete, begun, or absent."""
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
        """Remove the connection from the count."""
        self._stop_timer()
        self.connections_of_server.open.discard(self)
        self.connections_of_server.incomplete.pop(self, None)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once."""
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
