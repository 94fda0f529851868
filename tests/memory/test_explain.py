"""`explain`: the shown parts of a score add up, under every fusion and after every stage."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import Settings
from recollect.errors import EmbedderError
from recollect.fusion import METHODS, NORMALISATIONS
from recollect.memory.shapes import answer_dict, moved
from recollect.models.hashing import HashingEmbedder
from recollect.types import Answer, Put, Record, Result, now

WORDS = ("heron", "lake", "reeds", "boat", "dawn", "mist", "ice", "oar", "the", "in", "by")
STAGES = (
    "turns", "files", "decay", "time", "importance", "threshold", "newer", "mmr", "limit", "scope", "superseded",
    "freshness",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """Random records with repeats, of all decay classes, importances and ages; some in the future."""
    chance = random.Random(5)
    records = [
        Record(
            f"r{i:03}",
            " ".join(chance.choices(WORDS, k=chance.randint(1, 7))),
            title=chance.choice(["", "", "heron"]),
            importance=chance.choice([0.5, 0.0, 0.3, 1.0]),
            decay=chance.choice([None, "permanent", "stable", "active", "session"]),
            created_at=now() - timedelta(days=chance.randint(-3, 60)),
        )
        for i in range(150)
    ]
    place = tmp_path_factory.mktemp("filled") / "m.db"
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.store.records.apply([[Put(record) for record in records]])
        memory.embed()
        yield memory


def adds_up(answer: Answer) -> None:
    """Every number of every result follows from those beside it."""
    for result in answer.results:
        assert result.shares
        assert result.fused == pytest.approx(math.fsum(share.contribution for share in result.shares.values()))
        assert 0 <= result.base <= 1
        assert result.total == pytest.approx(result.base * math.prod(result.factors.values()))
        assert result.score == min(1.0, max(0.0, result.total))
        assert result.score >= answer.query.ranking.min_score
        assert all(math.isfinite(value) for value in (result.fused, result.total, *result.factors.values()))


def in_order(answer: Answer) -> None:
    """By total, but for what MMR moved; and MMR tells from where to where."""
    totals = [result.total for result in answer.results]
    if not answer.query.ranking.mmr or answer.query.ranking.mmr_lambda == 1:
        assert totals == sorted(totals, reverse=True)
        assert not any("mmr" in result.moves for result in answer.results)
        return
    assert totals[:1] == [max(totals)] if totals else True
    old = [result.moves.get("mmr", (rank, rank))[0] for rank, result in enumerate(answer.results, 1)]
    assert len(set(old)) == len(old)
    for rank, result in enumerate(answer.results, 1):
        assert "mmr" not in result.moves or (result.moves["mmr"][1] == rank != result.moves["mmr"][0])
    by_relevance = [result.total for _, result in sorted(zip(old, answer.results, strict=True), key=lambda p: p[0])]
    assert by_relevance == sorted(by_relevance, reverse=True)


def chains(answer: Answer) -> None:
    """What one stage leaves the next is given; the first is given what was fused, the last leaves the results."""
    stages = answer.trace.stages
    assert tuple(stage.name for stage in stages if stage.name != "confidence") == STAGES
    for before, after in itertools.pairwise(stages):
        assert before.left == after.given
        assert after.left <= after.given
    assert stages[-1].left == len(answer.results) <= answer.query.limit
    hits = [source.hits for source in answer.trace.sources if source.status == "ok"]
    assert max(hits) <= stages[0].given <= sum(hits)
    assert all(part.took_ms >= 0 for part in (*stages, *answer.trace.sources))
    assert answer.trace.took_ms >= sum(stage.took_ms for stage in stages) - 0.01


weights = st.sampled_from([0.3, 1.0, 2.5])


@pytest.mark.ci
@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    text=st.lists(st.sampled_from([*WORDS, "stork"]), min_size=1, max_size=4).map(" ".join),
    fusion=st.sampled_from(sorted(METHODS)),
    normalisation=st.sampled_from(sorted(NORMALISATIONS)),
    options=st.fixed_dictionaries(
        {},
        optional={
            "limit": st.integers(1, 40),
            "fetch_k": st.integers(1, 60),
            "rrf_k": st.sampled_from([0.0, 1.0, 60.0, 1000.0]),
            "text_weight": weights,
            "vector_weight": weights,
            "decay": st.booleans(),
            "half_life_days": st.sampled_from([0.001, 7.0, 365.0]),
            "importance_weight": st.sampled_from([0.0, 0.1, 1.0]),
            "mmr": st.booleans(),
            "prefer_newer": st.just(False),  # it changes places, and is tested by itself
            "mmr_lambda": st.sampled_from([0.0, 0.3, 0.7, 1.0]),
            "min_score": st.sampled_from([0.0, 0.1, 0.5]),
            "sources": st.sampled_from([["keyword"], ["vector"], ["keyword", "vector"]]),
        },
    ),
)
def test_explained_parts_add_up(
    filled: Memory, text: str, fusion: str, normalisation: str, options: dict[str, Any]
) -> None:
    """`fused` is the sum of contributions, `total` the base times the factors, `score` that within 0 and 1."""
    said = {"prefer_newer": False, **options}
    answer = filled.search(text, fusion=fusion, normalisation=normalisation, **said)
    adds_up(answer)
    in_order(answer)
    chains(answer)
    event(f"{fusion}, {'nothing' if not answer.results else 'something'} found")
    as_json_shows(answer)


def as_json_shows(answer: Answer) -> None:
    """The same numbers, in the names of the answer's JSON."""
    said = json.loads(json.dumps(answer_dict(answer, explain=True)))
    assert len(said["results"]) == len(answer.results)
    for rank, (row, result) in enumerate(zip(said["results"], answer.results, strict=True), 1):
        assert row["rank"] == rank
        assert row["sources"] == {
            name: {"rank": share.rank, "score": share.score, "contribution": share.contribution}
            for name, share in result.shares.items()
        }
        assert row["fused"] == pytest.approx(sum(source["contribution"] for source in row["sources"].values()))
        assert row["total"] == pytest.approx(row["base"] * math.prod(row["factors"].values()))
        assert row["score"] == min(1.0, max(0.0, row["total"]))
        assert row["moves"] == {name: {"from": old, "to": new} for name, (old, new) in result.moves.items()}
        assert row["in_keyword"] == ("keyword" in row["sources"])
        assert row["in_semantic"] == ("vector" in row["sources"])
    assert said["trace"]["stages"] == [
        {"name": stage.name, "in": stage.given, "out": stage.left, "took_ms": stage.took_ms}
        for stage in answer.trace.stages
    ]


def test_decay_importance_and_mmr_are_explained(filled: Memory) -> None:
    """Factors of both kinds and moves are in the JSON by name."""
    options: dict[str, Any] = {"half_life_days": 30.0, "importance_weight": 0.5, "mmr": True, "mmr_lambda": 0.3}
    answer = filled.search("heron lake", limit=30, prefer_newer=False, **options)
    rows = answer_dict(answer, explain=True)["results"]
    assert {name for row in rows for name in row["factors"]} == {"decay", "importance"}
    assert any(len(row["factors"]) == 2 for row in rows)
    assert {name for row in rows for name in row["moves"]} == {"decay", "importance", "mmr"}
    assert all(row["moves"]["mmr"]["to"] == row["rank"] for row in rows if "mmr" in row["moves"])
    raised = [row for row in rows if row["factors"].get("importance", 1) > 1 and "important" in row.get("moved", "")]
    assert raised
    assert all(row["moved"].startswith("↑ from ") for row in raised)


MOVES = {
    "↑ from 4: newer than a similar result": (1, {}, {"newer": (4, 1)}),
    "↑ from 7: reranked, newer than a similar result": (1, {"rerank": 1.2}, {"rerank": (7, 2), "newer": (2, 1)}),
    "↑ from 3: further passages of its file match": (2, {"files": 1.2}, {"files": (3, 2)}),
    "↓ from 2: its file opens with something else": (3, {"files": 0.8}, {"files": (2, 3)}),
    "↑ from 3: it is of the time that the query names": (1, {"time": 1.5}, {"time": (3, 1)}),
    "↑ from 4: it is near the time that the query names": (1, {"time": 1.2}, {"time": (4, 1)}),
    "↑ from 5: different from the results above": (2, {}, {"mmr": (5, 2)}),
    "↓ from 1: it is old": (3, {"decay": 0.2}, {"decay": (1, 3)}),
    "↓ from 1: it is less important": (2, {"importance": 0.9}, {"importance": (1, 2)}),
    "↑ from 3: it is important": (2, {"importance": 1.1, "rerank": 0.9}, {"importance": (3, 1), "rerank": (1, 2)}),
}


@pytest.mark.parametrize("words", MOVES)
def test_moves_in_words(words: str) -> None:
    """The first rank, and the stages that moved the result in the direction in which it ended up."""
    rank, factors, moves = MOVES[words]
    assert moved(rank, Result(Record("a", "text"), 0.5, 0.5, {}, factors=factors, moves=moves)) == words


