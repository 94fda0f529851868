"""Folders in which work is done before it is shown, and which never outlive the work.

A folder is deleted when the work ends, however it ends. Only a killed process leaves one behind; the kernel then lets
go of the lock on it, which is how the next fetch knows it for rubbish and not for another process's work.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".staging-"

ABANDONED_AFTER_S = 3600.0
"""Where folders cannot be locked (Windows), one this old is taken for abandoned: no fetch takes an hour."""


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """An empty folder inside `root`, gone afterwards. Those that killed processes left there are swept first."""
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    folder, lock = _create(root)
    try:
        yield folder
    finally:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _create(root: Path) -> tuple[Path, int | None]:
    """A new folder and the lock on it. A sweep may take the folder before it is locked; then another is made."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        try:
            lock = _lock(folder, wait=True)
        except FileNotFoundError:
            continue
        except OSError:  # a file system without locks: nothing is swept there either
            return folder, None
        if folder.is_dir():
            return folder, lock
        if lock is not None:
            os.close(lock)


def _sweep(root: Path) -> None:
    """Delete the folders that nobody works in."""
    for folder in root.glob(f"{PREFIX}*"):
        try:
            lock = _lock(folder, wait=False)
            age_s = time.time() - folder.stat().st_mtime
        except OSError:  # another process works in it, or has just deleted it
            continue
        if lock is not None or age_s > ABANDONED_AFTER_S:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


if sys.platform == "win32":

    def _lock(folder: Path, *, wait: bool) -> int | None:  # noqa: ARG001
        """Folders cannot be locked here."""
        return None

else:
    import fcntl

    def _lock(folder: Path, *, wait: bool) -> int | None:
        """A lock on the folder, held until it is closed or the process ends; BlockingIOError if another has it."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle
