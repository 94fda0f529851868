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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from recollect.dataclass import dataclass
from recollect.disk import sync
from recollect.errors import StoreError
from recollect.stores.sqlite.arrays import checksum_of
from recollect.stores.sqlite.blocks import Block, map_block, write_block
from recollect.stores.sqlite.database import files_in
from recollect.stores.sqlite.segments import Mask, Segment, map_segment, write_segment

T = TypeVar("T")

FORMAT = 10
LOCK, MANIFEST = "lock", "manifest.json"
WRITTEN_ROWS = 2_048  # rows in memory at which they are written to a file
FACTOR = 8  # so many files of about the same size are merged into one

TRIES = 3  # attempts to read a manifest whose files another process replaces meanwhile


class Key(NamedTuple):
    """What an index belongs to: a store, the analysis of its texts, and the epoch of its history."""

    store: str = ""
    analysis: str = ""
    epoch: str = ""

    @property
    def history(self) -> tuple[str, str]:
        """The store and its epoch: what vectors, which know no analysis, belong to."""
        return self.store, self.epoch


@dataclass(frozen=True)
class SpaceFiles:
    """The vectors of one space up to a change and a number.

    `entry` is a hash of that change, `last` one of the vector with that number, empty where this was deleted.
    """

    seq: int
    number: int
    entry: str
    last: str
    blocks: tuple[Block, ...] = ()


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
    spaces: Mapping[str, SpaceFiles] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """The names of all files that count."""
        blocks = [block.file for space in self.spaces.values() for block in space.blocks]
        return [*(segment.file for segment in self.segments), *blocks]


class Folder:
    """The files of one index. Nothing is created before the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sums: dict[str, FileSum] = {}

    def exists(self) -> bool:
        """Whether there is a manifest."""
        return (self.path / MANIFEST).exists()

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
            spaces = {
                name: SpaceFiles(**{**each, "blocks": self._mapped(each["blocks"], map_block)})
                for name, each in values["spaces"].items()
            }
            segments = self._mapped(values["segments"], map_segment)
            return Manifest(Key(*values["key"]), values["seq"], values["entry"], segments, spaces)
        except FileNotFoundError:
            raise
        except (OSError, StoreError, ValueError, KeyError, TypeError):
            return None

    def _mapped(self, entries: Sequence[Mapping[str, Any]], map_file: Callable[[Path, int], T]) -> tuple[T, ...]:
        for entry in entries:
            self._sums[entry["file"]] = FileSum(entry["size"], entry["checksum"])
        return tuple(map_file(self.path / entry["file"], entry["size"]) for entry in entries)

    def damaged(self) -> list[str]:
        """The files of the manifest whose content is not what was written."""
        manifest = self.read()
        names = manifest.files if manifest else []
        return [name for name in names if checksum_of(self.path / name) != self._sums[name].checksum]

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

    def write(self, part: T) -> T:
        """Write a segment or block to a new file, and return it mapped from there."""
        blocks, segments = ("vectors", write_block, map_block), ("segment", write_segment, map_segment)
        ending, write, map_file = cast("Any", blocks if isinstance(part, Block) else segments)
        path = self.path / f"{uuid.uuid4().hex}.{ending}"
        self._sums[path.name] = FileSum(*write(part, path))
        return cast("T", map_file(path, self._sums[path.name].size))

    def commit(self, manifest: Manifest) -> None:
        """Let a manifest count from now on, and remove the files that it does not name."""

        def listed(parts: Sequence[Segment] | Sequence[Block]) -> list[dict[str, Any]]:
            return [{"file": part.file, **self._sums[part.file]._asdict()} for part in parts]

        spaces = {name: {**vars(each), "blocks": listed(each.blocks)} for name, each in manifest.spaces.items()}
        values = {**vars(manifest), "format": FORMAT, "segments": listed(manifest.segments), "spaces": spaces}
        new = self.path / f"{MANIFEST}.new"
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(values, file)
            file.flush()
            os.fsync(file.fileno())
        sync(self.path)  # the names of the segments, too, must survive a power cut before the manifest does
        new.replace(self.path / MANIFEST)
        sync(self.path)
        if self._remove_except(set(manifest.files)):
            sync(self.path)  # what a purge removes must not be there again after a power cut

    def clear(self) -> None:
        """Remove everything but the lock."""
        (self.path / MANIFEST).unlink(missing_ok=True)
        self._remove_except(set())

    def _remove_except(self, names: set[str]) -> int:
        """Remove the other files; how many they were."""
        removed = 0
        for path in files_in(self.path):
            if path.name not in names | {LOCK, MANIFEST}:
                with contextlib.suppress(OSError):  # Windows does not remove a file that somebody has mapped
                    path.unlink()
                    self._sums.pop(path.name, None)
                    removed += 1
        return removed

    def missing(self, part: Segment | Block) -> bool:
        """Whether the file of a segment or block is gone, for example because somebody deleted the folder."""
        return not (self.path / part.file).exists()


def due(
    parts: Sequence[Any], live: Sequence[Mask | None], *, largest: int, scrub: bool = False
) -> tuple[int, int] | None:
    """The next to merge: those in memory, one with much that is not live, or many of about the same size."""
    in_memory = [not each.file for each in parts]
    if any(in_memory):
        return _run(in_memory, 1)
    sizes = [len(each) if mask is None else int(mask.sum()) for each, mask in zip(parts, live, strict=True)]
    for place, (each, size) in enumerate(zip(parts, sizes, strict=True)):
        if size < len(each) and (scrub or 2 * size < len(each)):
            return place, place + 1
    bound = 2 * WRITTEN_ROWS
    while bound < largest:
        if run := _run([size <= bound for size in sizes], FACTOR):
            return run
        bound *= FACTOR
    return None


def _run(chosen: Sequence[bool], least: int) -> tuple[int, int] | None:
    """The start and end of the first run of at least so many that are chosen."""
    start = 0
    for place, each in enumerate((*chosen, False)):
        if not each:
            if place - start >= least:
                return start, place
            start = place + 1
    return None
