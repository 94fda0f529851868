"""Search through `Memory`: every documented guarantee a caller can see, and the format of the answer."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory, Scope
from recollect.config import ScopeSettings, SearchOptions, Settings
from recollect.errors import EmbedderError, SearchFailed, StoreError, UsageError
from recollect.memory.shapes import answer_dict
from recollect.models.hashing import HashingEmbedder
from recollect.stores import open_store
from recollect.types import Answer, Embedder, Filter, Put, Record, Supersede, now

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
OpenMemory = Callable[..., Memory]
WORDS = ("heron", "lake", "reeds", "boat", "dawn", "mist", "ice", "oar", "the", "in", "by")


def texts(memory: Memory, query: str, **options: Any) -> list[str]:
    """What a search finds, as texts."""
    return [result.record.text for result in memory.search(query, **options).results]


def at_noon(memory: Memory, query: str, **options: Any) -> Answer:
    """A search with the clock stopped, so that two answers can be compared to the last digit."""
    pipeline, asked = memory.prepare(query, **options)
    return pipeline(replace(asked, filter=Filter(now=NOON)))


def ids(answer: Answer) -> list[str]:
    """What an answer holds, as ids."""
    return [result.record.id for result in answer.results]


def fill(memory: Memory, count: int = 200, seed: int = 1) -> None:
    """A random corpus with repeats, decay classes, importances and times."""
    chance = random.Random(seed)
    memory.store.records.apply(
        [
            [
                Put(
                    Record(
                        f"r{i:03}",
                        " ".join(chance.choices(WORDS, k=chance.randint(2, 7))),
                        importance=chance.choice([0.5, 0.5, 0.0, 1.0]),
                        decay=chance.choice([None, "stable", "active", "session"]),
                        created_at=NOON - timedelta(days=chance.randint(0, 60)),
                    )
                )
                for i in range(count)
            ]
        ]
    )
    memory.embed()


class Counting(HashingEmbedder):
    """The hashing embedder, which fails when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(64)
        self.error = error

    def query(self, text: str) -> Any:
        if self.error:
            raise self.error
        return super().query(text)

    def passages(self, texts: Sequence[str]) -> Any:
        if self.error:
            raise self.error
        return super().passages(texts)


# -- §5.3 depth does not depend on limit --------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mmr": True, "mmr_lambda": 0.3},
        {"decay": False, "importance_weight": 0.0},
        {"half_life_days": 5.0},
        {"mmr": True, "mmr_lambda": 0.5, "half_life_days": 5.0},
        {"fusion": "weighted", "normalisation": "minmax"},
        {"fusion": "combmnz", "mmr": True},
        {"fusion": "borda", "min_score": 0.3},
        {"sources": ["vector"], "mmr": True},
    ],
    ids=str,
)
def test_a_small_limit_gives_a_prefix_of_a_large_one(memory: Memory, seed: int, options: dict[str, Any]) -> None:
    """`search(limit=n)` is the beginning of `search(limit=50)` with the same scores, whatever happens after fusion."""
    fill(memory, seed=seed)
    for query in ("heron lake", "mist dawn boat", "the ice", "oar by the reeds in the mist"):
        (full,) = (at_noon(memory, query, limit=50, **options).results,)
        assert len(full) > 10
        for limit in (1, 2, 7, 49):
            part = at_noon(memory, query, limit=limit, **options).results
            assert part == full[:limit]


def test_fetch_k_grows_only_if_limit_exceeds_it(memory: Memory) -> None:
    """Each source is read `fetch_k` deep, or `limit` deep if that is more."""
    fill(memory)
    for fetch_k, limit, depth in ((5, 3, 5), (5, 5, 5), (5, 30, 30), (1, 1, 1), (80, 10, 80)):
        answer = memory.search("heron lake", fetch_k=fetch_k, limit=limit)
        assert [trace.hits for trace in answer.trace.sources] == [depth, depth]
        assert len(answer.results) == limit
    assert (
        ids(memory.search("heron lake", fetch_k=30, limit=5))
        == ids(memory.search("heron lake", fetch_k=30, limit=30))[:5]
    )


def test_records_in_both_lists_precede_those_in_one(memory: Memory) -> None:
    """With two equal lists no deeper than k + 1."""
    fill(memory)
    for query in ("heron lake", "mist dawn boat"):
        options = {"fusion": "rrf", "fetch_k": 20, "limit": 20, "decay": False, "prefer_newer": False}
        answer = memory.search(query, importance_weight=0, **options)
        both = [len(result.shares) == 2 for result in answer.results]
        assert True in both
        assert False in both
        assert both == sorted(both, reverse=True)


# -- §5.4 duplicates fold -----------------------------------------------------------------------------------


def test_the_same_text_under_different_ids_is_one_result(memory: Memory) -> None:
    """Equal texts give one result with the contributions of both sources, and the trace counts the duplicates."""
    for i, text in enumerate(["Heron by the lake", "heron  BY the lake", "Ｈeron by the\nlake"]):
        memory.add(text, id=f"twin{i}", created_at=NOON + timedelta(days=i))
    memory.add("a heron elsewhere", id="other", created_at=NOON)
    answer = at_noon(memory, "heron by the lake")
    assert ids(answer) == ["twin2", "other"]
    assert {name: share.rank for name, share in answer.results[0].shares.items()} == {"keyword": 1, "vector": 1}
    assert {name: share.rank for name, share in answer.results[1].shares.items()} == {"keyword": 2, "vector": 2}
    assert answer.results[0].score == 1.0
    assert answer.trace.filtered["duplicate"] == 4


def test_ranks_freed_by_duplicates_are_refilled(memory: Memory) -> None:
    """Fifty repeats at the head of each list leave room for `fetch_k` different texts."""
    for i in range(50):
        memory.add("heron lake", id=f"same{i}")
    for i in range(20):
        memory.add(f"heron lake {'and more words ' * (i + 1)} {i}", id=f"other{i}")
    for source in ("keyword", "vector"):
        answer = memory.search("heron lake", sources=[source], fetch_k=10, limit=10, prefer_newer=False)
        assert len(answer.results) == 10
        assert len({result.record.text for result in answer.results}) == 10
        assert [result.shares[source].rank for result in answer.results] == list(range(1, 11))
        assert answer.results[0].record.text == "heron lake"
        assert answer.trace.filtered["duplicate"] == 49


