"""MCP over HTTP: the SDK's client with a real `recollect serve`, and the same server with raw requests."""

import contextlib
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import apsw
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from support.agents import READING, WRITING, call, error, hosting, in_a_thread
from support.timing import within

from recollect import Memory
from recollect.config import Settings
from recollect.web.middleware import MOST_BYTES


def called(name, number=2, **arguments):
    """A call of a tool as a message."""
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@contextlib.contextmanager
def opened(hosted):
    """The store that a server serves, opened beside it."""
    with Memory.open(hosted.store, embedder="hashing:64", settings=Settings()) as memory:
        yield memory


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_life_of_a_fact_over_http(hosted, mode):
    """Store, search, supersede, recall, resource, prompt, forget: in the newest protocol and the previous one."""

    async def live(client):
        assert client.server_info.name == "recollect"
        assert {tool.name for tool in (await client.list_tools()).tools} == READING | WRITING
        old = await call(client, "memory_store", text="The spare key is under the blue pot.", tags=["house"])
        assert old["scope"] == {"user": f"ada-{mode}"}
        found = await call(client, "memory_search", query="where is the spare key", tags=["house"])
        assert [result["id"] for result in found["results"]] == [old["id"]]
        new = await call(client, "memory_supersede", id=old["id"], text="The spare key is with Grace.")
        block = await call(client, "memory_recall", query="spare key")
        assert [cited["id"] for cited in block["citations"]] == [new["id"]]
        (content,) = (await client.read_resource(f"recollect://record/{old['id']}")).contents
        assert json.loads(content.text)["superseded_by"] == new["id"]
        (message,) = (await client.get_prompt("recall", {"task": "fetch the spare key"})).messages
        assert "[1] The spare key is with Grace." in message.content.text
        assert (await call(client, "memory_forget", ids=[new["id"]])) == {"forgotten": [new["id"]]}
        assert (await call(client, "memory_search", query="spare key"))["results"] == []
        return client.protocol_version

    version = hosted.run(live, hosted.token(f"ada-{mode}"), mode)
    assert (version < "2026") is (mode == "legacy")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_users_see_nothing_of_each_other(hosted, mode):
    """Bob's tools find, read, correct and count nothing of Ada's; such an argument is refused."""
    ada, bob = hosted.token(f"walled-ada-{mode}"), hosted.token(f"walled-bob-{mode}")

    async def remember(client):
        return await call(client, "memory_store", text="The vault opens with 4711.")

    secret = hosted.run(remember, ada, mode)

    async def reach(client):
        assert (await call(client, "memory_search", query="vault opens with 4711"))["results"] == []
        assert "4711" not in (await call(client, "memory_recall", query="vault opens"))["text"]
        for name, arguments in {
            "memory_get": {"id": secret["id"]},
            "memory_forget": {"ids": [secret["id"]]},
            "memory_supersede": {"id": secret["id"], "text": "mine"},
            "memory_store": {"text": "mine", "supersedes": secret["id"]},
        }.items():
            assert (await error(client, name, **arguments))["code"] == "unknown_record"
        with pytest.raises(MCPError, match="no record"):
            await client.read_resource(f"recollect://record/{secret['id']}")
        prompt = await client.get_prompt("recall", {"task": "open the vault"})
        assert "4711" not in prompt.messages[0].content.text
        for name in ("user", "scope", "any_scope"):
            said = await error(client, "memory_search", query="vault", **{name: f"walled-ada-{mode}"})
            assert (said["code"], said["message"].startswith(f"{name}: ")) == ("usage", True)
        status = await call(client, "memory_status")
        assert (status["records"]["total"], status["scope"]) == (0, {"user": f"walled-bob-{mode}"})

    hosted.run(reach, bob, mode)
    with opened(hosted) as memory:
        assert memory.get(secret["id"]).superseded_by is None


def test_global_record_can_be_read_but_not_changed_over_mcp(hosted):
    """All find it; no scoped caller changes it."""
    with opened(hosted) as memory:
        shared = memory.add("The office closes at ten in the evening.", title="Office")

    async def reach(client):
        found = await call(client, "memory_search", query="when does the office close")
        assert [result["id"] for result in found["results"]] == [shared.id]
        assert (await error(client, "memory_forget", ids=[shared.id]))["code"] == "forbidden"
        assert (await error(client, "memory_supersede", id=shared.id, text="At nine."))["code"] == "forbidden"
        assert (await error(client, "memory_store", text="At nine.", supersedes=shared.id))["code"] == "forbidden"

    hosted.run(reach, hosted.token("clerk"))
    with opened(hosted) as memory:
        assert memory.get(shared.id) == shared
        memory.forget(shared.id)


