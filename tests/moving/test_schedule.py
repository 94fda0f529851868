"""Scheduled backups: made by `watch`, its timer and `serve` as the settings say, once each, and rotated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.forking import recollect_words

from recollect import Memory
from recollect.config import BackupSettings, Settings
from recollect.moving import archive
from recollect.moving.backups import BackupSchedule, backup, restore

PATIENCE_SECONDS = 120


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with a folder of notes and a store, for this process and those that it starts."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "none")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tea.md").write_text("# Tea\n\nAda drinks green tea.\n")
    with Memory.open(tmp_path / "memory.db", embedder="none", settings=Settings()) as memory:
        memory.add("Ada lives in Lisbon.")
    return tmp_path


@pytest.fixture
def command(home: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `recollect` with a schedule; `every_hours` is in the settings file."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: object, every_hours: float, keep: int = 2, folder: str = "backups") -> subprocess.Popen[bytes]:
        settings = f'[backup]\nfolder = "{home / folder}"\nevery_hours = {every_hours}\nkeep = {keep}\n'
        (home / "config.toml").write_text(settings)
        line = recollect_words("--config", "config.toml", "--store", "memory.db", *words)
        with (home / "log").open("wb") as log:
            started.append(subprocess.Popen(line, cwd=home, env={**os.environ}, stdout=log, stderr=log))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[bytes], home: Path) -> None:
    """Wait until something is so, while the process runs."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, (home / "log").read_text()
        assert time.monotonic() < end, (home / "log").read_text()
        time.sleep(0.05)


def backups_in(home: Path) -> list[Path]:
    """The backups in the folder, oldest first."""
    return sorted((home / "backups").glob("memory-*.zip"))


@pytest.mark.ci
@pytest.mark.parametrize("words", [("watch", "notes"), ("serve", "--port", "0", "--no-token")], ids=["watch", "serve"])
def test_running_command_makes_and_rotates_backups(command: Any, home: Path, words: tuple[str, ...]) -> None:
    """One as often as the settings say, of which so many stay; SIGTERM ends it and leaves nothing half-written."""
    process = command(*words, every_hours=0.0005)  # 1.8 seconds
    seen: set[Path] = set()

    def has_rotated() -> bool:
        seen.update(backups_in(home))
        return len(seen) >= 4 and not min(seen).exists()

    wait_for(has_rotated, process, home)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0, (home / "log").read_text()
    there = backups_in(home)
    assert 2 <= len(there) <= 3, "at most one is written but its oldest is not removed yet"
    assert len(list((home / "backups").iterdir())) == len(there), "nothing half-written stays"
    for path in there:
        assert restore(path, home / "new.db", dry_run=True).counts["record"] >= 1
    assert f"backup written: {there[0]}" in (home / "log").read_text()


@pytest.mark.ci
def test_watch_once_makes_one_that_is_due(command: Any, home: Path) -> None:
    """The timer of the service runs it every ten minutes: once a day there is a backup."""
    for _ in range(2):
        assert command("watch", "--once", "notes", every_hours=24).wait() == 0, (home / "log").read_text()
        (path,) = backups_in(home)
    assert archive.read_manifest(path).counts["record"] == 2
    assert command("watch", "--once", "notes", every_hours=1e-6).wait() == 0, (home / "log").read_text()
    assert len(backups_in(home)) == 2


@pytest.mark.ci
def test_failed_backup_does_not_end_the_watch(command: Any, home: Path) -> None:
    """It is reported, and files are still indexed."""
    (home / "taken").write_text("a file where the folder should be")
    process = command("watch", "notes", every_hours=0.0005, folder="taken")
    wait_for(lambda: "the scheduled backup failed: " in (home / "log").read_text(), process, home)
    wait_for(lambda: "1 added" in (home / "log").read_text(), process, home)
    (home / "notes" / "cat.md").write_text("# Cat\n\nAda has a cat.\n")
    wait_for(lambda: (home / "log").read_text().count("1 added") >= 2, process, home)
    assert (home / "taken").read_text() == "a file where the folder should be"


def schedule_of(memory: Memory, home: Path, lines: list[str] | None = None) -> BackupSchedule:
    """A schedule of one backup a day."""
    settings = BackupSettings(folder=str(home / "backups"))
    announce = [].append if lines is None else lines.append
    return BackupSchedule(settings, memory.store, {"RECOLLECT_STORE": str(home / "memory.db")}, announce)


def test_two_processes_make_one_backup(home: Path) -> None:
    """`watch` and `serve` may have the same settings: one of them makes what is due."""
    lines: list[str] = []
    with Memory.open(home / "memory.db", embedder="none", settings=Settings()) as memory:
        threads = [threading.Thread(target=schedule_of(memory, home, lines).run_if_due) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not schedule_of(memory, home).is_due()
    assert len(backups_in(home)) == 1
    assert lines == [f"backup written: {backups_in(home)[0]}"]


def test_backup_from_the_future_does_not_count(home: Path) -> None:
    """After a clock that was wrong was corrected, the next one is made now, not after the wrong time."""
    path = backup(home / "memory.db", f"{home}/backups/").backup.path
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    fields = json.loads(parts[archive.MANIFEST])
    with Memory.open(home / "memory.db", embedder="none", settings=Settings()) as memory:
        assert not schedule_of(memory, home).is_due()
        for days, due in ((900, True), (-2, True), (-0.5, False)):
            fields["made_at"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
            with zipfile.ZipFile(path, "w") as packed:
                for name, held in (parts | {archive.MANIFEST: json.dumps(fields).encode()}).items():
                    packed.writestr(name, held)
            assert schedule_of(memory, home).is_due() == due
