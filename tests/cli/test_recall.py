"""`recollect recall`: the block on standard output, messages on standard error."""

import re

import pytest

from recollect.models.catalogue import cache_root
from recollect.models.fetch import fetch

MODELS = cache_root()  # before a test changes the home


@pytest.fixture
def meaning(run, monkeypatch):
    """Commands use arctic-embed-s, of this machine's cache."""
    monkeypatch.setenv("RECOLLECT_MODELS", str(MODELS))
    fetch("arctic-embed-s", announce=lambda _: None)
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "arctic-embed-s")
    monkeypatch.setenv("RECOLLECT_SEARCH_RERANK", "false")


@pytest.fixture
def kept(run):
    return run("add", "The spare key is under the blue pot.", "--title", "Key", "--user", "ada", "--json").json


def test_block_is_printed(run, kept):
    """Fenced and cited, in the given scope."""
    ran = run("recall", "spare key", "--user", "ada")
    assert ran.code == 0
    assert ran.out.startswith("<recalled-memory ")
    assert f"[1] Key — The spare key is under the blue pot. (id {kept['short_id']}" in ran.out
    assert run("recall", "spare key", "--user", "bob").code == 1


def test_json_has_the_citations(run, kept):
    """The block, its size and its citations."""
    ran = run("recall", "spare key", "--user", "ada", "--json")
    assert ran.json["citations"] == [{"number": 1, "id": kept["id"], "title": "Key"}]
    assert ran.json["tokens"] <= 1500
    assert ran.json["left_out"] == 0


def test_block_is_never_made_of_files(run, kept):
    """A flag without effect is not offered: --by belongs to search."""
    refused = run("recall", "spare key", "--user", "ada", "--by", "file")
    assert refused.code == 2
    assert "--by" in refused.err


def test_nothing_found_is_exit_code_one(run, kept):
    """As for search; the block says so."""
    ran = run("recall", "zebra", "--user", "ada")
    assert ran.code == 1
    assert "Nothing in memory clearly answers this." in ran.out


@pytest.mark.ci
def test_unrelated_question_names_the_closest_record(run, meaning, kept):
    """Exit code 1 and no citation. The whole of a short record is there: the model can judge it."""
    run("add", "Anna prefers short meetings on Tuesday mornings.", "--user", "ada")
    ran = run("recall", "what do herons prefer to eat in winter near frozen lakes", "--user", "ada")
    assert ran.code == 1
    assert re.search(
        r"Nothing in memory clearly answers this\. The closest record has a confidence of 0\.\d\d "
        r"and may be unrelated: Anna prefers short meetings on Tuesday mornings\. \(id \w+, \d{4}-\d\d-\d\d\)",
        ran.out,
    )
    assert "[1]" not in ran.out
    found = run("recall", "what do herons prefer to eat in winter near frozen lakes", "--user", "ada", "--json").json
    assert found["closest"]["name"] == found["closest"]["snippet"] == "Anna prefers short meetings on Tuesday mornings."
    whole = run("recall", "herons prefer frozen lakes", "--user", "ada", "--min-confidence", "0")
    assert (whole.code, "[1] Anna prefers" in whole.out) == (0, True)


@pytest.mark.ci
def test_search_draws_a_line_above_unlikely_results(run, meaning):
    """One line between likely and other results, on top if none is likely, and none in JSON."""
    run("add", "The spare key of the boathouse is under the blue pot.")
    for text in ("Anna prefers blue.", "Bruno has a boat.", "The printer is blue."):
        run("add", text)
    found = run("search", "where is the spare key of the boathouse under the blue pot")
    above, line, below = found.out.partition("— below: probably unrelated —\n")
    assert line
    assert "The spare key of the boathouse" in above
    assert "The printer is blue." in below
    none = run("search", "what do blue herons eat in winter near frozen lakes")
    assert none.code == 0
    assert none.out.startswith("— nothing here seems to answer this —\n 1. ")
    answer = run("search", "where is the spare key of the boathouse", "--json").json
    assert 0 < answer["likely"] <= len(answer["results"])
    assert all(0 <= result["confidence"] <= 1 for result in answer["results"])
    empty = run("search", "what do blue herons eat", "--min-confidence", "1")
    assert (empty.code, empty.out) == (1, "")
    assert "closest: " in empty.err


def test_moved_result_says_why(run):
    """A newer fact stands before an older one that has a higher score."""
    run("add", "The dentist of the family is Doctor Okafor.")
    run("add", "The dentist of the family is Doctor Weiss now, in town.")
    shown = run("search", "who is the dentist of the family").out
    assert shown.splitlines()[0].endswith("↑ from 2: newer than a similar result")
    assert shown.index("Weiss") < shown.index("Okafor")


def test_budget_is_respected_and_omissions_are_counted(run):
    """--tokens limits the block; a note on standard error counts what is missing."""
    for number in range(8):
        run("add", f"spare key number {number} " + "is under a pot " * 30)
    ran = run("recall", "spare key", "--tokens", "300")
    assert ran.code == 0
    assert "did not fit" in ran.err
    assert len(ran.out) < 300 * 4


def test_search_flags_apply(run, kept):
    """A filter and a limit as in search."""
    assert run("recall", "spare key", "--user", "ada", "--kind", "chunk").code == 1
    assert run("recall", "spare key", "--user", "ada", "--limit", "0").code == 2


def test_budget_out_of_bounds_is_a_usage_error(run):
    """With the bounds in the message."""
    ran = run("recall", "key", "--tokens", "5", "--json")
    assert (ran.code, ran.error["code"]) == (2, "usage")
    assert "from 200" in ran.error["message"]
