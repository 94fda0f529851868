"""The HTTP client: what it refuses before and after it connects, and what it counts, with real servers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from support.http import HttpServer, Response

from recollect.config import OpenAISettings, Settings
from recollect.errors import EmbedderError, NotContacted, Offline
from recollect.models.embedders import open_embedder
from recollect.network import addresses, calls
from recollect.network.client import CallFailed, Client


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of counts for the test, online and without a proxy."""
    for name in ("RECOLLECT_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    calls.flush()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return calls.ledger_file()


@pytest.fixture
def web() -> Iterator[Callable[..., HttpServer]]:
    """Starts servers that answer as a test says."""
    servers: list[HttpServer] = []

    def start(respond: Callable[[Any], Response] = lambda _: Response(content=b'{"ok": true}')) -> HttpServer:
        servers.append(HttpServer(respond))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """Makes clients, and closes them."""
    with ExitStack() as stack:
        yield lambda *purpose, **options: stack.enter_context(closing(Client(*purpose, **options)))


def elsewhere(server: HttpServer) -> str:
    """An address of the server that does not count as this machine, because nothing says where it leads."""
    return f"http://0.0.0.0:{server.port}"


def fetch(client: Client, url: str) -> bytes:
    with client.stream("GET", url) as response:
        return response.read()


def test_refused_connection_counts_no_bytes(web, client) -> None:
    """A call was tried, and nothing was sent."""
    server = web()
    server.close()
    with pytest.raises(CallFailed):
        client("embeddings").post(server.url, json={"text": "walrus"})
    calls.flush()
    assert [(row.calls, row.sent, row.received) for row in calls.contacts()] == [(1, 0, 0)]


def test_calls_and_bytes_are_counted_by_host_and_purpose(web, ledger: Path, client) -> None:
    """In a file for its owner alone, which holds no path, no query and no text."""
    server = web()
    made = client("embeddings")
    for _ in range(3):
        made.post(f"{server.url}/path?secret=1", json={"text": "walrus " * 100})
    assert fetch(client("source notes"), server.url) == b'{"ok": true}'
    calls.flush()
    rows = {row.purpose: row for row in calls.contacts()}
    assert (rows["embeddings"].host, rows["embeddings"].calls) == (f"127.0.0.1:{server.port}", 3)
    assert 3 * 700 < rows["embeddings"].sent < 3 * 1200
    assert 3 * 12 < rows["embeddings"].received < 3 * 400
    assert rows["source notes"].calls == 1
    assert all(row.local for row in rows.values())
    text = ledger.read_text()
    assert "walrus" not in text
    assert "secret" not in text
    assert "path" not in text
    assert ledger.stat().st_mode & 0o077 == 0


def test_other_machine_is_refused_offline_and_this_one_is_not(web, monkeypatch: pytest.MonkeyPatch, client) -> None:
    """Nothing arrives, and nothing is counted."""
    server = web()
    assert fetch(client("x"), elsewhere(server))
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    with pytest.raises(Offline):
        fetch(client("offline"), elsewhere(server))
    assert fetch(client("x"), server.url)
    assert len(server.asked) == 2
    assert "offline" not in {row.purpose for row in calls.contacts()}


def test_offline_a_proxy_is_another_machine(web, monkeypatch: pytest.MonkeyPatch, client) -> None:
    """And a call to this machine goes to none, whatever the environment says."""
    server, proxy = web(), web()
    monkeypatch.setenv("HTTP_PROXY", elsewhere(proxy))
    assert fetch(client("x"), "http://a.invalid/")
    assert fetch(client("x"), server.url)
    assert (len(proxy.asked), len(server.asked)) == (1, 1)
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    assert fetch(client("x"), server.url)
    assert (len(proxy.asked), len(server.asked)) == (1, 2)


def test_name_that_leads_to_a_metadata_service_gets_no_request(web, client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed before anything is sent. Here the loopback counts as such a service."""
    server = web()
    monkeypatch.setattr(addresses, "METADATA_NETWORKS", (ip_network("127.0.0.1/32"),))
    with pytest.raises(NotContacted, match=r"0\.0\.0\.0:\d+ \(127.0.0.1\).*metadata"):
        fetch(client("x"), elsewhere(server))
    assert server.asked == []


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{}/", "http://0.0.0.0:{}/", "https://127.0.0.1:{}/", "http://169.254.169.254/"]
)
def test_redirect_to_another_host_or_scheme_is_not_followed(web, target: str, client) -> None:
    """Not even by a client that follows redirects."""
    other = web()
    server = web(lambda _: Response(302, headers={"Location": target.format(other.port)}))
    with pytest.raises(NotContacted, match=r"redirect to .*, which is not followed"):
        fetch(client("x", follow=True), server.url)
    assert other.asked == []
    with client("x").stream("GET", server.url) as response:
        assert response.status_code == 302


def test_redirect_within_the_host_is_followed_on_request(web, client) -> None:
    """A hub moves its files now and then."""
    server = web(
        lambda request: Response(302, headers={"Location": "/b"}) if request.path == "/a" else Response(content=b"x")
    )
    assert fetch(client("x", follow=True), f"{server.url}/a") == b"x"
    assert [request.path for request in server.asked] == ["/a", "/b"]


def test_storage_of_the_hub_is_reached_by_https_only(client) -> None:
    """The public hub redirects to hosts below hf.co for large files; a look-alike or plain HTTP is refused."""
    import httpx2

    made = client("model files", follow=True, storage=("hf.co",))
    for location, followed in {
        "https://cdn-lfs.hf.co/x": True, "https://hf.co/x": True, "http://cdn-lfs.hf.co/x": False,
        "https://evilhf.co/x": False, "https://hf.co.evil.example/x": False, "https://huggingface.co/y": True,
    }.items():  # fmt: skip
        request = httpx2.Request("GET", "https://huggingface.co/x")
        response = httpx2.Response(302, headers={"location": location}, request=request)
        if followed:
            made._check_redirect(response)
        else:
            with pytest.raises(NotContacted):
                made._check_redirect(response)


def test_server_that_is_not_there_is_one_kind_of_error(client) -> None:
    """The library's own errors stay inside."""
    with pytest.raises(CallFailed) as failed:
        client("x").post("http://127.0.0.1:9/", json={})
    assert failed.value.kind == "network"
    assert failed.value.transient
    with pytest.raises(CallFailed) as failed:
        client("x").post("http://a b:port/", json={})
    assert failed.value.kind == "url"


PROGRAM = """
from recollect.network import calls
for number in range(200):
    calls.record(f"h{number % 5}.example", "store", calls=1, sent=2, received=None)
    calls.flush()
"""


def test_many_processes_count_together(ledger: Path) -> None:
    """No call is lost, though all of them write the same file."""
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM]) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    rows = calls.contacts()
    assert {(row.host, row.calls, row.sent, row.received) for row in rows} == {
        (f"h{number}.example", 120, 240, None) for number in range(5)
    }


