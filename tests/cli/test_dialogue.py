"""`import-chat` and `conversation` on the command line."""

import json
from pathlib import Path

import pytest

from recollect.cli import main

FILES = Path(__file__).parents[1] / "ingest" / "chats" / "files"


@pytest.fixture
def run(tmp_path, capfd, monkeypatch):
    """Run a command on a store of its own: its exit code and what it printed."""
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "m.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")

    def call(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_import_search_and_read(run):
    """What was imported is found, with its speaker and its conversation, which can be read whole."""
    code, out, _ = run("import-chat", FILES)
    assert (code, out) == (0, "10 conversations; turns: 26 added, 2 unchanged\n")
    _, out, _ = run("search", "spare key of the boathouse", "--kind", "turn")
    assert "user, 2025-10-09, in the conversation 7c0f1a52-8a31-4c0e-9b39-0d0a5a1f0001" in out
    _, out, _ = run("conversation", "7c0f1a52-8a31-4c0e-9b39-0d0a5a1f0001")
    assert out.startswith("The spare key\n")
    assert out.index("under the blue pot") < out.index("I moved it to the shed")
    assert run("conversation", "1")[1] == out  # the first result of the last search
    _, out, _ = run("conversation", "-n", "3")
    assert [line.split(".")[0] for line in out.splitlines()] == ["1", "2", "3"]
    key = out.splitlines()[1].split()[1]
    assert run("conversation", "2")[1] == run("conversation", key)[1]


def test_json_has_the_same(run):
    """Import, list and conversation."""
    _, out, _ = run("import-chat", FILES / "codex.jsonl", "--json")
    assert json.loads(out)["added"] == 2
    _, out, _ = run("conversation", "--json")
    (listed,) = json.loads(out)
    assert (listed["source"], listed["last"]) == ("codex", "2026-05-02T08:00:06+00:00")
    _, out, _ = run("conversation", listed["id"], "--json")
    assert [turn["speaker"] for turn in json.loads(out)["turns"]] == ["user", "assistant"]


def test_scope_flags_hold(run):
    """Turns of a user are found with that user only."""
    run("import-chat", FILES / "codex.jsonl", "--user", "ada")
    assert run("conversation")[0] == 1
    assert run("conversation", "--user", "ada")[0] == 0
    assert run("search", "water wheel", "--user", "ada")[0] == 0
    assert run("search", "water wheel")[0] == 1


def test_nothing_recognised_says_why(run, tmp_path):
    """Exit code 1, the file and the reason; a missing file is wrong usage."""
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}')
    code, out, err = run("import-chat", other)
    assert (code, out) == (1, "0 conversations; turns: 0 added, 0 unchanged\n")
    assert "no conversation in a known format" in err
    readme = tmp_path / "README.md"
    readme.write_text("# A page\n")
    code, out, err = run("import-memory", readme)
    assert (code, out) == (1, "facts: 0 added, 0 unchanged\n")
    assert "no memories in a known format" in err
    assert "were imported" not in err
    assert run("import-chat", tmp_path / "gone.json")[0] == 2
    code, _, err = run("conversation", "nothing")
    assert code == 2
    assert "there is no conversation 'nothing'" in err
