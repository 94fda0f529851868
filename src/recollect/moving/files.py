"""Exports as files: written whole or not at all, read only when every line of them is right; gzip by name."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from recollect.errors import FailedError, UsageError
from recollect.moving import lines
from recollect.moving.history import is_wiped
from recollect.moving.selection import Selection
from recollect.moving.values import finite
from recollect.types.contents import FIELDS, Part

STANDARD = "-"
"""The name of standard output, and of standard input."""

_GZIP = b"\x1f\x8b"
_START = b'{"recollect":"export"'
LONGEST_LINE = 64_000_000
"""Bytes; a record of a million signs is far shorter."""

CHUNK = 1 << 20


def write(place: str, content: Iterable[bytes]) -> None:
    """Write lines to a file, which is replaced at the end if it was an export; or to standard output."""
    try:
        if place == STANDARD:
            sys.stdout.buffer.writelines(content)
            sys.stdout.buffer.flush()
        else:
            _write_beside(Path(place).expanduser(), content)
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard output" if place == STANDARD else place
        raise FailedError(
            f"{name} cannot be written: {error.strerror or error}", hint="check its folder, permissions and space"
        ) from error


def _write_beside(path: Path, content: Iterable[bytes]) -> None:
    """Into a new file beside it that takes its place when it is whole and on the disk."""
    if path.exists() and not _is_export(path):
        raise UsageError(f"{path} is there already and is no export", hint="name another file; it was left untouched")
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as file:  # noqa: PTH123  (it is open already)
            with _zipped(file) if path.suffix == ".gz" else contextlib.nullcontext(file) as sink:
                sink.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _zipped(file: IO[bytes]) -> io.BufferedWriter:
    """Without name and time, so that the same content is the same bytes."""
    return io.BufferedWriter(gzip.GzipFile("", "wb", 6, file, mtime=0), CHUNK)


def _is_export(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file, contextlib.suppress(OSError, EOFError, zlib.error):
        return _plain(file).read(len(_START)) == _START or not path.stat().st_size
    return False


def _plain(file: IO[bytes]) -> IO[bytes]:
    """What is in a file, unzipped where it is zipped."""
    file.seek(0)
    zipped = file.read(2) == _GZIP
    file.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=file), CHUNK) if zipped else file


class ExportFile:
    """An export that was checked, line by line, and can be read as often as is needed.

    With `everything`, all of its parts are read; else the records, and what belongs to them.
    """

    def __init__(self, file: IO[bytes], name: str, *, everything: bool) -> None:
        self._file = file
        self._name = name
        self._everything = everything
        self._counts, self.left_out = dict.fromkeys(FIELDS, 0), dict.fromkeys(FIELDS, 0)
        total, selection = lines.Sum(), Selection(everything=everything)
        for part, line in self._lines():
            if part is not None:
                total.add(part, line)
                (self._counts if selection.takes(part) else self.left_out)[part.kind] += 1
            elif line != total.line():
                raise self._damage("its lines are not those that were written: the sums in its last line differ")

    def counts(self) -> Mapping[str, int]:
        """How many parts of each sort are read."""
        return self._counts

    def parts(self) -> Iterator[Part]:
        """The parts that are read, as they stand in the file."""
        selection = Selection(everything=self._everything)
        return (part for part, _ in self._lines() if part is not None and selection.takes(part))

    def _lines(self) -> Iterator[tuple[Part | None, bytes]]:
        """Each part and its line, and None with the last line. Whatever is wrong is said with the line's number."""
        number, ended = 0, False
        checks = _Checks()
        for number, line in self._numbered():
            try:
                if ended:
                    raise ValueError("something follows the end")  # noqa: TRY301
                if number == 1 and not line.startswith(_START):
                    raise ValueError("it does not begin as an export of Recollect does")  # noqa: TRY301
                said = json.loads(line, parse_float=finite, parse_constant=finite)
                ended = isinstance(said, dict) and said.get("part") == "end"
                if number == 1:
                    _check_head(said)
                    continue
                part = None if ended else lines.from_object(said)
                if part is not None:
                    checks.see(part, number)
            except (ValueError, RecursionError) as error:
                raise self._damage(f"line {number:,}: {error}") from None
            yield part, line
        if not ended:
            raise self._damage(f"it ends after line {number:,}, in the middle" if number else "it is empty")
        # Only now, when the sums were compared: where a line was lost, these would blame another one.
        for place, what in sorted(checks.open.values()):
            raise self._damage(f"line {place:,}: {what}")

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            content = _plain(self._file)
            while line := content.readline(LONGEST_LINE):
                number += 1
                yield number, line
        except (OSError, EOFError, zlib.error) as error:
            raise self._damage(f"it cannot be read beyond line {number:,}: {error}") from error

    def _damage(self, what: str) -> UsageError:
        return UsageError(f"{self._name} is no whole export: {what}", hint="nothing was imported")


class _Checks:
    """What is right only in view of other lines: order, vectors in their spaces, history of records."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[int, str]] = {}
        """Record → the first line of its history that needs another line, and what is missing."""
        self._last: Part | None = None
        self._spaces: dict[str, int] = {}
        self._records: set[str] = set()

    def see(self, part: Part, number: int) -> None:
        """Refuse a part that does not fit to those before it. Keys rise, so that nothing stands there twice."""
        if not lines.before(part, self._last):
            raise ValueError(f"the {part.kind} {part.key[-1]!r} is not in its place")
        self._last = part
        match part.kind:
            case "space":
                self._spaces[part.values[0]] = part.values[2]
            case "record":
                self._records.add(part.values[0])
            case "history":
                self._see_event(part, number)
            case "vector" if len(part.values[2]) != 4 * self._spaces.get(part.values[0], 0):
                raise ValueError(f"the vector does not fit into the space {part.values[0]!r}")

    def _see_event(self, part: Part, number: int) -> None:
        _, record, action, _, detail = part.values
        if record not in self._records:
            self.open.setdefault(record, (number, f"there is no record {record!r}"))
        elif action == "purge":
            self.open.pop(record, None)  # it has wiped the details before it
        elif is_wiped(action, detail):
            self.open.setdefault(record, (number, "'detail' is empty, and no purge follows"))


def _check_head(said: Any) -> None:
    if said.get("version") != lines.VERSION:
        raise ValueError(f"this version reads exports of version {lines.VERSION}, not {said.get('version')!r}")
    if said != lines.HEAD:
        raise ValueError("there is more in the first line than this version knows")


@contextlib.contextmanager
def read(place: str, *, everything: bool) -> Iterator[ExportFile]:
    """The export in a file or on standard input; what comes from a pipe is kept in a temporary file meanwhile."""
    try:
        with contextlib.ExitStack() as open_:
            file: IO[bytes] = sys.stdin.buffer
            if place != STANDARD:
                file = open_.enter_context(Path(place).expanduser().open("rb"))
            if place == STANDARD or not file.seekable():
                piped, file = file, open_.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(piped, file, CHUNK)
            yield ExportFile(file, "standard input" if place == STANDARD else place, everything=everything)
    except OSError as error:
        raise FailedError(
            f"{place} cannot be read: {error.strerror or error}", hint="name a file that `recollect export` wrote"
        ) from error
