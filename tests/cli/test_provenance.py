"""Who wrote a record, on the command line: flags, output, and rolling back what a writer wrote."""

import json


def test_command_shows_who_wrote_a_record(run):
    """`add` stores it, `get`, `list` and `search` show it, and every command filters by it."""
    mine = run("add", "herons eat fish").out.strip()
    page = run("add", "herons eat frogs", "--origin", "web", "--author", "crawler").out.strip()
    assert "by user" in run("get", mine).out
    assert "by crawler (web)" in run("get", page).out
    assert [line.endswith("web") for line in run("list").out.splitlines()] == [True, False]
    assert "origin: web (crawler)" in run("search", "herons").out
    assert [found["id"] for found in run("search", "herons", "--origin", "web", "--json").json["results"]] == [page]
    assert [record["author"] for record in run("list", "--author", "crawler", "--json").json] == ["crawler"]
    assert run("list", "--origin", "elsewhere").code == 2


def test_recall_on_the_command_line_says_what_it_left_out(run):
    """The note is on standard error and names the way to include all."""
    run("add", "herons eat fish")
    run("add", "herons eat frogs", "--origin", "web")
    recalled = run("recall", "what do herons eat")
    assert "fish" in recalled.out
    assert "frogs" not in recalled.out
    assert "1 record was not searched because of the origin tool, web or import" in recalled.err
    assert "--origin any" in recalled.err
    both = run("recall", "what do herons eat", "--origin", "any")
    assert "frogs" in both.out
    assert ", origin web)" in both.out
    assert both.out.count("origin") == 1
    assert "origin" not in both.err


def test_command_does_not_overwrite_the_users_fact_with_words_of_a_page(run):
    """By --id, by a JSON line and by edit; the message names both origins, and the fact is as it was."""
    run("add", "the door code is 1234", "--id", "code")
    before = run("get", "code", "--json").json
    words = "the door code is 9999", "--origin", "web"
    line = json.dumps({"id": "code", "text": words[0], "origin": "web"})
    for refused in (run("add", *words, "--id", "code"), run("add", "-", stdin=line)):
        assert refused.code == 2
        assert "'code' has the origin user, so a record of the origin web cannot overwrite it" in refused.err
    assert "cannot edit it" in run("edit", "code", "--text", *words).err
    assert run("get", "code", "--json").json == before
    assert run("edit", "code", "--origin", "web").code == 0
    assert run("undo", "code").code == 0
    assert run("get", "code", "--json").json == before


def test_json_lines_may_name_the_writer(run):
    """A line without a writer is the user's."""
    lines = [{"text": "one", "origin": "tool", "author": "ls"}, {"text": "two"}]
    added = run("add", "-", "--json", stdin="\n".join(map(json.dumps, lines))).json
    assert [(record["origin"], record.get("author")) for record in added] == [("tool", "ls"), ("user", None)]


def test_command_rolls_back_a_writer(run):
    """Without --confirm it only shows what would happen; then one command brings the old answer back."""
    good = run("add", "the door code is 1234").out.strip()
    before = run("search", "door code", "--json").json["results"]
    false = [
        run("add", "the door code is 0000", "--origin", "agent", "--author", "bad", "--supersedes", good).out.strip()
    ]
    false += [run("add", f"house {n} has no door code", "--origin", "agent", "--author", "bad").out for n in range(12)]
    wanted = ("forget", "--origin", "agent", "--author", "bad", "--since", "1h")
    shown = run(*wanted)
    assert "13 facts would be forgotten:" in shown.out
    assert "… and 3 more" in shown.out
    assert "1 fact would be current again:" in shown.out
    assert "--confirm" in shown.err
    assert not run(*wanted, "--json").json["done"]
    done = run(*wanted, "--confirm", "--json").json
    assert (done["done"], len(done["forgotten"]), [record["id"] for record in done["restored"]]) == (True, 13, [good])
    assert run("search", "door code", "--json").json["results"] == before
    assert "no fact is of this writer and time" in run(*wanted, "--confirm").err
    assert run("undo", false[0]).code == 0
    assert run("get", false[0]).code == 0


def test_forget_needs_ids_or_a_writer(run):
    """Neither, or both, is an error, and nothing is changed."""
    key = run("add", "herons eat fish").out.strip()
    assert run("forget").code == 2
    both = run("forget", key, "--origin", "user", "--confirm")
    assert (both.code, "either by ID, or by --origin" in both.err) == (2, True)
    assert run("get", key).code == 0


def test_purge_says_what_still_holds_the_text(run):
    """A backup of before is not changed by it; a preview says nothing of the kind."""
    key = run("add", "herons eat fish").out.strip()
    run("add", "herons eat frogs", "--author", "bad")
    assert "still hold" not in run("forget", "--author", "bad", "--purge").err
    assert "still hold" in run("forget", "--author", "bad", "--purge", "--confirm").err
    purged = run("forget", key, "--purge")
    assert "purged 1 record" in purged.err
    assert "backups and exports that were made before still hold what was purged" in purged.err
