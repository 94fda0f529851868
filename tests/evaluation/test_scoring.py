from __future__ import annotations

import sys

import pytest

from recollect.errors import UsageError
from recollect.evaluation.scoring import (
    by_place,
    calibration_error,
    deepest,
    evaluate,
    in_order,
    parse_measures,
    reliability,
    without_self,
)


def test_measures_are_parsed_in_usual_spellings():
    """With spaces, commas or one by one, under the library's other names, each once."""
    wanted = ("nDCG@10", "R@5", "R@20", "RR@10", "AP", "P@1", "Success@5")
    assert parse_measures("nDCG@10 R@5 R@20 RR@10 AP P@1 Success@5") == wanted
    assert parse_measures(["nDCG@10,R@5", "R@20, RR@10", "MAP", "P@1 Success@5", "MRR@10"]) == wanted
    assert parse_measures("P(rel=2)@5 nDCG@3") == ("P(rel=2)@5", "nDCG@3")
    assert deepest(wanted) == 20
    assert deepest(["AP"]) == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "no measure"),
        ("Fun@10", "'Fun@10'"),
        ("R", "needs a cutoff"),
        ("nDCG@0", "between 1 and"),
        ("R@x", "'R@x'"),
        ("nDCG(rel=2)@10", "no parameter 'rel'"),
    ],
)
def test_invalid_measure_is_named(words, reason):
    """With valid examples."""
    with pytest.raises(UsageError, match=reason) as caught:
        parse_measures(words)
    assert "nDCG@10" in caught.value.hint


def test_missing_library_names_the_extra(monkeypatch):
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(UsageError, match="ir_measures") as caught:
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, ["AP"])
    assert "recollect-search[eval]" in caught.value.hint


def test_questions_without_results_are_zeros_in_every_measure():
    """No results for one question, for all of them, or an empty list: all count as zero."""
    names = ["nDCG@10", "RR@10", "AP", "P@1", "Success@5", "R@5"]
    qrels = {"one": {"a": 1}, "two": {"b": 1}}
    for run in ({}, {"one": {}}, {"other": {"a": 1.0}}):
        assert evaluate(qrels, run, names) == {name: {"one": 0.0, "two": 0.0} for name in names}
    assert evaluate(qrels, {"two": {"b": 1.0}}, names) == {name: {"one": 0.0, "two": 1.0} for name in names}


def test_run_in_order_has_no_equal_scores():
    """The position decides; of equal scores the greater id is first, as in trec_eval."""
    assert in_order({"q": {"a": 2.0, "b": 2.0, "c": 3.0}}) == {"q": {"c": 1.0, "b": 0.5, "a": pytest.approx(1 / 3)}}
    assert by_place(["x", "y", "x"]) == {"x": 1.0, "y": 0.5}


def test_own_document_of_a_question_can_be_dropped():
    """Only that document, and only for that question."""
    run = {"q1": {"q1": 1.0, "q2": 0.5}, "q2": {"q1": 1.0}}
    assert without_self(run, {"q1": "q1", "q2": "q2"}) == {"q1": {"q2": 0.5}, "q2": {"q1": 1.0}}


def test_measure_that_fails_is_a_recollect_error():
    """The library divides by the number of irrelevant records; here there is none."""
    with pytest.raises(UsageError, match="Accuracy cannot be computed on these questions"):
        evaluate({"q": {"d": 1}}, {"q": {"d": 1.0}}, ["Accuracy"])


def test_calibration_error_is_the_distance_of_confidence_from_what_is_relevant():
    """Zero if seven of ten results given 0.7 are relevant; averaged over results where bins differ."""
    assert calibration_error([0.7] * 10, [True] * 7 + [False] * 3) == pytest.approx(0)
    assert calibration_error([0.7] * 10, [False] * 10) == pytest.approx(0.7)
    assert calibration_error([1.0, 0.0, 0.25, 0.25], [True, False, True, False]) == pytest.approx(0.125)
    assert reliability([1.0, 0.95, 0.2], [True, False, False]) == [(0.2, 0.0, 1), (0.975, 0.5, 2)]
    assert calibration_error([], []) == 0
