"""The file of a backup: a zip archive of a manifest and one content, a copy of a SQLite store or an export."""

import contextlib
import hashlib
import json
import os
import shutil
import struct
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from recollect.disk import give_name, sync
from recollect.errors import UPGRADE, UsageError
from recollect.moving import exports
from recollect.types import Progress

VERSION = 1
STORE, EXPORT = "memory.db", "export.jsonl"  # the two kinds of content, by the name of the member that holds it
MANIFEST = "manifest.json"
UNWRITTEN = "check its folder, permissions and space; nothing was left there"

LEVEL = 1  # of the compression: higher ones take three times as long and save a seventh
CHUNK = 1 << 20
LONGEST_MANIFEST = 1 << 20  # bytes; one has a few hundred
PART = ".recollect-part-"  # begins the names of the folders for files that are not complete
LEFTOVER_SECONDS = 86_400.0  # a folder of this age belongs to a process that was killed

_START = b"PK\x03\x04"  # of a zip archive
_SQLITE = b"SQLite format 3\0"
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError,
    TypeError, AttributeError, OverflowError,
)  # fmt: skip
"""What Python raises for an archive that is damaged, or whose compression it does not know (NotImplementedError)."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup and its manifest: of which store it is, from when, and what it holds.

    `length` in bytes and `sha256` are those of the content before it was compressed.
    """

    path: Path
    made_at: datetime
    store: str
    content: str
    length: int
    sha256: str
    counts: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "path": str(self.path), "made_at": self.made_at.isoformat()}

    def manifest(self) -> bytes:
        """The first member of the archive."""
        fields = {"recollect": "backup", "version": VERSION, **self.as_dict()}
        del fields["path"]
        return json.dumps(fields, indent=1).encode()


def pack(backup: Backup, content: Path, progress: Progress | None = None) -> None:
    """Write the archive to the backup's path, which must not exist; readable by its owner only, and on the disk."""
    number = os.open(backup.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            archive.writestr(MANIFEST, backup.manifest())
            with content.open("rb") as source, archive.open(backup.content, "w", force_zip64=True) as target:
                _copy(source, target, backup.length, progress)
        file.flush()
        os.fsync(number)


def _copy(source: IO[bytes], target: IO[bytes] | None, most: int, progress: Progress | None = None) -> tuple[int, str]:
    """Copy up to a little more than `most` bytes; returns how many, and their SHA-256."""
    digest, count = hashlib.sha256(), 0
    while count <= most and (chunk := source.read(CHUNK)):
        digest.update(chunk)
        count += len(chunk)
        if target is not None:
            target.write(chunk)
        if progress:
            progress(min(count, most), most)
    return count, digest.hexdigest()


def digest_of(file: Path) -> tuple[int, str]:
    """The length of a file and its SHA-256."""
    with file.open("rb") as source:
        return _copy(source, None, file.stat().st_size)


def read_manifest(path: Path) -> Backup:
    """The backup at a path; UsageError if the file is missing, damaged, newer, or no backup."""
    try:
        with path.open("rb") as file:
            start = file.read(len(exports.START))
        if not start.startswith(_START):
            raise _foreign(path, start)
        with zipfile.ZipFile(path) as archive:
            if MANIFEST not in archive.namelist() or archive.getinfo(MANIFEST).file_size > LONGEST_MANIFEST:
                raise _foreign(path)
            fields = json.loads(archive.read(MANIFEST))
    except OSError as error:
        hint = "name a file that `recollect backup` wrote; `recollect undo ID` undoes a change to a record"
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error
    except _UNREADABLE as error:
        raise damaged(path, "its table of contents or its manifest cannot be read") from error
    if not isinstance(fields, dict) or fields.get("recollect") != "backup":
        raise _foreign(path)
    if fields.get("version") != VERSION:
        message = f"{path} is a backup of version {fields.get('version')!r}; this program reads version {VERSION}"
        raise UsageError(message, hint=f"upgrade: {UPGRADE}")
    try:
        return _backup(path, fields)
    except _UNREADABLE as error:
        raise damaged(path, f"its manifest is not valid: {error}") from error


def _backup(path: Path, fields: dict[str, Any]) -> Backup:
    if fields["content"] not in (STORE, EXPORT):
        raise ValueError(f"unknown content {fields['content']!r}")
    made_at = datetime.fromisoformat(fields["made_at"]).astimezone(UTC)
    store, content, sha256 = (str(fields[name]) for name in ("store", "content", "sha256"))
    counts = {str(kind): int(count) for kind, count in fields["counts"].items()}
    return Backup(path, made_at, store, content, int(fields["length"]), sha256, counts)


def _foreign(path: Path, start: bytes = b"") -> UsageError:
    if not start and not path.stat().st_size:
        return UsageError(f"{path} is empty", hint="use another backup")
    if start.startswith(_SQLITE):
        hint = f"if it is a store, `recollect copy {path} PLACE` copies it"
        return UsageError(f"{path} is a SQLite database, not a backup", hint=hint)
    if start.startswith((exports.START, exports.GZIP)):
        hint = f"if it is an export of your own: recollect --store PLACE import {path} --with-folders"
        return UsageError(f"{path} is not a backup; it may be an export", hint=hint)
    return UsageError(f"{path} is not a backup of Recollect", hint="name a file that `recollect backup` wrote")


def damaged(path: Path, reason: str) -> UsageError:
    """The error for a backup that is not as it was written."""
    return UsageError(f"{path} is damaged or cut short: {reason}", hint="use another backup; nothing was restored")


def unpack(backup: Backup, target: Path | None, progress: Progress | None) -> None:
    """Write the content to a new file, and check its length and hash; without a target it is only checked."""
    with contextlib.ExitStack() as stack:
        file: IO[bytes] | None = None
        if target is not None:
            number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            file = stack.enter_context(os.fdopen(number, "wb"))
        try:
            archive = stack.enter_context(zipfile.ZipFile(backup.path))
            member = stack.enter_context(archive.open(backup.content))
            measured = _copy(member, file, backup.length, progress)
        except _UNREADABLE as error:
            raise damaged(backup.path, f"its content cannot be read: {error}") from error
        if measured != (backup.length, backup.sha256):
            raise damaged(backup.path, "its content is not what was written, its SHA-256 differs")
        if file is not None:
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def part_folder(beside: Path) -> Iterator[Path]:
    """A folder beside a file for incomplete files. It is removed at the end, and so are those of killed processes."""
    for folder in beside.parent.glob(f"{PART}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > LEFTOVER_SECONDS:
                shutil.rmtree(folder)
    new = beside.with_name(f"{PART}{uuid.uuid4().hex}")  # before `try`: an interrupt may come as soon as it is made
    try:
        new.mkdir(mode=0o700)
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def put_in_place(file: Path, target: Path, *, replace: bool = False) -> None:
    """Give a complete file its name in one step. A file that is there stays, unless it is to be replaced."""
    if replace:
        file.replace(target)
        sync(target.parent)
    elif not give_name(file, target):
        raise UsageError(f"{target} exists by now; it was left untouched", hint="name another file")
