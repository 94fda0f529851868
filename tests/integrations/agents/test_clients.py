"""The settings of MCP clients: each file is read as its client reads it, and its command is started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import click
import httpx2
import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from support import ROOT

from recollect.cli import app, hook

FOLDER = ROOT / "integrations" / "clients"
PLUGIN = FOLDER.parent / "claude-code" / ".mcp.json"
README = (FOLDER / "README.md").read_text(encoding="utf-8")

PLACES = {
    "claude-desktop": ("mcpServers",),
    "claude-code": ("mcpServers",),
    "cursor": ("mcpServers",),
    "vscode": ("servers",),
    "windsurf": ("mcpServers",),
    "gemini": ("mcpServers",),
    "codex": ("mcp_servers",),
    "zed": ("context_servers",),
    "opencode": ("mcp",),
    "continue": ("mcpServers",),
    "cline": ("mcpServers",),
    "openclaw": ("mcp", "servers"),
}
"""Where in its settings each client keeps its servers."""

URLS = {"windsurf": "serverUrl", "gemini": "httpUrl"}

TOKENS = {
    "claude-code": "${RECOLLECT_TOKEN}",
    "cursor": "${env:RECOLLECT_TOKEN}",
    "vscode": "${input:recollect-token}",
    "windsurf": "${env:RECOLLECT_TOKEN}",
    "gemini": "$RECOLLECT_TOKEN",
    "zed": "TOKEN",
    "opencode": "{env:RECOLLECT_TOKEN}",
    "continue": "${{ secrets.RECOLLECT_TOKEN }}",
    "cline": "TOKEN",
    "openclaw": "${RECOLLECT_TOKEN}",
}
"""How each client is told to take the token from somewhere else; Codex names the variable, two take it as it is."""


def parsed(path: Path) -> dict[str, Any]:
    """A file of settings in its own format."""
    readers = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load}
    return readers[path.suffix](path.read_text(encoding="utf-8"))


def entry(path: Path) -> dict[str, Any]:
    """What a file says of the one server in it."""
    found: Any = parsed(path)
    for key in PLACES[path.name.split(".")[0] or "claude-code"]:
        found = found[key]
    if isinstance(found, list):
        return {item["name"]: item for item in found}["memory"]
    assert found.keys() == {"memory"}
    return found["memory"]


def started(said: dict[str, Any]) -> list[str]:
    words = said["command"]
    return [*words] if isinstance(words, list) else [words, *said["args"]]


def stdio_files() -> list[Path]:
    files = sorted(path for path in FOLDER.iterdir() if re.fullmatch(r"[\w-]+\.(json|toml|yaml)", path.name))
    return [*files, PLUGIN]


def http_files() -> list[Path]:
    return sorted(FOLDER.glob("*.http.*"))


def in_a_thread(work: Callable[[], Awaitable[Any]]) -> Any:
    """What a coroutine gives, run where no other event loop is."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result()


async def remembers(client: Client, text: str) -> str:
    """What the client finds first after it has stored a text; its list of tools must have both."""
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"memory_store", "memory_search", "memory_recall"} <= names
    await client.call_tool("memory_store", {"text": text})
    found = await client.call_tool("memory_search", {"query": text})
    assert not found.is_error
    return found.structured_content["results"][0]["text"]


