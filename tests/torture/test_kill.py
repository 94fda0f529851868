"""kill -9 at any moment: the store opens, is whole, and has everything that was acknowledged."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.forking import ForkedProcess
from support.timing import longest

from .killed import OPERATIONS, opened, rows

WRITER = Path(__file__).with_name("writer.py")
ROUNDS = [
    pytest.param(20, id="short", marks=[pytest.mark.ci, pytest.mark.timeout(900)]),
    pytest.param(200, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
]


def written(file: Path) -> list[str]:
    """The complete lines of a file that another process writes."""
    return file.read_text(encoding="utf-8").split("\n")[:-1]


class Killer:
    """Starts processes and kills them."""

    def __init__(self, home: Path, rounds: int) -> None:
        self.home, self.chance, self.rounds = home, random.Random(rounds), rounds
        self.end = time.monotonic() + longest(240)
        self.killed, self.usual = 0, 0.0

    @property
    def goes_on(self) -> bool:
        """Whether another round is due. The short form always makes all of its rounds."""
        return self.killed < self.rounds and (self.rounds <= 20 or time.monotonic() < self.end)

    def start(self, *words: object) -> ForkedProcess:
        return ForkedProcess(*words, home=self.home, output=self.home / "output")

    def finish(self, *words: object) -> None:
        """Run a command to its end, and remember how long that took."""
        began = time.monotonic()
        process = self.start(*words)
        assert process.wait() == 0, process.output.read_text()
        self.usual = time.monotonic() - began

    def kill(self, *words: object) -> bool:
        """Kill a command at a random moment of the time that it usually takes; False if it had ended before."""
        process = self.start(*words)
        time.sleep(self.chance.uniform(0, self.usual))
        code = process.kill()
        assert code in {0, -signal.SIGKILL}, process.output.read_text()
        self.killed += code < 0
        return code < 0

    def kill_writer(self, path: Path) -> list[str]:
        """Kill a writer some time after its first acknowledgement; what it had acknowledged."""
        process = self.start(WRITER, path, self.killed * 100_000)
        began = time.monotonic()
        while not written(process.output):
            assert time.monotonic() - began < 120, "it never acknowledged anything"
            time.sleep(0.01)
        time.sleep(self.chance.uniform(0.0, 0.4))
        assert process.kill() == -signal.SIGKILL, "it was alive until it was killed"
        self.killed += 1
        return written(process.output)


def check(path: Path, acknowledged: set[str], sample: list[str]) -> None:
    """The file is whole, nothing acknowledged is lost, and a sample is found by its words and by its vector."""
    stored = {key for (key,) in rows(path, "SELECT id FROM records WHERE forgotten_at IS NULL")}
    assert acknowledged <= stored, f"lost: {sorted(acknowledged - stored)[:10]}"
    with opened(path) as memory:
        for key in sample:
            text = f"survivor number n{key}n of the round"
            assert memory.require(key).text == text
            for source in ("keyword", "vector"):
                assert memory.search(text, sources=[source], superseded=True).results[0].record.id == key, source


@pytest.mark.parametrize("rounds", ROUNDS)
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path, tally: Callable[..., None], rounds: int) -> None:
    """Round after round on one file, each killed up to 400 ms after its first acknowledgement."""
    path, killer = tmp_path / "memory.db", Killer(tmp_path, rounds)
    everything: list[str] = []
    while killer.goes_on:
        acknowledged = killer.kill_writer(path)
        everything += acknowledged
        sample = {acknowledged[0], acknowledged[-1], *killer.chance.sample(everything, min(3, len(everything)))}
        check(path, set(everything), sorted(sample))
    assert len(set(everything)) == len(everything) >= killer.killed > 0
    tally("kill -9 of writers", rounds=killer.killed, acknowledged=len(everything), lost=0)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_operation_ends_like_an_uninterrupted_one(
    tmp_path: Path, tally: Callable[..., None], name: str, rounds: int
) -> None:
    """Killed at a random moment it leaves a whole store, and run again it gives the same result."""
    operation, killer = OPERATIONS[name](tmp_path), Killer(tmp_path, rounds)
    operation.begin()
    killer.finish(*operation.words)
    operation.expect()
    ended = 0
    while killer.goes_on:
        operation.begin()
        if killer.kill(*operation.words):
            operation.check_killed()
            killer.finish(*operation.words)
        else:
            ended += 1
            assert ended < 10 * rounds, "it always ends before it is killed"
        operation.check_ended()
    assert killer.killed, "nothing was killed before its end"
    tally(f"kill -9 of {name}", rounds=killer.killed, ended_before=ended, differences=0)
