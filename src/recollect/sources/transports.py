"""How an external search system is reached: by HTTP, or by running a command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from recollect.config.sources import SourceSettings, fields, fill, fill_json
from recollect.disk import at_home
from recollect.errors import SourceFailed, TimedOut, TooLong, UsageError
from recollect.network.addresses import is_local
from recollect.redaction import redact
from recollect.sources.matcher import MOST_BYTES, excerpt, parse, secrets_of
from recollect.types import ExternalQuery

if TYPE_CHECKING:
    from recollect.network.client import CallFailed, Client, Response

HINTS = {
    401: "check the token (token_env) or the headers of this source",
    403: "check the token (token_env) or the headers of this source",
    404: "check the url of this source",
    405: "check the method of this source",
}

MOST_URL = 65_536  # characters of an address; httpx2 takes no more

_ALWAYS = {b"accept-encoding": b"identity", b"connection": b"close"}
"""A compressed answer could grow beyond every bound, and a connection that is kept alive is one left behind."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _values(query: ExternalQuery, text: str) -> dict[str, Any]:
    """What the names in a template stand for."""
    return {"query": text, "fetch_k": query.fetch_k, "scope": query.scope.as_dict()}


class HttpSystem:
    """Sends each query to one address by GET or POST. It follows no redirect, keeps no cookie, shows no secret.

    Secrets in a query are replaced before it is sent to another machine.
    """

    def __init__(self, settings: SourceSettings) -> None:
        options = settings.options
        self._url: str = options["url"]
        self._body: Any = options.get("body")
        self._method: str = options.get("method", "GET" if self._body is None else "POST")
        self._headers: Mapping[str, str] = options.get("headers", {})
        self._token_env: str | None = options.get("token_env")
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._purpose = f"source {settings.name}"
        parts = urlsplit(self._url)
        self.host = parts.netloc.rpartition("@")[2]  # without a user name or password
        if fields(parts.netloc):
            raise UsageError(
                f"the url of the source {settings.name!r} takes its host from the query: {self.host}",
                hint="write the host itself; {query} belongs after it",
            )
        self.remote = not is_local(self.host)
        try:
            _ = parts.port
        except ValueError as error:
            message = f"the source {settings.name!r} cannot ask {self.host}: {error}"
            raise UsageError(message, hint="check its url") from error
        try:
            json.dumps(self._body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the body of the source {settings.name!r} cannot be sent as JSON: {error}",
                hint="use texts, numbers, true, false, lists and tables",
            ) from error
        # A password, and keys in the address or in a header, with and without a word such as Bearer before them.
        named = secrets_of(dict(parse_qsl(parts.query))) + secrets_of(self._headers)
        self._secrets = (parts.password or "", *named, *(text.rpartition(" ")[2] for text in named))

    def ask(self, query: ExternalQuery, /) -> Any:
        """The answer of the server as a JSON value. When the query is cancelled, its connection is cut."""
        if query.seconds_left <= 0:
            raise self._late()
        from recollect.network.client import CallFailed, CuttableConnection

        connection = CuttableConnection()
        query.on_cancel(connection.cut)
        values, secrets = _values(query, redact(query.text)[0] if self.remote else query.text), self._secrets
        headers = {b"accept": b"application/json", b"user-agent": b"recollect"}
        content = None
        if self._body is not None:
            content = json.dumps(fill_json(self._body, values), ensure_ascii=False).encode("utf-8", "replace")
            headers[b"content-type"] = b"application/json"
        headers |= {_header(name.lower()): _header(fill(text, values)) for name, text in self._headers.items()}
        if self._token_env is not None:
            token = os.environ.get(self._token_env, "").strip()
            if not token:
                raise SourceFailed(
                    f"the environment variable {self._token_env}, which holds the token for {self.host}, is not set",
                    hint=f"set {self._token_env}, or remove token_env from this source",
                )
            headers[b"authorization"] = _header(f"Bearer {token}")
            secrets = (*secrets, token)
        url = fill(self._url, values, partial(quote, safe="", errors="replace"))
        request: dict[str, Any] = {
            "headers": list((headers | _ALWAYS).items()),
            "content": content,
            # For each step, not for all of them: it ends an attempt to connect, where there is nothing to cut yet.
            "timeout": max(query.seconds_left, 0.001),
        }
        try:
            with self._http().stream(self._method, url, connection=connection, **request) as response:
                return parse(self._read(response, secrets), self.host, secrets)
        except CallFailed as error:
            raise self._failure(error, query, url, secrets) from error
        finally:
            connection.cut()

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _http(self) -> Client:
        """The client, made at first use. No connection outlives its request."""
        from recollect.network.client import Client

        with self._lock:
            if self._client is None:
                self._client = Client(self._purpose, keep_alive=False)
            return self._client

    def _read(self, response: Response, secrets: tuple[str, ...]) -> bytes:
        """The body of an answer. A redirect, an error status, an encoding or too many bytes raise an error."""
        status, encoding = response.status_code, response.headers.get("content-encoding", "identity")
        if response.has_redirect_location:
            where = excerpt(urlsplit(response.headers["location"]).hostname or "another path", secrets)
            raise SourceFailed(
                f"{self.host} answered {status}, a redirect to {where}, which is not followed",
                hint="give that address as url if it is the right one",
            )
        if response.is_success and encoding.lower() != "identity":
            raise SourceFailed(
                f"{self.host} answered in the encoding {excerpt(encoding)}, which was not requested",
                hint="have the server honour Accept-Encoding: identity",
            )
        most = MOST_BYTES if response.is_success else 64 * 1024  # of an error page
        content = bytearray()
        for piece in response.iter_raw():
            content += piece
            if len(content) > most:
                break
        if not response.is_success:
            page = excerpt(content.decode("utf-8", "replace"), secrets) if content.strip() else "nothing more"
            failure = TooLong if status in (413, 414) else SourceFailed  # a body or an address that is too long
            hint = HINTS.get(status, "the server's message says why")
            raise failure(f"{self.host} answered {status}: {page}", hint=hint)
        if len(content) > most:
            raise SourceFailed(
                f"{self.host} answered with more than {MOST_BYTES // 2**20} MiB",
                hint="ask it for fewer or shorter results",
            )
        return bytes(content)

    def _failure(self, error: CallFailed, query: ExternalQuery, url: str, secrets: tuple[str, ...]) -> SourceFailed:
        """The error of the library as ours."""
        if error.kind == "timeout" or query.seconds_left <= 0:
            return self._late()
        failure, hint = SourceFailed, "check that the server runs and that the url of this source is right"
        match error.kind:
            case "url":
                failure = TooLong if len(url) > MOST_URL else SourceFailed
                hint = "check the url of this source; a long query is better sent in a body"
            case "request":
                hint = "check the url and the headers of this source"
            case "proxy":
                hint = "check the proxy that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY)"
        reason = f"{error.name}: {excerpt(error.text, secrets)}"
        return failure(f"asking {self.host} failed: {reason}", hint=hint)

    def _late(self) -> TimedOut:
        return TimedOut(f"{self.host} did not answer in time", hint="raise timeout_ms of this source")


