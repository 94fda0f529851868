"""A watched folder that changes at random: at every quiet point its index is that of a new one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.timing import longest

from .filesystem import NOBODY

FILESYSTEM = Path(__file__).with_name("filesystem.py")
LEAST = 300  # changes that even a very busy machine makes in the time
KINDS = {
    "write", "edit", "replace", "rename", "delete", "rename_folder", "delete_folder", "swap_folder", "distort", "close",
    "close_folder", "close_ignore", "reopen", "ignore",
}  # fmt: skip


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of another user, outside of pytest's own, which only we may enter."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-watched-"))
    (folder / "notes").mkdir()
    if os.geteuid() == 0:
        for path in (folder, folder / "notes"):
            os.chown(path, NOBODY, NOBODY)
    yield folder
    for at, folders, _ in os.walk(folder):
        for name in folders:
            (Path(at) / name).chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("ops", "seconds"),
    [
        pytest.param(1_000, 120, id="short"),
        pytest.param(50_000, longest(330), id="long", marks=[pytest.mark.torture, pytest.mark.timeout(7200)]),
    ],
)
def test_watched_folder_equals_a_new_index(
    place: Path, start: Callable[..., Any], tally: Callable[..., None], ops: int, seconds: int
) -> None:
    """Files and folders made, edited, moved, replaced, closed and ignored; unreadable files keep their records."""
    out, _ = start(FILESYSTEM, place, ops, seconds, ops).communicate(timeout=3 * seconds + 300)
    report = json.loads(out)
    assert not report["faults"], "\n".join(report["faults"])
    assert all("is not a folder" in error for error in report["errors"]), report["errors"]  # while it is replaced
    assert report["kinds"].keys() >= KINDS
    assert report["kinds"]["ops"] >= LEAST
    assert report["points"] >= LEAST // 120
    assert report["checked_unreadable"] > 20
    tally("a watched folder that changes at random", changes=report["kinds"]["ops"], quiet_points=report["points"],
          passes=report["passes"], files_compared=report["files"] - report["unreadable"],
          unreadable_files_that_kept_their_records=report["checked_unreadable"], differences=0)  # fmt: skip
