import json
import sys

import pytest

from recollect.sample import NOTES


def test_life_of_a_fact(run):
    """Added, found, superseded and forgotten by commands."""
    assert run("add", "The spare key is under the blue pot.", "--id", "key", "--tag", "home").out == "key\n"
    found = run("search", "spare key", "--json")
    assert (found.code, [result["id"] for result in found.json["results"]]) == (0, ["key"])
    new = run("supersede", "key", "--text", "The spare key is with Anneke.").out.strip()
    assert [result["id"] for result in run("search", "spare key", "--json").json["results"]] == [new]
    assert run("get", "key", "--json").json["superseded_by"] == new
    actions = [event["action"] for event in run("history", "key", "--json").json]
    assert actions == ["add", "supersede"]
    assert run("forget", new).code == 0
    assert run("search", "spare key").code == 1


def test_supersede_joins_two_records_by_id(run):
    """`supersede OLD NEW`; a cycle is refused with exit code 2."""
    run("add", "Ada lives in Rome.", "--id", "old")
    run("add", "Ada lives in Lisbon.", "--id", "new")
    assert run("supersede", "old", "new").out == "new\n"
    refused = run("supersede", "new", "old", "--json")
    assert (refused.code, refused.error["code"]) == (2, "supersession_cycle")
    assert [row["id"] for row in run("list", "--json").json] == ["new"]
    assert {row["id"] for row in run("list", "--superseded", "--json").json} == {"new", "old"}


def test_undo_names_what_it_forgets(run):
    """The record that was made to supersede another one, or the record itself; each comes back by its own undo.

    The first does not come back beside the old one, which it contradicts: it supersedes it again.
    """
    run("add", "The key is under the pot.", "--id", "old")
    run("add", "The key is with Anneke.", "--id", "new one", "--supersedes", "old")
    assert "this forgot 'new one': `recollect undo 'new one'` brings it back" in run("undo", "old").err
    assert run("undo", "new one").err.strip() == "undone: forget"
    assert [row["id"] for row in run("list", "--json").json] == ["new one"]
    assert run("undo", "old", "--json").json["forgotten"] == ["new one"]
    assert "this forgot old" in run("undo", "old").err
    assert run("undo", "old", "--json").json["record"]["id"] == "old"


def test_json_lines_are_added_all_or_none(run):
    """An invalid line is named by its number, and nothing is stored."""
    good = json.dumps({"text": "Ada likes tea.", "scope": {"user": "ada"}, "tags": ["taste"], "category": "person"})
    refused = run("add", "-", "--json", stdin=f"{good}\nnot json\n")
    assert (refused.code, "line 2" in refused.error["message"]) == (2, True)
    assert run("list", "--any-scope").code == 1
    stored = run("add", "-", "--json", stdin=f"{good}\n\n{good}\n").json
    assert len({record["id"] for record in stored}) == 1
    assert run("search", "tea", "--user", "ada", "--json").json["results"][0]["tags"] == ["taste"]
    assert run("search", "tea").code == 1


@pytest.mark.parametrize("line", ['{"txt": "x"}', '["x"]', '{"text": 5}', '{"text": "x", "tags": "a"}', '{"text": ""}'])
def test_line_that_is_no_record_is_refused(run, line):
    """Wrong fields and types are usage errors, not a crash."""
    refused = run("add", "-", "--json", stdin=line)
    assert refused.code == 2
    assert refused.error["message"]


def test_search_filters_and_ranking_flags(run):
    """Every flag of `search` reaches the search."""
    run("add", "Tea with Ada", "--id", "a", "--category", "life", "--tag", "x", "--happened-at", "2020-01-01")
    run("add", "Tea with Bob", "--id", "b", "--category", "work", "--importance", "1")

    def ids(*flags):
        return [result["id"] for result in run("search", "tea", "--json", *flags).json["results"]]

    assert ids() == ["b", "a"]
    assert ids("--category", "life") == ids("--tag", "x") == ids("--until", "2021-01-01") == ["a"]
    assert ids("--since", "1y") == ["b"]
    assert ids("--as-of", "2020-06-01") == ["a"]
    assert ids("--limit", "1") == ["b"]
    explained = run("search", "tea", "--explain", "--json").json["results"][0]
    assert explained["factors"] == {"importance": 1.1}
    answer = run("search", "tea", "--fusion", "weighted", "--normalisation", "minmax", "--json").json
    assert answer["fusion"]["method"] == "weighted"
    assert (
        run("search", "tea", "--fusion", "rrf", "--rrf-k", "10", "--fetch-k", "5", "--json").json["fusion"]["k"] == 10
    )
    assert run("search", "tea", "--text-weight", "0", "--sources", "keyword").code == 1


