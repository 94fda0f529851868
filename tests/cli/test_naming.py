"""On the command line a record is named by a short id, or by its number in the last answer."""

import json
import stat

import pytest

from recollect.cli import answers


@pytest.fixture
def facts(run, home, monkeypatch):
    """Three facts; the state folder is the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    words = ("The red key opens the shed.", "The green key opens the gate.", "The blue key opens the attic.")
    return [run("add", text).out.strip() for text in words]


def test_search_prints_a_fact_once_with_its_short_id(run, facts):
    """The line with the text is the only one, and ends with the id that other commands take."""
    ran = run("search", "green gate")
    assert ran.out.count("The green key opens the gate.") == 1
    line = next(line for line in ran.out.splitlines() if "green" in line)
    assert line.endswith(facts[1][-8:])
    assert run("get", facts[1][-8:], "--json").json["id"] == facts[1]


def test_a_long_fact_is_printed_once(run, facts):
    """What does not fit on the first line stands below it only."""
    run("add", "The orange key " + "is heavy and " * 12 + "opens the cellar.")
    assert run("search", "orange cellar").out.count("The orange key") == 1


def test_a_number_is_a_result_of_the_last_answer(run, facts):
    """Of a search, and then of a list; every command takes it."""
    results = [result["id"] for result in run("search", "key", "--json").json["results"]]
    assert [run("get", number, "--json").json["id"] for number in "123"] == results
    listed = [record["id"] for record in run("list", "--json").json]
    assert run("get", "3", "--json").json["id"] == listed[2]
    assert run("edit", "1", "--title", "First", "--json").json["id"] == listed[0]
    assert run("why-not", "key", "2", "--json").json["record"]["id"] == listed[1]
    assert run("history", "3", "--json").json[0]["id"] == listed[2]
    assert run("supersede", "3", "--text", "new", "--json").code == 0
    assert run("forget", "2", "--json").json == {"forgotten": [listed[1]]}
    assert run("undo", "2", "--json").json["record"]["id"] == listed[1]


def test_a_record_with_the_number_as_its_id_comes_first(run, facts):
    """A real id wins, also when its record is forgotten."""
    run("add", "The second key.", "--id", "2")
    run("list")
    assert run("get", "2", "--json").json["text"] == "The second key."
    run("forget", "2")
    assert run("undo", "2", "--json").json["record"]["id"] == "2"


def test_numbers_do_not_cross_scopes_or_stores(run, facts, home):
    """Another scope and another store have last answers of their own."""
    run("search", "key")
    assert run("get", "1", "--user", "ada").code == 2
    assert "this scope has no last answer" in run("get", "1", "--user", "ada").err
    run("list", "--user", "ada", "--tag", "none")
    assert "related or conversation, and the last answer of this scope has 0" in run("get", "1", "--user", "ada").err
    run("add", "Mine.", "--store", str(home / "other.db"))
    assert run("get", "1", "--store", str(home / "other.db")).code == 2
    assert run("get", "1").code == 0


def test_a_number_without_a_result_says_what_numbers_mean(run, facts):
    """The error is that of an unknown record."""
    run("search", "key")
    error = run("get", "9", "--json").error
    assert (error["code"], "the last answer of this scope has 3" in error["hint"]) == ("unknown_record", True)


def test_purge_takes_no_numbers(run, facts):
    """What cannot be undone needs an id."""
    run("search", "key")
    assert run("forget", "1", "--purge").code == 2
    assert len(run("list", "--json").json) == 3
    assert run("forget", facts[0][-8:], "--purge").code == 0


def test_the_file_of_answers_holds_ids_only_and_is_private(run, facts, home):
    """A damaged file, and a folder that cannot be written, do no harm."""
    run("search", "key")
    (file,) = (home / "state" / "recollect" / "answers").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(json.loads(file.read_text())["{}"]) == sorted(facts)
    file.write_text('{"{}": ')
    assert run("get", "1").code == 2
    file.unlink()
    file.mkdir()
    assert run("search", "key").code == 0


def test_a_number_has_no_leading_zero_and_at_most_three_digits():
    """Everything else may be part of an id."""
    assert [answers.is_number(name) for name in ("1", "999", "1000", "07", "", "²", "a1")] == [True, True, *[False] * 5]
