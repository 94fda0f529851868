"""A scoped caller cannot detect other scopes' records: it gets the same answers as from a store without them."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest
from support.postgres import GRANTS

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.web.access import Caller, Tokens

from .conftest import homes, refused

THEN = "2026-01-01T12:00:00Z"
TIMES = (
    "took_ms", "grade", "at", "created_at", "edited_at", "superseded_at", "from", "uptime_s", "request_id", "version",
)  # fmt: skip
MADE = re.compile(r"[0-9a-f]{32}")
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def fill(memory: Memory, folder: Path, *, bob: bool) -> list[str]:
    """Store Ada's and shared records and, in one of two stores, Bob's in every state; the ids of Bob's."""

    def add(key: str, text: str, **said: Any) -> None:
        memory.add(text, id=key, created_at=THEN, **said)

    add("shared", "The office closes at ten.")
    add("newer", "The office closes at eleven.")
    add("ada", "The parrot is called Coco.", user="ada")
    add("gone", "The cat is called Tom.", user="ada")
    memory.forget("gone")
    if not bob:
        return []
    for key in ("live", "old", "forgotten", "edited", "edit-undone", "add-undone", "restored", "purged", "replaced"):
        add(key, f"The zebrafish {key} is called Blub.", user="bob", tags=["fish"], category="fish")
    memory.supersede("old", text="The zebrafish has gone.")
    memory.forget("forgotten")
    memory.edit("edited", title="Fish")
    memory.edit("edit-undone", title="Fish")
    memory.undo("edit-undone")
    memory.undo("add-undone")
    memory.forget("restored")
    memory.undo("restored")
    memory.forget("purged", purge=True)
    memory.supersede("replaced", "newer")
    memory.undo("newer")
    memory.supersede("replaced", "newer")
    memory.index(folder, user="bob")
    return [record.id for record in memory.list(user="bob", superseded=True) if record.scope == Scope("bob")] + [
        "forgotten", "add-undone", "purged",
    ]  # fmt: skip


@dataclass
class Side:
    """One server, with Ada's client and the number of each id that was made there."""

    ada: httpx2.Client
    made: dict[str, str] = field(default_factory=dict)
    session: str = ""

    def ask(self, method: str, address: str, body: Any = None) -> Any:
        """Status and body, without times, and with made ids by their number."""
        for _ in range(10):
            answer = self.ada.request(method, address, json=body)
            if answer.status_code != HTTPStatus.GATEWAY_TIMEOUT:  # which a busy machine may give; nothing was done
                break
        return answer.status_code, self.plain(answer.json())

    def tool(self, name: str, **arguments: Any) -> Any:
        """What a tool of the MCP server answers."""
        return self._rpc("tools/call", {"name": name, "arguments": arguments})

    def plain(self, value: Any) -> Any:
        """A JSON value as both servers must give it."""
        match value:
            case dict():
                return {key: self.plain(of) for key, of in value.items() if key not in TIMES}
            case list():
                return [self.plain(of) for of in value]
            case float():
                return round(value, 4)
            case str() if value.startswith("{"):  # a tool's answer as text
                return self.plain(json.loads(value))
            case str():
                value = re.sub(r'memory key="[a-z]+"', "memory", value)  # drawn from the text, and from ids in it
                return MADE.sub(lambda found: self.made.setdefault(found[0], f"made {len(self.made)}"), value)
        return value

    def _rpc(self, method: str, params: dict[str, Any]) -> Any:
        if not self.session:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            self.session = self.ada.post("/mcp", json=message, headers=JSON).headers["mcp-session-id"]
        message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        answer = self.ada.post("/mcp", json=message, headers={**JSON, "Mcp-Session-Id": self.session})
        return answer.status_code, self.plain(answer.json())


@contextmanager
def serving(
    folder: Path, place: str, notes: Path, granted: Callable[[str], str], *, bob: bool
) -> Iterator[tuple[Side, list[str]]]:
    """A server of a new store with Ada's token. Nothing is reranked: how much is depends on the time that it takes."""
    (settings := folder / "settings.toml").write_text("[search]\nrerank = false\n")
    for home in homes(folder):
        with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
            ids = fill(memory, notes, bob=bob)
        token = Tokens(home.tokens).add(Caller("ada", Scope("ada")))
        yield Side(home.serve("--store", granted(place), "--config", settings).client(token)), ids


