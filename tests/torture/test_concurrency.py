"""Many processes add to, search, index and embed one file at once: no error, and nothing acknowledged is missing."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.forking import ForkedProcess
from support.timing import longest, within

from .crowd import published
from .killed import opened, rows

MEMBER = Path(__file__).with_name("crowd.py")
ROLES = ["adding"] * 16 + ["searching"] * 3 + ["indexing"] * 2 + ["embedding"] * 2 + ["changing"]
WORST_WAIT_S = 2.0


@pytest.fixture
def members(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[ForkedProcess]]:
    """A process for each role, all of them ready; those that are left are killed when the test ends."""
    opened(tmp_path / "memory.db").close()
    seconds = request.getfixturevalue("seconds")
    started = [
        ForkedProcess(MEMBER, tmp_path, me, len(ROLES), seconds, role, home=tmp_path, output=tmp_path / f"said-{me}")
        for me, role in enumerate(ROLES)
    ]
    yield started
    for process in started:
        process.kill()


def reports_of(members: list[ForkedProcess], folder: Path, seconds: int) -> list[dict[str, Any]]:
    """Let all begin at once; what each reports in the end."""
    while not all(published(process.output) for process in members):
        time.sleep(0.05)
    (folder / "go").touch()
    assert [process.wait(seconds + 600) for process in members] == [0] * len(members)
    return [json.loads(published(process.output)[-1]) for process in members]


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(20, id="short", marks=[pytest.mark.ci, pytest.mark.timeout(900)]),
        pytest.param(longest(240, 600), id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
def test_many_processes_find_each_others_records_at_once(
    tmp_path: Path, members: list[ForkedProcess], tally: Callable[..., None], seconds: int
) -> None:
    """Each looks for its own record after every add, and for samples of what others had acknowledged before."""
    reports = reports_of(members, tmp_path, seconds)
    errors = [error for report in reports for error in report["errors"]]
    assert errors == [], f"{sum(report['failed'] for report in reports)} errors"
    assert all(report["counts"]["turns"] for report in reports), "nobody starves"
    counts: Counter[str] = sum((Counter(report["counts"]) for report in reports), Counter())
    longest = {kind: max(report["longest"].get(kind, 0.0) for report in reports) for kind in ("add", "search")}
    check_store(tmp_path, counts["add"])
    assert all(within(wait, WORST_WAIT_S) for wait in longest.values()), longest
    names = ("add", "search", "index", "embed", "change of model", "without a vector")
    figures = {name: counts[name] for name in names}
    waits = {f"longest_{kind}_s": wait for kind, wait in longest.items()}
    tally(f"{len(ROLES)} processes on one file", seconds=seconds, errors=0, missing=0, **figures, **waits)


def check_store(folder: Path, added: int) -> None:
    """Everything that was acknowledged is there, and what is derived is complete."""
    acknowledged = {line for file in folder.glob("acks-*") for line in published(file)}
    assert len(acknowledged) == added
    path = folder / "memory.db"
    assert {key for (key,) in rows(path, "SELECT id FROM records WHERE kind = 'fact'")} == acknowledged
    with opened(path) as memory:
        memory.embed()
        state = memory.status()
        assert state["keyword_lag"] == 0
        assert (state["vectors"]["with"], state["vectors"]["without"]) == (state["records"]["total"], 0)
