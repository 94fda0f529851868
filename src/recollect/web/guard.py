"""What every request passes before anything of ours runs: id, host, origin, size. Plain ASGI, so that streams flow."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.errors import FailedError, RecollectError
from recollect.web import errors
from recollect.web.errors import ForbiddenHost, ForbiddenOrigin
from recollect.web.metrics import Metrics

_log = logging.getLogger("recollect.web")

MOST_BYTES = 8 * 1024 * 1024
"""Of a request's body: the longest record, of letters that take six bytes in JSON, and room for its fields."""

BODY_SECONDS = 60.0
"""From the end of a request's head to the end of its body."""

TOO_LARGE = f"a request may have {MOST_BYTES:,} bytes at the most"
TOO_SLOW = f"a request's body must be sent within {BODY_SECONDS:g} seconds"
ENDING = FailedError("the server is ending", hint="ask again when it is back")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

OWN_SITES = (None, "same-origin", "none")
"""Values of `Sec-Fetch-Site` that no other page can cause: not a browser, our own page, typed by the user."""

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
"""On every answer; the page asks nobody but this server."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """Which names this server goes by. A foreign name that leads here is how other sites' pages reach in."""

    bound: str
    allowed: Collection[str] = ()
    origins: Collection[str] = ()

    def check(self, host: str, origin: str | None, *, site: str | None = None) -> None:
        """Refuse a request by a foreign name, or from a page of another site.

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
    """Whether only this machine can reach what listens there."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Guard:
    """The outermost part of the server."""

    app: ASGIApp
    hosts: Hosts
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not; every answer carries the request's id."""
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
            await watched.answer(errors.answer(error, request_id, owner=owner), scope, receive)
        except HTTPException as error:
            await watched.answer(errors.plain(error, request_id), scope, receive)
        except asyncio.CancelledError:  # the server ends, and has waited as long as it does
            await watched.answer(errors.answer(ENDING, request_id), scope, receive)
        except Exception:  # noqa: BLE001  (the edge: what is left is a defect, and must not end the server)
            _log.exception("request %s failed", request_id)
            await watched.answer(errors.body(500, request_id, None, **errors.INTERNAL), scope, receive)
        finally:
            took = time.monotonic() - start - scope["state"].get("waited", 0.0)  # who waits is not slow
            self.metrics.saw_request(_route(scope), scope["method"], watched.status, took)


@dataclass(slots=True)
class _Watched:
    """Sends an answer with our headers on it, and remembers its status. What is not `stored` no cache may keep."""

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
        """Answer in the application's place, unless it has begun to answer itself."""
        if not self.status:
            await response(scope, receive, self)


def _request_id(said: str | None) -> str:
    return said if said and _SOUND_ID.fullmatch(said) else uuid4().hex


def _only(headers: Headers, name: str) -> str | None:
    """A header as it was said; said twice it is no name at all, for a proxy before us may have believed the other."""
    return ", ".join(headers.getlist(name)) if name in headers else None


def _check_length(said: str | None) -> None:
    if said is not None and said.isascii() and said.isdigit() and int(said[:20]) > MOST_BYTES:
        raise HTTPException(413, TOO_LARGE)


def _limited(receive: Receive) -> Receive:
    """The body as it comes, up to the most bytes and seconds: what is sent in pieces says no length beforehand.

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
    """Whether the page itself is asked for, or one of its files: they hold nothing of the memory."""
    path: str = scope["path"]
    return path == "/" or path.startswith("/static/")


def _route(scope: Scope) -> str:
    """The route as it is written, not as it was called: ids are not for the metrics."""
    if scope["path"] == "/mcp":
        return "/mcp"
    route = scope.get("route")
    return str(getattr(route, "path_format", None) or getattr(route, "path", "other"))
