"""The folder of an index: files of segments, and the manifest that names those that count.

The manifest is replaced, by a rename, only after the files that it names were synced. So a process that is killed
leaves the last manifest valid, and files that no manifest names; the next process that writes removes them. Others may
still have a removed file mapped.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recollect.errors import StoreError
from recollect.stores.sqlite.database import files_in
from recollect.stores.sqlite.segments import Segment, checksum_of, map_segment, write_segment

FORMAT = 1
LOCK, MANIFEST = "lock", "manifest.json"
TRIES = 3  # attempts to read a manifest whose files another process replaces meanwhile


class Key(NamedTuple):
    """What an index belongs to: a store, the analysis of its texts, and the epoch of its history."""

    store: str = ""
    analysis: str = ""
    epoch: str = ""


class FileSum(NamedTuple):
    """The size and the checksum of a file."""

    size: int
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """The segments of all changes up to number `seq`; `entry` is a hash of that change."""

    key: Key
    seq: int
    entry: str
    segments: tuple[Segment, ...] = ()


class Folder:
    """The files of one index. Nothing is created before the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, FileSum] = {}

    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / MANIFEST).exists()

    def files(self) -> list[Path]:
        """All files of the folder, also those that the next write removes."""
        return files_in(self.path)

    def read(self) -> Manifest | None:
        """What the manifest names, mapped into memory; None where anything is missing, damaged or of another format."""
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):  # another process replaced it: its manifest names others
                return self._read()
            if not self.exists():
                break
        return None

    def _read(self) -> Manifest | None:
        try:
            values = json.loads((self.path / MANIFEST).read_bytes())
            if values["format"] != FORMAT:
                return None
            segments = []
            for entry in values["segments"]:
                state = FileSum(entry["size"], entry["checksum"])
                segments.append(map_segment(self.path / entry["file"], state.size))
                self._files[entry["file"]] = state
            return Manifest(Key(*values["key"]), values["seq"], values["entry"], tuple(segments))
        except FileNotFoundError:
            raise
        except (OSError, StoreError, ValueError, KeyError, TypeError):
            return None

    def damaged(self) -> list[str]:
        """The files of the manifest whose content is not what was written."""
        with contextlib.suppress(FileNotFoundError):
            values = json.loads((self.path / MANIFEST).read_bytes())
            entries = [(entry["file"], entry["checksum"]) for entry in values["segments"]]
            return [name for name, checksum in entries if checksum_of(self.path / name) != checksum]
        return []

    @contextlib.contextmanager
    def writing(self, wait_s: float = 0.0) -> Iterator[bool]:
        """Whether this process may write until the block ends: one may at a time."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / LOCK, mode=0o600)
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            lock.acquire(timeout=wait_s)
        except (Timeout, OSError):
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def write(self, segment: Segment) -> Segment:
        """The same segment, mapped from a new file."""
        path = self.path / f"{uuid.uuid4().hex}.segment"
        state = FileSum(*write_segment(segment, path))
        self._files[path.name] = state
        return map_segment(path, state.size)

    def commit(self, manifest: Manifest) -> None:
        """Let a manifest count from now on, and remove the files that it does not name."""
        entries: list[dict[str, Any]] = []
        for segment in manifest.segments:
            size, checksum = self._files[segment.file]
            entries.append({"file": segment.file, "size": size, "checksum": checksum})
        values = {
            "format": FORMAT,
            "key": manifest.key,
            "seq": manifest.seq,
            "entry": manifest.entry,
            "segments": entries,
        }
        new = self.path / f"{MANIFEST}.new"
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(values, file)
            file.flush()
            os.fsync(file.fileno())
        self._sync()  # the names of the segments, too, must survive a power cut before the manifest does
        new.replace(self.path / MANIFEST)
        self._sync()
        self._remove_except({segment.file for segment in manifest.segments})

    def clear(self) -> None:
        """Remove everything but the lock."""
        (self.path / MANIFEST).unlink(missing_ok=True)
        self._remove_except(set())

    def _sync(self) -> None:
        if os.name != "posix":
            return
        number = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def _remove_except(self, names: set[str]) -> None:
        for path in self.files():
            if path.name not in names | {LOCK, MANIFEST}:
                with contextlib.suppress(OSError):  # Windows does not remove a file that somebody has mapped
                    path.unlink()
                self._files.pop(path.name, None)

    def missing(self, segment: Segment) -> bool:
        """Whether the file of a segment is gone, for example because somebody deleted the folder."""
        return not (self.path / segment.file).exists()
