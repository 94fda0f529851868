"""A watcher without root's rights, for which folders are closed (run by test_watch.py); prints that it saw all files.

Everything is loaded before the rights are dropped: a user without rights may not read Python's own files.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from recollect import Memory
from recollect.config import Settings
from recollect.ingest import watch as watching
from recollect.ingest.watch import watch


def follow(place: Path, *, early: bool) -> None:
    """Open a folder after the first pass; later write into it and into others, and wait for each file.

    `early`: it is opened before the watch begins, and after it was looked for folders that are closed.
    """
    notes = place / "notes"
    opened, shut = notes / "opened", [notes / f"shut-{number}" for number in range(5)]
    others = [notes / f"other-{number}" for number in range(5)]
    for folder in (*shut[:3], opened, *shut[3:], *others):  # the system may list them in this order or the other
        folder.mkdir(parents=True)
    for folder in (opened, *shut):
        folder.chmod(0)
    if early:
        look = watching._watchable

        def looked(*arguments: Any) -> Any:
            watching._watchable = look
            found = look(*arguments)
            opened.chmod(0o700)
            return found

        watching._watchable = looked
    # One after the other: a pass that any of them causes finds all that are there.
    later = [folder / "later.md" for folder in (opened, *others)]
    with Memory.open(place / "memory.db", embedder="none", settings=Settings()) as memory:
        for number, done in enumerate(watch([notes], memory.index, quiet_ms=20, announce=print)):
            if number == 0 and not early:
                opened.chmod(0o700)
                (opened / "first.md").write_text("coffee")
            elif number == 0 or str(opened / "first.md") in done.report.added:
                # After the passes that follow by themselves: what comes later needs events.
                threading.Timer(2.0, later[0].write_text, ["cocoa"]).start()
            elif str(later[0]) in done.report.added:
                later.pop(0)
                if not later:
                    break
                threading.Timer(0.2, later[0].write_text, ["cocoa"]).start()
    print("all", flush=True)  # noqa: T201


if __name__ == "__main__":
    follow(Path(sys.argv[1]) / "warm", early=False)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    follow(Path(sys.argv[1]) / "watched", early=sys.argv[2] == "early")
