"""`recollect hook`: hooks installed in the programs' settings, and sessions stored without delaying anybody."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from support import ROOT

from recollect import Memory
from recollect.cli import capture
from recollect.config import Settings
from recollect.integrations.hooks import PROGRAMS

FILES = ROOT / "tests" / "ingest" / "chats" / "files"
TRANSCRIPTS = {"claude-code": "claude-code.jsonl", "codex": "codex.jsonl", "gemini": "gemini.json"}
PLACES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}


def settings_of(home, program):
    return Path(home.environment["HOME"]) / PLACES[program]


def turns(home, **scope):
    """The texts that the store of a home has as turns."""
    with Memory.open(home.store, embedder="none", settings=Settings()) as memory:
        return [record.text for record in memory.list(kind="turn", limit=100, **scope)]


def eventually(holds):
    """Wait for what another process does."""
    end = time.monotonic() + 60
    while not (value := holds()) and time.monotonic() < end:
        time.sleep(0.2)
    return value


def log(home):
    place = home.folder / "xdg_cache_home" / "recollect" / "captured" / "capture.log"
    return place.read_text() if place.exists() else ""


@pytest.mark.ci
@pytest.mark.parametrize("program", TRANSCRIPTS)
def test_installed_command_stores_the_session(home, program):
    """Run as it stands in the program's settings, for the user whom the installation named."""
    assert home.shell(f"recollect hook install {program} --capture --user ada").code == 0
    hooks = json.loads(settings_of(home, program).read_text())["hooks"]
    assert hooks.keys() == {*PROGRAMS[program].recall, *PROGRAMS[program].capture}
    event = PROGRAMS[program].capture[0]
    (run,) = hooks[event][0]["hooks"]
    path = str(FILES / TRANSCRIPTS[program])
    said = {"session_id": "s", "transcript_path": path, "hook_event_name": event, "stop_hook_active": False}
    assert home.shell(run["command"], json.dumps(said)).silent
    assert len(eventually(lambda: home.store.exists() and turns(home, user="ada"))) >= 2
    assert turns(home) == []


