"""Five scopes share a store and do what they like: each receives what a store without the others would give it."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.timing import longest

from recollect.types.records import short_id
from recollect.web import workers

from .scoped import OFFERED, SCOPES, SURFACES, Side, difference, foreign, sees, side

WORDS = ("heron", "lake", "reeds", "boat", "dawn", "oar", "moss", "fern")
READS = ("search", "search", "recall", "list", "facets", "status", "get", "history", "why_not", "changes", "settings",
         "index", "file", "resource")  # fmt: skip
PROBES = ("get", "history", "why_not", "file", "edit", "forget", "supersede", "undo", "resource", "search", "recall",
          "forbidden", "purge")  # fmt: skip
CHANGES = ("add", "add", "edit", "forget", "supersede", "undo", "purge")
MOST = 25  # records that one caller has; more are forgotten
CHANCE = {"library": 12, "http": 6, "mcp": 3, "cli": 1}


class Walk:
    """A random walk over one shared store and a twin for each caller, which holds only what that caller may see."""

    def __init__(self, shared: Side, twins: dict[str, Side], folder: Path, seed: int) -> None:
        self.shared, self.twins, self.folder = shared, twins, folder
        self.chance = random.Random(seed)
        self.live: dict[str, list[str]] = {name: [] for name in SCOPES}
        self.gone: dict[str, list[str]] = {name: [] for name in SCOPES}
        self.counts: Counter[str] = Counter()
        self.number = 0

    def step(self) -> None:
        """A change, a look, or a look at what another caller owns."""
        self.counts["steps"] += 1
        caller = self.chance.choice(list(SCOPES))
        if self.counts["steps"] % 97 == 0:
            self.index(caller)
            return
        kind = self.chance.choice(["change", "read", "read", "probe"])
        surface = self.chance.choices(SURFACES, [CHANCE[name] for name in SURFACES])[0]
        getattr(self, kind)(caller, "library" if caller == "glo" and surface == "cli" else surface)

    def text(self, name: str) -> str:
        return f"The {self.chance.choice(WORDS)} {name} {' '.join(self.chance.choices(WORDS, k=4))}"

    def change(self, caller: str, surface: str) -> None:
        """A caller changes its own records, in the shared store and in every twin that may hold them."""
        own = self.live[caller]
        kind = "forget" if len(own) > MOST else self.chance.choice(CHANGES)
        if kind == "add" or len(own) < 3:
            self.add(caller, "http" if surface == "cli" else surface)
            return
        surface = surface if kind in OFFERED[surface] and surface != "cli" else "library"
        key = self.chance.choice([*own, *self.gone[caller][-5:]] if kind == "undo" else own)
        others = [other for other in own if other != key]
        arguments = {"edit": {"text": self.text(key)}, "supersede": {"by": self.chance.choice(others)}}.get(kind, {})
        self.everywhere(caller, surface, kind, key=key, **arguments)
        self.follow(caller, kind, key)

    def add(self, caller: str, surface: str) -> None:
        self.number += 1
        key = f"zq{caller}{self.number}x"
        fields = {"title": f"About {key}", "tags": [key, "lake"], "category": f"zq{caller}", "text": self.text(key)}
        if surface == "mcp":
            self.add_made(caller, key, fields)
        else:
            answer = self.everywhere(caller, surface, "add", key=key, source=f"zq{caller}", **fields)
            assert "'error'" not in str(answer), answer
        self.live[caller].append(key)

    def add_made(self, caller: str, key: str, fields: dict[str, Any]) -> None:
        """An agent adds a record, whose id the store makes: a different one in each."""
        for one in self.holders(caller):
            made = one._by_mcp(caller, "add", fields)[1][1]["result"]["structuredContent"]["id"]
            one.made |= {made: key, short_id(made): key}
        self.counts["changes"] += 1

    def holders(self, name: str) -> list[Side]:
        return [self.shared, *(twin for caller, twin in self.twins.items() if sees(caller, name))]

    def everywhere(self, caller: str, surface: str, kind: str, **arguments: Any) -> Any:
        answer = self.compare(caller, surface, kind, **arguments)
        for twin in self.holders(caller)[1:]:
            if twin is not self.twins[caller]:
                twin.call(surface, caller, kind, **arguments)
        self.counts["changes"] += 1
        return answer

    def follow(self, caller: str, kind: str, key: str) -> None:
        """Keep up with which records there are, by asking."""
        _, listed = self.shared.call("library", caller, "list", superseded=True)
        there = {record["id"] for record in listed}
        for name in (caller,):
            known = [*self.live[name], *self.gone[name]]
            self.live[name] = [one for one in known if one in there]
            self.gone[name] = [one for one in known if one not in there]

    def read(self, caller: str, surface: str) -> None:
        """A caller looks around, and at records that it may see."""
        kind = self.chance.choice([kind for kind in READS if kind in OFFERED[surface]])
        visible = [key for name in SCOPES if sees(caller, name) for key in (*self.live[name], *self.gone[name][-3:])]
        self.compare(caller, surface, kind, **self.arguments(kind, surface, visible or ["nothing"]))

    def probe(self, caller: str, surface: str) -> None:
        """A caller names what another owns: its id, its words."""
        names = [name for name in SCOPES if not sees(caller, name)]
        keys = [key for name in names for key in (*self.live[name], *self.gone[name][-5:])]
        kinds = [kind for kind in PROBES if kind in OFFERED[surface]]
        if keys and kinds:
            kind = self.chance.choice(kinds)
            self.compare(caller, surface, kind, **self.arguments(kind, surface, keys))
            self.counts["probes"] += 1
            if surface == "http" and self.chance.random() < 0.2:
                self.take(caller, self.chance.choice(keys))

    def take(self, caller: str, key: str) -> None:
        """An id that is taken is refused, whatever its record is; a purged one is free."""
        text, (status, _) = self.shared.call("http", caller, "get", key=key)
        assert status == 404, text
        owner = next(name for name in SCOPES if key in (*self.live[name], *self.gone[name]))
        if key in self.live[owner] and key not in self.shared.made.values():
            text, (status, answer) = self.shared.call("http", caller, "add", key=key, text="mine")
            assert (status, answer["error"]["code"]) == (400, "usage"), text
            self.scan(caller, text, key)
            self.counts["refused"] += 1

    def arguments(self, kind: str, surface: str, keys: list[str]) -> dict[str, Any]:
        key = self.chance.choice(keys)
        query = self.chance.choice([key, f"{key} heron lake", " ".join(self.chance.choices(WORDS, k=2))])
        more = self.chance.choice([{}, {"superseded": True, "limit": 50}, {"tags": [key]}, {"mmr": True}])
        named: dict[str, dict[str, Any]] = {
            "search": {"query": query, **(more if surface in ("library", "http") else {})},
            "recall": {"query": query},
            "why_not": {"query": query, "key": key},
            "edit": {"key": key, "text": "mine now"},
            "supersede": {"key": key, "by": self.chance.choice(keys)},
            "list": {"superseded": True} if surface == "library" else {},
            **{name: {} for name in ("facets", "status", "changes", "settings", "index")},
        }
        return named.get(kind, {"key": key})

    def compare(self, caller: str, surface: str, kind: str, **arguments: Any) -> Any:
        """The shared store gives a caller what its twin gives, and nothing of those whom it may not see."""
        text, received = self.shared.call(surface, caller, kind, **arguments)
        _, wanted = self.twins[caller].call(surface, caller, kind, **arguments)
        different = difference(received, wanted)
        assert not different, (self.counts["steps"], caller, surface, kind, arguments, different)
        self.scan(caller, text, *(str(value) for value in arguments.values()), *map(str, arguments.get("tags", ())))
        self.counts[f"by_{surface}"] += 1
        self.counts["refused"] += "'error'" in str(received)
        self.counts["with_results"] += kind in ("search", "recall") and "zq" in text
        return received

    def scan(self, caller: str, text: str, *echoed: str) -> None:
        """No canary of another scope, except where the answer repeats what was asked."""
        for part in sorted(echoed, key=len, reverse=True):
            for spelling in {part, self.shared.id_of(part), *part.split()}:
                text = text.replace(spelling, "")
        found = foreign(caller).search(text)
        assert not found, (caller, echoed, text[max(0, found.start() - 200) : found.end() + 200])
        self.counts["scanned"] += 1

    def index(self, name: str) -> None:
        """The owner of the store indexes a folder for one of them: its paths, titles and tags are canaries, too."""
        self.number += 1
        folder = self.folder / f"zq{name}"
        folder.mkdir(exist_ok=True)
        text = f"---\ntags: [zq{name}tag]\n---\n# zq{name}title\n\nThe {self.text(f'zq{name}{self.number}x')}\n"
        (folder / f"zq{name}{self.number % 3}.md").write_text(text)
        for one in self.holders(name):
            one.memory.index(folder, scope=SCOPES[name])
        self.counts["indexed"] += 1


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A shared store and five twins, each with its server."""
    monkeypatch.setattr(workers, "BOUND_SECONDS", 60.0)  # a busy machine reaches the limit of scoped callers too soon
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "RECOLLECT_MODELS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(side(tmp_path / "shared", own_process=True))
        twins = {name: stack.enter_context(side(tmp_path / name, own_process=False)) for name in SCOPES}
        yield Walk(shared, twins, tmp_path, 7)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("steps", "seconds", "least"),
    [
        pytest.param(1_000, 240, 500, id="short"),
        pytest.param(50_000, longest(330), 1_000, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
def test_no_scope_receives_anything_of_another(
    walk: Walk, tally: Callable[..., None], steps: int, seconds: int, least: int
) -> None:
    """Changes, looks and probes by the library, HTTP, MCP and the command line: the twin's answers, no canary."""
    end = time.monotonic() + seconds
    while walk.counts["steps"] < steps and time.monotonic() < end:
        walk.step()
    counts = walk.counts
    assert counts["steps"] >= least
    assert counts["with_results"] > counts["steps"] // 50
    assert min(counts["changes"], counts["probes"], counts["refused"]) > counts["steps"] // 20
    assert all(counts[f"by_{surface}"] for surface in SURFACES)
    logs = walk.shared.hosted.errors
    assert "serving at" in logs
    assert not re.search(r"zq\w+ (?:{})".format("|".join(WORDS)), logs), "a text is in a log"
    assert "Traceback" not in logs
    tally("five scopes share a store: canaries and twins", steps=counts["steps"], changes=counts["changes"],
          probes=counts["probes"], answers_scanned=counts["scanned"], refused=counts["refused"],
          searches_with_results=counts["with_results"], leaks=0, differences=0,
          **{surface: counts[f"by_{surface}"] for surface in SURFACES})  # fmt: skip
