"""Backups while processes write, and kill -9 in the middle of a backup and of a restore."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from support import tally

from recollect import Memory
from recollect.config import Settings
from recollect.moving import archive
from recollect.moving.backups import backup, restore

WRITERS = 3
SOONER = 0.7  # kill so much sooner after a process that had finished: the machine may have been busy when it was timed

ROUNDS = [
    pytest.param(5, id="short"),
    pytest.param(100, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(3600)]),
]

WRITER = """
import itertools, sys
from recollect import Memory
from recollect.config import Settings
path, name = sys.argv[1:]
with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
    for number in itertools.count():
        memory.add(f"writer {name} adds n{number}n", id=f"{name}-{number}", tags=[name])
        print(number, flush=True)
"""

BACKUP = """
import sys
from recollect.moving import archive
from recollect.moving.backups import backup
from recollect.stores.sqlite import health
print("ready", flush=True)
backup(sys.argv[1], sys.argv[2], force=True)
print("done", flush=True)
"""

RESTORE = """
import sys
from recollect.moving.backups import restore
from recollect.stores.sqlite import health
print("ready", flush=True)
restore(sys.argv[1], sys.argv[2])
print("done", flush=True)
"""


def numbers_by_writer(path: Path) -> dict[str, list[int]]:
    """The numbers of each writer's records in a store, ascending."""
    connection = apsw.Connection(str(path))
    try:
        found: dict[str, list[int]] = {}
        for (key,) in connection.execute("SELECT id FROM records"):
            writer, _, number = key.partition("-")
            found.setdefault(writer, []).append(int(number))
        assert connection.execute("SELECT count(*) FROM history").get == sum(map(len, found.values()))
        return {writer: sorted(numbers) for writer, numbers in found.items()}
    finally:
        connection.close()


