"""Eight processes on one PostgreSQL server that is killed again and again: nothing acknowledged is lost."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import SearchFailed, StoreError

PROCESSES = 8
LETTERS = "bcfghjkmpq"
"""Ten letters for the digits, none of which a stemmer takes off."""


def text_of(number: int) -> str:
    """A text with one word that no other record has."""
    return f"note w{''.join(LETTERS[int(digit)] for digit in f'{number:08}')}x from the crowd"


def published(path: Path) -> list[str]:
    """The complete lines of a file that another process is writing."""
    return path.read_text(encoding="ascii").split("\n")[:-1] if path.exists() else []


class Client:
    """A process that adds and searches until it is told to stop; `calm` until the server begins to be killed."""

    def __init__(self, folder: Path, me: int) -> None:
        self.folder, self.me = folder, me
        self.chance = random.Random(me)
        self.counts: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.strange: list[str] = []
        self.longest = 0.0

    def run(self, place: str) -> None:
        """Work until there is a file `stop`."""
        with (
            Memory.open(place, embedder="hashing:64", settings=Settings()) as memory,
            (self.folder / f"acks-{self.me}").open("w", encoding="ascii") as acks,
        ):
            print("ready", flush=True)  # noqa: T201
            sys.stdin.readline()
            number, last = self.me * 1_000_000, time.monotonic()
            while not (self.folder / "stop").exists():
                if self.attempt("add", lambda number=number: memory.add(text_of(number), id=str(number))):
                    acks.write(f"{number}\n")
                    acks.flush()
                    self.longest, last = max(self.longest, time.monotonic() - last), time.monotonic()
                    self.attempt("own", lambda number=number: self.look(memory, number))
                    self.attempt("others", lambda: self.look_around(memory))
                    number += 1

    def attempt(self, what: str, work: Callable[[], Any]) -> bool:
        """Do it; an error must be one of ours that says what to do, and none may come while all is calm."""
        try:
            work()
        except (StoreError, SearchFailed) as error:
            self.said[" ".join(error.message.split())[-160:][:60]] += 1
            self.counts["errors"] += 1
            if not (self.folder / "killing").exists():
                self.strange.append(f"while all was calm: {error}")
            elif not error.hint and not isinstance(error, SearchFailed):
                self.strange.append(f"without a hint: {error}")
            time.sleep(0.02)
            return False
        except Exception as error:  # noqa: BLE001  (any other error that reaches a caller is what this looks for)
            self.strange.append(f"{type(error).__name__}: {error}")
            return False
        self.counts[what] += 1
        return True

    def look_around(self, memory: Memory) -> None:
        """Look for something that another had acknowledged before."""
        lines = published(self.folder / f"acks-{self.chance.randrange(PROCESSES)}")
        if lines:
            # The newest is the hardest; an older one must not have got lost either.
            self.look(memory, int(self.chance.choice([lines[-1], self.chance.choice(lines)])))

    def look(self, memory: Memory, number: int) -> None:
        """The record is in the answer, found by every source that answered."""
        answer = memory.search(text_of(number))
        answered = sorted(trace.name for trace in answer.trace.sources if trace.status == "ok")
        found = next((result for result in answer.results if result.record.id == str(number)), None)
        if found is None or sorted(found.shares) != answered:
            self.strange.append(f"{number} found by {sorted(found.shares) if found else None} of {answered}")
        if len(answered) < 2 and not (self.folder / "killing").exists():
            self.strange.append(f"only {answered} answered while all was calm: {answer.trace.warnings}")


# -- the test -----------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Any]:
    """A server of the test's own, with the settings of a real one."""
    from support import postgres as server_kit  # not for the clients: this file is also their program

    server = server_kit.Server.make()
    yield server
    server.remove()


def count(folder: Path) -> list[int]:
    """How many records each client has acknowledged."""
    return [len(published(folder / f"acks-{me}")) for me in range(PROCESSES)]


