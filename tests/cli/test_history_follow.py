"""`recollect history --follow`: past changes, then new ones, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.torture)])
def test_changes_are_printed_until_interrupted(tmp_path: Path, number: int) -> None:
    """One line per change of another process; other scopes' records are not shown; exit code 0."""
    store = tmp_path / "store.db"
    environment = {**os.environ, "RECOLLECT_STORE": str(store), "RECOLLECT_EMBEDDER": "none", "HOME": str(tmp_path)}
    with Memory.open(store, embedder="none", settings=Settings()) as memory:
        memory.add("The heron is grey.", id="heron")
        command = [sys.executable, "-m", "recollect", "history", "heron", "--follow", "--json"]
        following = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert json.loads(following.stdout.readline())["action"] == "add"
            memory.add("The badger is grey.")
            memory.edit("heron", tags=["bird"])
            told = json.loads(following.stdout.readline())
            assert (told["action"], told["id"]) == ("update", "heron")
            memory.forget("heron")
            assert json.loads(following.stdout.readline())["action"] == "forget"
            following.send_signal(number)
            rest = following.communicate(timeout=20)
        finally:
            following.kill()
            following.communicate()
    assert (following.returncode, *rest) == (0, "", "")