def test_keyword_source_chooses_the_shown_duplicate(memory: Memory) -> None:
    """If the sources prefer different duplicates; both contribute to the result."""
    memory.add("quiet morning at the pond", id="titled", title="Heron heron heron", created_at=NOON)
    memory.add("quiet morning at the pond", id="plain", created_at=NOON)
    only = {source: memory.search("heron", sources=[source]).results[0].record.id for source in ("keyword", "vector")}
    assert only == {"keyword": "titled", "vector": "titled"}
    memory.add("quiet morning at the pond", id="newer", created_at=NOON + timedelta(days=1))
    by_vector = memory.search("quiet morning at the pond", sources=["vector"]).results[0].record.id
    by_words = memory.search("heron quiet morning at the pond", sources=["keyword"]).results[0].record.id
    assert (by_vector, by_words) == ("newer", "titled")
    (result,) = memory.search("quiet morning at the pond heron").results
    assert result.record.id == "titled"
    assert result.shares.keys() == {"keyword", "vector"}


# -- §5.5 fusion and ties -----------------------------------------------------------------------------------


def test_fused_scores_equal_the_formula(memory: Memory) -> None:
    """`fused` is Σ w / (k + rank) of the shown ranks, and `score` is that over the maximum."""
    fill(memory)
    options: dict[str, Any] = {"fusion": "rrf", "decay": False, "importance_weight": 0.0, "limit": 50}
    options["prefer_newer"] = False
    for k, text_weight, vector_weight in ((60.0, 1.0, 1.0), (10.0, 2.0, 0.5), (0.0, 1.0, 1.0)):
        answer = memory.search("heron lake", rrf_k=k, text_weight=text_weight, vector_weight=vector_weight, **options)
        weights = {"keyword": text_weight, "vector": vector_weight}
        ceiling = sum(weights.values()) / (k + 1)
        for result in answer.results:
            expected = sum(weights[name] / (k + share.rank) for name, share in result.shares.items())
            assert result.fused == pytest.approx(expected, abs=1e-12)
            assert result.score == pytest.approx(expected / ceiling, abs=1e-12)
        assert [r.fused for r in answer.results] == sorted((r.fused for r in answer.results), reverse=True)


def test_weight_of_zero_equals_absence(memory: Memory) -> None:
    """The source changes neither order nor scores."""
    fill(memory)
    weightless = at_noon(memory, "heron lake", vector_weight=0.0)
    alone = at_noon(memory, "heron lake", sources=["keyword"])
    assert [(r.record.id, r.score) for r in weightless.results] == [(r.record.id, r.score) for r in alone.results]


def test_ties_go_to_the_newer_then_to_the_lower_id(memory: Memory) -> None:
    """Whatever the order in which records were stored."""
    texts_of = {"b": "heron one", "a": "heron two", "c": "heron six", "d": "heron ten"}
    for key in "cadb":
        memory.add(texts_of[key], id=key, created_at=NOON + timedelta(days=key == "d"))
    assert ids(memory.search("heron", sources=["keyword"])) == ["d", "a", "b", "c"]


def test_tie_between_sources_goes_to_the_better_rank_then_the_first_source(open_memory: OpenMemory) -> None:
    """At the same score and rank, a keyword hit precedes a vector hit."""
    memory = open_memory(embedder=Mirror())
    for key, text in {
        "z-words": "heron",
        "y-words": "heron and more words",
        "a-meaning": "meaning",
        "b-meaning": "meanings",
    }.items():
        memory.add(text, id=key)
    answer = memory.search("heron", fusion="rrf", fetch_k=2, limit=2)
    assert [(r.record.id, list(r.shares), r.fused) for r in answer.results] == [
        ("z-words", ["keyword"], 1 / 61),
        ("a-meaning", ["vector"], 1 / 61),
    ]


class Mirror(Counting):
    """Finds `meaning` for a query of `heron`: what words cannot find."""

    def query(self, text: str) -> Any:
        return super().query("meaning" if text == "heron" else text)

    def passages(self, texts: Sequence[str]) -> Any:
        return np.stack([HashingEmbedder(64).query(text) for text in texts])


def test_order_of_named_sources_changes_nothing(memory: Memory) -> None:
    """`vector,keyword` equals `keyword,vector`."""
    fill(memory)
    one, two = (
        at_noon(memory, "heron lake", sources=names) for names in (["keyword", "vector"], ["vector", "keyword"])
    )
    assert one.results == two.results


# -- §5.6 scores that mean something ------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", ["blend", "rrf", "weighted", "combmnz", "borda"])
def test_scores_are_between_0_and_1_and_min_score_uses_them(memory: Memory, fusion: str) -> None:
    """Under every fusion `min_score` selects exactly the results with at least that `score`."""
    fill(memory)
    options: dict[str, Any] = {"fusion": fusion, "limit": 100, "prefer_newer": False}
    full = at_noon(memory, "heron lake", **options).results
    assert all(0 <= result.score <= 1 for result in full)
    assert len({result.score for result in full}) > 10
    for least in (0.1, 0.25, full[5].score, 0.9, 1.0):
        kept = at_noon(memory, "heron lake", min_score=least, **options)
        assert list(kept.results) == [result for result in full if result.score >= least]


@pytest.mark.parametrize("k", [0.0, 1.0, 60.0, 1000.0])
def test_rank_1_in_all_sources_is_score_1_under_rrf(memory: Memory, k: float) -> None:
    """For every k; also rank 1 in the only source that answers."""
    memory.add("heron by the lake")
    memory.add("an unrelated thing")
    for sources in (["keyword", "vector"], ["keyword"], ["vector"]):
        assert memory.search("heron by the lake", fusion="rrf", rrf_k=k, sources=sources).results[
            0
        ].score == pytest.approx(1.0)


def test_similarity_is_the_cosine_if_known(memory: Memory) -> None:
    """An exact repeat has similarity 1; a keyword-only hit has none."""
    memory.add("heron by the lake", id="a")
    memory.add("heron " + "something else entirely " * 9, id="b")
    answer = memory.search("heron by the lake", fetch_k=1, limit=1)
    assert answer.results[0].similarity == pytest.approx(1.0, abs=1e-6)
    words = memory.search("heron", sources=["keyword"])
    assert [result.similarity for result in words.results] == [None, None]


