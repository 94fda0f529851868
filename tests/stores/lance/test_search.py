"""A search with LanceDB returns the same records, scores and order as the SQLite store."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.models.embedders import open_embedder
from recollect.stores.lance import vectors
from recollect.stores.lance.table import LanceTable
from recollect.types import Filter

Opened = Callable[..., Memory]
WORDS = ("otter", "heron", "river", "lake", "reed", "fish", "stone", "boat", "rain", "fog", "dawn", "ice", "mill")


def sayings(count: int) -> list[dict[str, Any]]:
    """Records of many scopes and kinds, some with the same text, many with the same cosine."""
    chance = random.Random(5)
    return [
        {
            "id": f"r{i}",
            "text": " ".join(chance.choices(WORDS, k=chance.randint(1, 6))),
            "scope": {"user": f"u{chance.randint(0, 40)}"} if i % 3 else {},
            "category": chance.choice(["water", "land", None]),
            "tags": chance.sample(["a", "b", "c"], k=chance.randint(0, 2)),
            "created_at": f"2026-0{chance.randint(1, 9)}-01T00:00:00Z",
        }
        for i in range(count)
    ]


FILTERS: list[dict[str, Any]] = [
    {},
    {"user": "u7"},
    {"any_scope": True},
    {"any_scope": True, "category": ["water"]},
    {"any_scope": True, "tags": ["a", "b"]},
    {"any_scope": True, "since": "2026-04-01", "until": "2026-06-01"},
    {"any_scope": True, "superseded": True},
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Records each query to LanceDB, and whether it compared all vectors."""
    questions: list[bool] = []
    nearest = LanceTable.nearest

    def noted(self: LanceTable, *arguments: Any, exact: bool) -> Any:
        questions.append(exact)
        return nearest(self, *arguments, exact=exact)

    monkeypatch.setattr(LanceTable, "nearest", noted)
    return questions


def pair(opened: Opened, url: str, path: object, count: int) -> tuple[Memory, Memory]:
    """The same records in both stores; some superseded, some forgotten."""
    both = opened(url), opened(path)
    for memory in both:
        memory.add_many(sayings(count))
        memory.embed()
        live = [record.id for record in memory.list(Filter(any_scope=True), limit=count)]
        memory.forget(*[key for key in live if key.endswith("3")])
        ones, twos = ([key for key in live if key.endswith(end)] for end in "12")
        for old, new in zip(ones, twos, strict=False):
            if memory.get(old).scope.admits(memory.get(new).scope):
                memory.supersede(old, by=new)
    return both


@pytest.fixture
def both(opened: Opened, url: str, path: object) -> tuple[Memory, Memory]:
    """Nine hundred records with LanceDB and without."""
    return pair(opened, url, path, 900)


def told(memory: Memory, query: str, options: dict[str, Any], limit: int) -> list[tuple[str, float | None]]:
    """The ids and similarities that the vector source returns."""
    answer = memory.search(query, sources=["vector"], limit=limit, fetch_k=limit, **options)
    return [(result.record.id, result.similarity) for result in answer.results]


@pytest.mark.ci
@pytest.mark.parametrize("few", [0, 50, 2_000])
def test_answer_equals_the_sqlite_store(
    both: tuple[Memory, Memory], monkeypatch: pytest.MonkeyPatch, asked: list[bool], few: int
) -> None:
    """For every filter and depth, ties included, whether LanceDB is queried or not."""
    ours, theirs = both
    for name, value in (("SCAN_UP_TO", few), ("CANDIDATES", 1), ("MORE_CANDIDATES", 5)):
        monkeypatch.setattr(vectors, name, value)
    for query in ("otter by the river", "fog", "stone bridge", "nothing of that"):
        for options in FILTERS:
            for limit in (1, 10, 60):
                assert told(ours, query, options, limit) == told(theirs, query, options, limit), (query, options)
    assert bool(asked) == (few < 900)


@pytest.mark.ci
@pytest.mark.usefixtures("eager")
def test_index_finds_all_visible_records(opened: Opened, url: str, asked: list[bool]) -> None:
    """Three visible records among two thousand are all found, however far from the query."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i} by the river", "user": "crowd"} for i in range(2_000))
    memory.add_many({"text": f"{word} of stone", "user": "ada"} for word in ("mill", "bridge", "island"))
    memory.embed()
    assert state(memory).indexed
    for query in ("otter by the river", "stone"):
        assert len(memory.search(query, sources=["vector"], user="ada").results) == 3
    assert len(memory.search("otter", sources=["vector"], user="crowd", limit=40).results) == 40
    assert False in asked


@pytest.mark.ci
@pytest.mark.usefixtures("eager")
def test_index_is_near_and_its_cosines_are_exact(opened: Opened, url: str, path: object) -> None:
    """The index alone finds at least eight of ten; scores are those of the full vectors."""
    ours, theirs = pair(opened, url, path, 2_000)
    assert state(ours).indexed
    shared = 0
    for word in WORDS:
        here, there = (dict(told(memory, f"{word} and stone", {"any_scope": True}, 10)) for memory in (ours, theirs))
        shared += len(here.keys() & there.keys())
        assert all(here[key] == there[key] for key in here.keys() & there.keys())
    assert shared >= 0.8 * 10 * len(WORDS)


def test_equal_texts_share_one_vector(opened: Opened, url: str) -> None:
    """Duplicates, changes of scope and restored records leave LanceDB's table unchanged."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(20))
    before = state(memory)
    memory.add_many({"text": f"otter {i}", "user": f"u{i}"} for i in range(20))
    memory.forget("o3")
    memory.undo("o3")
    memory.add("otter 4", id="o4", tags=["new"])
    assert state(memory) == before
    assert [r.record.id for r in memory.search("otter 3", sources=["vector"], limit=1).results] == ["o3"]
    assert memory.search("otter 7", sources=["vector"], user="u7", limit=1).results[0].similarity == pytest.approx(1)


def test_search_in_an_older_snapshot_is_answered(opened: Opened, url: str) -> None:
    """While it runs, another process writes and another thread searches."""
    memory, other = opened(url), opened(url)
    memory.add("A heron by the lake.", id="a")
    index = memory.store.spaces.open(memory.store.spaces.active)
    ask = partial(index.search, open_embedder("hashing:64").query("heron"), Filter(), 5)
    with memory.store.reading(), ThreadPoolExecutor(1) as pool:
        assert len(ask().entries) == 1
        other.add("A heron on the roof.", id="b")
        assert len(pool.submit(ask).result().entries) == 2
        assert len(ask().entries) == 1


def test_vectors_can_be_read_by_record(opened: Opened, url: str, path: object) -> None:
    """The same bits as in the SQLite store, of pending and of committed vectors."""
    ours, theirs = opened(url), opened(path)
    for memory in (ours, theirs):
        memory.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(25))
    wanted = [f"o{i}" for i in range(25)]
    here, there = ours.embeddings.vectors(wanted), theirs.embeddings.vectors(wanted)
    assert here.keys() == there.keys() == set(wanted)
    assert all(np.array_equal(here[key], there[key]) for key in wanted)


def state(memory: Memory) -> Any:
    """The state of LanceDB's table that the file records."""
    return memory.store.spaces.open(memory.store.spaces.active).updater.state()
