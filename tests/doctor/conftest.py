"""Every check runs in an empty home, on real files that a test then damages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from recollect import Memory
from recollect.cli import main
from recollect.config import Settings
from recollect.stores.sqlite.manifest import Folder
from recollect.stores.sqlite.segments import Segment, merged


@dataclass
class Told:
    """What `recollect doctor --json` answered."""

    code: int
    state: str
    checks: list[dict[str, Any]]
    err: str

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The one finding of a check."""
        (found,) = self.all(name)
        return found

    def all(self, name: str) -> list[dict[str, Any]]:
        """Every finding of a check."""
        return [found for found in self.checks if found["check"] == name]

    def worse(self) -> set[str]:
        """The checks that found something worse than a note."""
        return {found["check"] for found in self.checks if found["state"] in ("warning", "failure")}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and current folder; only keyword search and the store are set."""
    for name in [name for name in os.environ if name.startswith("RECOLLECT_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "memory.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Runs `recollect doctor` and returns its findings."""

    def run(*words: object) -> Told:
        capsys.readouterr()
        code = main(["doctor", "--json", *map(str, words)])
        shown = capsys.readouterr()
        said = json.loads(shown.out)
        return Told(code, said["state"], said["checks"], shown.err)

    return run


@pytest.fixture
def settings(home: Path) -> Callable[[str], Path]:
    """Writes the user's settings file."""

    def write(text: str) -> Path:
        path = home / "xdg_config_home" / "recollect" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def kept(path: Path) -> Path:
    """A closed store with forty records and their vectors."""
    with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"text": f"the heron number {n} stands in the reeds"} for n in range(40)])
        memory.search("heron")
    return path


@pytest.fixture
def indexed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder of its index, which is written however few records there are."""
    monkeypatch.setattr("recollect.stores.sqlite.index.COLD_ROWS", 1)
    with Memory.open(kept, embedder="none", settings=Settings()) as memory:
        memory.search("heron")
    return Folder(Path(f"{kept}-index"))


@pytest.fixture
def spoil(kept: Path, indexed: Folder) -> Callable[..., Path]:
    """Writes another segment in place of its only one; without a change, one that has no row."""

    def run(change: Callable[[Segment], Segment] | None = None) -> Path:
        manifest = indexed.read()
        (segment,) = manifest.segments
        none = np.zeros(len(segment), dtype=np.bool_)
        new = change(segment) if change else merged([segment], [none], first=True)
        with indexed.writing():
            indexed.commit(replace(manifest, segments=(indexed.write(new),)))
        return kept

    return run


@pytest.fixture
def sql() -> Callable[..., None]:
    """Changes a store with SQL."""

    def run(path: Path, *statements: str) -> None:
        connection = apsw.Connection(str(path))
        try:
            for statement in statements:
                connection.execute(statement)
        finally:
            connection.close()

    return run


@pytest.fixture
def untouched() -> Iterator[Callable[[Path], None]]:
    """Checks that a folder has the same names, bytes and modes at the end of the test."""
    before: dict[Path, object] = {}
    yield lambda folder: before.update({folder: _state(folder)})
    for folder, state in before.items():
        assert _state(folder) == state


def _state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.stat().st_mode, b"" if file.is_dir() else file.read_bytes())
        for file in sorted(folder.rglob("*"))
    }
