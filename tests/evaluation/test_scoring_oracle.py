from __future__ import annotations

import random
from math import log2

import pytest

from recollect.evaluation import evaluate
from recollect.evaluation.scoring import by_place
from recollect.types import Record, Result

pytestmark = pytest.mark.xdist_group("ranx")  # numba compiles it once, not in every worker

QRELS = {
    "graded": {"a": 3, "b": 2, "c": 1, "d": 0},
    "late": {"x": 1, "y": 1},
    "wrong": {"a": 1},
    "unanswered": {"a": 1},
}
RANKINGS = {
    "graded": ["b", "d", "a", "z", "c"],
    "late": [*(f"z{number}" for number in range(10)), "x"],
    "wrong": ["b", "c"],
}
RUN = {key: {doc: 1.0 / rank for rank, doc in enumerate(docs, 1)} for key, docs in RANKINGS.items()}


def test_ndcg_uses_the_grades():
    """nDCG@10 is the discounted sum over that of the ideal order, up to ten."""
    got = 2 / log2(2) + 0 / log2(3) + 3 / log2(4) + 1 / log2(6)
    best = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    values = evaluate(QRELS, RUN, ["nDCG@10"])["nDCG@10"]
    assert values == pytest.approx({"graded": got / best, "late": 0.0, "wrong": 0.0, "unanswered": 0.0})


def test_recall_counts_the_relevant_among_twenty():
    """R@20; a grade of 0 is not relevant."""
    values = evaluate(QRELS, RUN, ["R@20"])["R@20"]
    assert values == pytest.approx({"graded": 1.0, "late": 0.5, "wrong": 0.0, "unanswered": 0.0})


def test_reciprocal_rank_is_that_of_the_first_relevant_one():
    """RR@10, 0 beyond ten."""
    values = evaluate(QRELS, {**RUN, "wrong": {"b": 3.0, "c": 2.0, "a": 1.0}}, ["RR@10"])["RR@10"]
    assert values == pytest.approx({"graded": 1.0, "late": 0.0, "wrong": 1 / 3, "unanswered": 0.0})


def test_exactly_the_judged_questions_count():
    """One without results is a zero, and one without judgments is left out."""
    values = evaluate(QRELS, {**RUN, "unjudged": {"a": 1.0}}, ["nDCG@10", "R@20", "RR@10"])
    assert set(values) == {"nDCG@10", "R@20", "RR@10"}
    assert all(set(by_question) == set(QRELS) for by_question in values.values())
    assert all(by_question["unanswered"] == 0.0 for by_question in values.values())


def test_a_run_keeps_the_order_of_equal_scores():
    """A run has falling scores even if the results' own are equal."""
    results = tuple(Result(Record(key, "text"), 0.5, 0.5, {}) for key in ("m", "a", "z"))
    run = {"q": by_place(result.record.id for result in results)}
    assert run == {"q": {"m": 1.0, "a": 0.5, "z": pytest.approx(1 / 3)}}
    assert evaluate({"q": {"m": 1}}, run, ["RR@10"])["RR@10"] == {"q": 1.0}
    assert evaluate({"q": {"z": 1}}, run, ["RR@10"])["RR@10"] == {"q": pytest.approx(1 / 3)}


RUNS = 200
THEIR_NAMES = {
    "nDCG@10": "ndcg@10", "nDCG@3": "ndcg@3", "nDCG": "ndcg", "R@5": "recall@5", "R@20": "recall@20", "RR@10": "mrr@10",
    "RR": "mrr", "AP": "map", "P@1": "precision@1", "Success@5": "hit_rate@5",
}  # fmt: skip


def random_case(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Grades from 0 to 3, scores of which many are equal, questions without results, documents nobody judged."""
    rng = random.Random(seed)
    pool = [f"d{number}" for number in range(60)]
    qrels = {
        f"{seed}-{number}": {doc: rng.choice((0, 0, 1, 1, 2, 3)) for doc in rng.sample(pool, rng.randint(1, 25))}
        for number in range(8)
    }
    answered = [key for key in qrels if rng.random() < 0.85]
    return qrels, {
        key: {doc: rng.randint(0, 6) / 2 for doc in rng.sample(pool, rng.randint(1, 50))} for key in answered
    }


def as_read(scores: dict[str, float]) -> dict[str, float]:
    """The ranking as trec_eval reads it, equal scores by falling id, with scores that ranx cannot take for equal."""
    order = sorted(scores, key=lambda doc: (scores[doc], doc), reverse=True)
    return {doc: float(len(order) - place) for place, doc in enumerate(order)}


# Numba says so of a loop index of ranx's own when it first compiles it.
@pytest.mark.torture  # compiled for half a minute
@pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")
@pytest.mark.timeout(240)
def test_measures_equal_ranx():
    """On 200 random runs with ties, gaps and grades, to 1e-9 for every question."""
    import ranx

    cases = [random_case(seed) for seed in range(RUNS)]
    qrels = {key: grades for judged, _ in cases for key, grades in judged.items()}
    theirs = ranx.Run({key: as_read(scores) for _, run in cases for key, scores in run.items()})
    ranx.evaluate(ranx.Qrels(qrels), theirs, list(THEIR_NAMES.values()), make_comparable=True)
    for judged, run in cases:
        for measure, values in evaluate(judged, run, list(THEIR_NAMES)).items():
            expected = {key: float(theirs.scores[THEIR_NAMES[measure]][key]) for key in judged}
            assert values == pytest.approx(expected, abs=1e-9), measure


def test_equal_scores_are_ordered_like_trec_eval():
    """The greater id first, also in RR@10."""
    run = {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    values = evaluate({"q": {"a": 1}}, run, ["RR@10", "RR", "AP", "P@1", "nDCG@1"])
    assert {measure: of["q"] for measure, of in values.items()} == {
        "RR@10": pytest.approx(1 / 3), "RR": pytest.approx(1 / 3), "AP": pytest.approx(1 / 3), "P@1": 0, "nDCG@1": 0,
    }  # fmt: skip
    assert evaluate({"q": {"c": 1}}, run, ["RR@10"])["RR@10"] == {"q": 1.0}
