"""A store with every kind of content, and places to move it to."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.forking import recollect_words

from recollect import Memory
from recollect.config import Settings
from recollect.types import FileState, MarkIngested, SetFileState, SetFolderOptions

HOSTILE = (
    "a\0b",
    "a\x01b",
    "a\x10b",
    "a\x100",
    "a\x10\x10",
    "\0",
    "\x10",
    "ze\u2028ile",
    "😀",
    "ab",
    "~",
    "é",
    "\\N\t\r\n",
)
"""As ids, titles, tags, scopes, keys: what a database, a file of lines or an order of texts may stumble over."""

WORDS = ("heron", "reed", "lighthouse", "tide", "bittern", "walrus", "Häuser", "東京の天気", "v1.0.21", "snake_case")


@pytest.fixture
def new_file(tmp_path: Path) -> Callable[[], str]:
    """Returns the path of a file that does not exist, a new one at each call."""
    numbers = itertools.count()
    return lambda: str(tmp_path / f"new-{next(numbers)}.db")


@pytest.fixture(params=["sqlite", "postgres"])
def new_place(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names places for new stores: files, or schemas of PostgreSQL."""
    return request.getfixturevalue("new_file" if request.param == "sqlite" else "new_schema")


def said_of(number: int, chance: random.Random) -> dict[str, Any]:
    """What is said of one record of many."""
    odd = HOSTILE[number % len(HOSTILE)]
    return {
        "id": f"{odd}{number}",
        "text": f"{' '.join(chance.choices(WORDS, k=12))} {odd} n{number}n",
        "title": odd if number % 3 else "",
        "category": (None, "", odd)[number % 3],
        "tags": [odd, "b", "a"][: number % 4],
        "scope": {} if number % 2 else {"user": odd, "agent": "\x10"},
        "importance": chance.random(),
        "decay": ("permanent", None)[number % 2],
        "happened_at": ("1969-12-31T23:59:59.999999Z", "0001-01-02", None)[number % 3],
        "expires_at": "9999-12-31T23:59:59.999999Z" if number % 5 == 0 else None,
        "source": "mail" if number % 7 == 0 else None,
    }


def fill(memory: Memory, count: int) -> None:
    """Records of all kinds, in all states, with all that a store keeps beside them."""
    chance = random.Random(count)
    said = [said_of(number, chance) for number in range(count)]
    memory.add_many(said)
    ids = [one["id"] for one in said]
    for number, key in enumerate(ids):
        match number % 20:
            case 1:
                memory.edit(key, text=f"put otherwise \0 {number}", category="x\x10y")
            case 2:
                memory.supersede(key, text=f"what holds now {number}")
            case 3:
                memory.forget(key)
            case 4:
                memory.forget(key, purge=True)
            case 5:
                memory.undo(memory.supersede(key, text=f"for a while only {number}").id)
    states = [FileState(f"/n/{odd}", "/n", 2**62 + n, n, "d" * 32) for n, odd in enumerate(HOSTILE)]
    seen = [SetFileState(state.path, state) for state in states]
    memory.store.records.apply([seen, [MarkIngested("f" * 32)], [SetFolderOptions("/n", {"tags": ["ä"]})]])
    memory.store.notes.put("k\0", "v\x10\0")
    memory.store.joins.learn("s\0", {"i\0": "p", "j": "q\x10"})


@pytest.fixture(scope="session")
def rich_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 300 records with every kind of content, made once; a second model has filled its space too."""
    path = tmp_path_factory.mktemp("rich") / "memory.db"
    with Memory.open(path, embedder="hashing:64", settings=Settings(), language="german") as memory:
        fill(memory, 300)
    with Memory.open(path, embedder="hashing:32", settings=Settings()) as memory:
        memory.embed()
    return path


@pytest.fixture
def rich(rich_store: Path, tmp_path: Path) -> Path:
    """A copy of the rich store for the test."""
    return Path(shutil.copy(rich_store, tmp_path / "rich.db"))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs the command line as a process."""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    def command(*words: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        line = recollect_words(*words)
        if "preexec_fn" in options:  # a forked process does not have the limits that it sets
            line = [sys.executable, "-m", "recollect", *map(str, words)]
        return subprocess.run(line, env=environment, capture_output=True, timeout=240, check=False, **options)

    return command
