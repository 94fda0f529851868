"""Power loss at any moment: the store opens, is whole, and has exactly what was committed."""

from __future__ import annotations

import contextlib
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest
from support.disk import Disk, Event

from recollect import Memory
from recollect.config import Settings

from .recorder import digest_of

RECORDER = Path(__file__).with_name("recorder.py")
LONG = [pytest.mark.torture, pytest.mark.timeout(900)]
OPENED = 20  # one image of so many is opened as a memory, too, with a damaged index beside it


@dataclass
class Moment:
    """What was true when the power was lost."""

    committed: str = ""
    next: str | None = None
    acknowledged: dict[str, str | None] = field(default_factory=dict)
    changing: tuple[str, ...] = ()
    purged: list[str] = field(default_factory=list)
    index: dict[str, bytes] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        match event:
            case ("commit", digest):
                self.committed = digest
            case ("begin", ids):
                self.changing = ids
            case ("done", state):
                self.acknowledged |= state
                self.changing = ()
            case ("purged", mark):
                self.purged.append(mark)
            case ("index", files):
                self.index = files


def images(log: Path, count: int, chance: random.Random, counts: Counter[str]) -> Iterator[tuple[Moment, dict]]:
    """Files that a power loss at random moments may leave, each with what was true then."""
    before, events = pickle.loads(log.read_bytes())
    disk, moment, begun = Disk(before), Moment(), 0
    for cut in sorted(chance.choices(range(1, len(events) + 1), k=count)):
        for event in events[begun:cut]:
            disk.add(event)
            moment.add(event)
        begun = cut
        moment.next = next((event[1] for event in events[cut:] if event[0] == "commit"), None)
        files = disk.after(chance, counts)
        if chance.random() < 0.3:  # the file of SQLite's locks is never synced: it may hold anything
            files["memory.db-shm"] = chance.randbytes(32_768)
        yield moment, files


def judge(folder: Path, moment: Moment, files: dict[str, bytes]) -> str:
    """Write an image into a folder and compare it with what was true: "whole", "lost", "other" or "corrupt"."""
    for name in ("memory.db", "memory.db-wal", "memory.db-shm"):
        (folder / name).unlink(missing_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        with contextlib.closing(apsw.Connection(str(folder / "memory.db"))) as connection:
            connection.execute("PRAGMA synchronous=OFF")  # of this check, not of the store
            if connection.execute("PRAGMA integrity_check").get != "ok":
                return "corrupt"
            state = digest_of(connection)
            rows = "SELECT id, CASE WHEN forgotten_at IS NULL THEN text END FROM records"
            stored = dict(connection.execute(rows))
    except apsw.Error:
        return "corrupt"
    certain = {key: text for key, text in moment.acknowledged.items() if key not in moment.changing}
    if any(stored.get(key) != text for key, text in certain.items()):
        return "lost"
    return "whole" if state in (moment.committed, moment.next) else "other"


def damage(index: Path, files: dict[str, bytes], chance: random.Random) -> None:
    """The folder of the derived index, with some of its files missing or cut off."""
    shutil.rmtree(index, ignore_errors=True)
    index.mkdir()
    for name, content in files.items():
        if chance.random() < 0.7:
            end = chance.choice((len(content), len(content), chance.randrange(len(content) + 1)))
            (index / name).write_bytes(content[:end])


def answers(path: Path, moment: Moment) -> list[Any]:
    """What a memory on an image holds and finds: records, a search for one by each source, and one for many."""
    with Memory.open(path, embedder="hashing:8", settings=Settings()) as memory:
        records = sorted((record.id, record.text) for record in memory.list(limit=1000, superseded=True))
        known = [key for key, text in moment.acknowledged.items() if text and key not in moment.changing]
        for key in known[-1:]:
            for source in ("keyword", "vector"):
                results = memory.search(moment.acknowledged[key], sources=[source], superseded=True, limit=3).results
                assert key in [result.record.id for result in results], source
        many = memory.search("blue garden", limit=50, superseded=True).results
        return [records, [(result.record.id, round(result.score, 9)) for result in many]]


def check_opened(folder: Path, moment: Moment, chance: random.Random) -> None:
    """A memory opens the image and answers the same with a damaged index as without one."""
    path, index = folder / "memory.db", folder / "memory.db-index"
    shutil.rmtree(index, ignore_errors=True)
    fresh = answers(path, moment)
    damage(index, moment.index, chance)
    assert answers(path, moment) == fresh


@dataclass
class Trial:
    """Workloads that are recorded, and images of them that are judged."""

    folder: Path
    start: Callable[..., Any]
    synchronous: str = "FULL"
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, workloads: int, each: int) -> Counter[str]:
        """Judge so many images of each of so many workloads; how many of each verdict."""
        recorders = [self._record(seed) for seed in range(workloads)]
        verdicts: Counter[str] = Counter()
        for seed, (recorder, log) in enumerate(recorders):
            assert recorder.wait(120) == 0
            verdicts += self._judge(log, each, random.Random(seed))
            log.unlink()
        return verdicts

    def _record(self, seed: int) -> tuple[Any, Path]:
        place, log = self.folder / f"{seed}" / "memory.db", self.folder / f"{seed}.log"
        return self.start(RECORDER, place, log, seed, self.synchronous), log

    def _judge(self, log: Path, each: int, chance: random.Random) -> Counter[str]:
        folder, verdicts = self.folder / "image", Counter[str]()
        folder.mkdir(exist_ok=True)
        for number, (moment, files) in enumerate(images(log, each, chance, self.counts)):
            verdict = judge(folder, moment, files)
            verdicts[verdict] += 1
            self.counts["acknowledged"] = max(self.counts["acknowledged"], len(moment.acknowledged))
            self.counts["purged bytes"] += any(
                mark.encode() in content for content in files.values() for mark in moment.purged
            )
            if verdict == "whole" and self.synchronous == "FULL" and number % OPENED == 0:
                check_opened(folder, moment, chance)
                self.counts["opened"] += 1
        return verdicts