@pytest.mark.ci
@pytest.mark.parametrize("rounds", ROUNDS)
def test_backup_under_load_is_a_committed_state(
    path: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]], rounds: int
) -> None:
    """Each writer's records are there without a gap, and all that were acknowledged before the backup began."""
    Memory.open(path, embedder="none", settings=Settings()).close()
    processes = [start("-c", WRITER, path, name) for name in range(WRITERS)]
    before = [0] * WRITERS
    for _ in range(rounds):
        acknowledged = [int(process.stdout.readline()) for process in processes]
        saved = backup(path, tmp_path / "b.zip", force=True).backup
        restore(saved.path, tmp_path / "new.db")
        found = numbers_by_writer(tmp_path / "new.db")
        for name in range(WRITERS):
            numbers = found[str(name)]
            assert numbers == list(range(len(numbers))), f"writer {name} has a gap"
            assert len(numbers) > acknowledged[name]
            assert len(numbers) >= before[name]
            before[name] = len(numbers)
        assert sum(before) == saved.counts["record"]
        with Memory.open(tmp_path / "new.db", embedder="hashing:64", settings=Settings()) as memory:
            last = f"n{before[0] - 1}n"
            assert last in memory.search(f"writer 0 adds {last}").results[0].record.text
        for part in tmp_path.glob("new.db*"):
            if part.is_file():
                part.unlink()
    assert all(process.poll() is None for process in processes), "a writer failed"
    tally.note("backups under load, restored", rounds=rounds, writers=WRITERS, records=sum(before))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose backup takes long enough to be killed in the middle."""
    path = tmp_path_factory.mktemp("large") / "memory.db"
    with Memory.open(path, embedder="hashing:256", settings=Settings()) as memory:
        memory.add_many({"id": str(number), "text": f"heron {number} " + "reed " * 40} for number in range(4_000))
    return path


def killed(process: subprocess.Popen[str], seconds: float) -> bool:
    """Kill a process so long after it is ready; whether it had not finished."""
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return process.stdout.readline() != "done\n"


def duration(process: subprocess.Popen[str]) -> float:
    """How long a process works after it is ready."""
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    assert process.stdout.readline() == "done\n"
    return time.monotonic() - began


@pytest.mark.ci
@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_backup_leaves_no_half_file(
    large: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]], rounds: int
) -> None:
    """Under its name there is nothing, the backup that was there before, or a whole new one."""
    folder = tmp_path / "backups"
    folder.mkdir()
    longest, interrupted = duration(start("-c", BACKUP, large, folder / "first.zip")), 0
    for number in range(rounds):
        file = folder / f"{number // 2}.zip"  # every second one replaces a backup, if the first was complete
        there = file.exists()
        early = killed(start("-c", BACKUP, large, file), random.uniform(0, longest))
        interrupted, longest = interrupted + early, longest if early else SOONER * longest
        assert file.exists() or not there
        if file.exists():
            restore(file, tmp_path / "new.db", dry_run=True)
    names = [path.name for path in folder.iterdir() if not path.name.startswith(archive.PART)]
    assert all(name.endswith(".zip") for name in names)
    assert interrupted, "none was killed in the middle"
    restore(backup(large, folder / "after.zip").backup.path, tmp_path / "new.db")
    tally.note("kill -9 of backups", rounds=rounds, killed_in_the_middle=interrupted)


@pytest.mark.ci
@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_restore_leaves_no_store(
    large: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]], rounds: int
) -> None:
    """At the place there is nothing, or all of the store; the next restore to it works."""
    file = backup(large, tmp_path / "b.zip").backup.path
    longest, interrupted = duration(start("-c", RESTORE, file, tmp_path / "first.db")), 0
    for number in range(rounds):
        place = tmp_path / "places" / f"{number}.db"
        early = killed(start("-c", RESTORE, file, place), random.uniform(0, longest))
        interrupted, longest = interrupted + early, longest if early else SOONER * longest
        if not place.exists():
            restore(file, place)
        with Memory.open(place, embedder="none", settings=Settings()) as memory:
            assert memory.status()["records"]["total"] == 4_000
    assert interrupted, "none was killed in the middle"
    tally.note("kill -9 of restores", rounds=rounds, killed_in_the_middle=interrupted)


@pytest.mark.ci
@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_restore_to_a_server_leaves_no_record(
    path: Path, tmp_path: Path, new_schema: Callable[[], str], start: Callable[..., subprocess.Popen[str]], rounds: int
) -> None:
    """Whoever has the store open sees all of its records or none, at every moment; the next restore works."""
    with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many({"text": f"heron {number} stands in the reeds"} for number in range(1_000))
    file = backup(path, tmp_path / "b.zip").backup.path
    code = f"from recollect import moving; moving.transfer.BATCH_PARTS = 50\n{RESTORE}"
    longest, interrupted, counts = duration(start("-c", code, file, new_schema())), 0, set[int]()
    for _ in range(rounds):
        place = new_schema()
        with Memory.open(place, embedder="none", settings=Settings()) as memory:
            process = start("-c", code, file, place)
            assert process.stdout.readline() == "ready\n"
            end = time.monotonic() + random.uniform(0, longest)
            while time.monotonic() < end:
                counts.add(memory.status()["records"]["total"])
            process.kill()
            process.wait()
            early = process.stdout.readline() != "done\n"
            interrupted, longest = interrupted + early, longest if early else SOONER * longest
            counts.add(memory.status()["records"]["total"])
            assert counts <= {0, 1_000}
            assert restore(file, place).counts["record"] == 1_000
            assert memory.search("heron 7", sources=["keyword"]).results[0].record.text.startswith("heron 7 ")
    assert interrupted, "none was killed in the middle"
    tally.note("kill -9 of restores to PostgreSQL", rounds=rounds, killed_in_the_middle=interrupted)


@pytest.mark.ci
def test_terminated_backup_leaves_nothing(large: Path, tmp_path: Path) -> None:
    """SIGTERM, as from a service manager, ends it with 130, and no temporary file stays."""
    folder = tmp_path / "backups"
    folder.mkdir()
    words = [sys.executable, "-m", "recollect", "--store", str(large), "backup", f"{folder}/"]
    for _ in range(100):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while process.poll() is None and not list(folder.glob(f"{archive.PART}*")):
                time.sleep(0.001)
            process.terminate()
            process.communicate()
        if process.returncode == 130:
            break
    assert process.returncode == 130, "it always finished before it was ended"
    assert not list(folder.glob(f"{archive.PART}*"))
