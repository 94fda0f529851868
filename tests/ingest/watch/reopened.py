"""A watcher without root's rights, for which folders are closed (run by test_watch.py); prints that it saw all files.

Everything is loaded before the rights are dropped: a user without rights may not read Python's own files.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from recollect import Memory
from recollect.config import Settings
from recollect.ingest.watch import watch


def follow(place: Path) -> None:
    """Open a folder after the first pass; later write into it and into others, and wait for those files."""
    notes = place / "notes"
    opened, shut = notes / "opened", [notes / f"shut-{number}" for number in range(5)]
    others = [notes / f"other-{number}" for number in range(5)]
    for folder in (opened, *shut, *others):
        folder.mkdir(parents=True)
    for folder in (opened, *shut):
        folder.chmod(0)
    wanted = frozenset(str(folder / "later.md") for folder in (opened, *others))
    later = set(wanted)
    with Memory.open(place / "memory.db", embedder="none", settings=Settings()) as memory:
        for number, done in enumerate(watch([notes], memory.index, quiet_ms=20, announce=print)):
            if number == 0:
                opened.chmod(0o700)
                (opened / "first.md").write_text("coffee")
            elif str(opened / "first.md") in done.report.added:
                # After the passes that follow by themselves: what comes later needs events.
                threading.Timer(2.0, lambda: [Path(path).write_text("cocoa") for path in wanted]).start()
            later -= {*done.report.added}
            if not later:
                break
    print("all", flush=True)  # noqa: T201


if __name__ == "__main__":
    follow(Path(sys.argv[1]) / "warm")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    follow(Path(sys.argv[1]) / "watched")
