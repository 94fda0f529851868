"""Requests that two readers would cut apart differently, and headers that claim another host: refused or ignored."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from .conftest import Home, Server, head_and_body

BODY = '{"text": "smuggled"}'


def post(server: Server, *lines: str, body: str = BODY) -> bytes:
    """The raw answer to a POST of a record with these lines in its head."""
    host = f"127.0.0.1:{server.port}"
    head = ["POST /v1/records HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close", *lines]
    return server.raw("\r\n".join([*head, "", body]).encode("latin-1"), patience=20)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 20", "Transfer-Encoding: chunked"],
        ["Content-Length: 20", "Content-Length: 5"],
        ["Content-Length: 20, 5"],
        ["Content-Length: -1"],
        ["Content-Length: +20"],
        ["Content-Length: 0x14"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ],
)
def test_ambiguous_length_stores_nothing(server: Server, api: httpx2.Client, lines: list[str]) -> None:
    """Two lengths, a length beside chunks, or one that is no number."""
    before = api.get("/v1/status").json()["records"]
    answer = post(server, *lines)
    assert not answer or head_and_body(answer)[0] in (400, 411, 413, 501), answer
    assert b"smuggled" not in answer
    assert api.get("/v1/status").json()["records"] == before


@pytest.mark.parametrize("name", ["X-Forwarded-Host", "Forwarded", "X-Host", "X-Original-Host", "X-Forwarded-Server"])
def test_forwarded_names_do_not_count(server: Server, name: str) -> None:
    """A name of this machine in such a header does not make a foreign host known, and a foreign one changes nothing."""
    asked = f"GET /v1/status HTTP/1.1\r\nHost: {{}}\r\n{name}: {{}}\r\nConnection: close\r\n\r\n"
    assert head_and_body(server.raw(asked.format("evil.test", "127.0.0.1").encode()))[0] == 403
    assert head_and_body(server.raw(asked.format(f"127.0.0.1:{server.port}", "evil.test").encode()))[0] == 200


def test_values_do_not_become_headers(api: httpx2.Client) -> None:
    """A line break in an id, a path or a request id ends no header of the answer."""
    for address in ("/v1/records/a%0d%0aX-Evil:%201", "/v1/history/%0aX-Evil:1", "/static/%0d%0aX-Evil:1"):
        answer = api.get(address, headers={"X-Request-Id": "a%0d%0aX-Evil: 1"})
        assert answer.status_code == 404
        assert "x-evil" not in answer.headers


@pytest.mark.parametrize("address", ["/", "/v1/search", "/v1/changes", "/mcp"])
@pytest.mark.parametrize("wanted", ["websocket", "h2c"])
def test_other_protocols_are_not_switched_to(server: Server, address: str, wanted: str) -> None:
    """A browser sends a WebSocket across sites without a preflight, so there is none."""
    handshake = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nHTTP2-Settings: AAMAAABk"
    head = f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{handshake}\r\n"
    answer = server.raw(f"{head}Upgrade: {wanted}\r\nConnection: Upgrade, close\r\n\r\n".encode(), patience=20)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), answer
    assert b" 101 " not in answer.partition(b"\r\n")[0]
    assert b"sec-websocket-accept" not in answer.lower()


@pytest.mark.ci
def test_full_disk_stops_writes_and_not_searches(home: Home, tmp_path: Path) -> None:
    """503 for a write, which leaves nothing; searches go on, and with room again so do writes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        server = home.serve("--store", str(folder / "memory.db"))
        client = server.client()
        stored = 0
        for number in range(200):
            answer = client.post("/v1/records", json={"text": f"heron {number} " + "stands in the reeds " * 5_000})
            if answer.status_code != 201:
                break
            stored += 1
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store")
        assert client.get("/v1/status").json()["records"]["total"] == stored > 0
        assert client.post("/v1/search", json={"query": "heron"}).json()["results"]
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        assert client.post("/v1/records", json={"text": "one more heron"}).status_code == 201
        server.end()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.ci
def test_many_requests_leave_nothing_behind(home: Home) -> None:
    """After a thousand more searches and writes the server holds the threads, files and memory that it held before."""
    server = home.serve(forked=False)
    client, pid = server.client(), server.process.pid

    def ask(times: int) -> None:
        for number in range(times):
            assert client.post("/v1/records", json={"text": f"note {number % 50} of a heron"}).status_code == 201
            assert client.post("/v1/search", json={"query": f"heron {number}"}).json()["results"]

    def held() -> tuple[int, int, int]:
        """Threads, open files, megabytes."""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return (
            int(status["Threads"]),
            len([*Path(f"/proc/{pid}/fd").iterdir()]),
            int(status["VmRSS"].split()[0]) // 1024,
        )

    ask(100)
    threads, files, megabytes = held()
    ask(500)
    after = held()
    assert after[0] <= threads + 4
    assert after[1] <= files + 4
    assert after[2] <= megabytes + 40