@pytest.fixture
def service(postgres_url: str) -> Iterator[Callable[[str], str]]:
    """Gives a role the documented grants on a store, and returns the place of the store for it."""
    name = f"app_{uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")

        def granted(place: str) -> str:
            owner.execute(GRANTS.format(schema=place.rpartition("schema=")[2], role=name))
            parts = urlsplit(place)
            return urlunsplit(parts._replace(netloc=f"{name}:{name}@{parts.netloc.rpartition('@')[2]}"))

        yield granted
        owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture(params=["sqlite", "postgres", "row-level security"])
def sides(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Side, Side, list[str]]]:
    """A store that Bob shares and one that he does not, and the ids of Bob's records."""
    new = None if request.param == "sqlite" else request.getfixturevalue("new_schema")
    granted = request.getfixturevalue("service") if request.param.startswith("row") else str
    places = {name: new() if new else str(tmp_path / name / "memory.db") for name in ("shared", "alone")}
    notes = tmp_path / "bobs"
    notes.mkdir()
    (notes / "diary.md").write_text("# Diary\n\nThe zebrafish eats at noon.\n")
    for name in ("shared", "alone"):
        (tmp_path / name).mkdir()
    with (
        serving(tmp_path / "shared", places["shared"], notes, granted, bob=True) as (shared, ids),
        serving(tmp_path / "alone", places["alone"], notes, granted, bob=False) as (alone, _),
    ):
        yield shared, alone, ids


def looks() -> Iterator[tuple[str, str, Any]]:
    """Requests that name no record."""
    for body in ({}, {"explain": True, "superseded": True, "limit": 50}, {"confidence": True}, {"tags": ["fish"]}):
        yield "POST", "/v1/search", {"query": "zebrafish called diary", **body}
        yield "POST", "/v1/recall", {"query": "zebrafish called", "superseded": True}
    for address in (
        "/v1/records?superseded=true&limit=1000", "/v1/records?path=diary.md", "/v1/records?category=fish",
        "/v1/facets", "/v1/status", "/v1/settings", "/v1/changes?wait=0", "/v1/changes?wait=0&after=3", "/v1/index",
        "/v1/history/newer", "/v1/history/shared", "/v1/history/gone", "/v1/records/newer",
        "/v1/related/shared", "/v1/related/ada", "/v1/related/diary.md",
    ):  # fmt: skip
        yield "GET", address, None
    yield "POST", "/v1/rollback", {"since": "1d"}
    yield "POST", "/v1/rollback", {"origin": ["user", "agent", "web"]}


def deeds(key: str) -> Iterator[tuple[str, str, Any]]:
    """All that can be tried with the id of a record."""
    for address in ("records", "history", "file", "related"):
        yield "GET", f"/v1/{address}/{key}", None
    yield "PATCH", f"/v1/records/{key}", {"title": "mine"}
    yield "DELETE", f"/v1/records/{key}", None
    yield "POST", "/v1/forget", {"ids": ["ada", key]}
    yield "POST", "/v1/supersede", {"id": key, "text": "mine"}
    yield "POST", "/v1/supersede", {"id": "ada", "by": key}
    yield "POST", "/v1/records", {"text": "mine", "supersedes": key}
    yield "POST", "/v1/why-not", {"query": "zebrafish", "target": key}
    for seq in (None, *range(1, 12)):
        yield "POST", "/v1/undo", {"id": key, **({"seq": seq} if seq else {})}


