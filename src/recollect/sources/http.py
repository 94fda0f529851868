"""An HTTP address as a search system: one request a question, on a connection that is cut when the time is up."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from recollect.config.sources import SourceSettings
from recollect.config.templates import fields, fill, fill_json
from recollect.errors import RecollectError, SourceFailed, TimedOut, TooLong, UsageError
from recollect.sources.deadlines import Line, in_time
from recollect.sources.documents import MOST_BYTES, excerpt, parse, secrets_of
from recollect.types import Asked

if TYPE_CHECKING:
    import httpx2

REASON_BYTES = 64 * 1024
"""How much of an error's page is read."""

ADVICE = {
    401: "check the token (token_env) or the headers of this source",
    403: "check the token (token_env) or the headers of this source",
    404: "check the url of this source",
    405: "check the method of this source",
}

TOO_LONG = (413, 414)
"""What a server answers to a body or an address that is longer than it takes."""

MOST_URL = 65_536
"""Characters of an address; the library that asks takes no more."""

_ALWAYS = {b"accept-encoding": b"identity", b"connection": b"close"}
"""Packed answers could grow beyond every bound while they are unpacked, and a kept connection is one left behind."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class HttpSystem:
    """Asks one address by GET or POST. It follows no redirect, keeps no cookie and shows no secret."""

    def __init__(self, said: SourceSettings) -> None:
        options = said.options
        self._url: str = options["url"]
        self._body: Any = options.get("body")
        self._method: str = options.get("method", "GET" if self._body is None else "POST")
        self._headers: Mapping[str, str] = options.get("headers", {})
        self._token_env: str | None = options.get("token_env")
        self._check(said.name)
        self._secrets = _secrets(self._url, self._headers)
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None

    def _check(self, name: str) -> None:
        if fields(urlsplit(self._url).netloc):
            raise UsageError(
                f"the source {name!r} takes the host to ask from what is asked: {self.host}",
                hint="write the host itself; {query} belongs behind it",
            )
        try:
            _ = urlsplit(self._url).port
        except ValueError as error:
            raise UsageError(f"the source {name!r} cannot ask {self.host}: {error}", hint="check its url") from error
        try:
            json.dumps(self._body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the body of the source {name!r} cannot be sent as JSON: {error}",
                hint="use texts, numbers, true, false, lists and tables",
            ) from error

    @property
    def host(self) -> str:
        """Host and port, without anything secret that an address may hold."""
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def ask(self, asked: Asked) -> Any:
        """What the address answers, as JSON is read."""
        if asked.seconds_left <= 0:
            raise self._late()
        sent = self._fill(asked)
        try:
            content = in_time(partial(self._exchange, sent, asked), asked)
        except TimeoutError as error:
            raise self._late() from error
        except RuntimeError as error:
            raise SourceFailed(f"asking {self.host} failed: {error}") from error  # no thread can be started
        return parse(content, self.host, sent.secrets)

    def close(self) -> None:
        """Give back the client."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _fill(self, asked: Asked) -> _Sent:
        values = {"query": asked.text, "fetch_k": asked.fetch_k, "scope": asked.scope.as_dict()}
        url = fill(self._url, values, partial(quote, safe="", errors="replace"))
        headers = {b"accept": b"application/json", b"user-agent": b"recollect"}
        content = None
        if self._body is not None:
            content = json.dumps(fill_json(self._body, values), ensure_ascii=False).encode("utf-8", "replace")
            headers[b"content-type"] = b"application/json"
        headers |= {_header(name.lower()): _header(fill(text, values)) for name, text in self._headers.items()}
        secrets = self._secrets
        if self._token_env is not None:
            token = self._token(self._token_env)
            headers[b"authorization"] = _header(f"Bearer {token}")
            secrets = (*secrets, token)
        return _Sent(url, headers | _ALWAYS, content, secrets)

    def _token(self, variable: str) -> str:
        token = os.environ.get(variable, "").strip()
        if not token:
            raise SourceFailed(
                f"the environment variable {variable}, which holds the token for {self.host}, is not set",
                hint=f"set {variable}, or remove token_env from this source",
            )
        return token

    def _exchange(self, sent: _Sent, asked: Asked, line: Line) -> bytes:
        """One request and its answer. The client's own time-outs are for each step, so that they only help."""
        import httpx2

        try:
            with self._http().stream(
                self._method,
                sent.url,
                headers=list(sent.headers.items()),
                content=sent.content,
                timeout=max(asked.seconds_left, 0.001),
                extensions={"trace": line.trace},
            ) as response:
                return self._read(response, sent)
        except RecollectError:
            raise
        except httpx2.TimeoutException as error:
            raise self._late() from error
        except Exception as error:  # an edge: what a library makes of a server's bytes has no end of names
            what = f"{type(error).__name__}: {excerpt(str(error), sent.secrets)}"
            too_long = isinstance(error, httpx2.InvalidURL) and len(sent.url) > MOST_URL
            failure = TooLong if too_long else SourceFailed
            raise failure(f"asking {self.host} failed: {what}", hint=_hint(error)) from error

    def _http(self) -> httpx2.Client:
        """The client, made at first use. No connection outlives its request, and no cookie is kept."""
        import httpx2

        with self._lock:
            if self._client is None:
                self._client = httpx2.Client(
                    follow_redirects=False,
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
                )
            return self._client

    def _read(self, response: httpx2.Response, sent: _Sent) -> bytes:
        if not response.is_success:
            raise self._refused(response, sent)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise SourceFailed(
                f"{self.host} answered in the encoding {excerpt(encoding)}, which it was not asked for",
                hint="have the server honour Accept-Encoding: identity",
            )
        content = bytearray()
        for piece in response.iter_raw():
            content += piece
            if len(content) > MOST_BYTES:
                raise SourceFailed(
                    f"{self.host} answered with more than {MOST_BYTES // 2**20} MiB",
                    hint="ask it for fewer or shorter results",
                )
        return bytes(content)

    def _refused(self, response: httpx2.Response, sent: _Sent) -> SourceFailed:
        status = response.status_code
        if response.has_redirect_location:
            where = urlsplit(response.headers["location"]).hostname or "another path"
            return SourceFailed(
                f"{self.host} answered {status}, a redirect to {excerpt(where, sent.secrets)}, which is not followed",
                hint="give that address as url if it is the right one",
            )
        content = bytearray()
        for piece in response.iter_raw():
            content += piece
            if len(content) > REASON_BYTES:
                break
        said = excerpt(content.decode("utf-8", "replace"), sent.secrets) if content.strip() else "nothing more"
        failure = TooLong if status in TOO_LONG else SourceFailed
        return failure(
            f"{self.host} answered {status}: {said}", hint=ADVICE.get(status, "the server's own words say why")
        )

    def _late(self) -> TimedOut:
        return TimedOut(f"{self.host} did not answer in time", hint="raise timeout_ms of this source")


@dataclass(frozen=True, slots=True)
class _Sent:
    """One request, filled; `secrets` are what no error may repeat."""

    url: str
    headers: dict[bytes, bytes]
    content: bytes | None
    secrets: tuple[str, ...]


def _header(text: str) -> bytes:
    """A header's name or value: no line break may begin another one."""
    return _CONTROL.sub("", text).strip().encode("utf-8", "replace")


def _secrets(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What the settings hold that is nobody's business: a password, a key in the address or in a header."""
    parts = urlsplit(url)
    named = secrets_of(dict(parse_qsl(parts.query))) + secrets_of(headers)
    return (parts.password or "", *named, *(text.rpartition(" ")[2] for text in named))


def _hint(error: Exception) -> str:
    import httpx2

    match error:
        case httpx2.InvalidURL():
            return "check the url of this source; a long question is better sent in a body"
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return "check the url and the headers of this source"
        case httpx2.ProxyError() | ImportError():
            return "check the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)"
    return "check that the server runs and that the url of this source is right"
