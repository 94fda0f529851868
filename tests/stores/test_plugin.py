"""A store of another package, installed on the path: opened by its URL everywhere, and it passes the contract."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect import Memory, moving
from recollect.cli import main
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.stores import STORES, StoreKind, kind_of, open_store
from recollect.testing import StoreContract

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is on the path of this process and its children, like an installed one."""
    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))


@pytest.fixture
def notebook(tmp_path: Path) -> str:
    """The place of a test's notebook."""
    return f"notebook://{tmp_path}/notes"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Runs a command in an empty home, and returns its output."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")

    def command(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(list(words)) == code
        return capsys.readouterr().out

    return command


@pytest.mark.ci
class TestNotebook(StoreContract):
    """The whole contract, opened by its URL as every other store is."""

    @pytest.fixture
    def new_place(self, tmp_path: Path) -> Callable[[], str]:
        """A new folder at each call."""
        numbers = itertools.count()
        return lambda: f"notebook://{tmp_path}/{next(numbers)}"


def test_every_command_opens_the_plugin_store(run: Callable[..., str], notebook: str, tmp_path: Path) -> None:
    """Add, search, list and status, with its own fields."""
    run("add", "the boiler code is 4711", "--store", notebook)
    results = json.loads(run("search", "boiler", "--store", notebook, "--json"))["results"]
    assert [result["text"] for result in results] == ["the boiler code is 4711"]
    assert json.loads(run("status", "--store", notebook, "--json"))["store"] == f"the notebook {tmp_path}/notes"
    assert json.loads((tmp_path / "notes" / "journal.jsonl").read_text())["text"] == "the boiler code is 4711"


def test_doctor_checks_the_plugin_store(run: Callable[..., str], notebook: str, tmp_path: Path) -> None:
    """With the checks that every store has; a missing store is not created."""
    checks = {check["check"]: check for check in json.loads(run("doctor", "--store", notebook, "--json"))["checks"]}
    assert checks["store"]["message"] == f"there is no store at {notebook} yet"
    assert checks["keywords"]["message"] == "not checked: there is no store yet"
    assert not (tmp_path / "notes").exists()
    run("add", "the boiler code is 4711", "--store", notebook)
    checks = {check["check"]: check for check in json.loads(run("doctor", "--store", notebook, "--json"))["checks"]}
    assert checks["store"]["message"] == f"{notebook}: 1 records"
    assert checks["keywords"]["message"] == "up to date"
    assert checks["vectors"]["message"] == "all 1 records have a vector of hashing:64"
    assert checks["files"]["message"] == "no folder is mirrored"
    with Memory.open(notebook, embedder="none", settings=Settings()) as memory:
        memory.add("a fact without a vector")
    checks = {
        check["check"]: check for check in json.loads(run("doctor", "--store", notebook, "--json", code=1))["checks"]
    }
    assert (checks["vectors"]["state"], checks["vectors"]["message"]) == ("warning", "1 of 2 records have no vector")
    run("doctor", "--fix", "--store", notebook)
    assert "all 2 records" in run("doctor", "--store", notebook)


def test_plugin_store_is_copied_exported_and_imported(run: Callable[..., str], notebook: str, tmp_path: Path) -> None:
    """Into a file and back, without a loss."""
    run("add", "the boiler code is 4711", "--store", notebook)
    run("copy", notebook, str(tmp_path / "copy.db"))
    run("export", "--store", notebook, str(tmp_path / "notes.jsonl"))
    run("import", "--with-folders", "--store", f"notebook://{tmp_path}/again", str(tmp_path / "notes.jsonl"))
    digests = {moving.export(place, tmp_path / "sum.jsonl").sha256 for place in (notebook, f"{tmp_path}/copy.db")}
    assert digests == {moving.export(f"notebook://{tmp_path}/again", tmp_path / "sum.jsonl").sha256}


def test_separate_process_finds_the_plugin(notebook: str, tmp_path: Path) -> None:
    """By the entry point alone."""
    command = [sys.executable, "-m", "recollect", "add", "tea", "--store", notebook, "--embedder", "none"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "notes" / "journal.jsonl").exists()


def test_unknown_scheme_lists_the_known_ones() -> None:
    """Those of plugins too; a package that cannot be imported is named."""
    with pytest.raises(UsageError) as caught:
        open_store("mysql://host/db")
    assert "unknown kind of store 'mysql'; available: sqlite, " in caught.value.message
    assert "postgresql (recollect-search[postgres])" in caught.value.message
    assert "notebook" in caught.value.message
    assert "'recollect.stores'" in caught.value.hint
    with pytest.raises(UsageError, match="needs the package 'recollect_notebook_of_nobody'"):
        open_store("broken://x")


def test_plugin_cannot_replace_a_built_in_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing a package never redirects an existing store."""
    monkeypatch.setitem(sys.modules, "recollect_notebook", None)
    assert type(kind_of("notes.db")).__name__ == type(kind_of("sqlite:///notes.db")).__name__ == "SqliteKind"
    assert STORES.names()[:4] == list(STORES.builtin)


@pytest.mark.parametrize("scheme", STORES.builtin)
def test_every_built_in_kind_loads(scheme: str) -> None:
    """It shows a place without its password, and can write it for any folder."""
    kind = STORES.load(scheme)()
    assert isinstance(kind, StoreKind)
    assert "quiet" not in kind.describe(f"{scheme}://ada:quiet@host/notes")
    assert kind.absolute(f"{scheme}:///notes") == f"{scheme}:///notes"
