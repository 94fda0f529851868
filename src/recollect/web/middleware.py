"""What every request passes: connection limits, and ASGI middleware for id, host, origin, size and metrics."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
import socket
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import h11
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.dataclass import dataclass
from recollect.errors import FailedError, RecollectError
from recollect.network.addresses import is_local
from recollect.types import Trace
from recollect.web import responses
from recollect.web.responses import ForbiddenHost, ForbiddenOrigin

_log = logging.getLogger("recollect.web")

MOST_BYTES = 8 * 1024 * 1024  # the longest record, with six bytes a character in JSON, and its fields
BODY_SECONDS = 60.0  # from the end of a request's head to the end of its body
TOO_LARGE = f"a request may have {MOST_BYTES:,} bytes at the most"
TOO_SLOW = f"a request's body must be sent within {BODY_SECONDS:g} seconds"
ENDING = FailedError("the server is ending", hint="try again when it is running")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

OWN_SITES = (None, "same-origin", "none")  # values of `Sec-Fetch-Site` that a page of another site cannot cause
_SOUND_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]\s/@]+)(?::\d{1,5})?", re.ASCII)

HEADERS = {  # headers of every answer. The page may contact only this server.
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


@dataclass(frozen=True, slots=True)
class Hosts:
    """The host names of this server. Requests under other names are refused, against DNS rebinding."""

    bound: str
    allowed: Collection[str] = ()
    origins: Collection[str] = ()

    def check(self, host: str, origin: str | None, *, site: str | None = None) -> None:
        """Refuse a request with a foreign host name, or from a page of another site.

        `site` is `Sec-Fetch-Site`: another page can cause a GET without an `Origin`, by an image, a script or a link.
        `same-site` is refused as well: to a browser, another port or subdomain of this machine is the same site.
        """
        match = _HOST.fullmatch(host)
        if match is None or not self._known(match["name"].strip("[]").lower().rstrip(".")):
            raise ForbiddenHost("this server does not accept this host name", hint="start it with --allow-host NAME")
        own = origin is None or origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
        if origin not in self.origins and not (own and site in OWN_SITES):
            raise ForbiddenOrigin("pages of other sites are refused", hint="start the server with --allow-origin URL")

    def _known(self, name: str) -> bool:
        if name in (*LOOPBACK_NAMES, self.bound.strip("[]").lower(), *(one.lower() for one in self.allowed)):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A numeric address cannot be rebound by DNS.
        return address.is_loopback or not is_local(self.bound)


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
        headers, state, path = Headers(scope=scope), scope.setdefault("state", {}), scope["path"]
        is_page = path == "/" or path.startswith("/static/")  # they hold no data of the memory
        sent_id = headers.get("x-request-id", "")
        request_id = state["request_id"] = sent_id if _SOUND_ID.fullmatch(sent_id) else uuid4().hex
        start, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = MutableHeaders(scope=message)
                added["X-Request-Id"] = request_id
                for name, value in HEADERS.items():
                    added.setdefault(name, value)
                added["Cache-Control"] = "no-cache" if is_page else "no-store"
            await send(message)

        try:
            self._check(headers, is_page)
            await self.app(scope, _limited(receive), watched)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (the edge: a defect must not end the server)
            refusal = _refusal(error, request_id, owner=state.get("owner", False))
            if not status:
                await refusal(scope, receive, watched)
        finally:
            route = scope.get("route")  # its template: metrics must not contain ids
            template = path if path == "/mcp" else getattr(route, "path_format", getattr(route, "path", "other"))
            took = time.monotonic() - start - state.get("waited", 0.0)  # without the time spent waiting for a change
            self.metrics.saw_request(template, scope["method"], status, took)

    def _check(self, headers: Headers, is_page: bool) -> None:
        # A header that is sent twice is joined, and so refused: a proxy may have read only one.
        names = ("host", "origin", "sec-fetch-site")
        host, origin, site = (", ".join(headers.getlist(name)) if name in headers else None for name in names)
        self.hosts.check(host or "", origin, site=None if is_page else site)
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > MOST_BYTES:
            raise HTTPException(413, TOO_LARGE)


def _refusal(error: BaseException, request_id: str, *, owner: bool) -> ASGIApp:
    match error:
        case RecollectError():
            return responses.answer(error, request_id, owner=owner)
        case HTTPException():
            return responses.plain(error, request_id)
        case asyncio.CancelledError():  # the server ends, and has waited as long as it does
            return responses.answer(ENDING, request_id)
    _log.error("request %s failed", request_id, exc_info=error)
    return responses.body(500, request_id, None, **responses.INTERNAL)


def _limited(receive: Receive) -> Receive:
    """The body, within limits of size and time. After it, waiting for the client to disconnect has no limit."""
    size, complete = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def limited() -> Message:
        nonlocal size, complete
        try:
            async with asyncio.timeout_at(None if complete else deadline):
                message = await receive()
        except TimeoutError:
            # The framework passes on no other kind from inside a body.
            raise HTTPException(408, TOO_SLOW, {"Connection": "close"}) from None
        complete = not message.get("more_body", False)
        size += len(message.get("body", b""))
        if size > MOST_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return limited


BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
METHODS = ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS")
REMEMBERED = 1000  # last searches for the percentiles


class Metrics:
    """The metrics of one server: counts and durations, never content."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, namespace="recollect", registry=self.registry)
        seconds = [edge / 1000 for edge in BUCKETS_MS]
        histogram = partial(Histogram, namespace="recollect", registry=self.registry, buckets=seconds)
        labels = ["route", "method", "status"]
        self._requests = Counter("recollect_requests", "Requests answered.", labels, registry=self.registry)
        self._request_seconds = histogram("request_seconds", "How long requests took.", ["route"])
        self._searches = histogram("search_seconds", "How long searches took.", ["mode"])
        self._sources = histogram("source_seconds", "How long sources took.", ["source", "status"])
        self._records = gauge("records", "Records in the store.", ["kind"])
        self._without = gauge("records_without_vector", "Records that only words can find yet.")
        self._bytes = gauge("store_bytes", "Size of the store.")
        self._counts = [0] * (len(BUCKETS_MS) + 1)
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def saw_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(route, method if method in METHODS else "other", str(status)).inc()
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
        edges = (*BUCKETS_MS, None)
        return {
            "count": sum(counts),
            "p50_ms": recent[int(0.5 * len(recent))] if recent else None,
            "p95_ms": recent[int(0.95 * len(recent))] if recent else None,
            "buckets": [{"le_ms": edge, "count": count} for edge, count in zip(edges, counts, strict=True)],
        }

    def exposition(self, status: Mapping[str, Any]) -> bytes:
        """All metrics in Prometheus's text format, with the size of the store."""
        for kind, count in status["records"].items():
            self._records.labels(kind).set(count)
        self._without.set(status["vectors"]["without"])
        self._bytes.set(status["bytes"])
        return generate_latest(self.registry)