def test_decay_flag_takes_on_off_or_a_half_life(run):
    """`--decay 30d` applies to records without a class; `off` to none."""
    run("add", "Tea", "--happened-at", "2020-01-01")
    run("add", "Tea in the session", "--decay", "session", "--happened-at", "2020-01-01")
    whole = run("search", "tea", "--fusion", "rrf", "--decay", "off", "--json").json["results"]
    assert min(result["score"] for result in whole) > 0.9
    faded = run("search", "tea", "--fusion", "rrf", "--decay", "30d", "--json").json["results"]
    assert max(result["score"] for result in faded) < 0.1


def test_without_a_model_the_answer_is_keyword_only(run):
    """The mode and the reason are in the trace, and on the terminal."""
    run("add", "Tea")
    answer = run("search", "tea", "--json").json
    assert answer["trace"]["mode"] == "keyword-only"
    assert {source["name"]: source["status"] for source in answer["trace"]["sources"]} == {
        "keyword": "ok",
        "vector": "skipped",
    }
    assert "keyword-only" in run("search", "tea").err


def test_folder_is_indexed_and_updated(run, home):
    """A second run reads nothing; edited, new and deleted files are handled."""
    notes = home / "notes"
    notes.mkdir()
    for name in ("one", "two"):
        (notes / f"{name}.md").write_text(f"# {name}\n\nAbout {name} and nothing else.\n")
    first = run("index", notes, "--json").json
    assert (len(first["added"]), first["unchanged"]) == (2, 0)
    assert run("index", notes, "--json").json["unchanged"] == 2
    (notes / "one.md").write_text("# one\n\nNow about walruses.\n")
    (notes / "two.md").unlink()
    (notes / "three.md").write_text("# three\n\nA new one.\n")
    after = run("index", notes, "--json").json
    assert [len(after[key]) for key in ("added", "changed", "removed")] == [1, 1, 1]
    assert run("search", "walruses", "--json").json["results"][0]["path"] == str(notes / "one.md")
    assert run("search", "two").code == 1


def test_path_filter_is_relative_to_the_current_folder(run, home, monkeypatch):
    """`.`, `..` and what is below them; a name without them is the last part of any path."""
    for name in ("one", "two"):
        (home / name).mkdir()
        (home / name / "note.md").write_text(f"# Note\n\nThe heron of {name}.\n")
    run("index", home / "one", home / "two")
    monkeypatch.chdir(home / "one")
    paths = {".": 1, "./": 1, "./note.md": 1, "..": 2, "../two": 1, "../two/": 1, "two/": 1, "note.md": 2, "../gone": 0}
    for path, count in paths.items():
        assert len(run("search", "heron", "--path", path, "--json").json["results"]) == count, path
        assert len(run("list", "--path", path, "--json").json) == count, path


def test_index_needs_an_existing_path(run, home):
    """Nothing, or a missing path, is a usage error; a single file is accepted."""
    (home / "x.md").write_text("x")
    assert run("index").code == 2
    assert run("index", home / "nowhere").code == 2


def test_status_counts_the_store(run):
    """Counts, lag and sizes of the sample notes."""
    run("index", NOTES)
    state = run("status", "--json").json
    assert state["files"] == 32
    assert state["records"]["chunks"] == state["records"]["total"] > 32
    assert state["keyword_lag"] == 0
    assert "SQLite" in run("status").out


def test_text_output_shows_ranks_and_places(run, monkeypatch):
    """A result shows its title, score, ranks, file and lines."""
    run("index", NOTES)
    shown = run("search", "E4031", "--limit", "1")
    assert "keyword #1" in shown.out
    assert "connection-pool-postmortem.md:" in shown.out
    assert "1 result · keyword-only · blend" in shown.err


def test_common_flags_mean_the_same_before_and_after_the_command(run, home):
    """`--store` and `--user` may stand on either side."""
    other = home / "other.db"
    assert run("--store", other, "--user", "ada", "add", "Tea").code == 0
    assert run("search", "tea", "--store", other, "--user", "ada").code == 0
    assert run("search", "tea", "--store", other).code == 1
    assert run("search", "tea", "--user", "ada").code == 1