@pytest.mark.ci
def test_only_new_turns_are_stored(home):
    """A transcript that has grown since the last hook."""
    transcript = home.folder / "session.jsonl"
    lines = (FILES / "claude-code.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    transcript.write_text("".join(lines[:7]), encoding="utf-8")
    assert home.shell(f"recollect hook capture --transcript {transcript}").out == "turns: 2 added, 0 updated; 0 facts\n"
    transcript.write_text("".join(lines) + '{"type": "assis', encoding="utf-8")
    assert home.shell(f"recollect hook capture --transcript {transcript}").out == "turns: 2 added, 0 updated; 0 facts\n"
    assert len(turns(home)) == 4
    assert "a line that is not JSON (1)" in log(home)


@pytest.mark.ci
def test_wrong_input_is_ignored(home):
    """Exit code 0 and no output; no store is made."""
    for said in ("", "x", "[]", "{}", '{"transcript_path": null}', '{"transcript_path": "/nowhere/x.jsonl"}', b"\xff"):
        assert home.shell("recollect hook capture", said).silent, said
    assert not home.store.exists()


@pytest.mark.ci
def test_failure_is_a_line_in_the_log(home):
    """A broken store does not reach the program."""
    home.store.write_text("this is no store " * 100)
    said = json.dumps({"transcript_path": str(FILES / "codex.jsonl"), "hook_event_name": "Stop"})
    assert home.shell("recollect hook capture", said).silent
    assert "codex.jsonl" in eventually(lambda: log(home))


@pytest.mark.ci
def test_captured_session_is_recalled_in_another(home, submit):
    """What was said in one session is found from the next."""
    home.shell(f"recollect hook capture --transcript {FILES / 'claude-code.jsonl'}")
    context = submit(home, "which Postgres do the tests need?", session="later").context
    assert "Postgres 18" in context


@pytest.fixture
def program(tmp_path, monkeypatch, capfd):
    """Install and uninstall in a home of its own: the exit code, and the settings as they are then."""
    from recollect.cli import main

    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words):
        code = main(["hook", *words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_other_settings_stay(program, tmp_path):
    """Hooks of others, and everything else; a second installation replaces the first, and uninstall removes it."""
    place = tmp_path / PLACES["claude-code"]
    place.parent.mkdir()
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo recollect"}]}
    before = {"model": "opus", "hooks": {"Stop": [other], "PreToolUse": [other]}}
    place.write_text(json.dumps(before))
    assert program("install", "claude-code", "--capture", "--no-facts")[0] == 0
    settings = json.loads(place.read_text())
    assert settings["model"] == "opus"
    assert settings["hooks"]["Stop"][0] == other
    assert "hook capture --no-facts" in settings["hooks"]["Stop"][1]["hooks"][0]["command"]
    assert program("install", "claude-code", "--user", "ada")[0] == 0
    settings = json.loads(place.read_text())
    assert settings["hooks"]["Stop"] == [other]
    assert "recall --hook --user=ada" in settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
    assert program("uninstall", "claude-code")[0] == 0
    assert json.loads(place.read_text()) == before


def test_enabled_plugin_is_named(program, tmp_path):
    """It recalls, too. The settings are those that `claude plugin install` of version 2.1 writes."""
    place = tmp_path / PLACES["claude-code"]
    place.parent.mkdir()
    for enabled, words, named in ((True, (), True), (True, ("--capture", "--no-recall"), False), (False, (), False)):
        place.write_text(json.dumps({"enabledPlugins": {"recollect@recollect": enabled}}))
        code, _, err = program("install", "claude-code", *words)
        assert (code, "claude plugin disable recollect@recollect" in " ".join(err.split())) == (0, named)


def test_plugin_of_opencode_has_the_commands(program, tmp_path, monkeypatch):
    """A file of its own, replaced by the next installation and removed with it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OPENCODE_CONFIG_DIR", raising=False)
    place = tmp_path / "opencode" / "plugin" / "recollect.js"
    assert program("install", "opencode", "--user", "it's")[0] == 0
    assert '"recall", "--hook", "--user=it\'s"];\nconst CAPTURE = [];' in place.read_text()
    assert program("install", "opencode", "--no-recall", "--capture", "--no-facts")[0] == 0
    assert re.search(r'RECALL = \[\];\nconst CAPTURE = \[.*"hook", "capture", "--no-facts"\];', place.read_text())
    code, out, _ = program("install", "opencode", "--print")
    assert (code, out.startswith("// Recollect in OpenCode"), "no-facts" in place.read_text()) == (0, True, True)
    assert [program("uninstall", "opencode")[0] for _ in range(2)] == [0, 1]
    assert not place.exists()


def test_hook_names_the_whole_path_of_an_environment(program, tmp_path, monkeypatch):
    """A shell without the environment runs it, also with a blank and a quote in its path; a new one replaces it."""
    script = tmp_path / "it's my env" / "recollect"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "ran $*"\n')
    script.chmod(0o755)
    place = tmp_path / PLACES["claude-code"]
    monkeypatch.setattr("recollect.integrations.hooks.executable", lambda: [str(script)])
    for path in ("/usr/bin:/bin", f"{script.parent}:/usr/bin:/bin"):  # another shell, and the active environment
        monkeypatch.setenv("PATH", path)
        code, _, err = program("install", "claude-code")
        assert (code, f"the hooks run {script}" in " ".join(err.split())) == (0, True)
        (group,) = json.loads(place.read_text())["hooks"]["UserPromptSubmit"]
        ran = subprocess.run(
            ["/bin/sh", "-c", group["hooks"][0]["command"]], env={}, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (0, "ran recall --hook\n")
    assert program("uninstall", "claude-code")[0] == 0
    assert json.loads(place.read_text()) == {}


def test_hook_names_the_command_that_is_on_the_path(program, tmp_path, monkeypatch):
    """As pipx and uv install it: a link in a folder of its own, beside no environment."""
    script, link = tmp_path / "env" / "recollect", tmp_path / "bin" / "recollect"
    for folder in (script.parent, link.parent):
        folder.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    link.symlink_to(script)
    monkeypatch.setattr("recollect.integrations.hooks.executable", lambda: [str(script)])
    monkeypatch.setenv("PATH", f"{link.parent}:/usr/bin:/bin")
    code, out, err = program("install", "claude-code", "--print")
    assert (code, err) == (0, "")
    line = json.loads(out)["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
    assert line == "command -v recollect >/dev/null 2>&1 && recollect recall --hook; exit 0"


def test_broken_settings_are_left_alone(program, tmp_path):
    """The error names the file, which stays as it was."""
    place = tmp_path / PLACES["gemini"]
    place.parent.mkdir()
    for content in ("{broken", "[]", '{"hooks": []}'):
        place.write_text(content)
        code, _, err = program("install", "gemini", "--capture")
        assert (code, place.read_text()) == (2, content)
        assert "settings.json" in err


def test_printing_changes_nothing(program, tmp_path):
    """The settings go to standard output. Gemini counts milliseconds."""
    code, out, _ = program("install", "gemini", "--capture", "--no-recall", "--print")
    hooks = json.loads(out)["hooks"]
    assert (code, set(hooks)) == (0, {"AfterAgent", "PreCompress", "SessionEnd"})
    assert {group["hooks"][0]["timeout"] for groups in hooks.values() for group in groups} == {3000}
    assert not (tmp_path / ".gemini").exists()
    assert program("install", "codex", "--no-recall")[0] == 2
    assert program("uninstall", "codex")[0] == 1


def test_link_to_settings_stays_a_link(program, tmp_path):
    """As managers of dot files make them."""
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    place = tmp_path / PLACES["codex"]
    place.parent.mkdir()
    place.symlink_to(target)
    assert program("install", "codex")[0] == 0
    assert place.is_symlink()
    assert json.loads(target.read_text())["hooks"]


def test_log_does_not_grow_for_ever(tmp_path, monkeypatch):
    """It begins anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(capture, "LOG_BYTES", 200)
    for number in range(50):
        capture._log(f"message {number}")
    lines = (tmp_path / "recollect" / "captured" / "capture.log").read_text().splitlines()
    assert len(lines) < 10
    assert lines[-1].endswith("message 49")
