"""The process: only protocol messages on standard output, and an end on a signal or when its client has gone."""

import json
import signal
import subprocess
import sys

import pytest


@pytest.mark.ci
def test_standard_output_has_only_protocol_messages(spoken):
    """Also after invalid lines, failing calls, odd addresses and ten megabytes."""
    server = spoken("--user", "ada")
    assert server.hello()["result"]["serverInfo"]["name"] == "recollect"
    asked = [
        server.send("tools/call", name="memory_store", arguments={"text": "The key is under the pot."}),
        server.send("tools/call", name="memory_nothing", arguments={}),
        server.send("resources/read", uri="recollect://record/nothing"),
        server.send("resources/read", uri="recollect://record/%s{0.__class__}%n"),
        server.send("resources/read", uri="file:///etc/passwd"),
        server.send("nothing/at-all"),
        server.send("tools/call", name="memory_search", arguments={"query": "x" * 10_000_000}),
    ]
    server.write("this is not JSON")
    asked.append(server.send("tools/call", name="memory_search", arguments={"query": "key"}))
    answered = {server.read()["id"] for _ in (*asked, "this is not JSON")}
    assert answered == {*asked, None}
    out, _ = server.process.communicate(timeout=20)
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert server.process.returncode == 0


@pytest.mark.ci
@pytest.mark.parametrize("opened", [True, False])
def test_invalid_message_gets_an_error(spoken, opened):
    """Before and after the handshake; with the request's id if known, and the server goes on."""
    server = spoken()
    if opened:
        server.hello()
    asked = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    half = json.dumps({**asked, "params": {"name": "memory_search", "arguments": {"query": "\ud800"}}})
    for line, code, request_id in (
        ("this is not JSON", -32700, None),
        ('{"jsonrpc": "2.0", "id": 7', -32700, None),
        ("[" * 100_000, -32700, None),
        ("\x00", -32700, None),
        (half, -32600, 7),
        (half.replace("7", '"seven"'), -32600, "seven"),
        (json.dumps({**asked, "id": "\ud800"}), -32600, None),
        ('{"jsonrpc": "2.0", "id": 7, "method": 5}', -32600, 7),
        ('{"id": 7}', -32600, 7),
        ("[]", -32600, None),
        ("3", -32600, None),
    ):
        server.write(line)
        answer = server.read()
        assert (answer["jsonrpc"], answer["error"]["code"], answer["id"]) == ("2.0", code, request_id), line
        assert answer["error"]["message"]
    for line in ("", "   ", '{"jsonrpc": "2.0", "id": 1, "result": 5}', '{"id": 1, "error": {}}'):
        server.write(line)
    if not opened:
        server.hello()
    assert server.ask("ping")["id"] == server.number


@pytest.mark.ci
def test_notices_go_to_standard_error(spoken):
    """A missing model is reported there, and search uses keywords."""
    server = spoken("--embedder", "bge-small-en")
    server.hello()
    stored = server.ask("tools/call", name="memory_store", arguments={"text": "The key is under the pot."})
    assert stored["result"]["isError"] is False
    out, errors = server.process.communicate(timeout=20)
    assert out == ""
    assert "stored without vectors" in errors


@pytest.mark.ci
def test_server_ends_with_its_input(spoken):
    """Exit code 0, and no process is left."""
    server = spoken()
    server.hello()
    server.process.stdin.close()
    assert server.process.wait(timeout=20) == 0
    assert server.process.stdout.read() == ""


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_ends_on_a_signal(spoken, number):
    """While it waits for input, with nothing on standard output and no traceback."""
    server = spoken()
    server.hello()
    server.ask("tools/call", name="memory_store", arguments={"text": "The key is under the pot."})
    server.process.send_signal(number)
    assert server.process.wait(timeout=20) == 0
    assert (server.process.stdout.read(), server.process.stderr.read()) == ("", "")


@pytest.mark.ci
def test_signal_during_writes_loses_nothing(spoken, open_memory):
    """With sixty writes under way: every answered write is stored, and the store is intact."""
    server = spoken()
    server.hello()
    for number in range(60):
        server.send("tools/call", name="memory_store", arguments={"text": f"Fact number{number}."})
    answered = [server.read()["result"]["structuredContent"]["id"] for _ in range(10)]
    server.process.terminate()
    assert server.process.wait(timeout=20) == 0
    assert server.process.stderr.read() == ""
    memory = open_memory()
    assert all(memory.get(record_id) for record_id in answered)
    assert memory.search("number59 number1").results


@pytest.mark.ci
def test_client_that_has_gone_is_no_crash(spoken):
    """The server ends without a traceback."""
    server = spoken()
    server.hello()
    server.process.stdout.close()
    server.send("tools/list")
    server.process.stdin.close()
    assert server.process.wait(timeout=20) == 0
    assert "Traceback" not in server.process.stderr.read()


def test_missing_sdk_names_the_extra(tmp_path):
    """What to install is in the error."""
    code = "import sys; sys.modules['mcp'] = None; from recollect.cli import main; sys.exit(main(['mcp']))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert "pip install 'recollect-search[mcp]'" in ran.stderr