@pytest.mark.ci
@pytest.mark.parametrize(
    ("workloads", "each"),
    [
        pytest.param(1, 500, id="short"),
        pytest.param(10, 1_000, id="long", marks=LONG),
    ],
)
def test_power_loss_loses_nothing_that_was_committed(
    tmp_path: Path, start: Callable[..., Any], tally: Callable[..., None], workloads: int, each: int
) -> None:
    """Every image has the last committed transaction or the next one, all of it, and nothing purged."""
    trial = Trial(tmp_path, start)
    verdicts = trial.run(workloads, each)
    assert verdicts == {"whole": workloads * each}
    assert trial.counts["purged bytes"] == 0
    assert trial.counts["dropped"] > each
    assert trial.counts["torn"] > each / 10
    assert trial.counts["acknowledged"] > 20
    tally(
        "power loss",
        images=workloads * each,
        lost=0,
        corrupt=0,
        writes_dropped=trial.counts["dropped"],
        writes_torn=trial.counts["torn"],
        opened_with_a_damaged_index=trial.counts["opened"],
    )


@pytest.mark.ci
@pytest.mark.parametrize("mode", ["NORMAL", "OFF"])
@pytest.mark.parametrize("count", [pytest.param(150, id="short"), pytest.param(1_000, id="long", marks=LONG)])
def test_stores_that_sync_less_are_detected(
    tmp_path: Path, start: Callable[..., Any], tally: Callable[..., None], mode: str, count: int
) -> None:
    """The same test finds lost transactions where SQLite syncs only at checkpoints, and damage where it never does."""
    verdicts = Trial(tmp_path, start, mode).run(1, count)
    assert verdicts["lost"] > 0, verdicts
    assert (verdicts["corrupt"] > 0) == (mode == "OFF"), verdicts
    tally(f"power loss with synchronous={mode}, which must do harm", **{"images": count, **verdicts})