def calls(key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same by the tools of the MCP server."""
    yield "memory_get", {"id": key}
    yield "memory_forget", {"ids": [key]}
    yield "memory_supersede", {"id": key, "text": "mine"}
    yield "memory_store", {"text": "mine", "supersedes": key}


def own(key: str) -> Iterator[tuple[str, str, Any]]:
    """What Ada does with records of her own, and with an id that is free."""
    yield "POST", "/v1/records", {"text": "The zebrafish live is called Blub.", "id": "same-text"}
    yield "POST", "/v1/records", {"text": "Mine now.", "id": key}
    yield "PATCH", f"/v1/records/{key}", {"title": "Mine"}
    for each in (key, key, key, "ada", "gone", "gone"):
        yield "POST", "/v1/undo", {"id": each}
        yield "GET", f"/v1/history/{each}", None
    yield "POST", "/v1/supersede", {"id": "gone", "text": "The cat is called Jerry."}
    yield "POST", "/v1/undo", {"id": "gone", "seq": 6}
    yield "DELETE", "/v1/records/gone", None
    yield from looks()


@pytest.mark.ci
def test_shared_store_answers_ada_as_one_without_bob(
    sides: tuple[Side, Side, list[str]], request: pytest.FixtureRequest
) -> None:
    """Each route and tool gives the same status and body, whatever happened to Bob's records."""
    shared, alone, ids = sides
    assert len(ids) == 11
    # Under row-level security an id stays taken when its record was purged.
    free = "free" if "row-level" in request.node.name else "purged"
    requests = [*looks(), *itertools.chain.from_iterable(map(deeds, ids)), *own(free)]
    for each in requests:
        assert shared.ask(*each) == alone.ask(*each), each
    foreign = [key for key in ids if key != free]  # that is Ada's now
    for name, said in itertools.chain.from_iterable(map(calls, foreign)):
        assert shared.tool(name, **said) == alone.tool(name, **said), (name, said)
    for name, said in (("memory_search", {"query": "zebrafish"}), ("memory_status", {})):
        assert shared.tool(name, **said) == alone.tool(name, **said)


def test_id_of_another_scope_always_gets_the_same_refusal(sides: tuple[Side, Side, list[str]]) -> None:
    """Fact or chunk, live, superseded or forgotten: one answer, which says what to do."""
    shared, _, ids = sides
    answers = set()
    for key in ids:
        if key != "purged":
            told = refused(shared.ada.post("/v1/records", json={"text": "Mine.", "id": key}), 400, "usage")
            answers.add((told["message"].replace(key, "ID"), told["hint"]))
    ((message, hint),) = answers
    assert "taken" in message
    assert "leave the id out" in hint


def test_sequence_numbers_are_per_scope(askers) -> None:
    """Bob's changes move none of the numbers Ada gets; her own move them by one."""
    key = askers.ada.post("/v1/records", json={"text": "Ada counts her own changes."}).json()["id"]
    stand = askers.ada.get("/v1/changes?wait=0").json()["seq"]
    for number in range(3):
        askers.bob.post("/v1/records", json={"text": f"Bob's change number {number}."})
    assert askers.ada.get("/v1/changes?wait=0").json()["seq"] == stand
    changed = askers.ada.patch(f"/v1/records/{key}", json={"title": "Counting"}).json()["change"]
    assert changed == {"id": key, "seq": 2, "action": "update"}
    assert askers.ada.get("/v1/changes?wait=0").json()["seq"] == stand + 1
    askers.bob.post("/v1/records", json={"text": "Bob changes something again."})
    assert askers.ada.post("/v1/undo", json={"id": key, "seq": 2}).json()["undone"] == "update"
    events = askers.ada.get(f"/v1/history/{key}").json()["events"]
    assert [(event["seq"], event["action"]) for event in events] == [
        (1, "add"), (2, "update"), (3, "update"), (4, "undo"),
    ]  # fmt: skip
    assert events[-1]["detail"] == {"undoes": 2, "origin": "user", "author": "ada"}
    refused(askers.ada.post("/v1/undo", json={"id": key, "seq": 2}), 409, "overtaken")


def test_sequence_numbers_survive_a_restart(tmp_path: Path) -> None:
    """A scope's number of changes is the same before and after."""
    for home in homes(tmp_path):
        token = Tokens(home.tokens).add(Caller("ada", Scope("ada")))
        stands = []
        for start in range(2):
            server = home.serve()
            ada = server.client(token)
            stands.append(ada.get("/v1/changes?wait=0").json()["seq"])
            key = ada.post("/v1/records", json={"text": f"A fact of run {start}."}).json()["id"]
            ada.delete(f"/v1/records/{key}")
            stands.append(ada.get("/v1/changes?wait=0").json()["seq"])
            server.end()
        assert stands == [0, 2, 2, 4]


def test_only_the_owner_and_the_log_get_a_sources_error(tmp_path: Path) -> None:
    """A scoped caller's answer has neither the program nor its standard error."""
    settings = tmp_path / "settings.toml"
    words = "cannot open the index of bob"
    settings.write_text(
        f"[[sources]]\nname = 'wiki'\nkind = 'command'\nfields = {{ id = 'id' }}\ntimeout_ms = 20000\n"
        f"command = [{json.dumps(sys.executable)}, '-S', '-c', 'raise SystemExit(\"{words}\")']\n"
    )
    for home in homes(tmp_path):
        callers = (Caller("ada", Scope("ada")), Caller("owner", owner=True))
        made = {caller.name: Tokens(home.tokens).add(caller) for caller in callers}
        server = home.serve("--config", settings)
        answers = {name: server.client(token).post("/v1/search", json={"query": "x"}) for name, token in made.items()}
        told = {name: answer.json()["trace"]["sources"][-1]["reason"] for name, answer in answers.items()}
        assert told["ada"] == "the source failed"
        assert words not in answers["ada"].text
        assert sys.executable not in answers["ada"].text
        assert words in told["owner"]
        server.end()
        assert words in "".join(server.errors)