def _header(text: str) -> bytes:
    """A header's name or value, without line breaks, which could begin another header."""
    return _CONTROL.sub("", text).strip().encode("utf-8", "replace")


STDERR_BYTES = 2048  # how much of the end of standard error is read: the reason of a failure is there

REASON_CHARACTERS = 300

DRAIN_S = 0.1  # how long the output of a program that has ended is still read while a process it started keeps it open
POLL_S = 0.02  # seconds between two checks whether the program has ended
REAP_S = 1.0  # how long a killed program is waited for before a thread takes over


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
        self._cwd = str(at_home(settings.options["cwd"])) if "cwd" in settings.options else None

    def ask(self, query: ExternalQuery, /) -> Any:
        """The program's output as a JSON value. Nothing of the program is left afterwards."""
        if query.seconds_left <= 0:
            raise TimedOut(f"no time was left to run {self._program}")
        process = self._start(query)
        try:
            out, err = self._read(process, query)
        except OSError as error:
            raise SourceFailed(f"{self._program} cannot be read: {error}") from error
        finally:
            _kill(process)
        secrets, code = secrets_of(self._env), process.returncode
        if code:
            how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            end = err.decode("utf-8", "replace").strip()[-REASON_CHARACTERS:]
            reason = excerpt(end, secrets, most=REASON_CHARACTERS) if end else "nothing on standard error"
            raise SourceFailed(f"{self._program} {how}: {reason}", hint="run the same command by hand to see why")
        # As with grep, a program that succeeds and prints nothing has found nothing.
        return parse(bytes(out), self._program, secrets) if out.strip() else []

    def close(self) -> None:
        """Nothing stays open between two queries."""

    def _start(self, query: ExternalQuery) -> subprocess.Popen[bytes]:
        values = _values(query, query.text)
        env: dict[str, str | bytes] = dict(os.environ)
        env.update({name: _argument(fill(value, values)) for name, value in self._env.items()})
        try:
            return subprocess.Popen(  # noqa: S603 - the program is the settings' own; the query only fills arguments
                [_argument(self._program), *(_argument(fill(argument, values)) for argument in self._arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._cwd,
                env=env,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if self._cwd is not None and not os.path.isdir(self._cwd):  # noqa: PTH112
                message = f"{self._program} cannot be run in {self._cwd}, which is no folder"
                raise SourceFailed(message, hint="check `cwd` in its settings") from error
            failure, hint = SourceFailed, "run the same command by hand to see why"
            match error:
                case FileNotFoundError():
                    hint = f"check that {self._program} is installed and in PATH, and that its interpreter is there"
                case PermissionError():
                    hint = f"check that {self._program} may be executed"
                case OSError(errno=errno.E2BIG):
                    failure, hint = TooLong, "use a shorter query: one argument can be 128 KiB long on most systems"
            reason = error.strerror if isinstance(error, OSError) else error
            raise failure(f"{self._program} cannot be started: {reason}", hint=hint) from error

    def _read(self, process: subprocess.Popen[bytes], query: ExternalQuery) -> tuple[bytearray, bytearray]:
        """Standard output and the end of standard error, until the program has ended and both are closed.

        A process that it has started may keep them open: they are read for `DRAIN_S` after the program has ended.
        """
        out, err = bytearray(), bytearray()
        until = None
        pause = 0.0005  # outputs close just before a program ends
        with selectors.DefaultSelector() as selector:
            for stream, content in ((process.stdout, out), (process.stderr, err)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, content)
            while until is None or (selector.get_map() and time.monotonic() < until):
                if not selector.get_map():
                    pause = min(2 * pause, POLL_S)
                for key, _ in selector.select(min(POLL_S if selector.get_map() else pause, query.seconds_left)):
                    piece = os.read(key.fd, 65536)
                    key.data.extend(piece)
                    if not piece:
                        selector.unregister(key.fileobj)
                del err[:-STDERR_BYTES]
                if len(out) > MOST_BYTES:
                    raise SourceFailed(
                        f"{self._program} printed more than {MOST_BYTES // 2**20} MiB",
                        hint="have it print fewer or shorter results",
                    )
                if until is None and _ended(process):
                    until = min(query.deadline, time.monotonic() + DRAIN_S)
                elif until is None and query.seconds_left <= 0:
                    raise TimedOut(f"{self._program} did not end in time", hint="raise timeout_ms of this source")
        return out, err


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
