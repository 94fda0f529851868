"""Completion in real shells: the printed script is sourced, and the shell is asked for its completions."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.timing import child_cpu_seconds

from recollect.cli import COMMANDS
from recollect.cli.lab import STUDIES
from recollect.fusion import METHODS

BIN = Path(sys.executable).parent
PATIENCE_S = 20.0


@pytest.fixture
def environment(tmp_path):
    """A new user's environment, with our command on the path."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")},
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }


def needs(shell):
    found = shutil.which(shell)
    return pytest.mark.skipif(found is None, reason=f"{shell} is not installed here")


def modern_bash():
    """Whether there is a bash that click can complete in."""
    if shutil.which("bash") is None:
        return False
    said = subprocess.run(["bash", "-c", "echo $BASH_VERSION"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:2])) >= (4, 4)


in_bash = pytest.mark.skipif(not modern_bash(), reason="bash 4.4 or newer is not installed here")

ASK_BASH = """
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
complete -p recollect | grep -q -- '-F _recollect_completion recollect' || exit 9
_recollect_completion recollect 2> /dev/null  # compopt wants a line being edited
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The output of `recollect completion bash`, in a file."""
    path = tmp_path_factory.mktemp("completion") / "recollect.bash"
    with path.open("w") as file:
        subprocess.run([BIN / "recollect", "completion", "bash"], stdout=file, check=True, timeout=60)
    return path


@pytest.fixture
def bash(environment, script):
    """The completions of bash after these words, the last of which is unfinished."""

    def ask(*words):
        command = ["bash", "--norc", "-c", ASK_BASH, script, "recollect", *words]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        assert ran.stderr == ""
        return ran.stdout.split()

    return ask


@pytest.mark.ci
@in_bash
def test_bash_completes_commands_and_subcommands(bash):
    """From the tables, in their order."""
    assert bash("") == list(COMMANDS)
    assert bash("se") == [name for name in COMMANDS if name.startswith("se")]
    assert bash("eval", "") == list(STUDIES)
    assert bash("config", "") == ["import", "path", "show"]
    assert bash("no-such-command", "x") == []


@in_bash
def test_bash_completes_flags(bash):
    """Of the command, of every command, and those before the command."""
    assert bash("search", "--fus") == ["--fusion"]
    assert bash("eval", "run", "--comp") == ["--compare"]
    assert bash("doctor", "--f") == ["--fix"]
    assert {"--store", "--config", "--embedder"} <= set(bash("--"))


@pytest.mark.ci
@in_bash
def test_bash_completes_values_of_flags(bash, environment):
    """Choices, and values from the settings: methods, models, classes, sources."""
    assert bash("list", "--kind", "") == ["fact", "chunk", "turn"]
    assert bash("completion", "") == ["bash", "zsh", "fish"]
    assert bash("service", "install", "x", "--platform", "s") == ["systemd"]
    assert bash("search", "--fusion", "") == list(METHODS)
    assert bash("search", "x", "--normalisation", "z") == ["zscore"]
    assert bash("add", "x", "--decay", "p") == ["permanent"]
    assert bash("search", "--decay", "") == ["on", "off"]
    assert bash("search", "--hyde", "r") == ["replace"]
    assert bash("--embedder", "arctic") == ["arctic-embed-s"]
    assert bash("search", "--embedder", "no") == ["none"]
    assert bash("eval", "sweep", "--fusion", "rrf,w") == ["rrf,weighted"]


@in_bash
def test_bash_completes_the_users_own_sources(bash, environment):
    """Several, by commas; unreadable settings remove none of the built-in ones."""
    assert bash("search", "--sources", "keyword,") == ["keyword,vector"]
    path = Path(environment["XDG_CONFIG_HOME"]) / "recollect" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[[sources]]\nname = "wiki"\nkind = "command"\ncommand = ["x"]\nfields = { id = "id" }\n')
    assert bash("search", "--sources", "") == ["keyword", "vector", "wiki"]
    path.write_text("store = \n")
    assert bash("search", "--sources", "") == ["keyword", "vector"]


