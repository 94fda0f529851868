"""`why-not` against the search itself, on random stores: its verdict is right and its advice works."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import Settings
from recollect.memory.explain import obstacles
from recollect.stores.sqlite import SqliteStore
from recollect.types import Filter, Put, Record, Scope

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
WORDS = ("heron", "lake", "reeds", "boat", "dawn", "the", "in", "oar")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

TIMES = [NOON + timedelta(days=days) for days in (-2, -1, 0, 1)] + [NOON + timedelta(microseconds=1)]
times, maybe_times = st.sampled_from(TIMES), st.sampled_from([*[None] * 12, *TIMES])
scopes = st.builds(
    Scope,
    st.sampled_from([None, None, "ada", "bob"]),
    st.sampled_from([None, None, "planner", "cook"]),
    st.sampled_from([None, None, "s1"]),
)
tag_lists = st.lists(st.sampled_from(["red", "blue", "Red", ""]), unique=True, max_size=2).map(tuple)
names = st.sampled_from(["a", "b", "x.md", "y.md", "[z].md", "q?.md", "s*.md", "A", "é", "a b", "]", "!a", "-"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
patterns = st.one_of(
    st.lists(names, min_size=1, max_size=2).map("/".join),
    paths,
    paths.map(lambda path: f"{path}/"),
    st.lists(st.sampled_from(["*", "?", "[", "]", "a", "x.md", "/", "./", ".", "!", "^", "\\", "**"]), min_size=1).map(
        "".join
    ),
)

records = st.builds(
    Record,
    id=st.just(""),
    text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join),
    kind=st.sampled_from(["fact", "fact", "chunk"]),
    category=st.sampled_from([None, "work", "home", "Work"]),
    tags=tag_lists,
    scope=scopes,
    created_at=times,
    happened_at=maybe_times,
    expires_at=maybe_times,
    edited_at=maybe_times,
    superseded_at=maybe_times,
    path=st.one_of(st.none(), paths),
)
filters = st.builds(
    Filter,
    scope=scopes,
    categories=st.sampled_from([*[()] * 5, ("work",), ("home", "work"), ("other",)]),
    tags=st.one_of(st.just(()), st.just(()), tag_lists),
    kinds=st.sampled_from([*[()] * 4, ("fact",), ("chunk", "fact")]),
    path=st.one_of(st.none(), st.none(), patterns),
    since=maybe_times,
    until=maybe_times,
    as_of=maybe_times,
    superseded=st.booleans(),
    any_scope=st.booleans(),
    now=times,
)


@contextlib.contextmanager
def store_of(given_records: list[Record]) -> Iterator[SqliteStore]:
    """A store on a file of its own, its records named r0, r1 and so on."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "m.db")
        try:
            named = [
                replace(record, id=f"r{i}", superseded_by="r0" if record.superseded_at else None)
                for i, record in enumerate(given_records)
            ]
            store.records.apply([[Put(record) for record in named]])
            yield store
        finally:
            store.close()


@pytest.mark.ci
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(st.lists(records, min_size=8, max_size=12), st.lists(filters, min_size=8, max_size=12))
@example([Record("", "heron")], [Filter(path="*"), Filter(path="/"), Filter(path="./"), Filter(path="**")])
@example([Record("", "heron", path="/a/[z].md")], [Filter(path="[z].md"), Filter(path="[[]z].md"), Filter(path="*]*")])
def test_obstacles_agree_with_the_stores_filter(given_records: list[Record], wheres: list[Filter]) -> None:
    """For every record and every filter."""
    with store_of(given_records) as store:
        stored = store.records.get([f"r{i}" for i in range(len(given_records))])
        assert len(stored) == len(given_records)
        for where in wheres:
            seen = {record.id for record in store.records.get([record.id for record in stored], where)}
            for record in stored:
                found = obstacles(record, where, store.keywords.analyzer)
                assert (not found) == (record.id in seen), (record, where, found)
                event(f"obstacles: {min(len(found), 3)}")


# -- the whole way of a query -------------------------------------------------------------------------------

