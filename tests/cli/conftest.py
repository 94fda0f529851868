"""Every command runs in an empty home: no settings, no store, and keyword search unless a test changes it."""

import json
from dataclasses import dataclass

import pytest

from recollect.cli import main


@dataclass
class Ran:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        return json.loads(self.err.strip().splitlines()[-1])["error"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home and current folder."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("RECOLLECT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(home, capsys, monkeypatch):
    """Runs a command in this process and returns its output."""

    def call(*words, stdin=""):
        import gc
        import io
        import sys

        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        code = main([str(word) for word in words])
        gc.collect(0)  # a command leaves its garbage to the end of its process; here that would be gigabytes of models
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