def wait_for_all(folder: Path, before: list[int], seconds: float = 120) -> float:
    """Seconds until every client has acknowledged something more."""
    began = time.monotonic()
    while not all(now > then for now, then in zip(count(folder), before, strict=True)):
        assert time.monotonic() - began < seconds, "somebody did not recover"
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("seconds", "kills"),
    [
        pytest.param(3, 2, id="short", marks=pytest.mark.ci),
        pytest.param(60, 8, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_clients_survive_kill_9_of_the_server(
    tmp_path: Path, server: Any, start: Callable[..., Any], seconds: int, kills: int
) -> None:
    """Calm first, then kill -9 of the postmaster repeatedly: all recover, and nothing acknowledged is lost."""
    place = server.url(schema="torture")
    Memory.open(place, embedder="hashing:64", settings=Settings()).close()
    clients = [start(__file__, tmp_path, me, place) for me in range(PROCESSES)]
    assert [client.stdout.readline() for client in clients] == ["ready\n"] * PROCESSES
    for client in clients:
        client.stdin.write("go\n")
        client.stdin.flush()
    time.sleep(seconds)
    calm, recovered = count(tmp_path), []
    (tmp_path / "killing").touch()
    for _ in range(kills):
        time.sleep(random.uniform(0.2, 1.5))
        server.kill()
        before = count(tmp_path)
        server.start()
        recovered.append(wait_for_all(tmp_path, before))
    (tmp_path / "stop").touch()
    reports = [json.loads(client.stdout.readline()) for client in clients]
    assert [client.wait(60) for client in clients] == [0] * PROCESSES
    tell(calm, seconds, recovered, reports)
    assert [strange for report in reports for strange in report["strange"]] == []
    assert min(calm) > 0, "nobody starves"
    check(tmp_path, place)


def tell(calm: list[int], seconds: int, recovered: list[float], reports: list[dict[str, Any]]) -> None:
    """What was measured, for who runs it with `-s`."""
    total = sum((Counter(report["counts"]) for report in reports), Counter())
    said = sum((Counter(report["said"]) for report in reports), Counter())
    print(f"\ncalm: {sum(calm)} added in {seconds} s, the slowest client {min(calm)}")  # noqa: T201
    print(f"all: {dict(total)}; longest wait of a client {max(report['longest'] for report in reports):.1f} s")  # noqa: T201
    print(f"all clients at work again {', '.join(f'{each:.1f}' for each in recovered)} s after the server was")  # noqa: T201
    print("\n".join(f"{number:6} × …{words}" for words, number in said.most_common()))  # noqa: T201


def check(folder: Path, place: str) -> None:
    """Everything acknowledged is there and is found, and what is derived agrees with the records."""
    acknowledged = {line for me in range(PROCESSES) for line in published(folder / f"acks-{me}")}
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        stored = {record.id for record in memory.list(limit=10**6)}
        assert acknowledged <= stored, f"lost: {sorted(acknowledged - stored)[:10]}"
        assert len(stored - acknowledged) <= PROCESSES, "only what each was about to be told"
        assert memory.status()["vectors"] == {
            "embedder": "hashing:64",
            "dimension": 64,
            "with": len(stored),
            "without": 0,
        }
        with memory.store._database.read() as connection:
            for name in ("documents", "history", "vectors_1"):
                found = connection.execute(f"SELECT count(DISTINCT row) FROM {name}").fetchone()
                assert found == (len(stored),), name
            assert connection.execute("SELECT sum(records) FROM tallies").fetchone() == (len(stored),)
        for key in random.Random(1).sample(sorted(acknowledged), min(50, len(acknowledged))):
            found = memory.search(text_of(int(key))).results[0]
            assert (found.record.id, sorted(found.shares)) == (key, ["keyword", "vector"])


if __name__ == "__main__":
    client = Client(Path(sys.argv[1]), int(sys.argv[2]))
    client.run(sys.argv[3])
    report = {"counts": client.counts, "said": client.said, "strange": client.strange[:10], "longest": client.longest}
    print(json.dumps(report), flush=True)  # noqa: T201
