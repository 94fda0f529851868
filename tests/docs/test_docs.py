"""Checked documentation: every block of the README runs, and the reference is generated from the code."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import httpx2
import pytest
import render_reference
from support import ROOT

from recollect import Memory, config
from recollect.sample import NOTES

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def blocks(kind):
    return [text for language, text in BLOCKS if language == kind]


@pytest.fixture
def shell(tmp_path_factory):
    """A shell in the project's folder, with its own store and the environment's commands first."""
    folder = tmp_path_factory.mktemp("readme")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RECOLLECT_STORE": str(folder / "store.db"),
        "XDG_CONFIG_HOME": str(folder),
        "COLUMNS": "80",
    }

    def run(command):
        return subprocess.run(
            ["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
        )

    return run


def sessions(page):
    """The commands of each block with a prompt, and what the page says they print."""
    for text in re.findall(r"^```console\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        if text.startswith("$"):
            yield [part.partition("\n")[::2] for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]


@pytest.mark.ci
@pytest.mark.xdist_group("readme")
@pytest.mark.parametrize(("name", "least"), [("README.md", 8), ("docs/conversations.md", 4)])
def test_every_console_block_prints_its_output(shell, name, least):
    """Each command succeeds, and its output begins as shown; … stands for anything."""
    steps = [step for session in sessions((ROOT / name).read_text(encoding="utf-8")) for step in session]
    assert len(steps) >= least
    for command, shown in steps:
        ran = shell(command)
        assert ran.returncode == 0, (command, ran.stderr)
        pattern = ".*".join(map(re.escape, shown.rstrip("\n").split("…")))
        assert re.match(pattern, ran.stdout, flags=re.DOTALL), (command, ran.stdout)


@pytest.mark.ci
def test_newcomer_gets_through_four_bad_days(tmp_path):
    """A lost disk, a worse model, false facts and no network, by the commands of the page, in a home of one's own."""
    page = (ROOT / "docs" / "howto" / "when-something-goes-wrong.md").read_text(encoding="utf-8")
    steps = [step for session in sessions(page) for step in session]
    assert len(steps) >= 20
    shutil.copytree(NOTES, tmp_path / "notes")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "recollect").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m recollect "$@"\n')
    (tmp_path / "bin" / "recollect").chmod(0o755)
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    environment = {**kept, "HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    for command, shown in steps:
        ran = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, (command, ran.stderr)
        pattern = ".*".join(map(re.escape, shown.rstrip("\n").split("…")))
        assert re.match(pattern, ran.stdout, flags=re.DOTALL), (command, ran.stdout)


@pytest.mark.xdist_group("readme")
def test_make_commands_run(shell):
    """`make demo` runs; `make test` is the current run, so it is a dry run only."""
    (block,) = (text for text in blocks("console") if "make demo" in text)
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert commands == ["make demo", "make test"]
    demo = shell("make demo")
    assert demo.returncode == 0, demo.stderr
    assert "judged questions" in demo.stdout
    planned = shell("make --dry-run test").stdout
    for step in ("ruff check", "mypy", "lint-imports", "pytest"):
        assert step in planned


@pytest.mark.ci
def test_serving_block_serves(tmp_path):
    """The command answers with the page, at a free port."""
    (block,) = (text for text in blocks("console") if "recollect serve" in text)
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert commands == ["pip install '.[serve]'", "recollect serve"]
    assert "serve" in metadata("recollect-search").get_all("Provides-Extra")
    words = [sys.executable, "-m", *commands[1].split(), "--port", "0", "--store", str(tmp_path / "s.db"), "--no-token"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = re.search(r"http://\S+", process.stderr.readline())[0]
            assert "Recollect" in httpx2.get(address).text
        finally:
            process.terminate()


def test_agents_block_starts_a_server(tmp_path):
    """The registered command answers the protocol's first message."""
    (block,) = (text for text in blocks("console") if "mcp add" in text)
    install, command = block.splitlines()
    assert install == "pip install '.[mcp]'"
    assert "mcp" in metadata("recollect-search").get_all("Provides-Extra")
    words = shlex.split(command.partition(" -- ")[2])
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    started = [sys.executable, "-m", *words, "--store", str(tmp_path / "s.db"), "--embedder", "none"]
    ran = subprocess.run(started, input=f"{json.dumps(message)}\n", capture_output=True, text=True, check=False)
    assert json.loads(ran.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "recollect"


@pytest.mark.ci
def test_server_block_moves_and_finds(new_schema, tmp_path):
    """The commands as they stand, except for the server's address."""
    (block,) = (text for text in blocks("console") if "recollect copy" in text)
    install, *commands = block.splitlines()
    assert install == "pip install '.[postgres]'"
    assert "postgres" in metadata("recollect-search").get_all("Provides-Extra")
    with Memory.open(tmp_path / "notes.db", embedder="hashing:64") as memory:
        memory.add("Ada lives in Lisbon.", user="ada")
    place, environment = new_schema(), {**os.environ, "RECOLLECT_EMBEDDER": "hashing:64"}
    for command in commands:
        words = [re.sub(r"postgresql://\S+", place, word) for word in shlex.split(command)]
        ran = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, (command, ran.stderr)
    assert "Lisbon" in ran.stdout


@pytest.mark.ci
def test_install_block_installs(shell, tmp_path):
    """`pip install .` builds the package with its data and type marker, from a clean copy."""
    assert "pip install .\n" in blocks("console")
    ran = shell(f"'{sys.executable}' -m pip install --quiet --no-deps --target '{tmp_path}' .")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "recollect" / "py.typed").is_file()
    assert len(list((tmp_path / "recollect" / "sample" / "notes").rglob("*.md"))) == 32


@pytest.mark.ci
@pytest.mark.parametrize("code", blocks("python"))
def test_every_python_block_runs(code, tmp_path):
    """As it stands, in a new folder."""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_settings_block_is_valid(text, tmp_path):
    """The settings shown are settings there are."""
    (tmp_path / "config.toml").write_text(text)
    loaded = config.load(config=tmp_path / "config.toml", environment={})
    assert loaded.settings != config.Settings()


def test_every_block_is_tested():
    """Every block of the README is of a kind that a test here runs."""
    assert {language for language, _ in BLOCKS} == {"console", "python", "toml"}
    assert len(README.splitlines()) <= 150


def test_reference_is_up_to_date():
    """docs/reference is the output of `make docs`; run it after changing a command, setting, route or error."""
    assert render_reference.written() == render_reference.render()


def test_every_dependency_has_its_decision():
    """Each run-time dependency names a decision record that exists."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = text.partition("\ndependencies = [")[2].partition("\n]")[0].strip().splitlines()
    numbers = {path.name[:3] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert len(listed) >= 10
    for line in listed:
        found = re.search(r"docs/decisions/(\d{3})", line)
        assert found, line
        assert found[1] in numbers, line


def test_links_between_documents_resolve():
    """Every relative link names an existing file."""
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_every_guarantee_names_existing_tests():
    """docs/guarantees.md."""
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))
    places = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src" / "recollect" / "testing").glob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in places)
    assert len(named) > 25
    assert [name for name in named if f"def {name}(" not in code] == []
