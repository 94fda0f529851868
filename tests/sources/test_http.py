"""An HTTP address as a search system, with real sockets: its input, its failures, and what it leaves behind."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from urllib.parse import parse_qsl, urlsplit

import pytest
from support.timing import within

from recollect.config import SYSTEMS
from recollect.errors import SourceFailed, TimedOut, UsageError
from recollect.memory.assembly import open_peer
from recollect.sources import external
from recollect.sources.matcher import MOST_BYTES
from recollect.sources.transports import HttpSystem
from recollect.types import ExternalQuery, Scope

HOSTILE = [
    "; rm -rf /",
    "a&b=c#d?e/f%20g+h",
    "'single' \"double\" \\",
    "two\r\nInjected: header\r\n\r\nGET / HTTP/1.1",
    "../../admin",
    "@evil.example:80/",
    "{fetch_k} {query} {{scope}} {0}",
    "%s %00 %zz",
    "naïve 日本語 \U0001f600",
    " leading and trailing ",
    "nul\0nul",
    "",
    "x" * 20_000,
]


@pytest.fixture
def ask():
    """Queries a system as a source does, with enough time unless a test sets a deadline."""

    def run(system, text="q", *, seconds=30.0, fetch_k=20, **scope):
        query = ExternalQuery(text, fetch_k, Scope(**scope), time.monotonic() + seconds)
        return external.ask_in_time(system, query, seconds * 1000)

    return run


@pytest.fixture
def system(settings):
    """A source of one address, already warm: the first use loads the client and its certificates."""
    made = []

    def make(url, **options):
        made.append(HttpSystem(settings("http", url=url, **options)))
        made[-1]._http()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def served(wire, system):
    """A server with the given behaviour, and a source that uses it."""

    def make(behave, *, path="/", user="", **options):
        server = wire(behave)
        return server, system(**{"url": f"http://{user}{server.address}{path}", **options})

    return make


def answer(content=b"[1]", status="200 OK", *headers):
    """A server that answers every request so."""

    def behave(connection, closing):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode("latin-1") + content)

    return behave


def hang(connection, closing):
    """A server that says nothing until its test is over, or its client is gone."""
    connection.settimeout(0.05)
    while not closing.is_set():
        with contextlib.suppress(TimeoutError):
            if not connection.recv(1):
                return


def trickle(start, *, piece=b" ", pause=0.05):
    """A server that says `start`, and then never stops, a byte at a time."""

    def behave(connection, closing):
        connection.sendall(start)
        while not closing.wait(pause):
            connection.sendall(piece)

    return behave


def heard(wire, number=-1):
    """A request as the server heard it: its first line's parts, its headers, its body."""
    head, _, body = wire.requests[number].partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    assert len(dict(headers)) == len(headers)
    return first.split(" "), dict(headers), body


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_query_arrives_in_the_url(wire, system, ask, text):
    """Quoted, in one place; placeholders in it are not filled."""
    server = wire(answer())
    assert ask(system(f"{server.url}/find?q={{query}}&n={{fetch_k}}&s={{scope}}"), text, fetch_k=7, user="ü&") == [1]
    (method, target, _), headers, body = heard(server)
    assert (method, urlsplit(target).path, body) == ("GET", "/find", b"")
    assert parse_qsl(urlsplit(target).query, keep_blank_values=True) == [
        ("q", text),
        ("n", "7"),
        ("s", '{"user": "ü&"}'),
    ]
    assert headers["host"] == server.address
    assert "injected" not in headers


@pytest.mark.parametrize("text", [*HOSTILE, "1 MB " * 200_000], ids=range(len(HOSTILE) + 1))
def test_query_arrives_in_the_body(wire, system, ask, text):
    """As JSON, as one value, at any length."""
    server = wire(answer())
    body = {"q": "{query}", "n": "{fetch_k}", "s": "{scope}", "deep": [{"say": "n={fetch_k} {query}"}, 1, True]}
    assert ask(system(f"{server.url}/find", body=body), text, fetch_k=7, user="u") == [1]
    (method, target, _), headers, content = heard(server)
    assert (method, target, headers["content-type"]) == ("POST", "/find", "application/json")
    said = [{"say": f"n=7 {text}"}, 1, True]
    assert json.loads(content) == {"q": text, "n": 7, "s": {"user": "u"}, "deep": said}


