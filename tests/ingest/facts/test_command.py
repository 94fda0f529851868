"""`recollect ingest-files` on the command line."""

from __future__ import annotations

import json

import pytest

from recollect.cli import main

FACT = "The gateway listens on port 18789."


@pytest.fixture
def run(server, workspace, tmp_path, monkeypatch, capsys):
    """Runs the command in the workspace with the test's server: exit code, output, errors."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    monkeypatch.setenv("RECOLLECT_LLM_BASE_URL", server.url)
    monkeypatch.setenv("RECOLLECT_LLM_MODEL", "scripted")
    monkeypatch.setenv("RECOLLECT_LLM_RETRIES", "0")
    monkeypatch.chdir(workspace)
    (workspace / "AGENTS.md").write_text(f"# Net\n\n{FACT}\n")

    def call(*words):
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture(autouse=True)
def model(server, line):
    """A model that finds one fact and invents another."""
    server.answer = lambda _: f"{line(FACT)}\n{line('It is fast.', 'fast as lightning')}"


def test_counts_are_reported(run):
    """A run reports the outcome of the facts; the second, that nothing was sent."""
    code, out, _ = run("ingest-files")
    assert code == 0
    assert out.startswith("1 file, 1 chunk, 0 read before, 1 sent, 0 failed: ")
    assert out.endswith(": 1 add, 0 duplicate, 0 supersedes, 1 rejected, 0 malformed\n")
    assert "1 read before, 0 sent" in run("ingest-files")[1]
    assert [record["text"] for record in json.loads(run("list", "--json")[1])] == [FACT]


def test_plan_shows_the_quoted_span(run, tmp_path):
    """Each fact with its place and its words in the file; no store is created."""
    code, out, _ = run("ingest-files", "--plan")
    assert code == 0
    assert f"add         {FACT}\n            AGENTS.md:3-3  “{FACT}”" in out
    assert "rejected    It is fast." in out
    assert "no such span in the file's text" in out
    assert out.endswith("nothing was stored\n")
    assert not (tmp_path / "store.db").exists()


def test_dry_run_shows_what_would_be_sent(run, server, tmp_path):
    """Files, chunks and tokens; nothing is sent, and no store is created."""
    code, out, _ = run("ingest-files", "--dry-run")
    assert (code, server.asked) == (0, [])
    assert "AGENTS.md  1 chunk, 1 to send, about " in out
    assert "    lines 1-3\n" in out
    assert "nothing was sent" in out
    assert not (tmp_path / "store.db").exists()


def test_json_is_the_whole_report(run):
    """`--json` has every fact with its outcome, place and span."""
    code, out, _ = run("ingest-files", "--json")
    said = json.loads(out)
    assert (code, said["mode"], said["chunks"]["sent"]) == (0, "run", 1)
    assert said["counts"] == {"add": 1, "duplicate": 0, "supersedes": 0, "rejected": 1, "malformed": 0}
    added, rejected = said["facts"]
    assert (added["action"], added["text"], added["span"], added["lines"]) == ("add", FACT, FACT, [3, 3])
    assert (added["category"], added["tags"]) == ("technical", ["ingest"])
    assert (rejected["action"], "id" in rejected) == ("rejected", False)
    assert json.loads(run("get", added["id"], "--json")[1])["source"] == "ingest"


def test_failed_chunk_is_exit_3_with_the_counts(run, server, reply, workspace):
    """The chunk is named, and the rest is counted and stored."""
    (workspace / "TOOLS.md").write_text("Nothing of note.\n")
    server.script = [reply(status=500, body="broken")]
    code, out, err = run("ingest-files")
    assert code == 3
    assert "failed TOOLS.md:1-1" in err
    assert "answered 500: broken" in err
    assert "2 sent, 1 failed: 1 add" in out
    server.script = [reply(status=500, body="broken")]
    code, out, err = run("ingest-files", "--json")
    assert (code, json.loads(out)["failed"][0]["lines"]) == (3, [1, 1])
    said = json.loads(err.splitlines()[-1])["error"]
    assert (said["code"], said["message"].startswith("1 of 1 chunk failed")) == ("llm", True)


def test_unrequested_format_is_exit_3(run, server, workspace):
    """The file is named with the reason; a run with a valid answer ends with 0."""
    facts, server.answer = server.answer, lambda _: "Sorry, we are overloaded."
    for flags in ((), ("--plan",)):
        code, out, err = run("ingest-files", *flags)
        assert code == 3
        assert "1 sent, 1 failed" in out
        assert "failed AGENTS.md:1-3  the answer is not JSON lines: “Sorry, we are overloaded.”" in err
    server.answer = facts
    code, out, _ = run("ingest-files")
    assert (code, "0 read before, 1 sent, 0 failed: 1 add" in out) == (0, True)


def test_workspace_comes_from_flag_then_variable_then_current_folder(run, workspace, tmp_path, monkeypatch):
    """`--workspace`, OPENCLAW_WORKSPACE, the current folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "AGENTS.md").write_text(name)

    def chosen(*words):
        return json.loads(run("ingest-files", "--dry-run", "--json", *words)[1])["workspace"]

    assert chosen() == str(workspace)
    monkeypatch.setenv("OPENCLAW_WORKSPACE", str(tmp_path / "one"))
    assert chosen() == str(tmp_path / "one")
    assert chosen("--workspace", tmp_path / "two") == str(tmp_path / "two")


def test_paths_are_a_list_of_globs(run, workspace):
    """`--paths` takes globs separated by commas, instead of the setting."""
    (workspace / "docs").mkdir()
    for name in ("a.md", "b.md"):
        (workspace / "docs" / name).write_text(name)
    said = json.loads(run("ingest-files", "--dry-run", "--json", "--paths", "docs/b.md, docs/*.md")[1])
    assert [file["name"] for file in said["files"]] == ["docs/b.md", "docs/a.md"]


def test_nothing_to_read_is_exit_1(run, workspace):
    """With the folder that was searched."""
    (workspace / "AGENTS.md").unlink()
    code, out, _ = run("ingest-files")
    assert (code, out) == (1, f"no file to read in {workspace}\n")


def test_missing_language_model_names_the_setting(run, monkeypatch):
    """No key and no endpoint is exit code 2 with a hint; a dry run needs neither."""
    for name in ("RECOLLECT_LLM_BASE_URL", "RECOLLECT_LLM_MODEL"):
        monkeypatch.delenv(name)
    code, _, err = run("ingest-files", "--json")
    said = json.loads(err.splitlines()[-1])["error"]
    assert (code, "OPENAI_API_KEY" in said["hint"]) == (2, True)
    assert run("ingest-files", "--dry-run")[0] == 0


def test_key_comes_from_the_named_variable(run, server, monkeypatch):
    """`llm.api_key_env` names it; another service's key is not sent."""
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.setenv("MY_KEY", "for-mine")
    monkeypatch.setenv("RECOLLECT_LLM_API_KEY_ENV", "MY_KEY")
    run("ingest-files")
    assert server.asked[0].headers["authorization"] == "Bearer for-mine"


def test_dry_run_and_plan_exclude_each_other(run):
    """A usage error."""
    assert run("ingest-files", "--dry-run", "--plan")[0] == 2
