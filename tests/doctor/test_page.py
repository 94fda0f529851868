"""docs/doctor.md agrees with `doctor`: checks, codes, fixes, and shell completion."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import DOCS

from recollect.cli import main
from recollect.cli.configuration import SHELLS
from recollect.cli.maintenance import EXIT_CODES, SIGNS
from recollect.doctor import CHECKS, services, setup
from recollect.stores import health, lance
from recollect.stores.postgres import health as postgres
from recollect.stores.sqlite import health as sqlite

PAGE = (DOCS / "doctor.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
TABLES = [
    [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.strip().splitlines()[2:]]
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.MULTILINE)
]


def test_shown_output_is_the_real_one(capsys, kept, spoil, home, monkeypatch):
    """For an emptied keyword index and a public token file; … stands for anything."""
    monkeypatch.setenv("COLUMNS", "100")
    spoil()
    tokens = home / "xdg_config_home" / "recollect" / "tokens.json"
    tokens.parent.mkdir(parents=True)
    tokens.touch()
    tokens.chmod(0o666)
    monkeypatch.chdir(kept.parent)
    monkeypatch.setenv("RECOLLECT_STORE", kept.name)
    assert main(["doctor"]) == 3
    command, _, shown = BLOCKS["text"].partition("\n")
    assert command == "$ recollect doctor"
    pattern = r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in shown.split())
    assert re.fullmatch(pattern, capsys.readouterr().out.strip(), flags=re.DOTALL)


def test_every_check_has_its_row_in_order():
    """And no other."""
    assert [row[0].strip("`") for row in TABLES[0]] == [check.__name__ for check in CHECKS]


def test_states_signs_and_exit_codes_equal_the_code():
    """One row per state."""
    rows = {row[0].strip("`"): (row[1], int(row[3])) for row in TABLES[1]}
    assert rows == {state: (SIGNS[state][0], EXIT_CODES[state]) for state in EXIT_CODES}


def test_every_fix_has_its_row():
    """The page names exactly the checks with a fix."""
    named = {name for row in TABLES[2] for name in re.findall(r"`(\w+)`", row[0])}
    assert named == set(_fixing())


def _fixing():
    """Checks whose functions make a Finding with a fifth value, the fix."""
    for module in (setup, services, health, sqlite, lance, postgres):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and len(node.args) == 5:
                first = node.args[0]
                yield from [first.value] if isinstance(first, ast.Constant) else ["model", "reranker"]


def test_documented_limits_equal_the_code():
    """Seconds for a store, and for a server of models."""
    words = " ".join(PAGE.split())
    assert f"for damage for {health.LONGEST_S:g} seconds" in words
    assert f"Model servers are given {services.LONGEST_S:g} seconds" in words
    assert f"the word `{services.WORD}`" in words
    assert f"PostgreSQL must answer within {postgres.CONNECT_S} seconds, and a bucket within {lance.WAIT_S:g};" in words
    assert f"more than {postgres.MAX_BEHIND_BYTES // 1_000_000} MB or {postgres.MAX_BEHIND_S:g} seconds" in words


# -- completion, installed as the page says, in the shell itself --------------------------------------------

OFFERS = {
    "bash": ["bash", "-i", "-c", "complete -p recollect"],
    "zsh": ["zsh", "-i", "-c", "print $_comps[recollect]; whence -v _recollect"],
    "fish": ["fish", "-c", "complete -C 'recollect doct'"],
}
EXPECTED = {"bash": "-F _recollect_completion recollect", "zsh": "_recollect is an autoload", "fish": "doctor\t"}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_installed_as_documented(shell, home):
    """The block runs in a new home; the next shell completes."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home.joinpath("new").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {**kept, "HOME": str(home / "new"), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"}

    def run(*command):
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    run(shell, "-c", BLOCKS[shell])
    assert EXPECTED[shell] in run(*OFFERS[shell])


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_for_one_session_works_as_documented(shell):
    """The line for each shell is run."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    flat = " ".join(PAGE.split())
    line = {"fish": "recollect completion fish | source"}.get(shell, "source <(recollect completion bash)")
    assert f"`{line}`" in flat
    line = line.replace("completion bash", f"completion {shell}")
    shown = {"fish": "complete -C 'recollect doct'", "bash": "complete -p recollect", "zsh": "print $_comps[recollect]"}
    begin = "autoload -Uz compinit && compinit -u -D\n" if shell == "zsh" else ""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        [shell, "-c", f"{begin}{line}\n{shown[shell]}"], env=environment, capture_output=True, text=True, check=True
    )
    assert "doctor" in ran.stdout if shell == "fish" else "_recollect_completion" in ran.stdout
