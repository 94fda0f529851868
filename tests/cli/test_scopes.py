"""Whoever finds nothing because the records belong to a scope is told so, on the command line of the owner."""

import pytest


def test_the_owner_learns_whose_records_were_not_searched(run):
    """With the number, the scopes and the flags, for search, recall and list; not as JSON, and not within a scope."""
    for number in range(7):
        run("add", f"Fact number {number}.", "--user", "me")
    note = "7 records belong to user=me: the same command with --user me looks there"
    for words in (("search", "fact"), ("recall", "fact"), ("list",)):
        assert note in run(*words).err
        assert note not in run(*words, "--user", "you").err
        assert "belong" not in run(*words, "--json").err
    run("add", "A fact of two.", "--user", "me", "--agent", "a b")
    assert "8 records belong to user=me, user=me agent=a b" in run("search", "fact").err
    run("add", "A global fact.")
    assert "belong" not in run("search", "global").err
    assert "belong" in run("search", "zebra").err


def test_the_owner_can_search_every_scope(run):
    """As `list` and the HTTP API do; a scope beside it is refused."""
    run("add", "A fact of mine.", "--user", "me", "--id", "mine")
    for words in (("search", "fact"), ("recall", "fact"), ("list",)):
        assert "mine" in run(*words, "--any-scope").out
        assert "exclude each other" in run(*words, "--any-scope", "--user", "me").err
    assert "found" in run("why-not", "fact", "mine", "--any-scope").out


def test_filters_count_for_the_note(run):
    """Only records that the same command with the scope can find are counted."""
    run("add", "A fact of mine.", "--user", "me", "--tag", "red")
    for words in (("list", "--kind", "turn"), ("search", "fact", "--tag", "blue"), ("recall", "fact tag:blue")):
        assert "belong" not in run(*words).err
    for words in (("list", "--kind", "fact"), ("search", "fact", "--tag", "red"), ("recall", "fact tag:red")):
        assert "1 record belongs to user=me" in run(*words).err


@pytest.mark.ci
def test_unlikely_results_do_not_hide_the_note(run):
    """A vector search always has results; the note is there when none of them seems to answer."""
    model = ("--embedder", "arctic-embed-s")
    run("add", "Ada likes jasmine tea in the morning.", "--user", "ada", *model)
    run("add", "The harbour ferry leaves at nine.", *model)
    found = run("search", "which tea does Ada like?", *model)
    assert "nothing here seems to answer this" in found.out
    assert "1 record belongs to user=ada" in found.err


def test_status_counts_what_its_scope_sees(run):
    """Records and vectors of the user and global ones; without a scope, those of everybody."""
    run("add", "A secret of mine.", "--user", "me")
    run("add", "A global fact.")
    for flags, total in (((), 2), (("--user", "me"), 2), (("--user", "bob"), 1)):
        state = run("status", *flags, "--json").json
        assert (state["records"]["total"], state["vectors"]["without"]) == (total, total)
        assert state["store"]


def test_an_empty_store_has_no_such_note(run):
    """Nothing is nothing."""
    assert "belong" not in run("search", "fact").err


def test_history_numbers_its_lines(run):
    """`undoes 3` names a line that can be seen."""
    key = run("add", "One.").out.strip()
    run("edit", key, "--title", "T")
    run("undo", key)
    lines = run("history", key).out.splitlines()
    assert lines[-1].endswith("undoes 2")
    assert lines[1].split()[0] == "2"