@pytest.mark.parametrize(
    ("rank", "factors", "moves"),
    [
        (1, {}, {}),
        (2, {}, {"newer": (1, 2)}),
        (1, {}, {"decay": (2, 1)}),
        (1, {"importance": 0.9}, {"importance": (2, 1)}),
        (1, {"files": 0.9}, {"files": (2, 1)}),
        (2, {"rerank": 0.9}, {"rerank": (2, 1), "newer": (1, 2)}),
    ],
)
def test_making_way_is_not_mentioned(rank: int, factors: dict[str, float], moves: dict[str, tuple[int, int]]) -> None:
    """A result that moved only because another did has no words."""
    assert moved(rank, Result(Record("a", "text"), 0.5, 0.5, {}, factors=factors, moves=moves)) == ""


def test_explanation_is_left_out_unless_requested(filled: Memory) -> None:
    """Sources, scores and trace are always there; base, factors, moves and total with `explain` only."""
    answer = filled.search("heron lake", mmr=True)
    plain, explained = (answer_dict(answer, explain=explain) for explain in (False, True))
    extra = {"base", "factors", "moves", "total"}
    for row, whole in zip(plain["results"], explained["results"], strict=True):
        assert not extra & row.keys()
        assert whole.keys() == row.keys() | extra
        assert {name: whole[name] for name in row} == row
    assert plain["trace"] == explained["trace"]


def test_stages_count_what_each_removes(filled: Memory) -> None:
    """Threshold and limit, and `filtered` agrees."""
    whole = filled.search("heron lake", limit=200, fetch_k=200, prefer_newer=False)
    scores = sorted((result.score for result in whole.results), reverse=True)
    least = scores[20]
    answer = filled.search("heron lake", limit=5, fetch_k=200, min_score=least, prefer_newer=False)
    counts = {stage.name: (stage.given, stage.left) for stage in answer.trace.stages}
    kept = sum(score >= least for score in scores)
    assert counts["threshold"] == (len(scores), pytest.approx(kept, abs=1))  # the clock runs, and a score decays
    assert counts["limit"] == (counts["threshold"][1], 5)
    assert answer.trace.filtered["threshold"] == counts["threshold"][0] - counts["threshold"][1]
    assert all(counts[name][0] == counts[name][1] for name in ("scope", "superseded", "decay", "importance"))


def test_empty_answer_has_all_stages(open_memory: Callable[..., Memory]) -> None:
    """With counts of zero."""
    answer = open_memory().search("heron")
    chains(answer)
    assert {(stage.given, stage.left) for stage in answer.trace.stages} == {(0, 0)}
    assert answer_dict(answer, explain=True)["results"] == []


def test_failed_source_contributes_nothing_and_is_reported(open_memory: Callable[..., Memory]) -> None:
    """The rest adds up without it, to a score of at most 1."""

    class Broken(HashingEmbedder):
        broken = False

        def query(self, text: str) -> Any:
            if self.broken:
                raise EmbedderError("the model is on fire")
            return super().query(text)

    embedder = Broken(64)
    memory = open_memory(embedder=embedder)
    memory.add("heron lake")
    memory.add("heron reeds dawn", importance=1.0)
    embedder.broken = True
    answer = memory.search("heron lake")
    adds_up(answer)
    assert [list(result.shares) for result in answer.results] == [["keyword"]] * 2
    assert answer.results[0].score == 1.0
    said = answer_dict(answer, explain=True)["trace"]["sources"]
    assert [(source["name"], source["status"], source["hits"]) for source in said] == [
        ("keyword", "ok", 2),
        ("vector", "failed", 0),
    ]
    assert said[1]["reason"] == "the model is on fire"


def test_freshness_is_marked_by_the_last_stage(open_memory: Callable[..., Memory], tmp_path: Any) -> None:
    """It removes nothing, and is in the JSON."""
    (tmp_path / "x.md").write_text("A heron by the lake.\n")
    memory = open_memory()
    memory.index(tmp_path / "x.md")
    (row,) = answer_dict(memory.search("heron"), explain=True)["results"]
    assert row["freshness"] == "fresh"
    (tmp_path / "x.md").write_text("A stork.\n")
    answer = memory.search("heron")
    assert answer.results[0].freshness == "changed"
    assert (answer.trace.stages[-1].name, answer.trace.stages[-1].left) == ("freshness", 1)
