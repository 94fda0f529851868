"""Filter, then rank: hidden records change nothing in an answer."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.frequencies import shares
from recollect.options import SearchOptions
from recollect.types import Answer, Filter, Put, Query, Record, Scope, Supersede, VectorSpace
from tests.reference.search import mean_lengths

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
WORDS = ("heron", "lake", "reeds", "boat", "dawn", "the", "in", "café", "v1.2", "湖", "snake_case")


@dataclass(frozen=True)
class Asked:
    """One random question and its filter."""

    text: str
    where: Filter
    fetch_k: int


DAYS = [NOON + timedelta(days=days) for days in range(-3, 4)]
NEVER = [None] * 3 * len(DAYS)
times, maybe_times = st.sampled_from(DAYS), st.sampled_from([*NEVER, *DAYS])
scope_strategy = st.builds(
    Scope,
    st.sampled_from([None, None, "ada", "bob"]),
    st.sampled_from([None, "planner"]),
    st.sampled_from([None, "s1"]),
)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
tag_sets = st.lists(st.sampled_from(["red", "blue"]), unique=True, max_size=2).map(tuple)

record_strategy = st.builds(
    Record,
    id=st.just(""),
    text=texts,
    title=st.sampled_from(["", "", "heron", "Lake boat"]),
    kind=st.sampled_from(["fact", "fact", "chunk"]),
    category=st.sampled_from([None, "work", "home"]),
    tags=tag_sets,
    scope=scope_strategy,
    importance=st.sampled_from([0.5, 0.5, 0.1, 0.9]),
    decay=st.sampled_from([None, None, "session", "stable"]),
    created_at=times,
    happened_at=maybe_times,
    expires_at=maybe_times,
)
filters = st.builds(
    Filter,
    scope=st.sampled_from([Scope("ada", "planner", "s1"), Scope("ada", "planner"), Scope("bob"), Scope()]),
    categories=st.sampled_from([*[()] * 6, ("work",), ("work", "home")]),
    tags=st.sampled_from([*[()] * 6, ("red",), ("red", "blue")]),
    kinds=st.sampled_from([*[()] * 3, ("fact",)]),
    since=maybe_times,
    until=maybe_times,
    as_of=maybe_times,
    superseded=st.sampled_from([False, False, True]),
    now=st.just(NOON),
)
asked = st.builds(Asked, text=texts, where=filters, fetch_k=st.sampled_from([1, 3, 100]))
links = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29), maybe_times), max_size=8)


def may_see(asks: Scope, record: Scope) -> bool:
    """The rule of scopes, written again without the code under test."""
    return all(getattr(record, part) in (None, getattr(asks, part)) for part in ("user", "agent", "session"))


def sees(where: Filter, record: Record) -> bool:
    """The rules of filters, implemented without the code under test."""
    moment = where.as_of or where.now
    return (
        may_see(where.scope, record.scope)
        and (where.superseded or record.superseded_at is None or record.superseded_at > moment)
        and (record.expires_at is None or record.expires_at > moment)
        and (not where.categories or record.category in where.categories)
        and set(where.tags) <= set(record.tags)
        and (not where.kinds or record.kind in where.kinds)
        and (where.since is None or record.time >= where.since)
        and (where.until is None or record.time < where.until)
        and (where.as_of is None or record.time <= where.as_of)
    )


def fill(memory: Memory, records: Sequence[Record]) -> None:
    memory.store.records.apply([[Put(record) for record in records]])
    memory.embed()


def ask(memory: Memory, asked: Asked, sources: tuple[str, ...], **ranking: Any) -> Answer:
    query = Query(asked.text, 5, asked.fetch_k, asked.where, SearchOptions(**ranking))
    pipeline, _ = memory.prepare(asked.text, sources=tuple(sources))
    return pipeline(query)


def seen_of(answer: Answer) -> list[Any]:
    """All that an answer says of its results: order, ids, scores and everything they are made of."""
    return [
        (r.record.id, r.fused, r.score, r.similarity, dict(r.shares), dict(r.factors), r.snippet)
        for r in answer.results
    ]


def test_scope_rule() -> None:
    """Every pair of 27 scopes; the contract uses this as its rule."""
    every = [Scope(*parts) for parts in itertools.product((None, "1", "2"), repeat=3)]
    assert [(a, b) for a in every for b in every if a.admits(b) != may_see(a, b)] == []


def test_search_follows_the_scope_rule(tmp_path: Path) -> None:
    """Through `Memory.search` and `Memory.get`, for every pair of 27 scopes and each source."""
    scopes = {f"{i:02}": Scope(*parts) for i, parts in enumerate(itertools.product((None, "1", "2"), repeat=3))}
    with Memory.open(tmp_path / "m.db", embedder="hashing:64", settings=Settings()) as memory:
        fill(memory, [Record(key, f"heron number {key}", scope=scope) for key, scope in scopes.items()])
        for caller in scopes.values():
            expected = [key for key, scope in scopes.items() if may_see(caller, scope)]
            for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
                answer = memory.search("heron number", **caller.as_dict(), limit=50, sources=sources)
                assert sorted(result.record.id for result in answer.results) == expected
            assert [key for key in scopes if memory.get(key, scope=caller)] == expected
        assert len(memory.search("heron", any_scope=True, limit=50).results) == 27


def bm25(memory: Memory, records: Sequence[Record], query: str) -> dict[str, float]:
    """Lucene's BM25 (k1 = 1.2, b = 0.75, a title counts twice), with general text as background; written anew here."""
    analyzer = memory.store.keywords.analyzer
    often: dict[str, Counter[str]] = {record.id: Counter() for record in records}
    lengths: dict[str, int] = Counter()
    for record in records:
        for part, weight in ((record.title, 2), (record.text, 1)):
            for token in analyzer.tokens(part):
                often[record.id][token.term] += weight
                lengths[record.id] += 0 if token.stop else weight
    means = mean_lengths(records, lengths := {record.id: max(1, lengths[record.id]) for record in records})
    scores: Counter[str] = Counter()
    for term in analyzer.query(query):
        holding = [key for key, counts in often.items() if counts[term]]
        common = shares("english").get(term, 0.0)
        frequency = max(len(holding), (len(holding) + 300 * common) / (len(records) + 300) * len(records))
        idf = math.log(1 + (len(records) - frequency + 0.5) / (frequency + 0.5))
        for key in holding:
            count = often[key][term]
            scores[key] += idf * count / (count + 1.2 * (0.25 + 0.75 * lengths[key] / means[key]))
    return dict(scores)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scores_equal_a_plain_computation_over_visible_records(tmp_path: Path, seed: int) -> None:
    """Keyword scores are BM25's and vector scores exact cosines, under filters of every kind."""
    chance, maybe = random.Random(seed), [*NEVER, *DAYS]
    records = [
        Record(
            f"r{i:02}",
            " ".join(chance.choices(WORDS, k=chance.randint(1, 6))),
            title=chance.choice(["", "", "heron", "Lake boat"]),
            kind=chance.choice(["fact", "chunk"]),
            category=chance.choice([None, "work", "home"]),
            tags=tuple(chance.sample(["red", "blue"], chance.randint(0, 2))),
            scope=Scope(chance.choice([None, None, "ada", "bob"]), chance.choice([None, "planner"])),
            created_at=chance.choice(DAYS),
            happened_at=chance.choice(maybe),
            expires_at=chance.choice(maybe),
        )
        for i in range(60)
    ]
    ada = Filter(scope=Scope("ada", "planner"), now=NOON)
    wheres = [
        Filter(now=NOON),
        ada,
        *(replace(ada, **{name: NOON}) for name in ("since", "until", "as_of")),
        replace(ada, categories=("work",)),
        replace(ada, tags=("red",), kinds=("fact",)),
        replace(ada, superseded=True),
    ]
    with Memory.open(tmp_path / "m.db", embedder="hashing:64", settings=Settings()) as memory:
        fill(memory, records)
        for old, new in itertools.pairwise(records[:9]):
            with contextlib.suppress(UsageError):  # a successor that not everybody may see
                memory.store.records.apply([[Supersede(old.id, new.id, NOON)]])
        records = memory.store.records.get([record.id for record in records])
        serving = memory.embeddings.serving()
        for where, query in itertools.product(wheres, ("heron lake", "the café by v1.2", "an unknown word")):
            visible = [record for record in records if sees(where, record)]
            passages = serving.embedder.passages([record.passage for record in visible]).astype(np.float64)
            cosines = passages @ serving.embedder.query(query).astype(np.float64)
            by_vector = dict(zip((record.id for record in visible), cosines, strict=True))
            for ranked, expected in (
                (
                    memory.store.keywords.search(memory.store.keywords.analyzer.query(query), where, 99),
                    bm25(memory, visible, query),
                ),
                (serving.index.search(serving.embedder.query(query), where, 99), by_vector),
            ):
                assert ranked.scores == sorted(ranked.scores, reverse=True)
                assert len(ranked.entries) + ranked.duplicates == len(expected), (where, query)
                assert ranked.scores == pytest.approx([expected[hit.id] for hit in ranked.entries], abs=1e-6)