def test_get_with_a_scope_sees_only_that_scope(run):
    """An id of another scope is unknown to one who asks with a scope."""
    run("add", "Secret", "--id", "s", "--user", "ada")
    assert run("get", "s", "--user", "ada").code == 0
    assert run("get", "s", "--user", "bob").code == 2


@pytest.mark.ci
def test_demo_answers_and_names_the_next_command(run):
    """Its last line is the next command to type."""
    shown = run("demo", "--embedder", "arctic-embed-s")
    assert shown.code == 0
    assert "vector #1" in shown.out
    assert "keyword #1" in shown.out
    assert " index ~/notes" in shown.out
    figures = run("demo", "--json", "--embedder", "arctic-embed-s").json
    assert figures["notes"] == 32
    assert figures["right_at_1"]["fused"] >= max(figures["right_at_1"]["keyword"], figures["right_at_1"]["vector"]) - 1


def test_demo_names_a_command_that_runs(run, monkeypatch):
    """Started as a module and not on the path, the program is not its file `__main__.py`."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.argv", ["/lib/recollect/__main__.py"])
    assert f"  {sys.executable} -m recollect index ~/notes" in run("demo", "--embedder", "hashing:64").out


def test_wrong_settings_leave_config_show_running(run, home):
    """Errors of settings advise it: it lists the names with their defaults, and repeats the error."""
    (home / "wrong.toml").write_text("limit = 3\n")
    refused = run("search", "x", "--config", home / "wrong.toml")
    assert "`recollect config show` lists them all" in refused.err
    shown = run("config", "show", "--config", home / "wrong.toml")
    assert (shown.code, "search.limit" in shown.out, refused.err in shown.err) == (2, True, True)


def test_models_are_listed(run):
    """The default is marked, and each line says whether the model is installed."""
    rows = run("model", "list", "--json").json
    assert [row["name"] for row in rows if row["default"]] == ["small-embedder"]
    assert {"installed", "licence", "bytes"} <= rows[0].keys()
    unknown = run("model", "path", "nonsense", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "usage")


def test_scope_flags_apply_to_every_command(run):
    """With `--user bob`, Ada's record can be neither read, forgotten nor superseded."""
    run("add", "Secret", "--id", "s", "--user", "ada")
    for words in (["get", "s"], ["forget", "s"], ["history", "s"], ["supersede", "s", "--text", "x"]):
        assert run(*words, "--user", "bob").code == 2
    assert run("get", "s", "--user", "ada", "--json").json["text"] == "Secret"


def test_empty_scope_is_refused(run):
    """`--user "$UNSET"` must not store a global record."""
    assert run("add", "Secret", "--user", "").code == 2
    assert run("add", "-", stdin='{"text": "Secret", "scope": {"user": ""}}').code == 2
    assert run("list", "--any-scope").code == 1


def test_empty_store_is_refused(run):
    """A script whose variable is empty does not write to the user's own store."""
    assert run("add", "x", "--store", "").code == 2
    assert run("list").out == ""


def test_text_after_two_dashes_may_begin_with_a_dash(run):
    """As the message about an unknown option says."""
    run("add", "--", "-5 degrees on the balcony")
    assert "-5 degrees" in run("search", "--limit", "1", "--", "-5 degrees").out


def test_list_marks_what_is_superseded(run):
    """As a search does."""
    run("add", "Rent is 900 euro.", "--id", "rent")
    run("supersede", "rent", "--text", "Rent is 950 euro.")
    new, old = run("list", "--superseded").out.splitlines()
    assert (new.endswith("950 euro."), old.endswith("900 euro.  superseded")) == (True, True)


def test_list_says_how_many_more_there_are(run):
    """And how they are shown; the last page says nothing."""
    for text in ("one heron", "two herons", "three herons"):
        run("add", text)
    assert run("list", "--limit", "2").err == "1 more: --offset 2 shows the next ones\n"
    assert run("list", "--limit", "2", "--offset", "2").err == ""
    assert run("list", "--limit", "3").err == ""


