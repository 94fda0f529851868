"""Scheduled backups, as the settings `[backup]` say: each in a process of its own, beside the work of this one."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from recollect.config import BackupSettings
from recollect.errors import FailedError, RecollectError
from recollect.moving.archive import Backup
from recollect.moving.backups import dated_backups, store_id
from recollect.types import Store

POLL_SECONDS = 60.0  # how often the folder is searched for the last backup; at least four times an interval
RETRY_SECONDS = 900.0  # when a backup that failed is tried again
NICE = 10  # the priority of the process: searches go first
STOP_SECONDS = 0.2  # how long it takes at most until a request to stop is noticed


class BackupSchedule:
    """The backups of one store in the folder of the settings. The files there tell when the next one is due.

    So it does not matter which process makes them, or whether a person does. `environment` is added to that of the
    process that makes one, and `announce` gets a line for each backup and each failure.
    """

    def __init__(
        self, settings: BackupSettings, store: Store, environment: Mapping[str, str], announce: Callable[[str], None]
    ) -> None:
        self.settings, self._store, self._environment, self._announce = settings, store, environment, announce
        self.folder = Path(settings.folder or "").expanduser()
        self.every = timedelta(hours=settings.every_hours)
        self._stop = threading.Event()

    @cached_property
    def _id(self) -> str:
        return store_id(self._store.contents.name)

    def last(self) -> Backup | None:
        """The newest backup of the store; one from the future, after the clock was corrected, does not count."""
        now = datetime.now(UTC)
        return next((one for one in reversed(dated_backups(self.folder, self._id)) if one.made_at <= now), None)

    def is_due(self) -> bool:
        """Whether it is time for the next one."""
        last = self.last()
        return last is None or last.made_at + self.every <= datetime.now(UTC)

    def run_if_due(self) -> bool:
        """Make a backup if it is time for one; whether that went well, or there was nothing to do."""
        try:
            if self.is_due():
                with self._turn() as is_ours:
                    if is_ours and self.is_due():  # another process may have just made one
                        self._run()
        except (RecollectError, OSError) as error:
            self._announce(f"the scheduled backup failed: {getattr(error, 'message', error)}")
            return False
        return True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make backups whenever they are due, until the block ends; an unfinished one is then stopped."""
        thread = threading.Thread(target=self._repeat, name="recollect-backup")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _repeat(self) -> None:
        interval, wait = self.every.total_seconds(), 0.0
        while not self._stop.wait(wait):
            wait = min(POLL_SECONDS, interval / 4) if self.run_if_due() else min(RETRY_SECONDS, interval)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[bool]:
        """Hold the lock of this store's scheduled backups, which no crash leaves; False if another process has it."""
        import platformdirs
        from filelock import FileLock, Timeout

        folder = Path(platformdirs.user_state_dir("recollect")) / "backup"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / f"{self._id}.lock").acquire(blocking=False):
                yield True
        except Timeout:
            yield False

    def _run(self) -> None:
        # -P: a `recollect.py` in the current folder is not this program.
        command = [sys.executable, "-P", "-m", "recollect", "backup", f"{self.folder}/"]
        command += ["--keep", str(self.settings.keep), "--json"]
        environment = {**os.environ, **self._environment}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment, text=True) as process:  # noqa: S603
            if hasattr(os, "setpriority"):
                with contextlib.suppress(OSError):  # it has ended already
                    os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
            output, errors = self._outcome(process)
        if process.returncode == 0:
            self._announce(f"backup written: {json.loads(output)['path']}")
        elif not self._stop.is_set():
            raise FailedError(_message(errors) or f"its process ended with {process.returncode}")

    def _outcome(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """What the process prints. It is ended when this one is asked to stop, and leaves nothing half-written."""
        while not self._stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=STOP_SECONDS)
        process.terminate()
        return process.communicate()


def _message(errors: str) -> str:
    """The message of the last line of standard error, which is JSON, or the line itself."""
    line = errors.strip().rpartition("\n")[2]
    try:
        return str(json.loads(line)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return line