def test_keyword_scores_are_positive_and_descending(memory: Memory) -> None:
    """FTS5's own BM25 values are negative."""
    fill(memory)
    options = {"sources": ["keyword"], "limit": 50, "decay": False, "importance_weight": 0.0, "prefer_newer": False}
    scores = [result.shares["keyword"].score for result in at_noon(memory, "heron lake", **options).results]
    assert all(score > 0 for score in scores)
    assert scores == sorted(scores, reverse=True)


# -- §5.7 snippets ------------------------------------------------------------------------------------------


def test_snippet_shows_the_keyword_match(memory: Memory) -> None:
    """Where only the vector source found a record, its beginning."""
    filler = "nothing of interest happens here at all. " * 30
    memory.add(f"{filler} The heron stands still. {filler}", id="deep")
    (result,) = memory.search("heron").results
    assert "The heron stands still." in result.snippet
    assert len(result.snippet) < 300
    (result,) = memory.search("heron", sources=["vector"]).results
    assert result.snippet.startswith("nothing of interest")
    assert "heron" not in result.snippet


# -- §5.8 superseded ----------------------------------------------------------------------------------------


def test_superseded_record_at_rank_1_is_not_shown(memory: Memory) -> None:
    """Neither the record nor a gap in the ranks."""
    memory.add("the office plant is watered on Monday", id="old")
    memory.add("plants are watered weekly", id="near")
    assert ids(memory.search("the office plant is watered on Monday"))[0] == "old"
    new = memory.supersede("old", text="a robot waters it")
    answer = memory.search("the office plant is watered on Monday")
    assert set(ids(answer)) == {"near", new.id}
    assert [answer.results[0].shares[name].rank for name in ("keyword", "vector")] == [1, 1]
    assert answer.trace.filtered["superseded"] == 0, "the sources left it out; the guard found nothing"
    assert "old" in ids(memory.search("office plant", superseded=True))


# -- §5.9 decay, importance, MMR ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decay", "age", "factor"),
    [
        ("stable", timedelta(days=90), 0.5),
        ("active", timedelta(days=14), 0.5),
        ("active", timedelta(days=28), 0.25),
        ("session", timedelta(days=1), 0.5),
        ("checkpoint", timedelta(hours=4), 0.5),
        ("active", timedelta(0), 1.0),
        ("active", timedelta(days=-30), 1.0),
        ("permanent", timedelta(days=9999), None),
        (None, timedelta(days=9999), None),
    ],
)
def test_decay_halves_at_the_half_life(memory: Memory, decay: str | None, age: timedelta, factor: float | None) -> None:
    """By decay class; permanent and none never; a future date counts as now; `decay=False` turns it off."""
    memory.add("heron", decay=decay, created_at=NOON - age)
    (result,) = at_noon(memory, "heron").results
    assert result.factors == ({} if factor is None else {"decay": pytest.approx(factor)})
    assert result.score == pytest.approx(factor or 1.0)
    (result,) = at_noon(memory, "heron", decay=False).results
    assert (result.factors, result.score) == ({}, pytest.approx(1.0))


def test_half_life_days_applies_to_records_without_a_class(memory: Memory) -> None:
    """Those with a class, also `permanent`, are unchanged."""
    for decay in (None, "permanent", "stable"):
        memory.add(f"heron {decay}", decay=decay, created_at=NOON - timedelta(days=10))
    found = {r.record.decay: r.factors.get("decay") for r in at_noon(memory, "heron", half_life_days=10).results}
    assert found == {None: pytest.approx(0.5), "permanent": None, "stable": pytest.approx(2 ** (-10 / 90))}


def test_age_counts_from_when_it_happened(memory: Memory) -> None:
    """Not from when it was stored; `as_of` moves the clock."""
    memory.add("heron", decay="active", created_at=NOON, happened_at=NOON - timedelta(days=14))
    (result,) = at_noon(memory, "heron").results
    assert result.factors["decay"] == pytest.approx(0.5)
    (result,) = memory.search("heron", as_of=NOON + timedelta(days=14)).results
    assert result.factors["decay"] == pytest.approx(0.25)


def test_decay_changes_the_order(memory: Memory) -> None:
    """An old better match falls behind a new weaker one, and is first without decay."""
    memory.add("heron lake", id="old", decay="session", created_at=NOON - timedelta(days=9))
    memory.add("heron lake and a lot of other words", id="new", decay="session", created_at=NOON)
    assert ids(at_noon(memory, "heron lake")) == ["new", "old"]
    assert ids(at_noon(memory, "heron lake", decay=False)) == ["old", "new"]


def test_importance_changes_the_score(memory: Memory) -> None:
    """Importance 1 raises by the weight, 0 lowers by it, 0.5 does nothing; a weight of 0 turns it off."""
    for value in (0.0, 0.5, 1.0):
        memory.add(f"heron {value}", importance=value)
    found = {
        r.record.importance: r.factors.get("importance") for r in memory.search("heron", importance_weight=0.2).results
    }
    assert found == {0.0: pytest.approx(0.8), 0.5: None, 1.0: pytest.approx(1.2)}
    assert all(not r.factors for r in memory.search("heron", importance_weight=0.0).results)
    (first, *_) = memory.search("heron", importance_weight=1.0).results
    assert first.record.importance == 1.0
    assert 0 <= first.score <= 1


@pytest.mark.parametrize("embedder", ["hashing:64", "none"])
def test_mmr_removes_near_duplicates_from_the_head(open_memory: OpenMemory, embedder: str) -> None:
    """Three similar texts do not fill the top three, by vectors or by words."""
    memory = open_memory(embedder=embedder)
    for i in range(3):
        memory.add(f"heron lake reeds dawn {'.' * i} {'!' * i}x{i}", id=f"near{i}")
    memory.add("heron boat oar harbour", id="other1")
    memory.add("heron ice winter snow", id="other2")
    assert set(ids(memory.search("heron lake reeds dawn", limit=3))) == {"near0", "near1", "near2"}
    diverse = ids(memory.search("heron lake reeds dawn", limit=3, mmr=True, mmr_lambda=0.2))
    assert diverse[0] == ids(memory.search("heron lake reeds dawn"))[0]
    assert {"other1", "other2"} == set(diverse[1:])


