"""Backups of a store: written and read back, rotated, restored, and made by schedule.

A backup is one committed state of a store in one file. Restored, a store is complete or not there at all.
"""

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from recollect import moving, stores
from recollect.config import BackupSettings, shown_place
from recollect.disk import at_home, hashed_name, own_folder
from recollect.errors import FailedError, RecollectError, StoreError, UsageError, file_errors
from recollect.moving import Place, archive, exports
from recollect.moving.archive import EXPORT, STORE, Backup
from recollect.types import Steps, Store

_DATED = re.compile(r".+-\d{4}-\d\d-\d\dT\d{6}Z(-\d+)?\.zip")  # the names that `dated` gives
_SERVER = "recollect"  # begins the name of a dated backup of a store that is no file


@dataclass(frozen=True, slots=True)
class SavedBackup:
    """A backup that was written and read back, its size on the disk, and the older ones that were removed for it."""

    backup: Backup
    size: int
    removed: tuple[Path, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**self.backup.as_dict(), "size": self.size, "removed": list(map(str, self.removed))}


def backup(
    source: Place, target: str | Path, *, force: bool = False, keep: int | None = None, steps: Steps = lambda _: None
) -> SavedBackup:
    """Write a backup of a store to a file, while others write to the store and search it.

    Before the file gets its name, it is read back and checked. If `target` is a folder or ends with a slash, the file
    there is named by store and time, and only the newest `keep` backups of this store stay in the folder. `force`
    replaces an existing backup.
    """
    path, now = at_home(target), datetime.now(UTC)
    folder = str(target).endswith(("/", os.sep)) or path.is_dir()
    if keep is not None and (not folder or keep < 1):
        hint = "name a folder that exists, or end its name with a slash: recollect backup backups/ --keep 7"
        raise UsageError("--keep needs a folder, and a number from 1", hint=hint)
    file = _file_of(source)
    with file_errors(path, hint=archive.UNWRITTEN):
        if folder:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = dated(path, file.stem if file else _SERVER, now)
        else:
            _refuse_existing(path, force)
        with archive.part_folder(path) as parts:
            new_backup = _save(parts / "backup", now, source, file, steps)
            archive.unpack(archive.read_manifest(new_backup.path), None, steps("checking"))
            size = new_backup.path.stat().st_size
            archive.put_in_place(new_backup.path, path, replace=force and not folder)
    new_backup = replace(new_backup, path=path)
    removed = _remove_old(new_backup, keep) if keep else ()
    return SavedBackup(new_backup, size, removed)


def _file_of(source: Place) -> Path | None:
    """The file that is the whole store, of which a backup is a copy; None if the backup is an export."""
    if not isinstance(source, str | Path):
        file: Path | None = getattr(source.contents, "file", None)  # stores of other packages need not have it
        source.check()
        return file
    place = str(source)
    if place == ":memory:" or not stores.exists(place):
        raise UsageError(f"there is no store at {shown_place(place)}", hint="check the name; nothing was written")
    return stores.kind_of(place).file(place)


def _refuse_existing(path: Path, force: bool) -> None:
    if path.name == exports.STANDARD:
        hint = "name a file; `recollect export -` writes JSON lines to standard output"
        raise UsageError("a backup is not written to standard output", hint=hint)
    if not path.exists() and not path.is_symlink():
        return
    try:
        archive.read_manifest(path)
    except UsageError as error:
        hint = "name another file, or delete this one; it was left untouched"
        raise UsageError(f"{path} exists and is not a whole backup", hint=hint) from error
    if not force:
        raise UsageError(f"{path} exists", hint="--force replaces it; a folder and --keep N keep several backups")


def dated(folder: Path, name: str, at: datetime) -> Path:
    """A free path for a backup of this time."""
    stem = f"{name}-{at:%Y-%m-%dT%H%M%SZ}"
    names = itertools.chain([f"{stem}.zip"], (f"{stem}-{number}.zip" for number in itertools.count(2)))
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def _save(path: Path, made_at: datetime, source: Place, file: Path | None, steps: Steps) -> Backup:
    """Write the content beside the path, check it, and pack it there."""
    content = path.with_name(STORE if file else EXPORT)
    if file is None:
        with moving.opened(source, required=True) as store:
            name = store.contents.name
        counts = _export(source, content, steps)
    else:
        from recollect.stores.sqlite.database import name_of
        from recollect.stores.sqlite.health import check_snapshot, write_snapshot

        content.touch(mode=0o600)
        write_snapshot(file, content)
        try:
            checked = check_snapshot(content, file)
        except StoreError as error:
            error.explain(f"{error.message}; no backup was written", error.hint)
            raise
        name, counts = name_of(checked.identifier, file), checked.counts
    length, digest = archive.digest_of(content)
    new_backup = Backup(path, made_at, hashed_name(name), content.name, length, digest, counts)
    archive.pack(new_backup, content, steps("compressing"))
    return new_backup


def _export(source: Place, content: Path, steps: Steps) -> dict[str, int]:
    """Write an export, and read every line of it back."""
    moved = moving.export(source, content, steps=steps)
    with exports.read(str(content), trusted=True, everything=True) as written:
        counts = dict(written.counts())
    if counts != moved.total:
        raise FailedError("the export does not hold all that was read", hint="check the disk; no backup was written")
    return counts