seldom = st.sampled_from([*[None] * 60, *TIMES])
searchable = st.builds(
    Record,
    id=st.just(""),
    text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    title=st.sampled_from(["", "", "", "heron"]),
    kind=st.sampled_from(["fact", "fact", "chunk"]),
    category=st.sampled_from([None, "work", "home"]),
    tags=tag_lists,
    scope=st.sampled_from([*[Scope()] * 8, Scope("ada"), Scope("ada", "planner"), Scope("bob")]),
    importance=st.sampled_from([0.5, 0.5, 0.0, 0.8, 1.0]),
    decay=st.sampled_from([None, None, "stable", "permanent"]),
    created_at=times,
    expires_at=seldom,
    superseded_at=seldom,
)
RANKING: dict[str, st.SearchStrategy[Any]] = {
    "limit": st.integers(1, 6),
    "fetch_k": st.integers(1, 12),
    "min_score": st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 1.0]),
    "mmr": st.booleans(),
    "mmr_lambda": st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
    "fusion": st.sampled_from(["rrf", "weighted", "combmnz", "borda"]),
    "normalisation": st.sampled_from(["none", "minmax", "zscore", "dbsf"]),
    "rrf_k": st.sampled_from([0.0, 1.0, 60.0]),
    "text_weight": st.sampled_from([0.0, 0.3, 2.0]),
    "vector_weight": st.sampled_from([0.0, 0.7, 1.0]),
    "decay": st.booleans(),
    "importance_weight": st.sampled_from([0.0, 0.1, 1.0]),
    "sources": st.sampled_from([["keyword"], ["vector"], ["vector", "keyword"]]),
}
SEEING: dict[str, st.SearchStrategy[Any]] = {
    "user": st.sampled_from(["ada", "bob"]),
    "agent": st.just("planner"),
    "category": st.sampled_from(["work", ["home", "work"], "other"]),
    "kind": st.sampled_from(["fact", "chunk"]),
    "tags": st.sampled_from(["red", ["red", "blue"], []]),
    "path": st.sampled_from(["a", "*"]),
    "since": times,
    "until": times,
    "as_of": times,
    "superseded": st.booleans(),
    "any_scope": st.booleans(),
}
# What loses a record that may be seen, and the search that shows all there is to show of what may be seen.
AFTER_FILTERS = ("fetch_k", "threshold", "mmr", "limit")
EVERYTHING = {"limit": 100, "fetch_k": 100, "min_score": 0.0, "mmr": False}

options_of_search = st.builds(
    lambda ranking, seeing: ranking | seeing,
    st.fixed_dictionaries({"limit": RANKING["limit"]}, optional={k: v for k, v in RANKING.items() if k != "limit"}),
    st.one_of(st.just({}), st.just({}), st.just({}), st.fixed_dictionaries({}, optional=SEEING)),
)
questions = st.tuples(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join), options_of_search)


@pytest.mark.ci
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(
    st.lists(searchable, min_size=3, max_size=14),
    st.lists(questions, min_size=3, max_size=3),
    st.sampled_from(["hashing:16", "hashing:16", "none"]),
)
def test_verdict_agrees_with_the_search(
    given_records: list[Record], asked: list[tuple[str, dict[str, Any]]], embedder: str
) -> None:
    """`found` and the rank equal the answer, and the advice brings back the rest."""
    with tempfile.TemporaryDirectory() as folder, Memory.open(
        Path(folder) / "m.db", embedder=embedder, settings=Settings()
    ) as memory:  # fmt: skip
        named = [
            replace(record, id=f"r{i}", superseded_by="r0" if record.superseded_at else None)
            for i, record in enumerate(given_records)
        ]
        memory.store.records.apply([[Put(record) for record in named]])
        for text, said in asked:
            options = {name: value for name, value in said.items() if embedder != "none" or name != "sources"}
            places = {r.record.id: rank for rank, r in enumerate(memory.search(text, **options).results, 1)}
            for record in named[:6]:
                verdict = memory.why_not(text, record.id, **options)
                event(f"stage: {verdict.stage}" + (", with a change" if verdict.change else ""))
                assert (verdict.stage == "found") == (record.id in places), verdict
                assert verdict.rank == places.get(record.id)
                if verdict.change:
                    again = memory.search(text, **{**options, **verdict.change})
                    assert record.id in {result.record.id for result in again.results}, verdict
                elif verdict.stage in AFTER_FILTERS:
                    most = memory.search(text, **{**options, **EVERYTHING})
                    assert record.id not in {result.record.id for result in most.results}, verdict