@pytest.mark.ci
@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(record_strategy, min_size=25, max_size=32), links, st.lists(asked, min_size=3, max_size=3))
def test_hidden_records_change_nothing_in_an_answer(
    given_records: list[Record], links: list[tuple[int, int, datetime | None]], questions: list[Asked]
) -> None:
    """Ids, order, scores, contributions and snippets are the same, for each source and both, by rank and by score."""
    records = [replace(record, id=f"r{i:02}") for i, record in enumerate(given_records)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shared, *lonely = (
            stack.enter_context(Memory.open(folder / f"{i}.db", embedder="hashing:64", settings=Settings()))
            for i in range(1 + len(questions))
        )
        fill(shared, records)
        for old, new, at in links:
            with contextlib.suppress(UsageError):  # cycles and the like are another test's subject
                shared.store.records.apply([[Supersede(f"r{old:02}", f"r{new:02}", at)]])
        stored = shared.store.records.get([record.id for record in records])
        for asked, alone in zip(questions, lonely, strict=True):
            visible = [record for record in stored if sees(asked.where, record)]
            event("some visible" if visible else "none visible")
            fill(alone, visible)
            listed = shared.store.records.list(asked.where, limit=100)
            assert sorted(record.id for record in listed) == [record.id for record in visible]
            compare(shared, alone, asked)


def compare(shared: Memory, alone: Memory, asked: Asked) -> None:
    for sources in (("keyword",), ("vector",), ("keyword", "vector")):
        for ranking in ({}, {"fusion": "weighted", "mmr": True, "mmr_lambda": 0.5}):
            in_shared, in_alone = (ask(memory, asked, sources, **ranking) for memory in (shared, alone))
            assert seen_of(in_shared) == seen_of(in_alone)
            assert in_shared.trace.filtered == in_alone.trace.filtered
            assert in_shared.trace.filtered["scope"] == in_shared.trace.filtered["superseded"] == 0


@pytest.mark.parametrize(("mine", "theirs"), [(3, 2), (5, 3), (3, 200)])
def test_cosine_does_not_depend_on_other_rows(tmp_path: Path, mine: int, theirs: int) -> None:
    """To the last digit, whichever kernel a BLAS chooses for a matrix of more or fewer rows."""
    chance = np.random.default_rng(11)
    space = VectorSpace("random-384", "random", 384)

    def unit(count: int) -> np.ndarray[Any, Any]:
        rows = chance.normal(size=(count, 384)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    records = [
        Record(f"r{i}", f"text {i}", scope=Scope("ada" if i < mine else "bob"), created_at=NOON)
        for i in range(mine + theirs)
    ]
    vectors = unit(len(records))
    where = Filter(scope=Scope("ada"), now=NOON)
    with contextlib.ExitStack() as stack:
        indexes = []
        for name, count in (("shared.db", len(records)), ("alone.db", mine)):
            memory = stack.enter_context(Memory.open(tmp_path / name, embedder="none", settings=Settings()))
            memory.store.records.apply([[Put(record) for record in records[:count]]])
            indexes.append(memory.store.spaces.open(space))
            indexes[-1].save([record.passage for record in records[:count]], vectors[:count])
        for query in unit(1000):
            shared, alone = (
                [(m.record.id, m.score) for m in index.search(query, where, 9).entries] for index in indexes
            )
            assert len(alone) == mine
            assert shared == alone


# -- few among many -----------------------------------------------------------------------------------------

MANY = 50_000
GROUPS = {"one": 1, "ten": 10, "forty": 40}


def record_of(i: int) -> Record:
    """Records of `crowd`, but for 3 of `few`, two of which say heron, and the groups of 1, 10 and 40."""
    if i % 17_000 == 5_000:
        return Record(f"few{i}", ["heron by the lake", "heron in the reeds", "a boat"][i // 17_000], scope=Scope("few"))
    start = 20_000
    for name, size in GROUPS.items():
        if start <= i < start + size * 7 and (i - start) % 7 == 0:
            return Record(f"{name}{i}", f"heron number {i} of {name}", scope=Scope(name))
        start += size * 7
    return Record(f"c{i}", f"heron {i % 997} lake {i % 89} text", scope=Scope("crowd"))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """Fifty thousand records with random unit vectors, saved directly without a model."""
    path = tmp_path_factory.mktemp("crowd") / "m.db"
    with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
        records = [record_of(i) for i in range(MANY)]
        memory.store.records.apply([Put(record) for record in records[i : i + 500]] for i in range(0, MANY, 500))
        serving = memory.embeddings.serving()
        passages = sorted({record.passage for record in records})
        vectors = np.random.default_rng(7).normal(size=(len(passages), 64)).astype(np.float32)
        serving.index.save(passages, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        memory.search("heron", user="few")
        assert memory.status()["vectors"]["without"] == 0
        yield memory


@pytest.mark.ci
@pytest.mark.xdist_group("crowd")
def test_three_visible_among_fifty_thousand_are_found(crowd: Memory) -> None:
    """Exactly the matching ones by words; all three by vector; none of the others."""
    by_words = crowd.search("heron", user="few", sources=["keyword"])
    assert {result.record.text for result in by_words.results} == {"heron by the lake", "heron in the reeds"}
    for sources in (["vector"], ["keyword", "vector"]):
        found = crowd.search("heron", user="few", sources=sources).results
        assert len(found) == 3
        assert {result.record.scope for result in found} == {Scope("few")}
    assert len(crowd.search("heron", user="few", sources=["vector"], fetch_k=1, limit=3).results) == 3


@pytest.mark.ci
@pytest.mark.parametrize("sources", [["keyword"], ["vector"], ["keyword", "vector"]], ids="+".join)
@pytest.mark.xdist_group("crowd")
def test_three_visible_among_fifty_thousand_are_found_fast(crowd: Memory, sources: list[str]) -> None:
    """Warm, the best of five searches takes less than 50 ms of processor time."""
    took = []
    for _ in range(5):
        start = time.process_time()
        crowd.search("heron lake text", user="few", sources=sources)
        took.append((time.process_time() - start) * 1000)
    print(f"best of five: {min(took):.1f} ms")  # noqa: T201
    assert min(took) < 50


@pytest.mark.parametrize("size", GROUPS.items(), ids=lambda item: item[0])
@pytest.mark.parametrize("limit", [1, 5, 20, 100])
@pytest.mark.parametrize("sources", [["keyword"], ["vector"], ["keyword", "vector"]], ids="+".join)
@pytest.mark.xdist_group("crowd")
def test_small_scope_gets_all_its_results(crowd: Memory, size: tuple[str, int], limit: int, sources: list[str]) -> None:
    """A scope of 1, 10 or 40 rows among fifty thousand gives as many as requested, or all it has."""
    user, rows = size
    found = crowd.search("heron number", user=user, limit=limit, fetch_k=limit, sources=sources).results
    assert len(found) == min(limit, rows)
    assert {result.record.scope.user for result in found} == {user}