def test_reading_creates_no_store(run, home):
    """A search in a missing store finds nothing, says so, and leaves no file."""
    answer = run("search", "tea", "--store", "typo.db")
    assert answer.code == 1
    assert "no store at typo.db" in answer.err
    assert run("status", "--store", home / "deep" / "typo.db", "--json").json["records"]["total"] == 0
    assert not (home / "typo.db").exists()
    assert not (home / "deep").exists()


def test_expiry_duration_counts_forward(run):
    """`--expires-at 2w` is in two weeks, not two weeks ago."""
    run("add", "Tea until then", "--expires-at", "2w", "--id", "t")
    assert run("search", "tea").code == 0
    assert run("get", "t", "--json").json["expires_at"] > run("get", "t", "--json").json["created_at"]


def test_expiry_in_words_lies_ahead(run):
    """Every weekday and every day of the year is the next one of its name."""
    for number, words in enumerate(("Monday", "Friday", "24 December", "1 January")):
        answer = run("add", f"Permit {number}", "--expires-at", words, "--json")
        assert answer.json["expires_at"] > answer.json["created_at"]
        assert answer.err == ""
    assert len(run("list", "--json").json) == 4


def test_expiry_in_the_past_is_noted(run):
    """On standard error, after `add`, `edit` and `add -`; an edit of another field does not repeat it."""
    for words in (
        ("add", "Permit", "--id", "p", "--expires-at", "yesterday"),
        ("edit", "p", "--expires-at", "2020-01-01", "--json"),
    ):
        assert "searches do not find p: the expiry 20" in run(*words).err
    assert run("edit", "p", "--text", "The permit").err == ""
    lines = "".join(f'{{"text": "Note {n}", "expires_at": "2020-01-01"}}\n' for n in range(2))
    assert "searches do not find 2 of the records" in run("add", "-", stdin=lines).err


def test_supersession_in_the_past_leaves_no_gap(run):
    """The new record dates from when it took over, so every day has an answer."""
    run("add", "Ada lives in Rome", "--id", "old", "--happened-at", "2020-01-01")
    run("supersede", "old", "--text", "Ada lives in Lisbon", "--at", "2022-01-01")

    def answer(day):
        return [result["text"] for result in run("search", "Ada lives", "--as-of", day, "--json").json["results"]]

    assert [answer(day) for day in ("2021-01-01", "2022-01-01", "2023-01-01")] == [
        ["Ada lives in Rome"],
        ["Ada lives in Lisbon"],
        ["Ada lives in Lisbon"],
    ]


def test_control_characters_do_not_reach_the_terminal(run):
    """A note with escape codes is shown without them, and stored with them."""
    run("add", "tea \x1b]0;owned\x07 \x1b[31mred", "--title", "t\x1b[2J", "--id", "x")
    for shown in (run("search", "tea"), run("get", "x"), run("list"), run("history", "x")):
        assert "\x1b" not in shown.out
        assert "\x07" not in shown.out
    assert "\x1b[31m" in run("get", "x", "--json").json["text"]


def test_invalid_record_of_many_is_named_by_its_number(run):
    """With the note that nothing was stored."""
    refused = run("add", "-", "--json", stdin='{"text": "good"}\n{"txt": "bad"}')
    assert "record 2" in refused.error["message"]
    assert "nothing was stored" in refused.error["hint"]


def test_json_line_can_supersede(run):
    """It may name the record that it supersedes."""
    run("add", "Ada lives in Rome", "--id", "old")
    run("add", "-", stdin='{"text": "Ada lives in Lisbon", "id": "new", "supersedes": "old"}')
    assert [result["id"] for result in run("search", "Ada", "--json").json["results"]] == ["new"]


def test_missing_vectors_are_counted(run):
    """Before `embed`, every record is one without a vector."""
    run("add", "tea")
    assert run("status", "--json").json["vectors"]["without"] == 1


def test_without_a_command_the_help_is_shown(run):
    """`recollect`, `recollect model` and `recollect config`."""
    for words in ([], ["model"], ["config"]):
        shown = run(*words)
        assert (shown.code, shown.err) == (0, "")
        assert "Usage: recollect" in shown.out


def test_misspelt_variable_is_reported(run, monkeypatch):
    """A variable that looks like a setting and is none is named by `config show`."""
    monkeypatch.setenv("RECOLLECT_SEARCH_FETCHK", "5")
    assert "RECOLLECT_SEARCH_FETCHK" in run("config", "show").err
    assert "RECOLLECT_STORE" not in run("config", "show").err
