"""Backups: one committed state of a store in one file, read back before it gets its name; and their rotation."""

import contextlib
import hashlib
import itertools
import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recollect import moving, stores
from recollect.config import shown_place
from recollect.errors import FailedError, RecollectError, StoreError, UsageError
from recollect.moving import Place, Steps, archive, exports
from recollect.moving.archive import EXPORT, STORE, Backup

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
    path, now = Path(target).expanduser(), datetime.now(UTC)
    folder = str(target).endswith(("/", os.sep)) or path.is_dir()
    if keep is not None and (not folder or keep < 1):
        hint = "name a folder that exists, or end its name with a slash: recollect backup backups/ --keep 7"
        raise UsageError("--keep needs a folder, and a number from 1", hint=hint)
    file = _file_of(source)
    with archive.explained(path):
        if folder:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = dated(path, file.stem if file else _SERVER, now)
        else:
            _refuse_existing(path, force)
        with archive.part_folder(path) as parts:
            made = Backup(parts / "backup", now, "", STORE if file else EXPORT, 0, "")
            made = _save(made, source, file, steps)
            archive.unpack(archive.read_manifest(made.path), None, steps("checking"))
            size = made.path.stat().st_size
            archive.put_in_place(made.path, path, replace=force and not folder)
    made = replace(made, path=path)
    removed = _remove_old(made, keep) if keep else ()
    return SavedBackup(made, size, removed)


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


def _save(made: Backup, source: Place, file: Path | None, steps: Steps) -> Backup:
    """Write the content, check it, and pack it."""
    content = made.path.with_name(made.content)
    if file is None:
        with moving.opened(source, required=True) as store:
            name = store.contents.name
        counts = _export(source, content, steps)
    else:
        from recollect.stores.sqlite.snapshots import check_snapshot, write_snapshot

        content.touch(mode=0o600)
        write_snapshot(file, content)
        try:
            checked = check_snapshot(content, file)
        except StoreError as error:
            error.explain(f"{error.message}; no backup was written", error.hint)
            raise
        name, counts = checked.name(file), checked.counts
    length, digest = archive.digest_of(content)
    made = replace(made, store=store_id(name), length=length, sha256=digest, counts=counts)
    archive.pack(made, content, steps("compressing"))
    return made


def _export(source: Place, content: Path, steps: Steps) -> dict[str, int]:
    """Write an export, and read every line of it back."""
    moved = moving.export(source, content, steps=steps)
    with exports.read(str(content), trusted=True, everything=True) as written:
        counts = dict(written.counts())
    if counts != moved.total:
        raise FailedError("the export does not hold all that was read", hint="check the disk; no backup was written")
    return counts


def store_id(name: str) -> str:
    """What a manifest calls a store: a hash of its name, because the name holds a path."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def dated_backups(folder: Path, store: str) -> list[Backup]:
    """The backups of one store with a dated name in a folder, oldest first. Other files are left out."""
    backups = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _DATED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                with contextlib.suppress(RecollectError):
                    backups.append(archive.read_manifest(path))
    return sorted((one for one in backups if one.store == store), key=lambda one: (one.made_at, one.path.name))


def _remove_old(made: Backup, keep: int) -> tuple[Path, ...]:
    """Remove the oldest backups beyond `keep`, never the one that was just made."""
    older = [one.path for one in dated_backups(made.path.parent, made.store) if one.path != made.path]
    removed = tuple(older[: max(0, len(older) - keep + 1)])
    for path in removed:
        path.unlink(missing_ok=True)
    return removed