HEAD_SECONDS = 10.0  # from the connection, or the first byte of a further request, to the end of the request's head
MOST_CONNECTIONS = 1_000  # open at once; fewer where the process may open fewer than twice as many files
BACKLOG = 2048  # connections that the system holds until they are accepted
ACCEPTED_AT_ONCE = 20  # connections that asyncio accepts in one go, before any of them is counted
LOG_SECONDS = 60.0  # between two lines of the log about too many connections


def most_connections() -> int:
    """Half of the files that this process may open, up to a bound: the other half is for the store and the models."""
    try:
        import resource
    except ImportError:  # not on this system
        return MOST_CONNECTIONS
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, files // 2))


class AcceptFilter(logging.Filter):
    """Lets through one line a minute about too many connections, without its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._logged = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        if not record.getMessage().startswith(("socket.accept() out of system resource", "more than")):
            return True
        now = time.monotonic()
        if now - self._logged < LOG_SECONDS:
            return False
        self._logged, record.exc_info = now, None
        return True


_log.addFilter(AcceptFilter())


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, with a time limit for the head of a request and a limit on connections.

    The connections of a server that have no complete request are `incomplete`, the longest waiting first.
    """

    most: int
    incomplete: dict[LimitedProtocol, None]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for its first request. If there are too many, close the one that has been incomplete for longest."""
        super().connection_made(transport)
        if (connection := transport.get_extra_info("socket")) is not None:
            # asyncio does this only for sockets that were made with their protocol named. Without it the second part
            # of an answer waits 40 ms for the client to acknowledge the first.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_head()
        if len(self.connections) > self.most:
            _log.warning("more than %d connections are open; those without a request are closed", self.most)
            next(iter(self.incomplete)).drop()

    def data_received(self, data: bytes) -> None:
        """Record whether a request is complete, begun, or absent."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
        else:
            self._stop_timer()
            if not self.cycle.more_body:
                self.incomplete.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no valid HTTP, with the JSON and the headers of every other error."""
        request_id = uuid4().hex
        headers = {**HEADERS, "X-Request-Id": request_id, "Cache-Control": "no-store", "Connection": "close"}
        hint = "check the request line, the headers and the length"
        answer = responses.body(400, request_id, headers, code="usage", message=msg, hint=hint)
        for event in (
            h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """Between two requests a connection may be closed to make room."""
        self.incomplete[self] = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is not waited for any more."""
        self._stop_timer()
        self.incomplete.pop(self, None)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self.incomplete.pop(self, None)
        self.transport.abort()

    def _expect_head(self) -> None:
        self.incomplete.setdefault(self)
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.drop)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class DrainingServer(Server):
    """uvicorn's server, which ends the waiting for changes before it waits for open connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen again, because uvicorn's `backlog` is also how many connections asyncio accepts in one go."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer waiting clients, then shut down."""
        self.config.app.state.changes.end()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def limited_protocol() -> type[LimitedProtocol]:
    """The protocol of one server, with connections of its own to count."""
    return type("LimitedProtocol", (LimitedProtocol,), {"most": most_connections(), "incomplete": {}})
