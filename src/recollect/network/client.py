"""The HTTP client of every call: it refuses hosts and redirects, counts calls and bytes, and has one kind of error."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.errors import NotContacted, RecollectError
from recollect.network.addresses import check_host, check_peer
from recollect.network.calls import flush, record

if TYPE_CHECKING:
    import httpx2

    Response: TypeAlias = httpx2.Response

CONNECT_TIMEOUT_S = 5.0  # short where a download is tried: a blocked server does not answer
LARGEST_ANSWER = 64 * 2**20  # bytes, uncompressed: several times those of 512 vectors of 3,072 numbers
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")

_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")  # headers that say how it was sent

Trace: TypeAlias = Callable[[str, Mapping[str, Any]], None]


class CallFailed(Exception):
    """A call that got no complete answer. `kind` is timeout, size, url, request, proxy, network or other."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.kind = kind
        self.name, self.text = type(error).__name__, str(error)

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed a moment later."""
        return self.kind in ("timeout", "request", "proxy", "network")


class Client:
    """Calls for one purpose. It keeps no cookie, and no connection unless `keep_alive` is set.

    A redirect is followed only with `follow`, and only to the same host by the same scheme, or by https to a host below
    one of `storage`. A call to this machine never goes to a proxy.
    """

    def __init__(
        self,
        purpose: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        keep_alive: bool = True,
        follow: bool = False,
        storage: Sequence[str] = (),
    ) -> None:
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        self._purpose, self._follow, self._storage = purpose, follow, tuple(storage)
        options: dict[str, Any] = {}
        if not keep_alive:
            options["limits"] = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        if timeout is not None:
            options["timeout"] = httpx2.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT_S) if follow else timeout)
        with _translated():
            self._client = httpx2.Client(
                headers=dict(headers or {}),
                follow_redirects=follow,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                mounts={f"all://{host}": None for host in LOCAL_HOSTS},
                event_hooks={"request": [self._before], "response": [self._after]},
                **options,
            )

    def post(self, url: str, *, json: Any) -> Response:
        """The whole answer to a JSON body, which may be compressed. One that is too large is not read to its end."""
        import httpx2

        content = bytearray()
        with self.stream("POST", url, json=json) as answer:
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > LARGEST_ANSWER:
                    raise CallFailed("size", ValueError(f"more than {LARGEST_ANSWER // 2**20} MiB"))
        headers = [(name, value) for name, value in answer.headers.items() if name not in _OF_THE_BODY]
        return httpx2.Response(answer.status_code, headers=headers, content=bytes(content), request=answer.request)

    @contextlib.contextmanager
    def stream(
        self, method: str, url: str, *, connection: CuttableConnection | None = None, **request: Any
    ) -> Iterator[Response]:
        """An answer whose body is read piece by piece inside the block. `connection` can cut it at any time."""
        extensions = {"trace": connection.trace} if connection else {}
        with _translated(), self._client.stream(method, url, extensions=extensions, **request) as response:
            yield response

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _before(self, request: httpx2.Request) -> None:
        """Refuse or count a request, and have its connection checked. Also called for each redirect."""
        host = request.url.netloc.decode("ascii")
        check_host(host, self._purpose)
        head = sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
        unsent = [len(request.url.raw_path) + head + len(request.read())]
        request.extensions["trace"] = partial(self._trace, (host, unsent), request.extensions.get("trace"))
        record(host, self._purpose, calls=1)

    def _after(self, response: httpx2.Response) -> None:
        host = response.request.url.netloc.decode("ascii")
        head = sum(len(name) + len(value) + 4 for name, value in response.headers.raw)
        record(host, self._purpose, received=head)
        response.stream = _counted(response.stream, partial(record, host, self._purpose))
        if self._follow and response.has_redirect_location:
            self._check_redirect(response)

    def _check_redirect(self, response: httpx2.Response) -> None:
        before, after = response.request.url, response.request.url.join(response.headers["location"])
        same = (before.scheme, before.netloc) == (after.scheme, after.netloc)
        stored = after.scheme == "https" and any(f".{after.host}".endswith(f".{host}") for host in self._storage)
        if not same and not stored:
            target = f"{after.scheme}://{after.host}"
            raise NotContacted(f"{before.host} answered with a redirect to {target}, which is not followed")

    def _trace(self, call: tuple[str, list[int]], inner: Trace | None, event: str, info: Mapping[str, Any]) -> None:
        """Called by the library at each step. The first connection of a call may be to a proxy."""
        host, unsent = call
        if unsent and event.endswith("send_request_headers.started"):
            record(host, self._purpose, sent=unsent.pop())  # not before: a refused connection sends nothing
        if event.endswith("connect_tcp.started"):
            check_host(info["host"], self._purpose)
        elif event.endswith("connect_tcp.complete"):
            stream = info["return_value"]
            try:
                check_peer(str(stream.get_extra_info("server_addr")[0]), host, self._purpose)
            except RecollectError:
                stream.close()
                raise
        if inner is not None:
            inner(event, info)


def _counted(stream: Any, count: Callable[..., None]) -> Any:
    """The stream of an answer's body, whose bytes are counted when it is closed."""
    import httpx2

    class Counted(httpx2.SyncByteStream):
        received = 0

        def __iter__(self) -> Iterator[bytes]:
            for piece in stream:
                self.received += len(piece)
                yield piece

        def close(self) -> None:
            stream.close()
            received, self.received = self.received, 0
            count(received=received)
            flush(at_once=False)

    return Counted()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise whatever the library raises as CallFailed: a server's bytes can cause any error in it."""
    try:
        yield
    except (RecollectError, CallFailed):
        raise
    except Exception as error:
        raise CallFailed(_kind(error), error) from error


def _kind(error: Exception) -> str:
    import httpx2

    match error:
        case httpx2.TimeoutException():
            return "timeout"
        case httpx2.InvalidURL():
            return "url"
        case httpx2.LocalProtocolError() | httpx2.UnsupportedProtocol():
            return "request"
        case httpx2.ProxyError() | ImportError():
            return "proxy"
        case httpx2.TransportError():
            return "network"
    return "other"


@dataclass(slots=True)
class CuttableConnection:
    """The connection of one request, which can be cut from another thread at any time.

    It holds a duplicate of the client's socket. The original is taken over by TLS, and may be closed, and its number
    given to another file, at the moment when it is cut; a duplicate stays valid until it is closed here.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _socket: socket.socket | None = None
    _cut: bool = False

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the client at each step (httpx2's extension `trace`)."""
        if not event.endswith(".connect_tcp.complete"):
            return
        original: socket.socket = info["return_value"].get_extra_info("socket")
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