@pytest.mark.parametrize("text", HOSTILE[:-1], ids=range(len(HOSTILE) - 1))
def test_query_cannot_add_a_header(wire, system, ask, text):
    """Line breaks and other control characters are removed."""
    server = wire(answer())
    assert ask(system(server.url, headers={"X-Query": "q={query}"}), text) == [1]
    _, headers, _ = heard(server)
    clean = "".join(char for char in f"q={text}" if char >= " ").strip()
    assert headers["x-query"].encode("latin-1").decode() == clean
    assert "injected" not in headers


def test_lone_surrogate_is_replaced(wire, system, ask):
    """It cannot be encoded in UTF-8."""
    server = wire(answer())
    ask(system(f"{server.url}/?q={{query}}", body=["{query}"], headers={"X-Q": "{query}"}), "a\ud800b")
    (_, target, _), headers, body = heard(server)
    assert (target, headers["x-q"], body) == ("/?q=a%3Fb", "a?b", b'["a?b"]')


def test_method_can_be_set(wire, system, ask):
    """POST without a body, and GET with one."""
    server = wire(answer())
    ask(system(server.url, method="POST"))
    ask(system(server.url, method="GET", body={"q": "{query}"}), "x")
    assert heard(server, 0)[0][0] == "POST"
    assert (heard(server, 1)[0][0], heard(server, 1)[2]) == ("GET", b'{"q": "x"}')


def test_headers_of_the_settings_take_precedence(wire, system, ask):
    """Except for those that limit the answer and the connection."""
    server = wire(answer())
    ask(system(server.url, headers={"ACCEPT": "text/json", "Connection": "keep-alive", "accept-encoding": "gzip"}))
    _, headers, _ = heard(server)
    assert headers["accept"] == "text/json"
    assert headers["connection"] == "close"
    assert headers["accept-encoding"] == "identity"


def test_recollect_kind_sends_its_own_request(wire, settings, ask):
    """The kind `recollect` is this kind with a preset address and body."""
    server = wire(answer(b'{"results": []}'))
    peer = open_peer(settings("recollect", url=f"{server.url}/"))
    assert ask(peer, 'a "b"', fetch_k=5, user="u") == {"results": []}
    peer.close()
    (method, target, _), _, body = heard(server)
    assert (method, target) == ("POST", "/v1/search")
    assert json.loads(body) == {"query": 'a "b"', "limit": 5, "scope": {"user": "u"}, "by": "chunk"}


def test_token_comes_from_the_environment(wire, system, ask, monkeypatch):
    """A bearer token, read at each query, without a trailing line break."""
    server = wire(answer())
    asking = system(server.url, token_env="WIKI_TOKEN", headers={"authorization": "Basic x"})
    monkeypatch.setenv("WIKI_TOKEN", "t0ken\n")
    ask(asking)
    assert heard(server)[1]["authorization"] == "Bearer t0ken"
    for value in ("", " "):
        monkeypatch.setenv("WIKI_TOKEN", value)
        with pytest.raises(SourceFailed, match="WIKI_TOKEN"):
            ask(asking)
    monkeypatch.delenv("WIKI_TOKEN")
    with pytest.raises(SourceFailed, match="WIKI_TOKEN"):
        ask(asking)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized", "302 Found", "500 no t0ken-123"])
@pytest.mark.parametrize("where", ["Bearer t0ken-123 is wrong", "p4ss is wrong", "k3y is wrong", "h3ader is wrong"])
def test_secrets_are_not_repeated(served, ask, monkeypatch, status, where):
    """A server may echo a token, password or key; the error does not."""
    monkeypatch.setenv("WIKI_TOKEN", "t0ken-123")
    behave = answer(where.encode(), status, f"Location: http://{where.split()[-3]}/")
    options = {"token_env": "WIKI_TOKEN", "headers": {"X-Api-Key": "Key h3ader"}}
    _, asking = served(behave, path="/?api_key=k3y&q={query}", user="user:p4ss@", **options)
    with pytest.raises(SourceFailed) as caught:
        ask(asking)
    for secret in ("t0ken", "p4ss", "k3y", "h3ader", "user:"):
        assert secret not in str(caught.value.as_dict())


