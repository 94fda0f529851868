"""A disk that becomes full while many records are added: the error says how many were stored, and none is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import UsageError

TOTAL = 40_000

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from recollect.cli import main
sys.exit(main(sys.argv[2:]))
"""

LINES = [{"text": f"fact number {n}: " + "some words to fill a page with " * 5} for n in range(TOTAL)]


def add(place: Path, *words: str, lines: list[dict[str, str]] = LINES) -> subprocess.CompletedProcess[str]:
    """`recollect add -` in a process of its own, or what `words` name instead of `recollect`."""
    command = [sys.executable, *(words or ("-m", "recollect")), "add", "-", "--store", str(place), "--embedder", "none"]
    given = "\n".join(map(json.dumps, lines))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=120, env=environment
    )


def stored(place: Path) -> int:
    """How many of the records are there; each at most once, and the first of those given."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        texts = [record.text for record in memory.list(limit=2 * TOTAL)]
    assert len(texts) == len(set(texts))
    assert set(texts) == {line["text"] for line in LINES[: len(texts)]}
    return len(texts)


def told(ran: subprocess.CompletedProcess[str]) -> int:
    """The number in the message."""
    assert ran.returncode == 3, ran.stderr
    found = re.search(rf"the first ([\d,]+) of {TOTAL:,} records were stored, the rest was not", ran.stderr)
    assert found, ran.stderr
    count = int(found[1].replace(",", ""))
    assert f"go on with record {count + 1:,}" in " ".join(ran.stderr.split())
    return count


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB, where this user may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.ci
def test_full_disk_reports_how_many_records_were_stored(small: Path) -> None:
    """With more room, the same command stores the rest, and nothing twice."""
    place = small / "memory.db"
    ran = add(place)
    assert "the disk is full" in ran.stderr
    assert "nothing was written" not in ran.stderr
    count = told(ran)
    assert 0 < count < TOTAL
    subprocess.run(["mount", "-o", "remount,size=128m", str(small)], check=True)
    assert stored(place) == count
    assert add(place).returncode == 0
    assert stored(place) == TOTAL


@pytest.mark.ci
@pytest.mark.skipif(os.name != "posix", reason="limits of processes are POSIX's")
def test_file_size_limit_reports_how_many_records_were_stored(tmp_path: Path) -> None:
    """Those are stored; one can continue with the named record."""
    place = tmp_path / "memory.db"
    count = told(add(place, "-c", LIMITED, "8000000"))
    assert 0 < count < TOTAL
    assert stored(place) == count
    assert add(place, lines=LINES[count:]).returncode == 0
    assert stored(place) == TOTAL


@pytest.mark.ci
def test_error_in_a_batch_reports_how_many_records_were_stored(tmp_path: Path) -> None:
    """An error that only the store can detect: an id of another scope."""
    place = tmp_path / "memory.db"
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add(LINES[0]["text"], id="taken", user="ada")
        memory.forget("taken")
    ran = add(place, lines=[*LINES[:-1], {"id": "taken", "text": "of nobody"}])
    assert ran.returncode == 2
    found = re.search(rf"the first ([\d,]+) of {TOTAL:,} records were stored", ran.stderr)
    assert found, ran.stderr
    assert "taken by a record of another scope" in ran.stderr
    assert stored(place) == int(found[1].replace(",", ""))


def test_error_in_a_postgresql_batch_reports_how_many_records_were_stored(new_schema: Callable[[], str]) -> None:
    """A transaction has at most 200."""
    with Memory.open(new_schema(), embedder="none", settings=Settings()) as memory:
        memory.add("of ada", id="taken", user="ada")
        with pytest.raises(UsageError, match="records were stored") as caught:
            memory.add_many([*LINES[:498], {"id": "taken", "text": "of nobody"}, LINES[499]])
        count = len(memory.list(limit=1000))
        assert 0 < count < 500
        assert caught.value.message.startswith(f"the first {count} of 500 records were stored")
        assert f"go on with record {count + 1}" in caught.value.hint


def test_vectors_that_do_not_fit_on_the_disk_are_reported(small: Path) -> None:
    """All records are stored and counted; a note says that only vectors are missing, and why."""
    lines = [{"text": f"fact number {n}"} for n in range(1600)]
    command = [sys.executable, "-m", "recollect", "add", "-", "--store", str(small / "memory.db")]
    ran = subprocess.run(
        [*command, "--embedder", "hashing:4096"], input="\n".join(map(json.dumps, lines)), capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0
    assert "stored without vectors: the disk is full" in ran.stderr
    assert "added 1,600 records" in ran.stderr
    with Memory.open(small / "memory.db", embedder="none", settings=Settings()) as memory:
        assert len(memory.list(limit=2000)) == 1600
