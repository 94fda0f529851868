"""The check of scheduled backups: none, recent, overdue, damaged."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.moving.archive import MANIFEST
from recollect.moving.backups import backup


@pytest.fixture
def scheduled(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a schedule of one backup a day; the folder of its backups."""
    monkeypatch.setenv("RECOLLECT_BACKUP_FOLDER", str(home / "backups"))
    with Memory.open(home / "memory.db", embedder="none", settings=Settings()) as memory:
        memory.add("Ada lives in Lisbon.")
    return home / "backups"


def test_without_a_schedule(doctor: Callable[..., Any]) -> None:
    """It is fine, and names the command for a single backup."""
    assert doctor()["backup"]["state"] == "ok"
    assert "recollect backup FILE" in doctor()["backup"]["message"]


def test_no_store_is_not_checked(doctor: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule may be set before the first record."""
    monkeypatch.setenv("RECOLLECT_BACKUP_FOLDER", str(home / "backups"))
    assert doctor()["backup"]["state"] == "note"


def test_missing_backup_is_a_warning(doctor: Callable[..., Any], scheduled: Path) -> None:
    """With the command that makes one."""
    finding = doctor()["backup"]
    assert (finding["state"], f"in {scheduled}" in finding["message"]) == ("warning", True)
    assert finding["mend"] == f"recollect backup {scheduled}/ --keep 7"
    assert not scheduled.exists()


def test_last_backup_is_named_with_its_time(doctor: Callable[..., Any], scheduled: Path) -> None:
    """A backup of another store in the same folder does not count."""
    made = backup(scheduled.parent / "memory.db", f"{scheduled}/").backup
    finding = doctor()["backup"]
    assert (finding["state"], str(made.path) in finding["message"]) == ("ok", True)
    assert f"{made.made_at:%Y-%m-%d at %H:%M} UTC" in finding["message"]
    with Memory.open(scheduled.parent / "other.db", embedder="none", settings=Settings()):
        assert doctor("--store", scheduled.parent / "other.db")["backup"]["state"] == "warning"


def test_overdue_backup_is_a_warning(doctor: Callable[..., Any], scheduled: Path) -> None:
    """After twice the time between two backups."""
    path = backup(scheduled.parent / "memory.db", f"{scheduled}/").backup.path
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    for hours, state in ((47, "ok"), (49, "warning")):
        fields = json.loads(parts[MANIFEST]) | {"made_at": (datetime.now(UTC) - timedelta(hours=hours)).isoformat()}
        with zipfile.ZipFile(path, "w") as packed:
            for name, held in (parts | {MANIFEST: json.dumps(fields).encode()}).items():
                packed.writestr(name, held)
        finding = doctor()["backup"]
        assert finding["state"] == state, finding
    assert "due every 24 hours" in finding["message"]


def test_damaged_backup_is_a_failure(doctor: Callable[..., Any], scheduled: Path) -> None:
    """Damage that came later is noticed."""
    path = backup(scheduled.parent / "memory.db", f"{scheduled}/").backup.path
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)
    finding = doctor()["backup"]
    assert (finding["state"], "is damaged" in finding["message"]) == ("failure", True)
