"""kill -9 at any moment: the store opens, is whole, and has everything that was acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings

WRITER = Path(__file__).with_name("writer.py")


class Writer:
    """A writing process, started ahead so that a round does not wait for Python."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.acknowledged: list[str] = []
        self.first = threading.Event()
        self.process = process
        self.reader = threading.Thread(target=self._read)

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.acknowledged.append(line.strip())
                self.first.set()

    def run(self, delay: float) -> list[str]:
        """Let it write, kill it `delay` seconds after its first acknowledgement; what it had acknowledged."""
        assert self.process.stdout.readline() == "ready\n"
        self.reader.start()
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.first.wait(60), "it never acknowledged anything"
        time.sleep(delay)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.returncode == -signal.SIGKILL, "it was alive until it was killed"
        return self.acknowledged


def check(path: Path, acknowledged: set[str], sample: list[str]) -> None:
    """The file is whole, nothing acknowledged is lost, and a sample is found by its words and by its vector."""
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    stored = {key for (key,) in connection.execute("SELECT id FROM records WHERE forgotten_at IS NULL")}
    connection.close()
    assert acknowledged <= stored, f"lost: {sorted(acknowledged - stored)[:10]}"
    with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
        for key in sample:
            assert memory.get(key).text == f"survivor number n{key}n of the round"
            for source in ("keyword", "vector"):
                found = memory.search(
                    f"survivor number n{key}n of the round", sources=[source], superseded=True
                ).results
                assert found[0].record.id == key, source


@pytest.mark.ci
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(8, id="short"),
        pytest.param(200, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path, start: Callable[..., Any], rounds: int) -> None:
    """Round after round on one file, each killed 50 to 400 ms after its first acknowledgement."""
    path, chance = tmp_path / "memory.db", random.Random(rounds)
    everything: list[str] = []
    writer = Writer(start(WRITER, path, 0))
    for n in range(1, rounds + 1):
        acknowledged = writer.run(chance.uniform(0.05, 0.4))
        assert acknowledged, f"round {n} made no progress"
        everything += acknowledged
        writer = Writer(start(WRITER, path, n * 100_000))
        sample = {acknowledged[0], acknowledged[-1], *chance.sample(everything, min(3, len(everything)))}
        check(path, set(everything), sorted(sample))
    print(f"{rounds} rounds, {len(everything)} acknowledged, none lost")  # noqa: T201
    assert len(set(everything)) == len(everything)
