"""How an external search system is reached: by HTTP, or by running a command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from recollect.config.sources import SourceSettings, fields, fill, fill_json
from recollect.errors import RecollectError, SourceFailed, TimedOut, TooLong, UsageError
from recollect.sources.matcher import MOST_BYTES, excerpt, parse, secrets_of
from recollect.types import ExternalQuery

if TYPE_CHECKING:
    import httpx2

ERROR_BYTES = 64 * 1024
"""How much of an error page is read."""

HINTS = {
    401: "check the token (token_env) or the headers of this source",
    403: "check the token (token_env) or the headers of this source",
    404: "check the url of this source",
    405: "check the method of this source",
}

TOO_LONG = (413, 414)
"""The status codes for a body or an address that is too long for the server."""

MOST_URL = 65_536
"""Characters of an address; httpx2 takes no more."""

_ALWAYS = {b"accept-encoding": b"identity", b"connection": b"close"}
"""A compressed answer could grow beyond every bound, and a connection that is kept alive is one left behind."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class HttpSystem:
    """Sends each query to one address by GET or POST. It follows no redirect, keeps no cookie, shows no secret."""

    def __init__(self, settings: SourceSettings) -> None:
        options = settings.options
        self._url: str = options["url"]
        self._body: Any = options.get("body")
        self._method: str = options.get("method", "GET" if self._body is None else "POST")
        self._headers: Mapping[str, str] = options.get("headers", {})
        self._token_env: str | None = options.get("token_env")
        self._check(settings.name)
        self._secrets = _secrets(self._url, self._headers)
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None

    def _check(self, name: str) -> None:
        if fields(urlsplit(self._url).netloc):
            raise UsageError(
                f"the url of the source {name!r} takes its host from the query: {self.host}",
                hint="write the host itself; {query} belongs after it",
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
        """Host and port, without a user name or password."""
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def ask(self, query: ExternalQuery, /) -> Any:
        """The answer of the server as a JSON value. When the query is cancelled, its connection is cut."""
        if query.seconds_left <= 0:
            raise self._late()
        connection = _Connection()
        query.on_cancel(connection.cut)
        request = self._request(query)
        try:
            return parse(self._send(request, query, connection), self.host, request.secrets)
        finally:
            connection.cut()

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _request(self, query: ExternalQuery) -> _Request:
        values = _values(query)
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
        return _Request(url, headers | _ALWAYS, content, secrets)

    def _token(self, variable: str) -> str:
        token = os.environ.get(variable, "").strip()
        if not token:
            raise SourceFailed(
                f"the environment variable {variable}, which holds the token for {self.host}, is not set",
                hint=f"set {variable}, or remove token_env from this source",
            )
        return token

    def _send(self, request: _Request, query: ExternalQuery, connection: _Connection) -> bytes:
        import httpx2

        try:
            with self._http().stream(
                self._method,
                request.url,
                headers=list(request.headers.items()),
                content=request.content,
                # For each step, not for all of them: it ends an attempt to connect, where there is nothing to cut yet.
                timeout=max(query.seconds_left, 0.001),
                extensions={"trace": connection.trace},
            ) as response:
                return self._read(response, request)
        except RecollectError:
            raise
        except Exception as error:  # an edge: a server's bytes can cause any error in the library
            if isinstance(error, httpx2.TimeoutException) or query.seconds_left <= 0:
                raise self._late() from error
            what = f"{type(error).__name__}: {excerpt(str(error), request.secrets)}"
            too_long = isinstance(error, httpx2.InvalidURL) and len(request.url) > MOST_URL
            failure = TooLong if too_long else SourceFailed
            raise failure(f"asking {self.host} failed: {what}", hint=_http_hint(error)) from error

    def _http(self) -> httpx2.Client:
        """The client, made at first use. No connection outlives its request, and no cookie is kept."""
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        with self._lock:
            if self._client is None:
                self._client = httpx2.Client(
                    follow_redirects=False,
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
                )
            return self._client

    def _read(self, response: httpx2.Response, request: _Request) -> bytes:
        if not response.is_success:
            raise self._refused(response, request)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise SourceFailed(
                f"{self.host} answered in the encoding {excerpt(encoding)}, which was not requested",
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

    def _refused(self, response: httpx2.Response, request: _Request) -> SourceFailed:
        status = response.status_code
        if response.has_redirect_location:
            where = urlsplit(response.headers["location"]).hostname or "another path"
            where = excerpt(where, request.secrets)
            return SourceFailed(
                f"{self.host} answered {status}, a redirect to {where}, which is not followed",
                hint="give that address as url if it is the right one",
            )
        content = bytearray()
        for piece in response.iter_raw():
            content += piece
            if len(content) > ERROR_BYTES:
                break
        page = excerpt(content.decode("utf-8", "replace"), request.secrets) if content.strip() else "nothing more"
        failure = TooLong if status in TOO_LONG else SourceFailed
        return failure(
            f"{self.host} answered {status}: {page}", hint=HINTS.get(status, "the server's message says why")
        )

    def _late(self) -> TimedOut:
        return TimedOut(f"{self.host} did not answer in time", hint="raise timeout_ms of this source")


@dataclass(frozen=True, slots=True)
class _Request:
    """One HTTP request. `secrets` must not appear in an error."""

    url: str
    headers: dict[bytes, bytes]
    content: bytes | None
    secrets: tuple[str, ...]


@dataclass(slots=True)
class _Connection:
    """The connection of one request, which can be cut from another thread at any time.

    It holds a duplicate of the client's socket. The original is taken over by TLS, and may be closed, and its number
    given to another file, at the moment when it is cut; a duplicate stays valid until it is closed here.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _socket: socket.socket | None = None
    _cut: bool = False

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the client at each step (httpx2's extension `trace`)."""
        if event.endswith(".connect_tcp.complete"):
            self._take(info["return_value"].get_extra_info("socket"))

    def _take(self, original: socket.socket) -> None:
        with self._lock:
            if self._cut:
                _shut_down(original)
                return
            try:
                self._socket = original.dup()
            except OSError:  # no file descriptor is left, and the client does not close what it has not been given yet
                original.close()
                raise

    def cut(self) -> None:
        """Shut the connection down, now or as soon as there is one."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                _shut_down(self._socket)
                self._socket.close()
                self._socket = None


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


def _values(query: ExternalQuery) -> dict[str, Any]:
    """What the names in a template stand for."""
    return {"query": query.text, "fetch_k": query.fetch_k, "scope": query.scope.as_dict()}


def _header(text: str) -> bytes:
    """A header's name or value, without line breaks, which could begin another header."""
    return _CONTROL.sub("", text).strip().encode("utf-8", "replace")


def _secrets(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets in the settings: a password, and keys in the address or in a header."""
    parts = urlsplit(url)
    named = secrets_of(dict(parse_qsl(parts.query))) + secrets_of(headers)
    return (parts.password or "", *named, *(text.rpartition(" ")[2] for text in named))


def _http_hint(error: Exception) -> str:
    import httpx2

    match error:
        case httpx2.InvalidURL():
            return "check the url of this source; a long query is better sent in a body"
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return "check the url and the headers of this source"
        case httpx2.ProxyError() | ImportError():
            return "check the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)"
    return "check that the server runs and that the url of this source is right"


STDERR_BYTES = 2048
"""How much of the end of standard error is read: the reason of a failure is there."""

REASON_CHARACTERS = 300

DRAIN_S = 0.1
"""How long the output of a program that has ended is still read while a process it started keeps it open."""

POLL_S = 0.02
"""How often is checked whether the program has ended while its output stays open."""

REAP_S = 1.0
"""How long a killed program is waited for before a thread takes over."""

_READ_BYTES = 65536


class CommandSystem:
    """Runs one command for each query, without a shell; the query fills its arguments.

    At the deadline the program is killed, with all processes that it started.
    """

    def __init__(self, settings: SourceSettings) -> None:
        if not hasattr(os, "killpg"):
            raise UsageError(
                f"the source {settings.name!r} runs a command, and this system has no process groups to end it by",
                hint='use kind = "http", or run this on Linux or macOS',
            )
        program, *self._arguments = settings.options["command"]
        if fields(program):
            raise UsageError(
                f"the source {settings.name!r} takes the program to run from the query: {program!r}",
                hint="write the program's own name; {query} belongs into its arguments",
            )
        self._program = os.path.expanduser(fill(program, {}))  # noqa: PTH111 - a bare name is looked up in PATH
        self._env: dict[str, str] = dict(settings.options.get("env", {}))
        self._cwd = os.path.expanduser(settings.options["cwd"]) if "cwd" in settings.options else None  # noqa: PTH111

    def ask(self, query: ExternalQuery, /) -> Any:
        """The program's output as a JSON value."""
        if query.seconds_left <= 0:
            raise TimedOut(f"no time was left to run {self._program}")
        with self._running(query) as process:
            output = _Output(process, query, self._program)
            output.read()
        if process.returncode:
            raise self._failed(process.returncode, output.err)
        if not output.out.strip():
            return []  # as with grep: it succeeded and found nothing
        return parse(bytes(output.out), self._program, secrets_of(self._env))

    def close(self) -> None:
        """Nothing stays open between two queries."""

    @contextlib.contextmanager
    def _running(self, query: ExternalQuery) -> Iterator[subprocess.Popen[bytes]]:
        """The running program; nothing of it is left afterwards."""
        try:
            process = self._start(query)
        except (OSError, ValueError) as error:
            raise self._not_started(error) from error
        try:
            yield process
        except OSError as error:
            raise SourceFailed(f"{self._program} cannot be read: {error}") from error
        finally:
            _kill(process)

    def _start(self, query: ExternalQuery) -> subprocess.Popen[bytes]:
        values = _values(query)
        arguments = [_argument(fill(argument, values)) for argument in self._arguments]
        env: dict[str, str | bytes] = dict(os.environ)
        env.update({name: _argument(fill(value, values)) for name, value in self._env.items()})
        return subprocess.Popen(  # noqa: S603 - the program is the settings' own; the query only fills arguments
            [_argument(self._program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self._cwd,
            env=env,
            start_new_session=True,
        )

    def _not_started(self, error: OSError | ValueError) -> SourceFailed:
        if self._cwd is not None and not os.path.isdir(self._cwd):  # noqa: PTH112
            return SourceFailed(
                f"{self._program} cannot be run in {self._cwd}, which is no folder", hint="check `cwd` in its settings"
            )
        reason = error.strerror if isinstance(error, OSError) else str(error)
        failure = TooLong if isinstance(error, OSError) and error.errno == errno.E2BIG else SourceFailed
        return failure(f"{self._program} cannot be started: {reason}", hint=_command_hint(error, self._program))

    def _failed(self, code: int, err: bytearray) -> SourceFailed:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        end = err.decode("utf-8", "replace").strip()[-REASON_CHARACTERS:]
        reason = excerpt(end, secrets_of(self._env), most=REASON_CHARACTERS) if end else "nothing on standard error"
        return SourceFailed(f"{self._program} {how}: {reason}", hint="run the same command by hand to see why")


@dataclass(slots=True)
class _Output:
    """Both outputs of a running program, read side by side until it has ended or the time is up."""

    process: subprocess.Popen[bytes]
    query: ExternalQuery
    program: str
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    _until: float | None = None

    def read(self) -> None:
        """Read until the program has ended and its outputs are closed, or `DRAIN_S` after it has ended."""
        with selectors.DefaultSelector() as selector:
            for stream, add in ((self.process.stdout, self._add_out), (self.process.stderr, self._add_err)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, add)
            while selector.get_map() and not self._complete():
                for key, _ in selector.select(min(POLL_S, self.query.seconds_left)):
                    content = os.read(key.fd, _READ_BYTES)
                    if content:
                        key.data(content)
                    else:
                        selector.unregister(key.fileobj)
        pause = 0.0005  # outputs close just before a program ends
        while not _ended(self.process):
            self._check_time()
            time.sleep(min(pause, self.query.seconds_left))
            pause = min(2 * pause, POLL_S)

    def _complete(self) -> bool:
        """Whether the program has ended, and a process it left running has had its time to write."""
        if self._until is None and _ended(self.process):
            self._until = min(self.query.deadline, time.monotonic() + DRAIN_S)
        if self._until is not None:
            return time.monotonic() >= self._until
        self._check_time()
        return False

    def _check_time(self) -> None:
        if self.query.seconds_left <= 0:
            raise TimedOut(f"{self.program} did not end in time", hint="raise timeout_ms of this source")

    def _add_out(self, content: bytes) -> None:
        self.out += content
        if len(self.out) > MOST_BYTES:
            raise SourceFailed(
                f"{self.program} printed more than {MOST_BYTES // 2**20} MiB",
                hint="have it print fewer or shorter results",
            )

    def _add_err(self, content: bytes) -> None:
        self.err += content
        del self.err[:-STDERR_BYTES]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the program has ended. It is not reaped, so that no other process group can have its number."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # this process ignores SIGCHLD, and the kernel has reaped it
        return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and its children, reap it, and close its outputs."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(REAP_S)
    except subprocess.TimeoutExpired:  # it runs as another user, or hangs in the kernel
        threading.Thread(target=process.wait, name=f"reaps {process.pid}", daemon=True).start()


def _argument(text: str) -> bytes:
    """A text as an argument, without NUL, at which it would end for the kernel."""
    text = text.replace("\0", "")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return text.encode("utf-8", "replace")


def _command_hint(error: OSError | ValueError, program: str) -> str:
    match error:
        case FileNotFoundError():
            return f"check that {program} is installed and in PATH, and that the interpreter it names is there"
        case PermissionError():
            return f"check that {program} may be executed"
        case OSError(errno=errno.E2BIG):
            return "use a shorter query: one argument can be 128 KiB long on most systems"
    return "run the same command by hand to see why"
