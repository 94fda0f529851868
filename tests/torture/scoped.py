"""A store that five scopes share, a twin for each that holds only what it may see, and every surface of both."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import apsw
import httpx2
from support.agents import Hosted, hosting, serving_in_a_thread

from recollect import Memory
from recollect.cli import main
from recollect.config import SearchOptions, Settings
from recollect.errors import RecollectError
from recollect.memory.shapes import answer_dict, event_dict, recall_dict, record_dict, verdict_dict
from recollect.types import GLOBAL, Scope
from recollect.web.access import Caller, Tokens

SCOPES = {
    "glo": GLOBAL, "ada": Scope("ada"), "bob": Scope("bob"), "bot": Scope("ada", "bot"),
    "cyd": Scope("cyd", None, "s1"),
}  # fmt: skip
"""The callers by the name that is in the canaries of their records."""

SURFACES = ("library", "http", "mcp", "cli")
TIMES = {
    "took_ms", "grade", "at", "created_at", "edited_at", "superseded_at", "from", "uptime_s", "request_id", "version",
    "latency", "tokens", "author_session",
}  # fmt: skip
"""What differs between two runs: times, and the size of a block that has ids made by the store in it."""

JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
MADE = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{8})(?![0-9a-f])")  # an id, or its short form
WHEN = re.compile(r"\d{4}-\d\d-\d\d(?:T[0-9:.]+Z)?")
FENCE = re.compile(r'memory key="[a-z]+"')
"""The key of a recall block, which is drawn from the text and from the ids in it."""


def sees(caller: str, name: str) -> bool:
    """Whether one of the callers may see the records that another adds."""
    return SCOPES[caller].admits(SCOPES[name])


def foreign(caller: str) -> re.Pattern[str]:
    """The canaries that must never reach a caller."""
    return re.compile("zq(?:{})".format("|".join(name for name in SCOPES if not sees(caller, name))), re.IGNORECASE)


@dataclass
class Side:
    """One store with a server and its clients; `made` has our names of the ids that the store made."""

    memory: Memory
    store: Path
    hosted: Hosted | None
    clients: dict[str, httpx2.Client]
    made: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    def id_of(self, key: str) -> str:
        """The id in this store of a record by our name for it."""
        return next((made for made, name in self.made.items() if name == key), key)

    def call(self, surface: str, caller: str, name: str, **arguments: Any) -> tuple[str, Any]:
        """What a caller receives, as text and as a value that both stores must give."""
        arguments = {
            part: self.id_of(value) if part in ("key", "by", "supersedes") else value
            for part, value in arguments.items()
        }
        text, value = getattr(self, f"_by_{surface}")(caller, name, arguments)
        return MADE.sub(lambda found: self.made.get(found[0], found[0]), text), self.plain(value)

    def plain(self, value: Any) -> Any:
        """A JSON value without times, and with made ids by their names."""
        match value:
            case dict():
                return {key: self.plain(of) for key, of in value.items() if key not in TIMES}
            case list() | tuple():
                return [self.plain(of) for of in value]
            case str() if value.startswith("{"):  # a tool's answer as text
                return self.plain(json.loads(value))
            case str():
                value = WHEN.sub("then", FENCE.sub("memory", value))
                return MADE.sub(lambda found: self.made.get(found[0], found[0]), value)
        return value

    def _by_library(self, caller: str, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
        try:
            value = LIBRARY[name](self.memory.within(SCOPES[caller]), **arguments)
        except RecollectError as error:
            value = error.as_dict()
        value = json.loads(json.dumps(value, default=str))
        return json.dumps(value, ensure_ascii=False), value

    def _by_http(self, caller: str, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
        method, address, body = HTTP[name](arguments)
        for _ in range(10):
            answer = self.clients[caller].request(method, address, json=body)
            if answer.status_code != HTTPStatus.GATEWAY_TIMEOUT:  # which a busy machine may give; nothing was done
                break
        assert answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR, answer.text
        return answer.text + str(dict(answer.headers)), (answer.status_code, answer.json())

    def _by_mcp(self, caller: str, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
        client = self.clients[caller]
        if caller not in self.sessions:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            self.sessions[caller] = client.post("/mcp", json=message, headers=JSON).headers["mcp-session-id"]
        if name == "resource":
            method, params = "resources/read", {"uri": f"recollect://record/{arguments['key']}"}
        else:
            method, params = "tools/call", mcp_call(name, arguments)
        message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        answer = client.post("/mcp", json=message, headers={**JSON, "Mcp-Session-Id": self.sessions[caller]})
        return answer.text, (answer.status_code, answer.json())

    def _by_cli(self, caller: str, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
        scope = [word for part, value in SCOPES[caller].as_dict().items() for word in (f"--{part}", value)]
        flags = ["--store", str(self.store), "--embedder", "hashing:64", *scope]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*cli_words(name, arguments), *flags, "--json"])
        value = json.loads(out.getvalue()) if out.getvalue().strip() else None
        text = out.getvalue() + err.getvalue()
        # Notices, such as that a model is missing, are printed once for each store and day, whoever asks.
        return text, (code, value, err.getvalue() if value is None else "")


LIBRARY: Mapping[str, Callable[..., Any]] = {
    "add": lambda m, text, key=None, **fields: record_dict(m.add(text, id=key, **fields)),
    "edit": lambda m, key, text: record_dict(m.edit(key, text=text, tags=["edited"])),
    "forget": lambda m, key: m.forget(key),
    "purge": lambda m, key: m.forget(key, purge=True),
    "supersede": lambda m, key, by: record_dict(m.supersede(key, by)),
    "undo": lambda m, key: m.undo(key)[0],
    "search": lambda m, query, **options: answer_dict(m.search(query, **options), explain=True),
    "recall": lambda m, query: recall_dict(m.recall(query)),
    "list": lambda m, **filters: [record_dict(record) for record in m.list(limit=1000, **filters)],
    "facets": lambda m: m.facets(),
    "status": lambda m: m.status(),
    "get": lambda m, key: record_dict(m.require(key)),
    "history": lambda m, key: [event_dict(event) for event in m.history(key)],
    "why_not": lambda m, key, query: verdict_dict(query, m.why_not(query, key, limit=2)),
    "file": lambda m, key: str(m.excerpt(key)),
    "forbidden": lambda m, key: record_dict(m.get(key, user="ada" if m.scope.user != "ada" else "bob")),
}


HTTP: Mapping[str, Callable[[dict[str, Any]], tuple[str, str, Any]]] = {
    "add": lambda a: ("POST", "/v1/records", {"id" if part == "key" else part: of for part, of in a.items()}),
    "edit": lambda a: ("PATCH", f"/v1/records/{a['key']}", {"text": a["text"], "tags": ["edited"]}),
    "forget": lambda a: ("DELETE", f"/v1/records/{a['key']}", None),
    "supersede": lambda a: ("POST", "/v1/supersede", {"id": a["key"], "by": a["by"]}),
    "undo": lambda a: ("POST", "/v1/undo", {"id": a["key"]}),
    "search": lambda a: ("POST", "/v1/search", {**a, "explain": True}),
    "recall": lambda a: ("POST", "/v1/recall", a),
    "why_not": lambda a: ("POST", "/v1/why-not", {"query": a["query"], "target": a["key"], "limit": 2}),
    "get": lambda a: ("GET", f"/v1/records/{a['key']}", None),
    "history": lambda a: ("GET", f"/v1/history/{a['key']}", None),
    "file": lambda a: ("GET", f"/v1/file/{a['key']}", None),
    "list": lambda _: ("GET", "/v1/records?superseded=true&limit=1000", None),
    "forbidden": lambda a: ("GET", f"/v1/records/{a['key']}?user=other", None),
    "changes": lambda _: ("GET", "/v1/changes?wait=0", None),
    **{name: lambda _, name=name: ("GET", f"/v1/{name}", None) for name in ("facets", "status", "settings", "index")},
}
"""Method, address and body of each call over HTTP."""


def mcp_call(name: str, a: dict[str, Any]) -> dict[str, Any]:
    """Tool and arguments of a call over MCP."""
    tools: dict[str, Callable[[], dict[str, Any]]] = {
        "add": lambda: {part: of for part, of in a.items() if part in ("text", "title", "tags", "category")},
        "forget": lambda: {"ids": [a["key"]]},
        "supersede": lambda: {"id": a["key"], "by": a["by"]},
        "get": lambda: {"id": a["key"]},
        "search": lambda: {"query": a["query"], "limit": 20},
        "recall": lambda: {"query": a["query"]},
        "status": dict,
    }
    return {"name": f"memory_{'store' if name == 'add' else name}", "arguments": tools[name]()}


def cli_words(name: str, a: dict[str, Any]) -> list[str]:
    """The words of a command."""
    match name:
        case "search" | "recall":
            return [name, a["query"], "--no-rerank"]
        case "list":
            return ["list", "--superseded", "--limit", "1000"]
    return [name, a["key"]]


OFFERED = {
    "library": {*LIBRARY},
    "http": {*HTTP},
    "mcp": {"forget", "supersede", "get", "search", "recall", "status", "resource"},
    # Who can run commands on a file owns it: a scope narrows what they find, not what `why-not` and `history` tell.
    "cli": {"search", "recall", "list", "get"},
}


@contextlib.contextmanager
def side(folder: Path, *, own_process: bool) -> Iterator[Side]:
    """A new store with a server and a client for every caller. All stores derive the ids of chunks from one key.

    Nothing is reranked: how much of an answer is depends on the time that it takes.
    """
    folder.mkdir()
    (folder / "recollect").mkdir()
    (folder / "recollect" / "config.toml").write_text("[search]\nrerank = false\n")
    settings = Settings(search=SearchOptions(rerank=False))
    store, tokens = folder / "memory.db", Tokens(folder / "tokens.json")
    callers = {name: tokens.add(Caller(name, scope)) for name, scope in SCOPES.items()}
    with contextlib.ExitStack() as stack:
        hosted = stack.enter_context(hosting(folder, "--tokens", str(tokens.path))) if own_process else None
        memory = stack.enter_context(Memory.open(store, embedder="hashing:64", settings=settings))
        connection = apsw.Connection(str(store))
        connection.execute("INSERT INTO meta VALUES ('chunk_key', ?)", ("5" * 64,))
        connection.close()
        url = hosted.url.removesuffix("/mcp") if hosted else stack.enter_context(serving_in_a_thread(memory, tokens))
        clients = {}
        for name, token in callers.items():
            shown = {"Authorization": f"Bearer {token}"}
            client = httpx2.Client(base_url=url, headers=shown, timeout=60, trust_env=False)
            clients[name] = stack.enter_context(client)
        yield Side(memory, store, hosted, clients)


def difference(one: Any, other: Any, place: str = "") -> str:
    """Where two values differ; numbers may differ in the last digits, because time has passed between two calls."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((found for key in one if (found := difference(one[key], other[key], f"{place}.{key}"))), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for n, (a, b) in pairs if (found := difference(a, b, f"{place}[{n}]"))), "")
    if isinstance(one, float) and isinstance(other, float | int):
        return "" if math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-3) else f"{place}: {one} and {other}"
    return "" if one == other else f"{place}: {str(one)[:400]} and {str(other)[:400]}"
