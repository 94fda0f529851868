"""`recollect recall`: the block on standard output, messages on standard error."""

import pytest


@pytest.fixture
def kept(run):
    return run("add", "The spare key is under the blue pot.", "--title", "Key", "--user", "ada", "--json").json


def test_block_is_printed(run, kept):
    """Fenced and cited, in the given scope."""
    ran = run("recall", "spare key", "--user", "ada")
    assert ran.code == 0
    assert ran.out.startswith("<recalled-memory ")
    assert f"[1] Key — The spare key is under the blue pot. (id {kept['id']}" in ran.out
    assert run("recall", "spare key", "--user", "bob").code == 1


def test_json_has_the_citations(run, kept):
    """The block, its size and its citations."""
    ran = run("recall", "spare key", "--user", "ada", "--json")
    assert ran.json["citations"] == [{"number": 1, "id": kept["id"], "title": "Key"}]
    assert ran.json["tokens"] <= 1500
    assert ran.json["left_out"] == 0


def test_nothing_found_is_exit_code_one(run, kept):
    """As for search; the block says so."""
    ran = run("recall", "zebra", "--user", "ada")
    assert ran.code == 1
    assert "Nothing in memory answers this." in ran.out


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
    """With the bounds in the hint."""
    ran = run("recall", "key", "--tokens", "5", "--json")
    assert (ran.code, ran.error["code"]) == (2, "usage")
    assert "from 200" in ran.error["hint"]