def test_damaged_or_unwritable_counts_break_nothing(web, ledger: Path, monkeypatch: pytest.MonkeyPatch, client) -> None:
    """They begin again, or are not written."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_text('[{"host": "x"')
    assert fetch(client("x"), web().url)
    calls.flush()
    assert len(json.loads(ledger.read_text())) == 1
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert fetch(client("x"), web().url)
    calls.flush()


def test_counts_are_bounded(ledger: Path) -> None:
    """The least recent hosts are dropped."""
    for number in range(calls.MOST_ROWS + 20):
        calls.record(f"h{number}.example", "x", calls=1)
    calls.flush()
    assert len(json.loads(ledger.read_text())) == calls.MOST_ROWS


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_too_large_answer_is_not_read_to_its_end(
    web: Callable[..., HttpServer],
    client: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    encoding: str,
) -> None:
    """Of a server that sends without end, and of a small answer that becomes a large one; the error is ours."""
    monkeypatch.setattr("recollect.network.client.LARGEST_ANSWER", 2**20)
    sent: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            sent.append(2**16)
            yield bytes(2**16)

    packed = gzip.compress(bytes(2**26))
    body = Response(content=packed) if encoding == "gzip" else Response(content=bytes(2**26), pieces=endless())
    body.headers["Content-Encoding"] = encoding
    server = web(lambda _: body)
    with pytest.raises(CallFailed, match="more than 1 MiB") as failed:
        client("embeddings").post(server.url, json={})
    assert (failed.value.kind, failed.value.transient) == ("size", False)
    assert len(sent) < 2**10
    settings = Settings(openai=OpenAISettings(base_url=server.url, retries=2))
    with pytest.raises(EmbedderError, match=r"127\.0\.0\.1:\d+ answered with more than 1 MiB"):
        open_embedder("openai:m", settings=settings).query("heron")
    assert len(server.asked) == 2