def test_every_client_has_its_file_and_its_row():
    """Every file has a reader here, and the table names its place and its documentation."""
    assert {path.name.split(".")[0] for path in stdio_files() if path != PLUGIN} == PLACES.keys()
    assert {path.name.split(".")[0] for path in http_files()} == TOKENS.keys() | {"codex"}
    rows = dict(re.findall(r"^\| \[`([\w.-]+)`\]\(\1\)(.*)\|$", README, flags=re.MULTILINE))
    assert rows.keys() == {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert all(re.search(r"https://\S+", row) for row in rows.values())


def some_of(files):
    """Three that differ in form are always tried; all of them in `make torture`."""
    core = ("claude-code", "codex", "continue")
    return [pytest.param(file, marks=[] if file.name.startswith(core) else [pytest.mark.torture]) for file in files]


@pytest.mark.parametrize("path", stdio_files(), ids=lambda path: path.name)
def test_every_file_names_the_same_command(path):
    """Found on the PATH, without personal flags."""
    said = entry(path)
    assert started(said) == ["recollect", "mcp"]
    assert said.get("type", "stdio") in ("stdio", "local")
    assert said.keys() <= {"name", "type", "command", "args"}


@pytest.mark.ci
def test_command_of_the_files_is_a_server(home):
    """Started as by a client, it lists its tools, stores and finds."""
    (words,) = {tuple(started(entry(path))) for path in stdio_files()}

    async def session() -> str:
        server = StdioServerParameters(command=words[0], args=list(words[1:]), env=home.environment, cwd=home.folder)
        with (home.folder / "stderr").open("w") as errors:
            async with Client(stdio_client(server, errlog=errors), read_timeout_seconds=60) as client:
                return await remembers(client, "The heron nests behind the mill.")

    assert in_a_thread(session) == "The heron nests behind the mill."


@dataclass(frozen=True)
class Served:
    """A server that is running, and the token that it wants."""

    url: str
    token: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`recollect serve` on its own port, with one token."""
    folder = tmp_path_factory.mktemp("served")
    names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    environment = {**os.environ, **dict.fromkeys(names, str(folder)), "RECOLLECT_STORE": str(folder / "memory.db")}
    place = {"env": {**environment, "RECOLLECT_EMBEDDER": "hashing:64"}, "cwd": folder, "text": True}
    words = [sys.executable, "-m", "recollect"]
    made = subprocess.run([*words, "token", "add", "tester"], check=True, stdout=subprocess.PIPE, **place)
    serve = [*words, "serve", "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **place) as process:
        said = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        yield Served(said[0], made.stdout.strip())
        process.terminate()


@contextlib.asynccontextmanager
async def reached(url: str, headers: dict[str, str]) -> AsyncIterator[Client]:
    """A session of the SDK's client with an address."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), read_timeout_seconds=30) as client,
    ):
        yield client


def address(path: Path, token: str) -> tuple[str, str]:
    """The URL and the value of the header `Authorization` that a client makes of its file and the token."""
    client, said = path.name.split(".")[0], entry(path)
    if client == "codex":
        assert said["bearer_token_env_var"] == "RECOLLECT_TOKEN"
        return said["url"], f"Bearer {token}"
    headers = said["requestOptions"]["headers"] if client == "continue" else said["headers"]
    assert headers.keys() == {"Authorization"}
    return said[URLS.get(client, "url")], headers["Authorization"].replace(TOKENS[client], token)


@pytest.mark.ci
@pytest.mark.parametrize("path", some_of(http_files()), ids=lambda path: path.name)
def test_every_address_is_reached_with_its_token(path, served):
    """The file's header is accepted; its address is that of `recollect serve`."""
    url, authorization = address(path, served.token)
    assert url == f"http://127.0.0.1:{port()}/mcp"
    assert authorization == f"Bearer {served.token}"
    text = f"{path.name} has been here."

    async def session() -> str:
        async with reached(f"{served.url}/mcp", {"Authorization": authorization}) as client:
            return await remembers(client, text)

    assert in_a_thread(session) == text


def port() -> int:
    """Where `recollect serve` listens unless told."""
    command = app.get_command(click.Context(app), "serve")
    return next(option.default for option in command.params if option.name == "port")


@pytest.mark.ci
def test_without_the_token_nothing_is_reached(served):
    """So that the tests above can fail."""
    assert httpx2.post(f"{served.url}/mcp", headers={"Authorization": "Bearer TOKEN"}).status_code == 401


def test_vs_code_prompts_for_the_secret():
    """The input that the header names exists and is hidden."""
    (asked,) = parsed(FOLDER / "vscode.http.json")["inputs"]
    assert (asked["type"], asked["id"], asked["password"]) == ("promptString", "recollect-token", True)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("client", "event", "unit"), [("codex", "UserPromptSubmit", 1), ("gemini", "BeforeAgent", 1000)]
)
def test_hooks_of_other_clients_answer(client, event, unit, kept):
    """Codex counts its timeouts in seconds, Gemini in milliseconds; both take the same JSON as Claude Code."""
    events = parsed(FOLDER / f"{client}.hooks.json")["hooks"]
    assert events.keys() == {event, hook.SESSION_START}
    for group in (group for groups in events.values() for group in groups):
        (run,) = group["hooks"]
        assert run["type"] == "command"
        assert hook.BUDGET_MS / 1000 + hook.GRACE_S < run["timeout"] / unit <= 10
    said = {"session_id": "one", "hook_event_name": event, "prompt": "where is the spare key?"}
    command = events[event][0]["hooks"][0]["command"].replace("--hook", "--hook --budget-ms 30000")
    ran = kept.shell(command, json.dumps(said))
    assert "blue pot" in ran.context
    assert json.loads(ran.out)["hookSpecificOutput"]["hookEventName"] == event
