"""Restoring a backup to a new place: checked before it is used, and complete or not there at all."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect import moving, stores
from recollect.errors import UsageError
from recollect.moving import Place, Steps, archive
from recollect.moving.archive import STORE, Backup

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
    place, backup = str(place), archive.read_manifest(Path(file).expanduser())
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
    _refuse_existing(path)
    _make(path, backup, steps, copied=kind.file(place) is None)
    if kind.file(place) is None:
        with contextlib.closing(stores.open_store(place)) as store:
            store.contents.finish(steps("indexing"))
    return Restored(backup, shown, backup.counts)


def _refuse_existing(path: Path) -> None:
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
        with archive.explained(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with archive.part_folder(path) as parts:
                store = content = _unpacked(backup, parts, steps)
                if copied or backup.content != STORE:
                    store = parts / "new.db"
                    _fill(store, content, backup, steps)
                _refuse_existing(path)  # again: this took a while
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
        from recollect.stores.sqlite.snapshots import check_snapshot

        if check_snapshot(content, backup.path).counts != backup.counts:
            raise archive.damaged(backup.path, "it does not hold as many records as its manifest says")
    return content


def _add_to(place: str, backup: Backup, steps: Steps) -> dict[str, int]:
    """Restore to a store that is not one file, in one transaction where the store can do that."""
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="recollect-"))
        stack.enter_context(archive.explained(Path(name)))
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
