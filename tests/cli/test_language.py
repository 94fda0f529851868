"""The language of a store is set when it is created, and changed by one command only."""

import pytest

from recollect.config import user_file


@pytest.fixture
def german():
    """The user's settings name German."""
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text('language = "german"\n')


def found(run, query):
    return [one["id"] for one in run("search", query, "--json").json["results"]]


def test_changed_setting_is_reported_and_the_store_keeps_its_language(run, home, request):
    """One line on standard error; the explicit command changes it."""
    run("add", "Die Häuser am See", "--id", "houses")
    request.getfixturevalue("german")
    for words in (["status"], ["search", "Haus"], ["list"], ["add", "x", "--id", "x"]):
        told = run(*words)
        assert told.err.count("the store keeps its own, english; `recollect language german` changes it") == 1
        assert "keeps its own" not in told.out
    assert run("status", "--json").json["language"] == "english"
    assert found(run, "Haus") == []
    changed = run("language", "german", "--json")
    assert changed.json == {"language": "german", "before": "english"}
    assert found(run, "Haus") == ["houses"]
    assert "keeps its own" not in run("status").err
    assert run("language").out == "german\n"


def test_unknown_language_is_refused_at_once(run, home):
    """Nothing is said to be rebuilt, and no store is made."""
    refused = run("language", "klingon")
    assert (refused.code, "rebuilding" in refused.err) == (2, False)
    assert "klingon" in refused.err
    assert not (home / "store.db").exists()


def test_new_store_uses_the_language_of_the_settings(run, home, german):
    """The setting counts when a store is made."""
    run("add", "Die Häuser am See", "--id", "houses")
    assert run("language", "--json").json == {"language": "german"}
    assert found(run, "Haus") == ["houses"]


def test_showing_the_language_creates_no_store(run, home):
    """It only reads."""
    assert run("language").out == "english\n"
    assert not (home / "store.db").exists()


def test_unknown_language_is_refused_and_changes_nothing(run):
    """By name, with the known ones."""
    run("add", "the keys", "--id", "keys")
    refused = run("language", "klingon", "--json")
    assert (refused.code, refused.error["code"]) == (2, "usage")
    assert "klingon" in refused.error["message"]
    assert "german" in refused.error["message"]
    assert run("language").out == "english\n"
    assert found(run, "key") == ["keys"]