def test_mmr_with_lambda_1_changes_nothing(memory: Memory) -> None:
    """All weight on relevance is the order without MMR."""
    fill(memory)
    plain = at_noon(memory, "heron lake", limit=30)
    assert at_noon(memory, "heron lake", limit=30, mmr=True, mmr_lambda=1.0).results == plain.results


@pytest.mark.ci
def test_mmr_on_five_thousand_candidates_is_fast(memory: Memory) -> None:
    """The work is pool times picks, not pool squared."""
    chance = np.random.default_rng(3)
    records = [Record(f"r{i}", f"heron {i}") for i in range(5000)]
    memory.store.records.apply([Put(record) for record in records[i : i + 500]] for i in range(0, 5000, 500))
    vectors = chance.normal(size=(5000, 64)).astype(np.float32)
    memory.embeddings.serving().index.save(
        [r.passage for r in records], vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    )
    options: dict[str, Any] = {"fetch_k": 5000, "limit": 10, "mmr": True}
    memory.search("heron", **options)
    start = time.process_time()
    answer = memory.search("heron", **options)
    assert len(answer.results) == 10
    assert next(stage.given for stage in answer.trace.stages if stage.name == "mmr") == 5000
    assert time.process_time() - start < 5


# -- §5.10 reads change nothing -----------------------------------------------------------------------------


def test_reads_never_change_anything(memory: Memory, dump: Callable[[], Any]) -> None:
    """After fifty searches, gets, lists and histories every row and score is the same."""
    fill(memory, 50)
    before, answer = dump(), at_noon(memory, "heron lake")
    sequence = memory.status()["sequence"]
    for i in range(50):
        memory.search(f"heron {WORDS[i % len(WORDS)]}", mmr=i % 2 == 0)
        memory.get("r001")
        memory.list(limit=5)
        memory.history("r001")
    assert memory.status()["sequence"] == sequence
    assert dump() == before
    assert at_noon(memory, "heron lake").results == answer.results


# -- §5.11 failing sources ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mmr", [False, True])
@pytest.mark.parametrize(
    "error", [EmbedderError("the model is on fire"), RuntimeError("boom"), OSError(5, "I/O")], ids=str
)
def test_failing_source_leaves_the_other_answering(open_memory: OpenMemory, error: Exception, mmr: bool) -> None:
    """The trace names the source and the reason; the answer is keyword-only, with a warning and full scores."""
    open_memory(embedder="none").add_many([{"text": "heron by the lake"}, {"text": "heron in the reeds"}])
    memory = open_memory(embedder=Counting(error))
    answer = memory.search("heron lake", mmr=mmr)
    assert answer.trace.mode == "keyword-only"
    keyword, vector = answer.trace.sources
    assert (keyword.name, keyword.status, keyword.hits) == ("keyword", "ok", 2)
    assert (vector.name, vector.status, vector.hits) == ("vector", "failed", 0)
    assert str(error) in vector.reason
    assert any("vector" in warning and str(error) in warning for warning in answer.trace.warnings)
    assert answer.results[0].score == pytest.approx(1.0)
    assert len(answer.results) == 2


def test_source_that_fails_later_leaves_the_other_answering(open_memory: OpenMemory) -> None:
    """A model that stops working fails neither a search nor a write."""
    embedder = Counting()
    memory = open_memory(embedder=embedder)
    memory.add("heron by the lake")
    assert memory.search("heron").trace.mode == "hybrid"
    embedder.error = EmbedderError("out of memory")
    memory.add("heron in the reeds")
    answer = memory.search("heron", mmr=True)
    assert answer.trace.mode == "keyword-only"
    assert len(answer.results) == 2
    embedder.error = None
    answer = memory.search("heron")
    assert answer.trace.mode == "hybrid"
    assert all("vector" in result.shares for result in answer.results), "what was stored meanwhile has its vector now"


def test_any_embedder_error_does_not_stop_a_write(open_memory: OpenMemory) -> None:
    """A plugin may raise anything: the record is stored, and the missing vector is reported."""
    said: list[str] = []
    memory = open_memory(embedder=Counting(RuntimeError("boom")), announce=said.append)
    memory.add("heron by the lake")
    assert texts(memory, "heron") == ["heron by the lake"]
    assert any("boom" in line for line in said)


