"""Two watchers and a searcher on one store while files are made, edited, replaced, moved and deleted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import eventually

SEARCHER = Path(__file__).with_name("searcher.py")


class Editor:
    """Someone who works in two folders at once, and knows what every file says."""

    def __init__(self, roots: list[Path]) -> None:
        self.roots = roots
        self.chance = random.Random(3)
        self.files: dict[Path, str] = {}
        self.edits = 0

    def edit(self) -> None:
        """One change of one file, of a kind and at a place that chance picks."""
        self.edits += 1
        path = self.chance.choice(list(self.files)) if self.files else None
        kind = self.chance.choice(["make", "make", "edit", "replace", "move", "delete"])
        if kind == "make" or path is None:
            self.say(self.new_path())
        elif kind == "edit":
            self.say(path)
        elif kind == "replace":
            self.say(path, through=path.with_name(f".{path.name}.tmp"))
        elif kind == "move":
            target = self.new_path()
            path.rename(target)
            self.files[target] = self.files.pop(path)
        else:
            path.unlink()
            del self.files[path]

    def new_path(self) -> Path:
        folder = self.chance.choice(self.roots) / self.chance.choice(["", "sub", f"new-{self.edits}"])
        folder.mkdir(exist_ok=True)
        return folder / f"{self.edits}.md"

    def say(self, path: Path, *, through: Path | None = None) -> None:
        self.files[path] = f"the words of a note after {self.edits} edits"
        (through or path).write_text(self.files[path])
        if through:
            through.replace(path)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("seconds", "least"),
    [
        pytest.param(5, 50, id="short"),
        pytest.param(60, 800, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(600)]),
    ],
)
def test_two_watchers_and_a_searcher_share_a_store(start, tmp_path, texts, seconds, least):
    """No error in any of the three, no file missed, and nothing left of a deleted file."""
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
    watchers = [start(root) for root in roots]
    searcher = subprocess.Popen(
        [sys.executable, str(SEARCHER), str(tmp_path / "memory.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    editor = Editor(roots)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            editor.edit()
            time.sleep(editor.chance.choice([0, 0.01, 0.05, 0.1]))
        wanted = {path.name: text for path, text in editor.files.items()}
        eventually(lambda: texts() == wanted, lambda: set(texts().items()) ^ set(wanted.items()), within=30)
        report = json.loads(searcher.communicate("")[0])
    finally:
        searcher.kill()
        searcher.wait()
    assert [watcher.end(signal.SIGTERM) for watcher in watchers] == [0, 0]
    assert [watcher.err for watcher in watchers] == ["", ""]
    assert report["errors"] == []
    assert report["found"] >= report["searches"] > 20
    assert editor.edits >= least
    print(f"{editor.edits} edits, {report['searches']} searches, {[len(w.passes) for w in watchers]} passes")  # noqa: T201
