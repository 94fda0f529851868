"""The server process: parallel requests, SIGTERM, a port in use, two servers on one store, a Recollect as client."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from support.timing import within

from recollect import Memory
from recollect.config import Settings
from recollect.web.middleware import Guard, Hosts, Metrics

from .conftest import refused, until


def crowd(server, seconds, work, people=16):
    """What came of that many clients, each with a connection of its own, that keep asking for a while."""
    statuses, faults = [], []
    deadline = time.monotonic() + seconds

    def one(number):
        with httpx2.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            turn = 0
            while turn < 4 or time.monotonic() < deadline:  # a busy machine is slow
                turn += 1
                try:
                    statuses.append(work(client, number, turn))
                except httpx2.TransportError as error:
                    faults.append(error)
                    return

    threads = [threading.Thread(target=one, args=(number,)) for number in range(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, faults


def mixed(client, number, turn):
    """One request of many kinds; records are added, changed and taken away meanwhile."""
    record_id = f"r{turn % 7}"
    asks = [
        lambda: client.post("/v1/search", json={"query": f"fact {turn}", "mmr": bool(turn % 2)}),
        lambda: client.post("/v1/records", json={"text": f"Fact {number} of {turn}.", "id": record_id}),
        lambda: client.patch(f"/v1/records/{record_id}", json={"title": f"{number}-{turn}"}),
        lambda: client.post("/v1/undo", json={"id": record_id}),
        lambda: client.get(f"/v1/history/{record_id}"),
        lambda: client.delete(f"/v1/records/{record_id}"),
        lambda: client.post("/v1/records", json={"text": f"Lasting {number}/{turn}."}),
        lambda: client.post("/v1/supersede", json={"id": record_id, "text": f"Newer {number}/{turn}."}),
        lambda: client.get("/v1/records?limit=5"),
        lambda: client.get("/v1/status"),
        lambda: client.get("/v1/facets"),
        lambda: client.post("/v1/recall", json={"query": "fact"}),
        lambda: client.post("/v1/why-not", json={"query": "fact", "target": record_id}),
        lambda: client.get("/metrics"),
        lambda: client.get("/healthz"),
    ]
    return asks[(turn + number) % len(asks)]().status_code


@pytest.mark.ci
def test_parallel_reads_and_writes(home):
    """Sixteen clients: nothing fails, and the store is intact afterwards."""
    server = home.serve()
    statuses, faults = crowd(server, 4, mixed)
    assert not faults
    assert len(statuses) > 50
    assert {status for status in statuses if status >= 500} == set()
    assert {200, 201} <= set(statuses)
    assert server.end() == 0
    assert "Traceback" not in "".join(server.errors)
    with sqlite3.connect(home.store) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.torture)])
def test_sigterm_loses_no_acknowledged_write(home, number):
    """During writes, with a half-sent request and a waiting client: exit code 0 within seconds."""
    server = home.serve(forked=False)
    kept = []

    def write(client, writer, turn):
        answer = client.post("/v1/records", json={"text": f"Writer {writer} wrote {turn}."})
        if answer.status_code == 201:
            kept.append(answer.json()["id"])
        return answer.status_code

    half = socket.create_connection(("127.0.0.1", server.port))
    half.sendall(b"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
    writing = threading.Thread(target=crowd, args=(server, 6, write, 4))
    writing.start()
    until(lambda: len(kept), lambda count: count > 20)
    start = time.monotonic()
    code = server.end(number)
    took = time.monotonic() - start
    writing.join()
    half.close()
    assert code == 0
    assert within(took, 8)
    assert "Traceback" not in "".join(server.errors)
    with Memory.open(home.store, embedder="hashing:64", settings=Settings()) as memory:
        assert [record_id for record_id in kept if memory.get(record_id) is None] == []


def test_idle_server_exits_at_once(home):
    """Without requests there is no wait and no message."""
    server = home.serve(forked=False)
    with server.client() as client:
        client.get("/healthz")
        start = time.monotonic()
        assert server.end() == 0
    assert within(time.monotonic() - start, 5)
    assert len(server.errors) == 1


def test_port_in_use_is_reported(home, server):
    """Exit code 3 with a hint; the other process is not disturbed."""
    ran = home.run("serve", "--port", server.port)
    assert ran.returncode == 3
    assert f"cannot listen on 127.0.0.1:{server.port}" in ran.stderr
    assert "--port 0" in ran.stderr
    assert server.client().get("/healthz").status_code == 200


def test_unavailable_address_is_reported(home):
    """Exit code 3 as well."""
    hosts = ("192.0.2.1", "no.such.host.invalid")
    codes, said = home.tries(["token", "add", "ada"], *(["serve", "--port", "0", "--host", host] for host in hosts))
    assert codes == [0, 3, 3]
    assert said.count("cannot listen") == len(hosts)


def test_ipv6_loopback_can_be_served(home):
    """With or without brackets."""
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    server = home.serve("--host", "[::1]")
    assert server.url.startswith("http://[::1]:")
    assert server.client().get("/v1/status").status_code == 200


def test_two_servers_on_one_store_agree(home):
    """A record stored through one is found by the next search of the other."""
    one, two = home.serve().client(), home.serve().client()
    for number in range(5):
        stored = one.post("/v1/records", json={"text": f"The walrus number{number} is here."}).json()
        found = two.post("/v1/search", json={"query": f"number{number}"}).json()
        assert found["results"][0]["id"] == stored["id"]
        assert two.delete(f"/v1/records/{stored['id']}").status_code == 200
        refused(one.get(f"/v1/records/{stored['id']}"), 404, "unknown_record")


def test_server_is_an_external_source_of_another_recollect(home, tmp_path_factory):
    """`[[sources]] kind = "recollect"` with an address and a token returns its records."""
    token = home.token("peer", "--read-only", "--owner")
    server = home.serve()
    # Records come from a second, writing token: the peer itself only reads.
    writer = server.client(home.token("writer", "--owner"))
    writer.post("/v1/records", json={"text": "The submarine is painted yellow.", "id": "sub"})
    writer.post(
        "/v1/records", json={"text": "Ada's submarine is painted green.", "id": "ada-sub", "scope": {"user": "ada"}}
    )
    mine = tmp_path_factory.mktemp("asking")
    (mine / "config.toml").write_text(
        f'[[sources]]\nname = "team"\nkind = "recollect"\nurl = "{server.url}"\n'
        'token_env = "TEAM_TOKEN"\ntimeout_ms = 20000\n'
    )

    def ask(shown, *flags):
        words = home.words("search", "submarine painted", "--json", "--store", mine / "own.db", "--embedder", "none",
                           "--config", mine / "config.toml", *flags)  # fmt: skip
        ran = subprocess.run(
            words, env={**home.environment, "TEAM_TOKEN": shown}, capture_output=True, text=True, check=False
        )
        return json.loads(ran.stdout or ran.stderr)

    home.run("add", "My own submarine is painted red.", "--store", mine / "own.db", "--embedder", "none")
    answer = ask(token)
    assert {result["id"] for result in answer["results"]} >= {"team:sub"}
    assert "team:ada-sub" not in {result["id"] for result in answer["results"]}
    assert {source["name"]: source["status"] for source in answer["trace"]["sources"]}["team"] == "ok"
    assert "team:ada-sub" in {result["id"] for result in ask(token, "--user", "ada")["results"]}
    refused_ = {source["name"]: source for source in ask("nobody's")["trace"]["sources"]}["team"]
    assert (refused_["status"], "401" in refused_["reason"]) == ("failed", True)


def test_missing_packages_name_the_extra(home):
    """The error says what to install; tokens can be made without it."""
    code = (
        "import sys; sys.modules['uvicorn'] = sys.modules['fastapi'] = None\n"
        "from recollect.cli import main; print(main(['serve']), main(['token', 'add', 'ada', '--json']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=home.environment, cwd=home.folder, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split()[-2:] == ["2", "0"]
    assert "pip install 'recollect-search[serve]'" in ran.stderr


def test_internal_error_is_one_plain_500(caplog):
    """Without details, which are in the log under the request id."""

    async def broken(scope, receive, send):
        raise ZeroDivisionError("the secret of the house")

    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    metrics = Metrics()
    guard = Guard(broken, Hosts("127.0.0.1"), metrics)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"localhost"), (b"x-request-id", b"r1")],
    }
    with ThreadPoolExecutor(1) as pool:  # a browser test leaves an event loop running in this thread
        pool.submit(asyncio.run, guard(scope, receive, send)).result()
    start, body = sent
    assert start["status"] == 500
    assert dict(start["headers"])[b"x-request-id"] == b"r1"
    assert dict(start["headers"])[b"x-frame-options"] == b"DENY"
    error = json.loads(body["body"])["error"]
    assert (error["code"], error["request_id"]) == ("internal", "r1")
    assert "secret" not in str(sent)
    assert "the secret of the house" in caplog.text
    assert "r1" in caplog.text
    assert metrics.registry.get_sample_value(
        "recollect_requests_total", {"route": "other", "method": "GET", "status": "500"}
    )