@pytest.mark.parametrize("wrong", [np.ones((1, 65)), np.ones((2, 64)), np.ones(64), np.full((1, 64), np.nan)], ids=str)
def test_wrong_vectors_are_refused_and_the_record_is_stored(open_memory: OpenMemory, wrong: Any) -> None:
    """One vector of another length, stored, would make the index unreadable for good."""
    said: list[str] = []
    embedder = Counting()
    memory = open_memory(embedder=embedder, announce=said.append)
    memory.add("heron by the lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedder, "passages", lambda _texts: wrong)
        memory.add("heron in the reeds")
        assert memory.search("heron").trace.mode == "keyword-only"
    assert [line.partition(" returned ")[0] for line in said] == ["stored without vectors: hashing:64"]
    answer = memory.search("heron")
    assert (answer.trace.mode, len(answer.results), memory.status()["vectors"]["without"]) == ("hybrid", 2, 0)


def test_wrong_vector_of_a_query_is_named(open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer does not count as hybrid if nothing can be near to the query."""
    embedder = Counting()
    memory = open_memory(embedder=embedder)
    memory.add("heron by the lake")
    monkeypatch.setattr(embedder, "query", lambda _text: np.full(64, np.nan))
    trace = memory.search("heron").trace
    assert trace.mode == "keyword-only"
    assert "the query's vector has numbers that are not finite" in trace.warnings[0]
    monkeypatch.setattr(embedder, "query", lambda _text: "heron")
    assert "hashing:64 failed: ValueError" in memory.search("heron").trace.warnings[0]
    monkeypatch.setattr(embedder, "query", lambda _text: [1.0] * 64)
    assert memory.search("heron").trace.mode == "hybrid", "a list is as good as an array"


def test_vectors_of_different_lengths_do_not_stop_the_source(open_memory: OpenMemory) -> None:
    """What the cosines of a new model mean is measured with questions of its own, which may fail."""
    embedder = Counting()
    memory, query = open_memory(embedder=embedder), embedder.query
    memory.add("heron by the lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedder, "query", lambda text: query(text)[: 64 if text == "heron" else len(text)])
        assert memory.search("heron").trace.mode == "hybrid"


def test_object_that_is_no_embedder_is_refused(open_memory: OpenMemory) -> None:
    """When the memory is opened, not at the first record; no property is read for that."""

    class Nameless(HashingEmbedder):
        name = fingerprint = property(lambda _self: pytest.fail("the model was loaded"))  # type: ignore[assignment]

    open_memory(embedder=Nameless.__new__(Nameless))
    with pytest.raises(UsageError, match="it has no name, fingerprint, passages, query"):
        open_memory(embedder=object())


def test_all_sources_failing_is_an_error(open_memory: OpenMemory) -> None:
    """Never an empty list: the error names every source and its reason."""
    open_memory(embedder="none").add("heron")
    memory = open_memory(embedder=Counting(RuntimeError("boom")))
    with pytest.raises(SearchFailed, match=r"vector.*boom"):
        memory.search("heron", sources=["vector"])
    with pytest.raises(SearchFailed, match="no embedder is configured"):
        open_memory(embedder="none").search("heron", sources=["vector"])


def test_without_an_embedder_the_answer_is_keyword_only(open_memory: OpenMemory) -> None:
    """The vector source is skipped with its reason, and there is one warning."""
    memory = open_memory(embedder="none")
    memory.add("heron by the lake")
    answer = memory.search("heron")
    assert answer.trace.mode == "keyword-only"
    assert [(t.name, t.status, bool(t.reason)) for t in answer.trace.sources] == [
        ("keyword", "ok", False),
        ("vector", "skipped", True),
    ]
    assert answer.trace.sources[1].reason == "no embedder is configured"
    assert len(answer.trace.warnings) == 1
    asked = memory.search("heron", sources=["keyword"])
    assert (asked.trace.mode, asked.trace.warnings, len(asked.trace.sources)) == ("keyword-only", (), 1)


# -- filters ------------------------------------------------------------------------------------------------


@pytest.fixture
def varied(memory: Memory) -> Memory:
    """Records that differ in everything a filter can use; all contain "heron"."""
    day = timedelta(days=1)
    for key, fields in {
        "plain": {},
        "work": {"category": "work", "tags": ["red"]},
        "home": {"category": "home", "tags": ["red", "blue"]},
        "chunk": {"kind": "chunk", "path": "/notes/birds/heron.md", "lines": (1, 3)},
        "deep": {"kind": "chunk", "path": "/notes/birds/old/list.md", "lines": (4, 5)},
        "brackets": {"kind": "chunk", "path": "/notes/[2026] birds/a?b.md", "lines": (1, 1)},
        "old": {"created_at": NOON - 100 * day},
        "long ago": {"happened_at": NOON - 20_000 * day},
    }.items():
        memory.add(f"heron {key}", id=key, **{"created_at": NOON, **fields})
    return memory


ALL = {"plain", "work", "home", "chunk", "deep", "brackets", "old", "long ago"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ALL),
        ({"category": "work"}, {"work"}),
        ({"category": ["work", "home"]}, {"work", "home"}),
        ({"category": "nothing"}, set()),
        ({"tags": ["red"]}, {"work", "home"}),
        ({"tags": "red"}, {"work", "home"}),
        ({"tags": ["red", "blue"]}, {"home"}),
        ({"tags": ["Red"]}, set()),
        ({"kind": "chunk"}, {"chunk", "deep", "brackets"}),
        ({"kind": "fact", "category": "work"}, {"work"}),
        ({"path": "/notes/birds/heron.md"}, {"chunk"}),
        ({"path": "heron.md"}, {"chunk"}),
        ({"path": "birds"}, {"chunk", "deep"}),
        ({"path": "/notes/birds/"}, {"chunk", "deep"}),
        ({"path": "birds/*.md"}, {"chunk", "deep"}),
        ({"path": "eron.md"}, set()),
        ({"path": "bird"}, set()),
        ({"path": "[2026] birds"}, {"brackets"}),
        ({"path": "a?b.md"}, {"brackets"}),
        ({"path": "heron?md"}, set()),
        ({"path": "[h]eron.md"}, set()),
        ({"since": NOON - timedelta(days=50)}, ALL - {"old", "long ago"}),
        ({"since": NOON}, ALL - {"old", "long ago"}),
        ({"until": NOON}, {"old", "long ago"}),
        ({"until": "2000-01-01"}, {"long ago"}),
        ({"since": "2000-01-01", "until": "2026-03-14"}, {"old"}),
        ({"as_of": NOON - timedelta(days=1)}, {"old", "long ago"}),
        ({"as_of": "1950-01-01"}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_filters_are_applied_inside_every_source(varied: Memory, filters: dict[str, Any], expected: set[str]) -> None:
    """Each source and the list return exactly what the filter selects, to any depth."""
    assert {record.id for record in varied.list(**filters)} == expected
    for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
        depth = max(1, len(expected))
        answer = varied.search("heron", sources=sources, fetch_k=depth, limit=depth, **filters)
        assert set(ids(answer)) == expected


def test_durations_count_back_from_now(memory: Memory) -> None:
    """`since="2d"` is two days ago."""
    memory.add("heron yesterday", created_at=now() - timedelta(days=1))
    memory.add("heron last week", created_at=now() - timedelta(days=7))
    assert texts(memory, "heron", since="2d") == ["heron yesterday"]
    assert texts(memory, "heron", until="2d") == ["heron last week"]
    assert set(texts(memory, "heron", since="2w")) == {"heron yesterday", "heron last week"}


def test_scope_of_the_settings_is_the_default(open_memory: OpenMemory) -> None:
    """A memory opened for Ada stores and searches as Ada; a call can name another scope."""
    ada = open_memory(settings=Settings(scope=ScopeSettings(user="ada")))
    assert ada.add("heron of Ada").scope == Scope("ada")
    assert ada.add("heron of Bob", user="bob").scope == Scope("bob")
    assert texts(ada, "heron") == ["heron of Ada"]
    assert texts(ada, "heron", user="bob") == ["heron of Bob"]
    assert [record.text for record in ada.list()] == ["heron of Ada"]


def test_add_and_add_many_agree_on_scope(open_memory: OpenMemory) -> None:
    """A session named for one record keeps the user of the settings."""
    memory = open_memory(settings=Settings(scope=ScopeSettings(user="ada")))
    one = memory.add("one", session="s")
    (two,) = memory.add_many([{"text": "two", "session": "s"}])
    assert one.scope == two.scope == Scope("ada", None, "s")


@pytest.mark.parametrize("part", ["user", "agent", "session"])
def test_empty_user_name_is_refused(memory: Memory, part: str) -> None:
    """A lost user name must not make a record global."""
    for attempt in (
        lambda: memory.add("a secret", **{part: ""}),
        lambda: memory.add("a secret", scope=Scope(**{part: ""})),
        lambda: memory.add_many([{"text": "a secret", part: ""}]),
        lambda: memory.search("a secret", **{part: ""}),
        lambda: memory.list(**{part: ""}),
    ):
        with pytest.raises(UsageError):
            attempt()
    assert memory.list(any_scope=True) == []


# -- queries ------------------------------------------------------------------------------------------------


def test_empty_store_gives_an_empty_answer(memory: Memory) -> None:
    """No error, no results, both sources succeed."""
    answer = memory.search("anything")
    assert answer.results == ()
    assert [trace.status for trace in answer.trace.sources] == ["ok", "ok"]
    assert answer.trace.mode == "hybrid"


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000"])
def test_empty_query_finds_nothing_with_a_warning(memory: Memory, query: str) -> None:
    """There is nothing to search for."""
    memory.add("heron")
    answer = memory.search(query)
    assert answer.results == ()
    assert answer.trace.warnings


@pytest.mark.parametrize("query", ["...", "!?", '"', "AND", "*", "\x00", "()"])
def test_query_of_punctuation_is_answered(memory: Memory, query: str) -> None:
    """A query without words is no error."""
    memory.add("heron")
    assert [trace.status for trace in memory.search(query).trace.sources] == ["ok", "ok"]


def test_query_of_stop_words_finds_its_text(memory: Memory) -> None:
    """`to be or not to be` finds its text by words, and first."""
    memory.add("To be, or not to be: that is the question")
    memory.add("herons stand in reeds")
    assert texts(memory, "to be or not to be", sources=["keyword"])[0].startswith("To be")
    assert texts(memory, "to be or not to be")[0].startswith("To be")


def test_stop_words_are_ignored_beside_content_words(memory: Memory) -> None:
    """A query with content words does not match on `the`."""
    memory.add("the the the the")
    memory.add("heron")
    assert texts(memory, "the heron", sources=["keyword"]) == ["heron"]


def test_one_matching_word_of_eight_is_enough(memory: Memory) -> None:
    """Words are joined by OR."""
    memory.add("the capercaillie calls at dawn")
    memory.add("an unrelated note")
    query = "quarterly budget meeting capercaillie spreadsheet revenue forecast manager"
    assert texts(memory, query, sources=["keyword"]) == ["the capercaillie calls at dawn"]
    assert texts(memory, query)[0] == "the capercaillie calls at dawn"


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("upgrade to 1.0.21 today", "1.0.21"),
        ("call parse_config first", "parseConfig"),
        ("the HTTPServer class", "http server"),
        ("a well-known fact", "well known"),
        ("東京都に住んでいます", "東京"),
        ("湖", "湖"),
        ("naïve café", "naive cafe"),
        ("written in C++ and C#", "c++"),
        ("the Straße is closed", "strasse"),
        ("running herons", "heron run"),
        ("🚀 launched", "🚀"),
    ],
)
def test_words_of_all_kinds_are_found(memory: Memory, stored: str, query: str) -> None:
    """Versions, identifiers, hyphens, CJK of one or two characters, accents, symbols."""
    memory.add(stored)
    memory.add("something else altogether")
    assert texts(memory, query, sources=["keyword"]) == [stored]


def test_version_does_not_match_another(memory: Memory) -> None:
    """1.0.21 is not 1.0.2, nor 21."""
    for version in ("1.0.2", "1.0.21", "21"):
        memory.add(f"release {version}")
    assert texts(memory, "1.0.21", sources=["keyword"]) == ["release 1.0.21"]


def test_match_in_a_title_counts_more(memory: Memory) -> None:
    """Of two records with the same words, the one with them in its title is first."""
    memory.add("some words about heron", id="text")
    memory.add("some words about birds", id="title", title="heron")
    assert ids(memory.search("heron", sources=["keyword"])) == ["title", "text"]


# -- trace and JSON -----------------------------------------------------------------------------------------


def test_trace_lists_sources_and_stages(memory: Memory) -> None:
    """Sources in order with hits and times, every stage with its input and output, what was dropped."""
    fill(memory, 60)
    answer = memory.search("heron lake", limit=5, min_score=0.3, mmr=True)
    trace = answer.trace
    assert trace.took_ms > 0
    assert trace.mode == "hybrid"
    assert [source.name for source in trace.sources] == ["keyword", "vector"]
    assert all(
        source.status == "ok" and source.hits > 5 and 0 < source.took_ms <= trace.took_ms for source in trace.sources
    )
    assert [stage.name for stage in trace.stages] == [
        "turns",
        "confidence",
        "files",
        "decay",
        "time",
        "importance",
        "threshold",
        "newer",
        "mmr",
        "limit",
        "scope",
        "superseded",
        "freshness",
    ]
    for one, two in itertools.pairwise(trace.stages):
        assert one.left == two.given
    assert trace.stages[-1].left == len(answer.results) == 5
    threshold = next(stage for stage in trace.stages if stage.name == "threshold")
    assert trace.filtered["threshold"] == threshold.given - threshold.left > 0
    assert (trace.filtered["scope"], trace.filtered["superseded"]) == (0, 0)
    assert trace.warnings == ()


@pytest.fixture
def as_json(memory: Memory) -> dict[str, Any]:
    """An answer with a fact and a chunk, through JSON and back."""
    memory.add(
        "heron by the lake", id="f", category="technical", tags=["bird"], user="ada", importance=0.9, decay="stable"
    )
    memory.add("heron by the river", id="c", kind="chunk", title="Birds", path="docs/x.md", lines=(10, 24))
    answer = memory.search("heron by the lake", user="ada", fusion="rrf")
    return json.loads(json.dumps(answer_dict(answer)))


def test_answer_as_json_has_every_documented_field(as_json: dict[str, Any]) -> None:
    """Names and types of DESIGN §6, at every level."""
    assert as_json["query"] == "heron by the lake"
    assert as_json["fusion"]["method"] == "rrf"
    assert as_json["fusion"]["k"] == 60
    fact, chunk = as_json["results"]
    kinds: dict[str, Any] = {
        "id": str, "kind": str, "text": str, "title": str, "snippet": str, "rank": int, "score": float, "fused": float,
        "similarity": float, "sources": dict, "in_keyword": bool, "in_semantic": bool, "scope": dict, "tags": list,
        "created_at": str,
    }  # fmt: skip
    for result in (fact, chunk):
        for name, kind in kinds.items():
            assert isinstance(result[name], kind), name
        for share in result["sources"].values():
            assert isinstance(share["rank"], int)
            assert isinstance(share["score"], float)
            assert isinstance(share["contribution"], float)
    assert (fact["rank"], fact["id"], fact["kind"], fact["category"], fact["tags"]) == (
        1,
        "f",
        "fact",
        "technical",
        ["bird"],
    )
    assert (fact["scope"], fact["score"]) == ({"user": "ada"}, 1.0)
    assert (fact["in_keyword"], fact["in_semantic"], fact["sources"].keys()) == (True, True, {"keyword", "vector"})
    assert (chunk["rank"], chunk["path"], chunk["lines"], chunk["title"], chunk["category"]) == (
        2,
        "docs/x.md",
        [10, 24],
        "Birds",
        None,
    )
    assert datetime.fromisoformat(fact["created_at"]).utcoffset() == timedelta(0)
    trace = as_json["trace"]
    assert isinstance(trace["took_ms"], float)
    assert trace["mode"] == "hybrid"
    for source, name in zip(trace["sources"], ("keyword", "vector"), strict=True):
        assert (source["name"], source["status"], source["hits"]) == (name, "ok", 2)
        assert isinstance(source["took_ms"], float)
    assert {name: trace["filtered"][name] for name in ("superseded", "scope", "duplicate")} == {
        "superseded": 0, "scope": 0, "duplicate": 0,
    }  # fmt: skip
    assert isinstance(trace["stages"], list)
    assert trace["warnings"] == []


def test_answer_as_json_has_the_freshness(as_json: dict[str, Any]) -> None:
    """Beside path and lines, as in DESIGN §6."""
    assert all(isinstance(result["freshness"], str) for result in as_json["results"] if "path" in result)


def test_sum_of_contributions_is_the_fused_score(as_json: dict[str, Any]) -> None:
    """What is shown adds up."""
    for result in as_json["results"]:
        assert sum(share["contribution"] for share in result["sources"].values()) == pytest.approx(
            result["fused"], abs=1e-12
        )


def test_explain_shows_every_factor(memory: Memory) -> None:
    """Base times factors is the total, in the JSON too."""
    memory.add("heron", importance=1.0, decay="active", created_at=NOON - timedelta(days=14))
    (result,) = answer_dict(at_noon(memory, "heron"), explain=True)["results"]
    assert result["factors"] == {"decay": pytest.approx(0.5), "importance": pytest.approx(1.1)}
    assert result["total"] == pytest.approx(result["base"] * 0.5 * 1.1)


@pytest.mark.parametrize("fusion", ["rrf", "weighted", "combmnz", "borda"])
def test_every_fusion_can_be_written_as_json(memory: Memory, fusion: str) -> None:
    """Also with a fractional constant, and without results."""
    memory.add("heron")
    for query in ("heron", "nothing of the kind"):
        shape = json.loads(json.dumps(answer_dict(memory.search(query, fusion=fusion, rrf_k=12.5))))
        assert shape["fusion"]["method"] == fusion
        assert shape["fusion"].get("k", 12.5) == 12.5


def test_settings_are_the_defaults_of_a_search(open_memory: OpenMemory) -> None:
    """An option of the call wins over the settings."""
    memory = open_memory(settings=Settings(search=SearchOptions(limit=2, sources=("keyword",), fusion="borda")))
    memory.add_many([{"text": f"heron {i}"} for i in range(5)])
    answer = memory.search("heron")
    assert (len(answer.results), answer.trace.mode, answer.query.ranking.fusion) == (2, "keyword-only", "borda")
    assert len(memory.search("heron", limit=4).results) == 4


# -- a real model -----------------------------------------------------------------------------------------


def test_default_model_finds_a_paraphrase(open_memory: OpenMemory, arctic: Embedder) -> None:
    """A question without shared words finds its fact, and the search is hybrid."""
    memory = open_memory(embedder=arctic)
    memory.add_many(
        [
            {"text": "The spare key is under the blue flower pot."},
            {"text": "Quarterly revenue grew by eight percent."},
            {"text": "Our cat prefers to sleep on the keyboard."},
        ]
    )
    answer = memory.search("how do I get into the house if I am locked out?")
    assert answer.trace.mode == "hybrid"
    assert answer.results[0].record.text == "The spare key is under the blue flower pot."
    assert answer.results[0].similarity > 0.3


def test_store_changes_from_hashing_to_the_default_model(open_memory: OpenMemory, arctic: Embedder) -> None:
    """The old embedder answers until `embed`, then paraphrases are found."""
    with open_memory() as memory:
        memory.add_many([{"text": "The feline is napping."}, {"text": "Stocks fell sharply."}])
    memory = open_memory(embedder=arctic)
    before = memory.search("a cat asleep", sources=["vector"])
    assert "hashing:64" in " ".join(before.trace.warnings)
    assert memory.embed() == 2
    after = memory.search("a cat asleep", sources=["vector"])
    assert after.results[0].record.text == "The feline is napping."
    assert after.trace.warnings == ()
    assert memory.status()["vectors"]["embedder"] == arctic.name


def test_default_model_is_opened_by_its_name(open_memory: OpenMemory, path: Path) -> None:
    """`embedder="arctic-embed-s"` is the cached model, with its own vector space."""
    memory = open_memory(embedder="arctic-embed-s")
    memory.add("The kettle is boiling.")
    (result,) = memory.search("The kettle is boiling.", sources=["vector"]).results
    assert result.similarity > 0.7
    assert memory.status()["vectors"]["dimension"] == 384


def test_only_the_end_of_a_supersession_chain_is_found(memory: Memory) -> None:
    """In every source and at every depth."""
    keys = [memory.add(f"price is {i} euros", id=f"p{i}").id for i in range(12)]
    memory.store.records.apply([[Supersede(old, new)] for old, new in itertools.pairwise(keys)])
    for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
        assert ids(memory.search("price is 3 euros", sources=sources, fetch_k=1, limit=1)) == ["p11"]
        assert ids(memory.search("price is 3 euros", sources=sources)) == ["p11"]
    assert replace(memory.get("p11"), edited_at=None).superseded_by is None


@pytest.mark.parametrize("embedded", [0, 20, 60])
def test_half_embedded_store_is_searched_by_meaning_too(open_memory: OpenMemory, embedded: int) -> None:
    """The best keyword hits get their vectors first, so that few embedded records do not outrank better ones."""
    open_memory(embedder="none").add_many([{"text": f"heron number {n}"} for n in range(100)])
    memory = open_memory()
    index = memory.embeddings.serving().index
    some = index.missing(embedded) if embedded else []  # the newest
    index.save(some, HashingEmbedder(64).passages(some))
    answer = memory.search("heron number 7")
    assert (answer.trace.mode, answer.results[0].record.text) == ("hybrid", "heron number 7")
    head = sorted(int(result.record.text.split()[-1]) for result in answer.results if "vector" in result.shares)
    assert len(head) == len(answer.results)  # every result that is shown was compared by meaning
    done = memory.status()["vectors"]["with"]
    assert embedded < done <= embedded + 20
    assert answer.trace.lag["vectors"] == 100 - done
    assert f"vectors for {done} of 100 records; `recollect embed` computes the rest" in answer.trace.warnings
    assert memory.search("heron number 7", sources=["vector"]).results
    memory.embed()
    assert memory.search("heron number 7").trace.warnings == ()


class Unwritable(HashingEmbedder):
    """Vectors of passages cannot be stored."""

    def passages(self, texts: Sequence[str]) -> Any:
        raise StoreError("read-only")


def test_half_embedded_store_that_cannot_be_written_counts_meaning_less(open_memory: OpenMemory) -> None:
    """Nothing can be embedded now: the vectors count for as much as the share of records that have one."""
    open_memory(embedder="none").add_many([{"text": f"heron number {n}"} for n in range(100)])
    memory = open_memory(embedder=Unwritable(64))
    index = memory.embeddings.serving().index
    some = index.missing(20)
    index.save(some, HashingEmbedder(64).passages(some))
    answer = memory.search("heron number 7")
    keyword, vector = answer.trace.sources
    assert (keyword.trust, vector.trust) == (pytest.approx(4 / 7), 0.2)  # of words among 100 records, and of vectors
    assert answer.results[0].record.text == "heron number 7"
    # With a deadline no search waits for the model, and the same holds.
    assert memory.search("heron number 7", budget_ms=60_000).trace.sources[1].trust == 0.2


class Interrupted(HashingEmbedder):
    """The user presses Ctrl-C while a passage is embedded."""

    def passages(self, texts: Sequence[str]) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("by", ["search", "embed"])
@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.add("The heron is grey."),
        lambda memory: memory.edit("boat", text="The heron is grey."),
        lambda memory: memory.supersede("boat", text="The heron is grey."),
        lambda memory: memory.undo("edited"),
    ],
    ids=["add", "edit", "supersede", "undo"],
)
def test_an_interrupted_change_gets_its_vector_later(
    open_memory: OpenMemory, change: Callable[[Memory], Any], by: str
) -> None:
    """A record is stored before it is embedded. The next search or `embed` computes the vector that is missing."""
    without_vectors = open_memory(embedder="none")
    without_vectors.add("The boat is blue.", id="boat")
    without_vectors.add("The heron is grey.", id="edited", user="ada")
    without_vectors.edit("edited", text="The heron is white.")
    with pytest.raises(KeyboardInterrupt):
        change(open_memory(embedder=Interrupted(64)))
    memory = open_memory()
    assert memory.status()["vectors"]["with"] == 0
    if by == "embed":
        memory.embed()
        assert memory.status()["vectors"]["without"] == 0
    (best,) = memory.search("The heron is grey.", sources=["vector"], user="ada", limit=1).results
    assert (best.record.text, round(best.similarity or 0, 6)) == ("The heron is grey.", 1.0)


@pytest.mark.parametrize(("embedded", "sources"), [(20, {"keyword"}), (60, {"keyword", "vector"})])
def test_few_vectors_do_not_count_in_full(open_memory: OpenMemory, embedded: int, sources: set[str]) -> None:
    """RRF reads no trust: while few records have a vector and a search has no time for more, words alone count."""
    open_memory(embedder="none").add_many([{"text": f"heron number {n}"} for n in range(100)])
    memory = open_memory()
    index = memory.embeddings.serving().index
    some = index.missing(embedded)
    index.save(some, HashingEmbedder(64).passages(some))
    answer = memory.search("heron number 7", fusion="rrf", budget_ms=60_000)
    assert {name for result in answer.results for name in result.shares} == sources


def test_search_of_a_store_that_cannot_be_written_computes_vectors_once(open_memory: OpenMemory, path: Path) -> None:
    class Counting(HashingEmbedder):
        computed = 0

        def passages(self, texts: Sequence[str]) -> Any:
            self.computed += len(texts)
            return super().passages(texts)

    embedder = Counting(64)
    with open_memory(embedder="none") as memory:
        memory.add_many([{"text": f"heron number {n}"} for n in range(5)])
    with open_memory(embedder=embedder) as memory:
        memory.search("heron")  # makes the space of its vectors
        computed = embedder.computed
    open_memory(embedder="none").add("another heron")
    with Memory(open_store(str(path), read_only=True), Settings(), embedder, announce=print) as memory:
        answers = [memory.search("heron") for _ in range(3)]
    assert embedder.computed == computed + 1
    assert all("none can be stored now" in answer.trace.warnings[0] for answer in answers)