def test_read_only_token_has_only_reading_tools(hosted):
    """The others are not listed, and fail when called."""

    async def read(client):
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        assert (await call(client, "memory_status"))["read_only"] is True
        assert (await client.call_tool("memory_store", {"text": "x"})).is_error

    hosted.run(read, hosted.token("reader", read_only=True))
    with opened(hosted) as memory:
        assert memory.list(user="reader") == []


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_session_without_a_token_is_401(hosted, method):
    """In the common error format with a hint; so is an unknown token."""
    for token in ("", "rcl_wrong"):
        answer = hosted.ask(method, token=token)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("Host", "evil.example", "forbidden_host"), ("Origin", "https://evil.example", "forbidden_origin")],
)
def test_foreign_hosts_and_origins_are_refused(hosted, name, value, code):
    """Even with a valid token."""
    for method in ("POST", "GET", "DELETE"):
        answer = hosted.ask(method, token=hosted.token(f"{code}-{method}"), headers={name: value})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)


def test_session_belongs_to_its_caller(hosted):
    """With another's token it is not found, and it goes on."""
    ada, bob = hosted.token("session-ada"), hosted.token("session-bob")
    session = hosted.hello(ada)
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for method, options in (("POST", {"json": listing}), ("GET", {}), ("DELETE", {})):
        assert hosted.ask(method, token=bob, session=session, **options).status_code == 404
    assert hosted.ask(token=ada, session=session, json=listing).status_code == 200


def test_removed_token_ends_its_session_at_the_next_request(hosted):
    """A new token of the same name with another scope does not get the old session."""
    token = hosted.token("leaving")
    session = hosted.hello(token)
    asked = called("memory_status")
    assert hosted.ask(token=token, session=session, json=asked).status_code == 200
    hosted.tokens.remove("leaving")
    assert hosted.ask(token=token, session=session, json=asked).status_code == 401
    again = hosted.token("leaving", user="somebody else")
    assert hosted.ask(token=again, session=session, json=asked).status_code == 404


@pytest.mark.ci
def test_parallel_clients_find_their_own_records(hosted):
    """Two callers, each with four sessions that write and read at the same time."""
    tokens = [hosted.token("crowd-ada"), hosted.token("crowd-bob")]

    async def one(token, number):
        async with hosted.client(token, "legacy" if number % 2 else "auto") as client:
            for turn in range(3):
                kept = await call(client, "memory_store", text=f"Fact n{number}t{turn} about pots.")
                assert (await call(client, "memory_get", id=kept["id"]))["text"] == kept["text"]
                found = await call(client, "memory_search", query=f"n{number}t{turn}", limit=1)
                assert found["results"][0]["id"] == kept["id"]

    async def crowd():
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, tokens[number // 4], number)

    in_a_thread(crowd)
    with opened(hosted) as memory:
        for name, numbers in (("crowd-ada", "0123"), ("crowd-bob", "4567")):
            texts = {record.text for record in memory.list(user=name)}
            assert texts == {f"Fact n{number}t{turn} about pots." for number in numbers for turn in range(3)}


def test_waiting_call_blocks_no_other(hosted):
    """While a write waits for another process, searches of all sessions are answered."""
    token = hosted.token("waiting")

    async def wait():
        async with hosted.client(token) as slow, hosted.client(token, "legacy") as other:
            await call(slow, "memory_store", text="The kettle is in the shed.")
            writer = apsw.Connection(str(hosted.store))
            writer.execute("BEGIN IMMEDIATE")
            done = []

            async def store():
                done.append(await call(slow, "memory_store", text="The kettle is on the stove."))

            async with anyio.create_task_group() as group:
                group.start_soon(store)
                await anyio.sleep(0.3)
                for client in (slow, other):
                    with anyio.fail_after(5):
                        assert (await call(client, "memory_search", query="kettle"))["results"]
                assert done == []
                writer.execute("ROLLBACK")
                writer.close()
            assert done[0]["text"] == "The kettle is on the stove."

    in_a_thread(wait)


def test_stream_and_end_of_a_session(hosted):
    """GET opens one event stream; DELETE ends the session, and then it is not found."""
    token = hosted.token("streaming")
    session = hosted.hello(token)
    headers = {"Authorization": f"Bearer {token}", "Mcp-Session-Id": session, "Accept": "text/event-stream"}
    with httpx2.stream("GET", hosted.url, headers=headers, timeout=10) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert hosted.ask(token=token, session=session, json=called("memory_status")).status_code == 200
        assert hosted.ask("DELETE", token=token, session=session).status_code == 200
        assert list(stream.iter_bytes()) == []  # it ends with the session
    for method in ("POST", "GET", "DELETE"):
        options = {"json": called("memory_status")} if method == "POST" else {}
        assert hosted.ask(method, token=token, session=session, **options).status_code == 404


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        pytest.param({"content": b"{not json"}, 400, -32700, id="no-json"),
        pytest.param({"content": b"\xff\xfe"}, 400, -32700, id="no-text"),
        pytest.param({"json": {"hello": 1}}, 400, -32602, id="no-json-rpc"),
        pytest.param({"json": [called("memory_status"), called("memory_status")]}, 400, -32602, id="batch"),
        pytest.param({"json": called("memory_status")}, 400, -32600, id="no-session"),
        pytest.param({"session": "nothing", "json": called("memory_status")}, 404, -32600, id="unknown-session"),
        pytest.param({"headers": {"Accept": "text/plain"}}, 406, -32600, id="accept"),
    ],
)
def test_invalid_request_is_a_json_rpc_error(hosted, request, said, status, code):
    """With a fitting HTTP status, and the server goes on."""
    answer = hosted.ask(token=hosted.token(request.node.name), **said)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_other_methods_and_content_types_are_refused(hosted):
    """Neither is a crash."""
    token = hosted.token("refused")
    assert hosted.ask("PUT", token=token).status_code == 405
    assert hosted.ask(token=token, headers={"Content-Type": "text/plain"}).status_code in (400, 415)


