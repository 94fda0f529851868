"""An installation without extras: every command's help, and what it can do."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
from packaging.utils import canonicalize_name

from tests.evaluation.test_extras import needed

ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
HELP = """
import click
from click.testing import CliRunner
from recollect.cli import app

def paths(command, path):
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from paths(command.get_command(context, name), [*path, name])

for path in paths(app, []):
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0, (path, result.output, result.exception)
    print("recollect", *path)
"""
RUN = "import sys; from recollect.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def absent():
    """The modules that the packages of the extras would bring, and those of the tests."""
    there = needed("")
    found = packages_distributions().items()
    names = {name for name, of in found if there.isdisjoint(map(canonicalize_name, of))}
    assert {"mcp", "fastapi", "textual", "matplotlib", "lancedb"} <= names
    return names - {"recollect"}


@pytest.fixture
def run(absent, tmp_path):
    def run(code, *arguments):
        code = f"absent = {absent!r}\n{ABSENT}\n{code}"
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.mark.ci
def test_every_command_has_help(run):
    result = run(HELP)
    assert result.returncode == 0, result.stderr
    assert {"recollect serve", "recollect mcp", "recollect eval run"} <= set(result.stdout.splitlines())


@pytest.mark.ci
def test_notes_and_facts_are_stored_and_found(run, tmp_path):
    """With the model that is in the package."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "key.md").write_text("# Keys\n\nThe spare key hangs in the shed.\n")
    for arguments, found in (
        (["index", "notes"], ""),
        (["add", "Lena drives a Skoda."], ""),
        (["search", "where is the spare key?"], "shed"),
        (["recall", "what car does Lena have?"], "Skoda"),
        (["status"], ""),
    ):
        result = run(RUN, *arguments)
        assert result.returncode == 0, (arguments, result.stdout, result.stderr)
        assert found in result.stdout
    result = run(RUN, "doctor")
    assert result.returncode in (0, 1), "1 for a warning, of which a machine may have some"
    assert "recollect" in result.stdout
    assert result.stderr == ""


@pytest.mark.ci
@pytest.mark.parametrize("command", ["serve", "mcp"])
def test_command_of_an_extra_names_it(run, command):
    result = run(RUN, command)
    assert result.returncode == 2
    assert f"recollect-search[{command}]" in result.stderr
    assert "Traceback" not in result.stderr