def answers(environment, words, shell="bash"):
    """What our command gives the shell's script."""
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked["_RECOLLECT_COMPLETE"] = f"{shell}_complete"
    ran = subprocess.run(
        [BIN / "recollect"], env={**environment, **asked}, capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stdout.splitlines()


def test_files_are_completed_by_the_shell(environment):
    """Store, settings and indexed paths."""
    assert answers(environment, ["recollect", "search", "--store", "x"]) == ["file,x"]
    assert answers(environment, ["recollect", "--config", "x"]) == ["file,x"]
    assert answers(environment, ["recollect", "index", "x"]) == ["file,x"]


@pytest.mark.ci
def test_completion_is_fast(environment):
    """In processor time."""
    for words in (["recollect", ""], ["recollect", "search", "--fusion", ""], ["recollect", "eval", "run", "--"]):
        assert child_cpu_seconds(lambda words=words: answers(environment, words)) < 0.3, words


LOADED = """
import json, os, sys
os.environ |= {"COMP_WORDS": sys.argv[1], "COMP_CWORD": sys.argv[2], "_RECOLLECT_COMPLETE": "bash_complete"}
sys.argv[1:] = []
from recollect.cli import main
main()
heavy = {"numpy", "apsw", "regex", "onnxruntime", "httpx2", "tokenizers", "yaml"} & set(sys.modules)
print(json.dumps([sorted(heavy), sorted(name for name in sys.modules if name.startswith("recollect.cli."))]))
"""


def test_completion_loads_only_the_completed_command(environment):
    """The list of commands imports none of them; a flag imports its command, and nothing heavy."""

    def loaded(words):
        command = [sys.executable, "-c", LOADED, " ".join(words), str(len(words) - 1)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(ran.stdout.splitlines()[-1])

    names = ("flags", "terminal")
    always = {f"recollect.cli.{name}" for name in names}
    heavy, modules = loaded(["recollect", "se"])
    assert (heavy, set(modules) - always) == ([], set())
    heavy, modules = loaded(["recollect", "search", "--fusion", "r"])
    assert heavy == []
    assert "recollect.cli.queries" in modules
    assert not {"recollect.cli.crud", "recollect.cli.lab", "recollect.cli.ingestion"} & set(modules)


@needs("fish")
def test_fish_completes(environment):
    """`complete -C`, with the help beside it."""

    def ask(line):
        code = f"recollect completion fish | source; complete -C '{line}'"
        ran = subprocess.run(
            ["fish", "--no-config", "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        return dict(row.partition("\t")[::2] for row in ran.stdout.splitlines())

    assert ask("recollect doc") == {"doctor": COMMANDS["doctor"][1]}
    assert list(ask("recollect eval ru")) == ["run"]
    assert set(ask("recollect search --fusion ")) == set(METHODS)
    assert "--fix" in ask("recollect doctor --f")
    assert list(ask("recollect search --sources keyword,")) == ["keyword,vector"]


@needs("zsh")
def test_zsh_completes(environment, tmp_path):
    """In an interactive zsh on a terminal, with its own completion system."""
    keyboard, screen = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "--no-rcs", "-i"], env={**environment, "PS1": "> "}, stdin=screen, stdout=screen, stderr=screen,
        cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    os.close(screen)
    try:
        send(keyboard, "autoload -Uz compinit && compinit -u -D; source <(recollect completion zsh); print re''ady\n")
        assert wait_for(keyboard, "ready")
        send(keyboard, "recollect comple\tba\t\n")
        assert wait_for(keyboard, "_recollect_completion_setup;"), "`recollect completion bash` was run"
        send(keyboard, "recollect list --kind ch\t --js\t; print do''ne\n")
        shown = wait_for(keyboard, "done")
        assert "--kind chunk" in shown
        assert "--json" in shown
    finally:
        shell.kill()
        shell.wait()
        os.close(keyboard)


def send(terminal, keys):
    os.write(terminal, keys.encode())


def wait_for(terminal, word):
    """All that is shown until a word is; nothing, where it does not come."""
    shown, end = "", time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")
            if word in shown:
                return shown
    return ""


def test_script_is_clean_on_standard_output(environment):
    """It can be piped to a file; an unknown shell is a usage error."""
    for shell in ("bash", "zsh", "fish"):
        ran = subprocess.run(
            [BIN / "recollect", "completion", shell], env=environment, capture_output=True, text=True, check=True
        )
        assert "_RECOLLECT_COMPLETE" in ran.stdout
    wrong = subprocess.run(
        [BIN / "recollect", "completion", "csh"], env=environment, capture_output=True, text=True, check=False
    )
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "bash" in wrong.stderr


def test_too_old_bash_is_reported(environment, tmp_path):
    """On standard error; the script is printed all the same."""
    old = tmp_path / "bin" / "bash"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 3.2.57\n")
    old.chmod(0o755)
    environment["PATH"] = f"{old.parent}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        [BIN / "recollect", "completion", "bash"], env=environment, capture_output=True, text=True, check=True
    )
    assert "4.4" in ran.stderr