def dated_backups(folder: Path, store: str) -> list[Backup]:
    """The backups of one store with a dated name in a folder, oldest first. Other files are left out."""
    backups = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _DATED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                with contextlib.suppress(RecollectError):
                    backups.append(archive.read_manifest(path))
    return sorted((one for one in backups if one.store == store), key=lambda one: (one.made_at, one.path.name))


def _remove_old(new_backup: Backup, keep: int) -> tuple[Path, ...]:
    """Remove the oldest backups beyond `keep`, never the one that was just made."""
    older = [one.path for one in dated_backups(new_backup.path.parent, new_backup.store) if one.path != new_backup.path]
    removed = tuple(older[: max(0, len(older) - keep + 1)])
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


_LOGS = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Restored:
    """The backup that was restored, where to, and how many parts of each kind are there."""

    backup: Backup
    place: str
    counts: dict[str, int]
    dry_run: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"backup": self.backup.as_dict(), "place": self.place, "counts": self.counts, "dry_run": self.dry_run}


def restore(file: str | Path, place: str | Path, *, dry_run: bool = False, steps: Steps = lambda _: None) -> Restored:
    """Restore a backup to a path or URL at which there is no store.

    The new store is complete when it appears: a file gets its name at the end, and a server is filled in one
    transaction. With `dry_run` only the backup is checked, also while there is a store at the place.
    """
    place, backup = str(place), archive.read_manifest(at_home(file))
    kind = stores.kind_of(place)
    shown = kind.describe(place)
    if place == ":memory:":
        raise UsageError("a backup cannot be restored into memory", hint="name a file: --to new.db")
    if dry_run:
        archive.unpack(backup, None, steps("checking"))
        return Restored(backup, shown, backup.counts, dry_run=True)
    path = kind.truth(place)
    if path is None:
        return Restored(backup, shown, _add_to(place, backup, steps))
    _refuse_store(path)
    _make(path, backup, steps, copied=kind.file(place) is None)
    if kind.file(place) is None:
        with contextlib.closing(stores.open_store(place)) as store:
            store.contents.finish(steps("indexing"))
    return Restored(backup, shown, backup.counts)


def _refuse_store(path: Path) -> None:
    """Refuse a path that exists, and the log of a deleted store: SQLite would apply it to the new store."""
    names = [Path(f"{path}{end}") for end in ("", *_LOGS)]
    existing = [name for name in names if name.exists() or name.is_symlink()]
    if existing:
        words = "there is already a store" if existing[0] == path else "the log of an earlier store is left"
        hint = "name another place with --to; or stop every process that uses the store, and move away "
        raise UsageError(f"{words} at {existing[0]}", hint=hint + ", ".join(map(str, existing)))


def _make(path: Path, backup: Backup, steps: Steps, *, copied: bool) -> None:
    """Restore to a file that appears when it is complete.

    If it is to be `copied`, it has nothing that the restored one knew of indexes elsewhere.
    """
    new = [folder for folder in path.absolute().parents if not folder.exists()]
    try:
        with file_errors(path, hint=archive.UNWRITTEN):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with archive.part_folder(path) as parts:
                store = content = _unpacked(backup, parts, steps)
                if copied or backup.content != STORE:
                    store = parts / "new.db"
                    _fill(store, content, backup, steps)
                _refuse_store(path)  # again: this took a while
                archive.put_in_place(store, path)
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in new:
                folder.rmdir()
        raise


def _unpacked(backup: Backup, folder: Path, steps: Steps) -> Path:
    """The content of a backup as a file in a folder; a store is checked, too."""
    content = folder / backup.content
    archive.unpack(backup, content, steps("unpacking"))
    if backup.content == STORE:
        from recollect.stores.sqlite.health import check_snapshot

        if check_snapshot(content, backup.path).counts != backup.counts:
            raise archive.damaged(backup.path, "it does not hold as many records as its manifest says")
    return content


def _add_to(place: str, backup: Backup, steps: Steps) -> dict[str, int]:
    """Restore to a store that is not one file, in one transaction where the store can do that."""
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="recollect-"))
        stack.enter_context(file_errors(name, hint=archive.UNWRITTEN))
        content = _unpacked(backup, Path(name), steps)
        store = stack.enter_context(contextlib.closing(stores.open_store(place)))
        stack.enter_context(getattr(store.contents, "at_once", contextlib.nullcontext)())
        try:
            return _fill(store, content, backup, steps)
        except UsageError as error:
            if "the target" in error.message:
                error.explain(error.message, "name a place at which there is no store yet; nothing was restored")
            raise


def _fill(store: Place, content: Path, backup: Backup, steps: Steps) -> dict[str, int]:
    """Add all of a backup to a store, and read it back; returns how many parts of each kind there are."""
    if backup.content == STORE:
        return moving.copy(content, store, steps=steps).total
    return moving.import_(store, content, with_folders=True, steps=steps).total


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
        self.folder = at_home(settings.folder or "")
        self.every = timedelta(hours=settings.every_hours)
        self._stop = threading.Event()

    @cached_property
    def _id(self) -> str:
        return hashed_name(self._store.contents.name)

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
        from filelock import FileLock, Timeout

        folder = own_folder("state") / "backup"
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
