"""Find Chromium, or install it where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_SECONDS = 240


def find_browser() -> str | None:
    """The browser's file; the first that is on the path."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install_browser() -> str:
    """Install it with the system's own tool, where we may; what went wrong otherwise."""
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return "no Chromium is installed, and only root on Debian installs it here: apt-get install chromium"
    with FileLock(Path(tempfile.gettempdir()) / "recollect-chromium.lock"):
        if find_browser():
            return ""
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
            ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        return f"apt-get could not install Chromium: {ran.stderr[-300:]}"


def give_up(reason: str) -> None:
    """Skip, and say why; in CI a page that was not looked at is a failure."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
