"""`recollect eval make-set`: the command, and the language model's questions."""

import json
import re

import pytest

from recollect.sample import NOTES


@pytest.fixture
def notes(run, monkeypatch):
    """A store of sample notes with vectors of the hashing embedder."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    assert run("index", NOTES / "home").code == 0


@pytest.fixture
def model(server, monkeypatch):
    """A language model that returns the same question about everything, unless a test changes it."""
    monkeypatch.setenv("RECOLLECT_LLM_BASE_URL", server.url)
    monkeypatch.setenv("RECOLLECT_LLM_MODEL", "stand-in")
    monkeypatch.setenv("RECOLLECT_LLM_RETRIES", "0")
    server.answer = lambda prompt: f"Which unfamiliar gadget number {abs(hash(prompt))} fixed everything?"
    return server


def questions(folder, kind):
    rows = [
        json.loads(line) for end in ("", "_dev") for line in (folder / f"queries{end}.jsonl").read_text().splitlines()
    ]
    return [row["text"] for row in rows if row["metadata"]["kind"] == kind]


def test_set_is_made_and_can_be_run(run, notes, home):
    """Table, counts and warnings; `eval run` measures the written set."""
    ran = run("eval", "make-set", "-o", "set", "-n", "30")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].split()[:2] == ["kind", "questions"]
    assert ran.out.splitlines()[-1].startswith("set: 30 questions (")
    assert "share most of their words" in ran.err
    assert {path.name for path in (home / "set").iterdir()} == {
        ".recollectignore", "README.md", "manifest.json", "qrels.tsv", "qrels_dev.tsv", "queries.jsonl",
        "queries_dev.jsonl",
    }  # fmt: skip
    measured = run("eval", "run", "set", "--json")
    assert measured.code == 0, measured.err
    assert measured.json["systems"]["default"]["measures"]["nDCG@10"]["mean"] > 0.8


def test_json_has_everything(run, notes):
    ran = run("eval", "make-set", "-o", "set", "--json")
    assert ran.code == 0
    said = ran.json
    assert sum(said["sides"].values()) == sum(said["kinds"].values()) == said["leakage"][-1]["questions"]
    assert any("can be made of this store, of 200 asked for" in warning for warning in said["warnings"])


def test_second_run_needs_update_or_force(run, notes, home):
    """A set may hold a person's edits; without its manifest, the folder may be something else."""
    assert run("eval", "make-set", "-o", "set", "-n", "20").code == 0
    refused = run("eval", "make-set", "-o", "set", "--json")
    assert (refused.code, refused.error["hint"].split()[0]) == (2, "--update")
    assert run("eval", "make-set", "-o", "set", "-n", "20", "--update").code == 0
    assert run("eval", "make-set", "-o", "set", "-n", "10", "--force").code == 0
    assert len((home / "set" / "queries.jsonl").read_text().splitlines()) < 11
    (home / "set" / "manifest.json").unlink()
    for flags in ((), ("--force",), ("--update",)):
        assert run("eval", "make-set", "-o", "set", *flags).code == 2
    (home / "file").write_text("")
    assert run("eval", "make-set", "-o", "file").code == 2


@pytest.mark.parametrize(
    "edit",
    [
        ("queries.jsonl", "{oops\n", "queries.jsonl: line 1 is not JSON"),
        ("queries.jsonl", '{"_id": "x"}\n', "line 1 has no"),
        ("queries.jsonl", '{"_id": "x", "text": "y"}\n' * 2, "two questions have the id 'x'"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\na\tb\tc\n", "qrels.tsv: line 2 has the grade"),
        ("manifest.json", "{", "manifest.json is not JSON"),
        ("manifest.json", "{}", "was not made by this version of make-set"),
    ],
)
def test_unreadable_edit_is_named(run, notes, home, edit):
    """With file and line, and nothing is changed."""
    name, text, words = edit
    run("eval", "make-set", "-o", "set", "-n", "20")
    (home / "set" / name).write_text(text)
    ran = run("eval", "make-set", "-o", "set", "--update", "--json")
    assert ran.code == 2
    assert words in ran.error["message"]


def test_empty_store_shows_what_to_do(run, home):
    ran = run("eval", "make-set", "-o", "set", "--json")
    assert ran.code == 2
    assert "recollect index" in ran.error["hint"]
    assert not (home / "set").exists()


def test_store_of_code_and_documents_gives_no_questions(run, home):
    """The hint says what questions come from."""
    (home / "src").mkdir()
    (home / "src" / "mail.eml").write_text("Subject: Rare gardens of Persia\n\nA walled orchard with quiet ponds.\n")
    (home / "src" / "a.py").write_text(
        "def f():\n    # a comment that says something about nothing at all\n    return 1\n"
    )
    run("index", home / "src")
    ran = run("eval", "make-set", "-o", "set", "--json")
    assert (ran.code, ran.error["message"]) == (2, "no question can be made of 2 records")
    assert ran.error["hint"] == "questions come from facts, and from Markdown and text files"


def test_scope_flags_apply(run, home):
    """Another user's facts are neither used nor counted."""
    run("add", "Ada keeps the spare key under the third flower pot.", "--user", "ada")
    run("add", "The spare key opens both the shed and the cellar.", "--user", "ada")
    run("add", "Bob hid the cellar key behind the third flower mosaic.", "--user", "bob")
    ran = run("eval", "make-set", "-o", "set", "--user", "ada", "--json")
    assert ran.json["kinds"] == {"fact": 2}
    written = "".join(path.read_text() for path in (home / "set").iterdir())
    assert "Bob" not in written
    assert "mosaic" not in written
    assert json.loads((home / "set" / "manifest.json").read_text())["scope"] == {"user": "ada"}


def test_language_model_writes_half_of_the_questions(run, notes, home, model):
    """The number of calls is shown before; the same set again costs none."""
    ran = run("eval", "make-set", "-o", "set", "-n", "16", "--llm")
    assert ran.code == 0, ran.err
    assert "at most 8 calls of stand-in, about " in ran.err
    assert len(model.asked) == 8
    assert len(questions(home / "set", "paraphrase")) == 8
    first = (home / "set" / "queries.jsonl").read_bytes()
    assert run("eval", "make-set", "-o", "set", "-n", "16", "--llm", "--force").code == 0
    assert len(model.asked) == 8
    assert (home / "set" / "queries.jsonl").read_bytes() == first


def copied(prompt: str) -> str:
    """A question made of the record's own words."""
    words = re.findall(r"[^\W\d_]{4,}", prompt.rpartition("<<<DATA ")[2].partition("<<<END ")[0].partition("\n")[2])
    return f"{' '.join(words[:14])}?"


def test_unsuitable_answers_are_left_out(run, notes, home, model, reply):
    """Two lines, no question, a copy, a repetition, nothing: each is counted, and others fill the set."""
    waiting = [copied]  # the first that is not scripted; which record that is depends on where the notes are
    model.answer = lambda prompt: waiting.pop()(prompt) if waiting else "Which strange gadget helped?"
    model.script = [reply("Two?\nLines?"), reply("No question."), reply("NONE"), reply("Why?"), reply("")]
    ran = run("eval", "make-set", "-o", "set", "-n", "18", "--llm", "--json")
    said = " ".join(ran.json["warnings"])
    reasons = (
        (2, "not one question"),
        (1, "nothing to ask"),
        (1, "no answer"),
        (1, "says too little"),
        (1, "copies its"),
    )
    for count, reason in reasons:
        assert f"{count} answers of the language model left out: {reason}" in said
    assert "asked already" in said
    assert questions(home / "set", "paraphrase") == ["Which strange gadget helped?"]
    assert sum(ran.json["kinds"].values()) == 18


def test_prompt_separates_the_note(run, notes, model):
    """The record is between marks, after rules that forbid copying."""
    run("eval", "make-set", "-o", "set", "-n", "2", "--llm")
    (asked,) = model.asked
    rules = asked.body["messages"][0]["content"]
    assert "Do not copy its words" in rules
    assert asked.prompt.count("<<<DATA ") == asked.prompt.count("<<<END ") == 1


def test_a_plan_sends_and_writes_nothing(run, notes, home, model):
    ran = run("eval", "make-set", "-o", "set", "-n", "16", "--llm", "--plan")
    assert ran.code == 0, ran.err
    assert "would be: 16 questions (8 paraphrase" in ran.out
    assert "8 calls of the language model, about" in ran.out
    assert "nothing was sent or written" in ran.out
    assert model.asked == []
    assert not (home / "set").exists()


def test_failing_language_model_ends_the_run(run, notes, home, model, reply):
    """After three failures in a row, and nothing is written; a single failure is only counted."""
    model.script = [reply(status=500)] * 3
    ran = run("eval", "make-set", "-o", "set", "-n", "16", "--llm", "--json")
    assert (ran.code, ran.error["code"], len(model.asked)) == (3, "llm", 3)
    assert not (home / "set").exists()
    model.script = [reply(status=500)]
    ran = run("eval", "make-set", "-o", "set", "-n", "16", "--llm", "--json")
    assert "1 answers of the language model left out: no answer" in ran.json["warnings"]
    assert ran.json["kinds"]["paraphrase"] == 7


def test_missing_language_model_is_reported_at_once(run, notes, server):
    ran = run("eval", "make-set", "-o", "set", "--llm", "--json")
    assert ran.code == 2
    assert "no language model is set up" in ran.error["message"]


def test_other_folders_are_not_written_and_a_set_is_not_indexed(run, notes, home):
    """A folder with other files is refused, and `index` ignores questions."""
    (home / "mine").mkdir()
    (home / "mine" / "note.md").write_text("# A note\n\nOf mine.\n")
    refused = run("eval", "make-set", "-o", "mine")
    assert refused.code == 2
    assert [path.name for path in (home / "mine").iterdir()] == ["note.md"]
    assert run("eval", "make-set", "-o", "set").code == 0
    indexed = run("index", "set", "--json").json
    assert indexed["added"] == []
