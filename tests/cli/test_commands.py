import json

import pytest

from recollect.sample import NOTES


def test_a_fact_is_added_found_superseded_and_forgotten(run):
    """The life of a fact, as a person types it."""
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


def test_one_supersedes_another_by_id(run):
    """`supersede OLD NEW` joins two records that are there, and a cycle is refused with exit 2."""
    run("add", "Ada lives in Rome.", "--id", "old")
    run("add", "Ada lives in Lisbon.", "--id", "new")
    assert run("supersede", "old", "new").out == "new\n"
    refused = run("supersede", "new", "old", "--json")
    assert (refused.code, refused.error["code"]) == (2, "supersession_cycle")
    assert [row["id"] for row in run("list", "--json").json] == ["new"]
    assert {row["id"] for row in run("list", "--superseded", "--json").json} == {"new", "old"}


def test_json_lines_are_added_all_or_none(run):
    """One bad line is named by its number, and nothing of the batch is stored."""
    good = json.dumps({"text": "Ada likes tea.", "scope": {"user": "ada"}, "tags": ["taste"], "category": "person"})
    refused = run("add", "-", "--json", stdin=f"{good}\nnot json\n")
    assert (refused.code, "line 2" in refused.error["message"]) == (2, True)
    assert run("list", "--any-scope").code == 1
    stored = run("add", "-", "--json", stdin=f"{good}\n\n{good}\n").json
    assert len({record["id"] for record in stored}) == 1
    assert run("search", "tea", "--user", "ada", "--json").json["results"][0]["tags"] == ["taste"]
    assert run("search", "tea").code == 1


@pytest.mark.parametrize("line", ['{"txt": "x"}', '["x"]', '{"text": 5}', '{"text": "x", "tags": "a"}', '{"text": ""}'])
def test_a_line_that_is_no_record_is_refused(run, line):
    """Wrong fields and wrong types are wrong use, not a crash."""
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
    assert run("search", "tea", "--rrf-k", "10", "--fetch-k", "5", "--json").json["fusion"]["k"] == 10
    assert run("search", "tea", "--text-weight", "0", "--sources", "keyword").code == 1


def test_decay_flag_takes_on_off_or_a_half_life(run):
    """`--decay 30d` lets a record without a class fade; `off` lets none."""
    run("add", "Tea", "--happened-at", "2020-01-01")
    run("add", "Tea in the session", "--decay", "session", "--happened-at", "2020-01-01")
    whole = run("search", "tea", "--decay", "off", "--json").json["results"]
    assert min(result["score"] for result in whole) > 0.9
    faded = run("search", "tea", "--decay", "30d", "--json").json["results"]
    assert max(result["score"] for result in faded) < 0.1


def test_without_a_model_the_answer_says_keyword_only(run):
    """The mode and the reason are in the trace, and on the terminal."""
    run("add", "Tea")
    answer = run("search", "tea", "--json").json
    assert answer["trace"]["mode"] == "keyword-only"
    assert {source["name"]: source["status"] for source in answer["trace"]["sources"]} == {
        "keyword": "ok",
        "vector": "skipped",
    }
    assert "keyword-only" in run("search", "tea").err


def test_a_folder_is_indexed_and_followed(run, home):
    """A second run reads nothing; an edited, a new and a deleted file are followed."""
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


def test_index_needs_a_folder(run, home):
    """A file, or nothing, is wrong use."""
    (home / "x.md").write_text("x")
    assert run("index", home / "x.md").code == 2
    assert run("index", home / "nowhere").code == 2


def test_status_counts_what_is_there(run):
    """Counts, index lag and sizes of the sample notes."""
    run("index", NOTES)
    state = run("status", "--json").json
    assert state["files"] == 32
    assert state["records"]["chunks"] == state["records"]["total"] > 32
    assert state["keyword_lag"] == 0
    assert "SQLite" in run("status").out


def test_human_output_shows_ranks_and_places(run, monkeypatch):
    """A result shows its title, score, ranks, file and lines."""
    run("index", NOTES)
    shown = run("search", "E4031", "--limit", "1")
    assert "keyword #1" in shown.out
    assert "connection-pool-postmortem.md:" in shown.out
    assert "1 result · keyword-only · rrf k=60" in shown.err


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


def test_demo_answers_and_says_what_to_try_next(run):
    """The first minute ends with the next command to type."""
    shown = run("demo", "--embedder", "arctic-embed-s")
    assert shown.code == 0
    assert "vector #1" in shown.out
    assert "keyword #1" in shown.out
    assert " index ~/notes" in shown.out
    figures = run("demo", "--json", "--embedder", "arctic-embed-s").json
    assert figures["notes"] == 32
    assert figures["right_at_1"]["fused"] >= max(figures["right_at_1"]["keyword"], figures["right_at_1"]["vector"]) - 1


def test_models_are_listed(run):
    """The default is marked, and each says whether it is here."""
    rows = run("model", "list", "--json").json
    assert [row["name"] for row in rows if row["default"]] == ["arctic-embed-s"]
    assert {"installed", "licence", "bytes"} <= rows[0].keys()
    unknown = run("model", "path", "nonsense", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "usage")


def test_a_scope_named_by_flags_bounds_every_command(run):
    """With `--user bob`, Ada's record can be neither read, forgotten nor superseded."""
    run("add", "Secret", "--id", "s", "--user", "ada")
    for words in (["get", "s"], ["forget", "s"], ["history", "s"], ["supersede", "s", "--text", "x"]):
        assert run(*words, "--user", "bob").code == 2
    assert run("get", "s", "--user", "ada", "--json").json["text"] == "Secret"


def test_an_empty_scope_is_refused_not_taken_as_global(run):
    """`--user "$UNSET"` must not store for everybody."""
    assert run("add", "Secret", "--user", "").code == 2
    assert run("add", "-", stdin='{"text": "Secret", "scope": {"user": ""}}').code == 2
    assert run("list", "--any-scope").code == 1
