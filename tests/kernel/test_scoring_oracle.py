from __future__ import annotations

from math import log2

import pytest

from recollect.evaluation import evaluate, rank_all
from recollect.types import Answer, Query, Record, Result

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


def test_ndcg_reads_the_grades():
    """nDCG@10 is the grades' discounted sum over that of the best possible order, and stops at ten."""
    got = 2 / log2(2) + 0 / log2(3) + 3 / log2(4) + 1 / log2(6)
    best = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    values = evaluate(QRELS, RUN, ["nDCG@10"])["nDCG@10"]
    assert values == pytest.approx({"graded": got / best, "late": 0.0, "wrong": 0.0, "unanswered": 0.0})


def test_recall_counts_the_relevant_among_twenty():
    """R@20 is the share of relevant documents found; a grade of 0 is not relevant."""
    values = evaluate(QRELS, RUN, ["R@20"])["R@20"]
    assert values == pytest.approx({"graded": 1.0, "late": 0.5, "wrong": 0.0, "unanswered": 0.0})


def test_reciprocal_rank_is_that_of_the_first_relevant_one():
    """RR@10 is one over the place of the first relevant document, 0 where that is beyond ten."""
    values = evaluate(QRELS, {**RUN, "wrong": {"b": 3.0, "c": 2.0, "a": 1.0}}, ["RR@10"])["RR@10"]
    assert values == pytest.approx({"graded": 1.0, "late": 0.0, "wrong": 1 / 3, "unanswered": 0.0})


def test_every_judged_question_counts_and_no_other():
    """A question without results is a zero in every measure, and one without judgments is left out."""
    values = evaluate(QRELS, {**RUN, "unjudged": {"a": 1.0}}, ["nDCG@10", "R@20", "RR@10"])
    assert set(values) == {"nDCG@10", "R@20", "RR@10"}
    assert all(set(by_question) == set(QRELS) for by_question in values.values())
    assert all(by_question["unanswered"] == 0.0 for by_question in values.values())


def test_no_results_at_all_are_zeros():
    """An engine that finds nothing is measured, not skipped."""
    assert evaluate(QRELS, {}, ["nDCG@10"]) == {"nDCG@10": dict.fromkeys(QRELS, 0.0)}


def test_rank_all_keeps_the_order_of_equal_scores():
    """A run made of answers has falling scores even where the results' own are equal, and is as deep as asked."""
    results = tuple(Result(Record(key, "text"), 0.5, 0.5, {}) for key in ("m", "a", "z"))

    def search(query: Query) -> Answer:
        return Answer(query, results[: query.limit])

    assert rank_all(search, {"q": "text"}, depth=2) == {"q": {"m": 1.0, "a": 0.5}}
    run = rank_all(search, {"q": "text"}, depth=3)
    assert evaluate({"q": {"m": 1}}, run, ["RR@10"])["RR@10"] == {"q": 1.0}
    assert evaluate({"q": {"z": 1}}, run, ["RR@10"])["RR@10"] == {"q": pytest.approx(1 / 3)}
