"""The tutorial, from an empty machine to an agent that remembers: its commands and its script, as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from recollect.models.catalogue import cache_root

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def machine(tmp_path):
    """A shell with an empty home but for the model's file, in a folder with the project's sources."""
    (tmp_path / ".cache" / "recollect").mkdir(parents=True)
    (tmp_path / ".cache" / "recollect" / "models").symlink_to(cache_root())
    (tmp_path / "src").symlink_to(ROOT / "src")
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "UV_"))}
    kept |= {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "COLUMNS": "80"}

    def run(command, bin_folder, cwd=tmp_path):
        environment = {**kept, "PATH": f"{bin_folder}:/usr/bin:/bin"}
        return subprocess.run(
            ["sh", "-c", command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )

    run.home = tmp_path
    return run


def follow(machine, bin_folder):
    """Runs each command with a prompt and compares its output; writes the script where the page says so."""
    for language, text in BLOCKS:
        if language == "python":
            (machine.home / "two_sessions.py").write_text(text, encoding="utf-8")
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if text.startswith("$") else ():
            command, _, shown = step.partition("\n")
            ran = machine(command, bin_folder)
            assert ran.returncode == 0, (command, ran.stderr)
            pattern = ".*".join(map(re.escape, shown.rstrip("\n").split("…")))
            assert re.match(pattern, ran.stdout, flags=re.DOTALL), (command, ran.stdout, ran.stderr)


@pytest.mark.ci
def test_tutorial_ends_with_an_agent_that_remembers(machine):
    """Index, search, add; the protocol's client stores in one session and recalls in the next, as the hook does."""
    assert sum(text.count("\n$ ") + text.startswith("$ ") for _, text in BLOCKS) >= 10
    assert "memory_store" in PAGE
    assert "recall --hook" in PAGE
    commands = machine.home / "bin"
    commands.mkdir()
    path = f"PYTHONPATH={ROOT / 'src'}"
    patient = 'case "$*" in *--hook*) set -- "$@" --budget-ms 60000;; esac'  # a busy machine needs more than 2 s
    for name, module in (("recollect", "-P -m recollect"), ("python", "-P")):
        (commands / name).write_text(f'#!/bin/sh\n{patient}\n{path} exec {sys.executable} {module} "$@"\n')
        (commands / name).chmod(0o755)
    follow(machine, commands)


@pytest.mark.torture
def test_tutorial_installs_on_an_empty_machine(machine):
    """A new environment, the package from the project's folder with its extra, and the same commands in it."""
    (install,) = (text for language, text in BLOCKS if language == "console" and "pip install" in text)
    ran = machine(f"set -e\n{install}", "/usr/local/bin", cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    follow(machine, machine.home / "recollect" / "bin")


def test_agent_line_starts_the_installed_command():
    """The line for Claude Code names the command in the environment that the page makes."""
    (line,) = re.findall(r"^claude mcp add memory -- (\S+) mcp --user me$", PAGE, flags=re.MULTILINE)
    assert Path(line) == Path("~/recollect/bin/recollect")
    assert "python3 -m venv ~/recollect\n" in PAGE
