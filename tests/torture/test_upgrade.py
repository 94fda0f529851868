"""An upgrade from every earlier schema that is killed midway: the store opens, and every record is there."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.stores.sqlite.schema import MIGRATIONS

from .older import VERSIONS, make_store, rows_of, version_of, word

UPGRADER = Path(__file__).with_name("upgrader.py")
KILLS = 2
"""Processes at most that try the same upgrade one after the other, each killed."""


class Upgrade:
    """Old stores, and upgrading processes that are started ahead so that a round does not wait for Python."""

    def __init__(self, folder: Path, start: Callable[..., Any], records: int) -> None:
        self.folder, self.start, self.records = folder, start, records
        self.work: dict[int, tuple[int, float]] = {}
        self.counts: Counter[str] = Counter()
        self.next = start(UPGRADER, self.store)

    @property
    def store(self) -> Path:
        return self.folder / "memory.db"

    def old(self, version: int) -> Path:
        """A store of an earlier schema, made once; the ticks and the time of its undisturbed upgrade are measured."""
        path = self.folder / f"v{version}.db"
        if not path.exists():
            make_store(path, version, records=self.records)
            self.place(path)
            process, began = self.begin(0), time.monotonic()
            ticks = int(process.stdout.readline())
            assert process.stdout.readline() == "done\n"
            self.work[version] = (ticks, time.monotonic() - began)
            assert process.wait(120) == 0
        return path

    def place(self, old: Path) -> None:
        """Put a fresh copy of an old store in place."""
        for path in self.folder.glob("memory.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copy(old, self.store)

    def begin(self, last_tick: int) -> Any:
        """Let the next process upgrade the store, and kill itself at a tick of the work if it is not 0."""
        process, self.next = self.next, self.start(UPGRADER, self.store)
        assert process.stdout.readline() == "ready\n"
        process.stdin.write(f"{last_tick}\n")
        process.stdin.flush()
        return process

    def kill(self, version: int, chance: random.Random) -> None:
        """One process killed at a moment of its work or of its time: a committed state is left."""
        before, (ticks, seconds) = version_of(self.store), self.work[version]
        by_tick = chance.random() < 0.7
        process = self.begin(chance.randint(1, ticks) if by_tick else 0)
        if not by_tick:
            time.sleep(chance.uniform(0, seconds))
            process.send_signal(signal.SIGKILL)
        killed = process.wait(120) == -signal.SIGKILL
        after = version_of(self.store)
        assert version <= before <= after <= len(MIGRATIONS)
        self.counts["killed"] += killed
        self.counts["unfinished"] += killed and after < len(MIGRATIONS)
        self.counts["between"] += killed and version < after < len(MIGRATIONS)

    def check(self, before: dict[str, list[Any]]) -> None:
        """The next open completes the upgrade; rows, words and vectors are those of the old store."""
        with Memory.open(self.store, embedder="hashing:64", settings=Settings()) as memory:
            for n in (1, self.records // 2, self.records - 1):
                texts = {result.record.id for result in memory.search(word(n), any_scope=True, limit=3).results}
                assert f"r{n}" in texts, n
            status = memory.status()
            assert status["vectors"]["without"] == 0
            assert memory.history("r1")[0].action == "add"
            assert memory.add("a fact after the upgrade").id
        after = rows_of(self.store)
        assert all(set(rows) <= set(after[table]) for table, rows in before.items())
        assert version_of(self.store) == len(MIGRATIONS)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("rounds", "records"),
    [
        pytest.param(5, 600, id="short"),
        pytest.param(100, 6000, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_upgrade_killed_midway_loses_nothing(
    tmp_path: Path, start: Callable[..., Any], tally: Callable[..., None], rounds: int, records: int
) -> None:
    """From every earlier schema in turn, each upgrade killed once or twice before it may end."""
    chance = random.Random(rounds)
    upgrade = Upgrade(tmp_path, start, records)
    # The oldest and the newest first, so that a few rounds try both ends.
    order = [VERSIONS[(n // 2) if n % 2 == 0 else -1 - n // 2] for n in range(len(VERSIONS))]
    for n in range(rounds):
        version = order[n % len(order)]
        old = upgrade.old(version)
        upgrade.place(old)
        before = rows_of(old)
        assert len(before["records"]) == records
        for _ in range(chance.randint(1, KILLS)):
            upgrade.kill(version, chance)
        upgrade.check(before)
    assert upgrade.counts["killed"] >= rounds // 2
    assert upgrade.counts["unfinished"] >= rounds // 3
    tally("upgrade from every earlier schema, killed midway", rounds=rounds, schemas=min(rounds, len(VERSIONS)),
          records_each=records, kills=upgrade.counts["killed"], before_the_last_migration=upgrade.counts["unfinished"],
          between_two_migrations=upgrade.counts["between"], lost=0)  # fmt: skip