def test_cookies_are_not_stored(wire, system, ask):
    """Queries are independent."""
    server = wire(answer(b"[1]", "200 OK", "Set-Cookie: who=you; Path=/"))
    asking = system(server.url)
    ask(asking)
    ask(asking)
    assert "cookie" not in heard(server)[1]


@pytest.mark.ci
def test_client_is_created_once_and_closed(wire, system, ask, nothing_left):
    """Certificates are slow to load; connections are not reused."""
    server = wire(answer())
    asking = system(server.url)
    client = asking._http()
    with nothing_left():
        for _ in range(5):
            ask(asking)
    assert asking._http() is client
    asking.close()
    asking.close()
    assert client._client.is_closed


def test_query_cannot_choose_the_host(settings):
    """Otherwise a query could be sent anywhere, with the token."""
    for url in ("http://{query}/", "http://{query}.example/x", "http://u:{query}@example/"):
        with pytest.raises(UsageError, match="takes its host from the query"):
            HttpSystem(settings("http", url=url))


def test_invalid_port_is_refused(settings):
    """The system's lookup would read it as another port."""
    for port in ("99999", "x"):
        with pytest.raises(UsageError, match=r"127\.0\.0\.1:"):
            HttpSystem(settings("http", url=f"http://127.0.0.1:{port}/"))


def test_body_that_is_not_json_is_refused(settings):
    """TOML has dates and infinities, JSON has not."""
    for value in (float("inf"), object()):
        with pytest.raises(UsageError, match="cannot be sent as JSON"):
            HttpSystem(settings("http", url="http://localhost/", body={"since": value}))


@pytest.mark.ci
@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (answer(b"Usage: search"), "not JSON: Expecting value at “Usage: search”"),
        (answer(b'{"results": [{"id": 1'), "not JSON"),
        (answer(b""), "answered with nothing"),
        (answer(b"", "204 No Content"), "answered with nothing"),
        (answer(b"\xff\xfe"), "not UTF-8"),
        (answer(b"no\x1b[31m such index", "404 Not Found"), "answered 404: “no [31m such index”"),
        (answer(b"", "500 Oops"), "answered 500: nothing more"),
        (answer(b"x" * 1_000_000, "503 Busy"), "answered 503: “xxx"),
        (answer(b"[1]", "300 Many"), "answered 300"),
        (answer(b"[1]", "302 Found", "Location: https://elsewhere.example/x"), "a redirect to “elsewhere.example”"),
        (answer(b"[1]", "307 Found", "Location: /other"), "a redirect to “another path”"),
        (answer(gzip.compress(b"[1]"), "200 OK", "Content-Encoding: gzip"), "encoding “gzip”"),
        (lambda c, _: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[1]"), "RemoteProtocolError"),
        (
            lambda c, _: c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1]\r\n"),
            "RemoteProtocolError",
        ),
        (lambda c, _: c.sendall(b"HTTP/1.1 200 OK\r\nX" + b"x" * 200_000), "RemoteProtocolError"),
        (lambda c, _: c.sendall(b"220 smtp.example ESMTP\r\n"), "RemoteProtocolError"),
        (
            lambda c, _: c.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
            "RemoteProtocolError",
        ),
        (lambda c, _: None, "RemoteProtocolError"),
        (lambda c, _: c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), "ReadError"),
    ],
)
def test_failure_has_its_reason(served, ask, nothing_left, behave, said):
    """Status, redirect, truncation, closed connection or invalid answer: an error with the host and a hint."""
    server, asking = served(behave)
    with nothing_left(), pytest.raises(SourceFailed) as caught:
        ask(asking)
    assert not isinstance(caught.value, TimedOut)
    assert said in caught.value.message
    assert server.address in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint


def test_answer_without_a_length_ends_with_the_connection(wire, system, ask):
    """As in HTTP/1.0."""
    server = wire(lambda connection, _: connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n[1, 2]"))
    assert ask(system(server.url)) == [1, 2]


@pytest.mark.ci
def test_missing_server_is_named(system, ask, nothing_left):
    """No listener, or an unknown name."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    for host in (address, "no-such-host.invalid"):
        asking = system(f"http://{host}/")
        with nothing_left(), pytest.raises(SourceFailed, match=f"asking {host} failed: ConnectError"):
            ask(asking)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"headers": {"bad name": "x"}}, "LocalProtocolError"),
        ({"headers": {"näme": "x"}}, "UnicodeEncodeError"),
        ({"headers": {"Content-Length": "5"}, "body": {"q": "{query}"}}, "LocalProtocolError"),
        ({"url": "http://127.0.0.1:1/?q=" + "{query}" * 4}, "InvalidURL"),
    ],
)
def test_request_that_cannot_be_sent_is_a_recollect_error(served, ask, nothing_left, options, said):
    """No library exception gets through."""
    _, asking = served(answer(), **options)
    with nothing_left(), pytest.raises(SourceFailed, match=said):
        ask(asking, "x" * 20_000)


def test_client_that_cannot_be_created_is_a_recollect_error(settings, ask, monkeypatch):
    """For example with an unknown kind of proxy in the environment."""
    monkeypatch.setenv("ALL_PROXY", "carrier-pigeon://127.0.0.1:1")
    with pytest.raises(SourceFailed, match="failed"):
        ask(HttpSystem(settings("http", url="http://example.invalid/")))


def test_proxy_of_the_environment_is_used(wire, system, ask, monkeypatch):
    """HTTP_PROXY."""
    proxy = wire(answer())
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    assert ask(system("http://example.invalid/find?q={query}"), "a b") == [1]
    assert heard(proxy)[0][1] == "http://example.invalid/find?q=a%20b"


@pytest.mark.ci
@pytest.mark.parametrize("head", [b"Content-Length: 99999999999\r\n", b""])
def test_answer_above_the_limit_is_stopped(wire, system, ask, nothing_left, head):
    """It is an error, and the answer is not read to its end."""
    server = wire(trickle(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", piece=b" " * 1_000_000, pause=0))
    asking = system(server.url)
    with nothing_left(), pytest.raises(SourceFailed, match=f"more than {MOST_BYTES // 2**20} MiB"):
        ask(asking)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.ci
@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(hang, id="says nothing"),
        pytest.param(trickle(b"HTTP/1.1 200 OK\r\nX: ", piece=b"x"), id="trickles its head"),
        pytest.param(trickle(b"", piece=b"HTTP/1.1 100 Continue\r\n\r\n"), id="continues for ever"),
        pytest.param(trickle(HEAD + b"Content-Length: 9999\r\n\r\n[1]"), id="trickles a length"),
        pytest.param(trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", piece=b"1\r\n \r\n"), id="trickles chunks"),
        pytest.param(trickle(HEAD + b"\r\n[1]"), id="trickles without an end"),
        pytest.param(lambda c, e: (c.sendall(HEAD + b"Content-Length: 9\r\n\r\n[1]"), hang(c, e)), id="stops half-way"),
        pytest.param(trickle(b"HTTP/1.1 500 No\r\nContent-Length: 9999\r\n\r\n"), id="trickles an error"),
    ],
)
def test_slow_server_is_cut_off(served, ask, cut_in_time, behave):
    """In every phase of the request."""
    _, asking = served(behave)
    cut_in_time(lambda: ask(asking, seconds=0.2), 0.2)


@pytest.mark.ci
def test_server_that_never_accepts_is_cut_off(system, ask, cut_in_time):
    """Its queue is full, so that no connection is made."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        asking = system(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        cut_in_time(lambda: ask(asking, seconds=0.2), 0.2)


@pytest.mark.ci
def test_server_that_reads_nothing_is_cut_off(system, ask, cut_in_time):
    """A long query fills the buffers and stays there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asking = system(f"http://127.0.0.1:{listening.getsockname()[1]}/", body=["{query}"])
        cut_in_time(lambda: ask(asking, "x" * 10_000_000, seconds=0.3), 0.3)


@pytest.mark.ci
@pytest.mark.parametrize("behave", [hang, trickle(b"\x16\x03\x03\x40\x00\x02", piece=b"\0")], ids=["hangs", "trickles"])
def test_unfinished_tls_handshake_is_cut_off(wire, system, ask, cut_in_time, behave):
    """A server that sends nothing, or one record very slowly."""
    asking = system(f"https://{wire(behave, reads=False).address}/")
    cut_in_time(lambda: ask(asking, seconds=0.2), 0.2)


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """A certificate for this machine that the client trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate for the test's own server with")
    pair = tmp_path / "pair.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(pair), "-out", str(tmp_path / "cert.pem")]
    subprocess.run([*command, *name], check=True, capture_output=True)
    pair.write_text(pair.read_text() + (tmp_path / "cert.pem").read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    return pair


@pytest.mark.ci
def test_encrypted_answer_is_read_and_cut_off_the_same_way(certificate, wire, system, ask, cut_in_time):
    """TLS changes nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def behave(connection, closing):
        with context.wrap_socket(connection, server_side=True) as encrypted:
            endless = b"endless" in encrypted.recv(65536)
            encrypted.sendall(HEAD + b"\r\n[1]")
            while endless and not closing.wait(0.05):
                encrypted.sendall(b" ")

    asking = system(f"https://{wire(behave, reads=False).address}/{{query}}")
    assert ask(asking, "short") == [1]
    cut_in_time(lambda: ask(asking, "endless", seconds=0.4), 0.4)


@pytest.mark.ci
def test_hanging_dns_lookup_is_not_waited_for(system, ask, monkeypatch, nothing_left):
    """It cannot be cancelled; it ends by itself, and its result is released."""
    wait = threading.Event()
    lookup = socket.getaddrinfo
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hanging(host, *rest, **options):
            wait.wait()
            return lookup("127.0.0.1", *rest, **options)

        asking = system(f"http://slow.example:{listening.getsockname()[1]}/")
        with nothing_left():
            monkeypatch.setattr(socket, "getaddrinfo", hanging)
            began = time.monotonic()
            with pytest.raises(TimedOut):
                ask(asking, seconds=0.1)
            assert (took := time.monotonic() - began) >= 0.1 + external.GRACE_S
            assert within(took, 2)
            wait.set()


def test_first_query_is_in_time_too(wire, settings, ask, monkeypatch):
    """Loading certificates counts."""
    server = wire(answer())
    asking = HttpSystem(settings("http", url=server.url))
    make = asking._http
    monkeypatch.setattr(asking, "_http", lambda: (time.sleep(1.2), make())[1])
    began = time.monotonic()
    with pytest.raises(TimedOut):
        ask(asking, seconds=0.1)
    assert within(time.monotonic() - began, 1)
    assert ask(asking) == [1]
    asking.close()


@pytest.mark.ci
def test_interrupt_leaves_nothing_behind(served, ask, nothing_left):
    """Ctrl-C ends the wait and the connection at once."""
    _, asking = served(hang)
    with nothing_left():
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            ask(asking)
        timer.join()


def test_passed_deadline_sends_nothing(wire, system, ask):
    """A deadline that has passed sends nothing."""
    server = wire(answer())
    with pytest.raises(TimedOut):
        ask(system(server.url), seconds=-1)
    assert server.requests == []


@pytest.mark.ci
def test_parallel_queries_get_their_own_answers(wire, system, ask, nothing_left):
    """None waits for another's connection."""

    def behave(connection, closing):
        time.sleep(0.1)
        answer(b"[1]")(connection, closing)

    server = wire(behave)
    asking = system(f"{server.url}/?q={{query}}")
    answers = []
    with nothing_left():
        threads = [threading.Thread(target=lambda n=n: answers.append(ask(asking, str(n)))) for n in range(30)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [[1]] * 30
    assert within(time.monotonic() - began, 3)
    assert len({heard(server, n)[0][1] for n in range(30)}) == 30


@pytest.mark.ci
@pytest.mark.parametrize(
    "times",
    [
        pytest.param(100, id="short"),
        pytest.param(1000, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(600)]),
    ],
)
@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(hang, id="hang"),
        pytest.param(trickle(HEAD + b"\r\n[1]", pause=0.005), id="trickle"),
    ],
)
def test_timeouts_leave_nothing_behind(served, nothing_left, ask, behave, times):
    """Repeatedly: no open file, no thread, and each within its time."""
    _, asking = served(behave)
    late = []
    with nothing_left():
        for _ in range(times):
            began = time.monotonic()
            with pytest.raises(TimedOut):
                ask(asking, seconds=0.02)
            late.append((time.monotonic() - began - 0.02) * 1000)
    late.sort()
    print(f"{times} timeouts at 20 ms: late by {late[times // 2]:.1f} ms (median), {late[-1]:.1f} ms (worst)")  # noqa: T201
    assert late[times * 95 // 100] < 250


def test_registry_opens_the_kind():
    """The entry of the kind is this class."""
    assert SYSTEMS.load("http") is HttpSystem
