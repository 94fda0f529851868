"""Eight processes add to and search one file at once: no error, and nothing acknowledged is ever missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings

MEMBER = Path(__file__).with_name("crowd.py")
PROCESSES = 8


@pytest.mark.ci
@pytest.mark.parametrize(
    ("seconds", "least"),
    [
        pytest.param(5, 50, id="short"),
        pytest.param(60, 2000, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(600)]),
    ],
)
def test_eight_processes_find_each_others_records_at_once(
    tmp_path: Path, start: Callable[..., Any], seconds: int, least: int
) -> None:
    """Each checks its own record after every add, and samples of what the others had acknowledged before it looked."""
    members = [start(MEMBER, tmp_path, me, PROCESSES, seconds) for me in range(PROCESSES)]
    assert [member.stdout.readline() for member in members] == ["ready\n"] * PROCESSES
    for member in members:
        member.stdin.write("go\n")
        member.stdin.flush()
    reports = [json.loads(member.stdout.readline()) for member in members]
    added, own, others, failed = (sum(r[name] for r in reports) for name in ("added", "own", "others", "failed"))
    print(f"{added} acknowledged, {own + others} searches, the slowest process {min(r['added'] for r in reports)}")  # noqa: T201
    assert [member.wait(60) for member in members] == [0] * PROCESSES
    assert failed == 0, [error for report in reports for error in report["errors"]][:5]
    assert added >= least
    assert own == added
    assert others >= added
    assert all(report["added"] for report in reports), "nobody starves"
    acknowledged = {line for file in tmp_path.glob("acks-*") for line in file.read_text().split()}
    assert len(acknowledged) == added
    with Memory.open(tmp_path / "memory.db", embedder="hashing:64", settings=Settings()) as memory:
        assert {record.id for record in memory.list(limit=10**6)} == acknowledged
        assert (
            len(memory.search("record", limit=3, sources=["keyword"]).results) <= 3
        )  # it reads what no file holds yet
        assert memory.status()["keyword_lag"] == 0
        assert memory.status()["vectors"]["with"] == added
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    connection.close()
