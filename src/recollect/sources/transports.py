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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from recollect.config.sources import SourceSettings, fields, fill, fill_json
from recollect.errors import RecollectError, SourceFailed, TimedOut, TooLong, UsageError
from recollect.sources.matcher import MOST_BYTES, excerpt, parse, secrets_of
from recollect.types import ExternalQuery

if TYPE_CHECKING:
    import httpx2


GRACE_S = 0.08
"""How long a request whose connection was cut is waited for, so that it gives everything back."""


def in_time(exchange: Callable[[Line], bytes], asked: ExternalQuery) -> bytes:
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

    def ask(self, asked: ExternalQuery) -> Any:
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

    def _fill(self, asked: ExternalQuery) -> _Sent:
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

    def _exchange(self, sent: _Sent, asked: ExternalQuery, line: Line) -> bytes:
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


STDERR_KEPT = 2048
"""Bytes of the end of what it says on standard error: the reason of a failure stands there."""

REASON_SHOWN = 300
"""Characters of it that an error quotes."""

DRAIN_S = 0.1
"""How long an ended program's output is still read when something it started holds it open."""

LOOK_S = 0.02
"""How often is looked whether the program has ended while its output stays open."""

REAP_S = 1.0
"""How long a killed program is waited for before a thread of its own does that."""

_READ_BYTES = 65536


class CommandSystem:
    """Runs one command, never through a shell. What is asked fills its arguments, each of which stays one."""

    def __init__(self, said: SourceSettings) -> None:
        if not hasattr(os, "killpg"):
            raise UsageError(
                f"the source {said.name!r} runs a command, and this system has no process groups to end it by",
                hint='use kind = "http", or run this on Linux or macOS',
            )
        program, *self._arguments = said.options["command"]
        if fields(program):
            raise UsageError(
                f"the source {said.name!r} takes the program to run from what is asked: {program!r}",
                hint="write the program's own name; {query} belongs into its arguments",
            )
        self._program = os.path.expanduser(fill(program, {}))  # noqa: PTH111 - a bare name is looked up in PATH
        self._env: dict[str, str] = dict(said.options.get("env", {}))
        self._cwd = os.path.expanduser(said.options["cwd"]) if "cwd" in said.options else None  # noqa: PTH111

    def ask(self, asked: ExternalQuery) -> Any:
        """What the program prints, as JSON is read."""
        if asked.seconds_left <= 0:
            raise TimedOut(f"no time was left to run {self._program}")
        with self._started(asked) as process:
            reading = _Reading(process, asked, self._program)
            reading.run()
        if process.returncode:
            raise self._failed(process.returncode, reading.err)
        if not reading.out.strip():
            return []  # as grep does: it ended well and found nothing
        return parse(bytes(reading.out), self._program, secrets_of(self._env))

    def close(self) -> None:
        """Nothing is held open between two questions."""

    @contextlib.contextmanager
    def _started(self, asked: ExternalQuery) -> Iterator[subprocess.Popen[bytes]]:
        """The running program, of which nothing is left afterwards."""
        try:
            process = self._start(asked)
        except (OSError, ValueError) as error:
            raise self._not_started(error) from error
        try:
            yield process
        except OSError as error:
            raise SourceFailed(f"{self._program} cannot be read: {error}") from error
        finally:
            _end(process)

    def _start(self, asked: ExternalQuery) -> subprocess.Popen[bytes]:
        values = {"query": asked.text, "fetch_k": asked.fetch_k, "scope": asked.scope.as_dict()}
        arguments = [_bytes(fill(argument, values)) for argument in self._arguments]
        env: dict[str, str | bytes] = dict(os.environ)
        env.update({name: _bytes(fill(value, values)) for name, value in self._env.items()})
        return subprocess.Popen(  # noqa: S603 - the program is the settings' own; what is asked only fills arguments
            [_bytes(self._program), *arguments],
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
        return failure(f"{self._program} cannot be started: {reason}", hint=_advice(error, self._program))

    def _failed(self, code: int, err: bytearray) -> SourceFailed:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        said = err.decode("utf-8", "replace").strip()[-REASON_SHOWN:]
        reason = excerpt(said, secrets_of(self._env), most=REASON_SHOWN) if said else "nothing on standard error"
        return SourceFailed(f"{self._program} {how}: {reason}", hint="run the same command by hand to see why")


@dataclass(slots=True)
class _Reading:
    """Both outputs of a running program, read side by side until it has ended or the time is up."""

    process: subprocess.Popen[bytes]
    asked: ExternalQuery
    program: str
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    _until: float | None = None

    def run(self) -> None:
        """Read until the program has ended and its outputs are closed, or nearly until then: see `_over`."""
        with selectors.DefaultSelector() as selector:
            for stream, keep in ((self.process.stdout, self._keep_out), (self.process.stderr, self._keep_err)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, keep)
            while selector.get_map() and not self._over():
                self._read(selector)
        pause = 0.0005  # outputs close just before a program ends
        while not _ended(self.process):
            self._check_time()
            time.sleep(min(pause, self.asked.seconds_left))
            pause = min(2 * pause, LOOK_S)

    def _read(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(min(LOOK_S, self.asked.seconds_left)):
            content = os.read(key.fd, _READ_BYTES)
            if content:
                key.data(content)
            else:
                selector.unregister(key.fileobj)

    def _over(self) -> bool:
        """Whether nobody reads on: the program has ended, and what it left running has had its moment."""
        if self._until is None and _ended(self.process):
            self._until = min(self.asked.deadline, time.monotonic() + DRAIN_S)
        if self._until is not None:
            return time.monotonic() >= self._until
        self._check_time()
        return False

    def _check_time(self) -> None:
        if self.asked.seconds_left <= 0:
            raise TimedOut(f"{self.program} did not end in time", hint="raise timeout_ms of this source")

    def _keep_out(self, content: bytes) -> None:
        self.out += content
        if len(self.out) > MOST_BYTES:
            raise SourceFailed(
                f"{self.program} printed more than {MOST_BYTES // 2**20} MiB",
                hint="have it print fewer or shorter results",
            )

    def _keep_err(self, content: bytes) -> None:
        self.err += content
        del self.err[:-STDERR_KEPT]


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the program has ended. It is not reaped: as long as it is there, no other group bears its number."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # this process ignores SIGCHLD, and the kernel has reaped it
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and what it started, reap it, and close its outputs."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(REAP_S)
    except subprocess.TimeoutExpired:  # it runs as somebody else, or hangs in the kernel
        threading.Thread(target=process.wait, name=f"reaps {process.pid}", daemon=True).start()


def _bytes(text: str) -> bytes:
    """A text as an argument. It ends at a NUL for the kernel, so there must be none."""
    text = text.replace("\0", "")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return text.encode("utf-8", "replace")


def _advice(error: OSError | ValueError, program: str) -> str:
    match error:
        case FileNotFoundError():
            return f"check that {program} is installed and in PATH, and that the interpreter it names is there"
        case PermissionError():
            return f"check that {program} may be executed"
        case OSError(errno=errno.E2BIG):
            return "ask something shorter: a system lets one argument be so long, usually 128 KiB"
    return "run the same command by hand to see why"