def test_too_large_body_is_refused(hosted):
    """By its length, or when the limit is reached."""
    token = hosted.token("large")

    def pieces():
        for _ in range(MOST_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    assert hosted.ask(token=token, content=b" " * (MOST_BYTES + 1)).status_code == 413
    assert hosted.ask(token=token, content=pieces()).status_code == 413


def test_longest_record_fits_into_a_body(hosted):
    """A million letters that JSON writes as six bytes each."""
    token = hosted.token("long")
    session = hosted.hello(token)
    body = json.dumps(called("memory_store", text="é" * 999_999))
    assert len(body) > 5_999_000
    answer = hosted.ask(token=token, session=session, content=body.encode())
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["isError"] is False


@pytest.mark.ci
def test_sigterm_ends_the_server_with_an_open_stream(tmp_path):
    """Answered writes are stored, streams end, and there is no traceback."""
    with hosting(tmp_path) as hosted, ThreadPoolExecutor(1) as pool:
        session = hosted.hello("")
        stored = hosted.ask(session=session, json=called("memory_store", text="The key is under the pot."))
        assert stored.status_code == 200

        def listen():
            headers = {"Mcp-Session-Id": session, "Accept": "text/event-stream"}
            with httpx2.stream("GET", hosted.url, headers=headers, timeout=30) as stream:
                streaming.append(stream.status_code)
                with contextlib.suppress(httpx2.TransportError):
                    return list(stream.iter_bytes())

        streaming = []
        listening = pool.submit(listen)
        while not streaming:
            assert not listening.done()
            time.sleep(0.02)
        start = time.monotonic()
        hosted.process.send_signal(signal.SIGTERM)
        assert hosted.process.wait(timeout=20) == 0
        assert within(time.monotonic() - start, 8)
        listening.result(timeout=5)
        assert "Traceback" not in hosted.errors
        with opened(hosted) as memory:
            assert [record.text for record in memory.list()] == ["The key is under the pot."]


@pytest.mark.ci
def test_running_call_is_answered_before_the_end(tmp_path):
    """SIGTERM while a write waits: it is done and answered, then the server ends."""
    with hosting(tmp_path) as hosted, ThreadPoolExecutor(1) as pool:
        session = hosted.hello("")
        hosted.ask(session=session, json=called("memory_store", text="The kettle is in the shed."))
        writer = apsw.Connection(str(hosted.store))
        writer.execute("BEGIN IMMEDIATE")
        asked = called("memory_store", text="The key is under the pot.")
        answer = pool.submit(hosted.ask, session=session, json=asked)
        time.sleep(0.5)
        assert not answer.done()
        hosted.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        writer.execute("ROLLBACK")
        writer.close()
        assert "under the pot" in answer.result(timeout=10).text
        assert hosted.process.wait(timeout=20) == 0
        assert "Traceback" not in hosted.errors
        with opened(hosted) as memory:
            assert len(memory.list()) == 2
