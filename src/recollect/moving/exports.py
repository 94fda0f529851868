"""Exports as files: written whole or not at all, and read only when every line is valid; gzip by name."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from recollect.disk import replacing
from recollect.errors import FailedError, UsageError
from recollect.moving import format as export_format
from recollect.stores.rows import passage_hash
from recollect.types import now
from recollect.types.parts import FIELDS, Part
from recollect.types.records import passage_of

STANDARD = "-"  # the name of standard output, and of standard input
LONGEST_LINE = 64_000_000  # bytes; a record of a million characters is far shorter

CHUNK = 1 << 20

DATA = ("meta", "space", "record", "history", "vector")  # the kinds of parts that every import takes over
LONGEST_VECTOR = 1.01  # vectors have length 1; a longer one would stand above all others in every answer

ORIGIN = FIELDS["record"].index("origin")  # the place of a record's origin; its author and its session follow
WRITER = FIELDS["record"][ORIGIN:]
UNTRUSTED = ("tool", "web", "import")  # origins that anybody may claim

_GZIP = b"\x1f\x8b"
_START = b'{"recollect":"export"'
_ORDER = list(FIELDS)
_DECODER = json.JSONDecoder(parse_float=export_format.finite, parse_constant=export_format.finite)


def write(place: str, content: Iterable[bytes]) -> None:
    """Write lines to a file, which replaces an earlier export at the end, or to standard output."""
    try:
        if place == STANDARD:
            sys.stdout.buffer.writelines(content)
            sys.stdout.buffer.flush()
        else:
            _write_file(Path(place).expanduser(), content)
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard output" if place == STANDARD else place
        raise FailedError(
            f"{name} cannot be written: {error.strerror or error}", hint="check its folder, permissions and space"
        ) from error


def _write_file(path: Path, content: Iterable[bytes]) -> None:
    """Write a new export, or replace an earlier one when the new one is complete."""
    if path.exists() and not _is_export(path):
        raise UsageError(f"{path} exists and is no export", hint="name another file; it was left untouched")
    with replacing(path) as file:
        if path.suffix == ".gz":  # without name and time, so that the same content is the same bytes
            with io.BufferedWriter(gzip.GzipFile("", "wb", 6, file, mtime=0), CHUNK) as zipped:
                zipped.writelines(content)
        else:
            file.writelines(content)


def _is_export(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file, contextlib.suppress(OSError, EOFError, zlib.error):
            return _plain(file).read(len(_START)) == _START or not path.stat().st_size
    return False


def _plain(file: IO[bytes]) -> IO[bytes]:
    file.seek(0)
    zipped = file.read(2) == _GZIP
    file.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=file), CHUNK) if zipped else file


@contextlib.contextmanager
def read(place: str, *, trusted: bool, everything: bool) -> Iterator[ExportFile]:
    """The export in a file or on standard input; what comes from a pipe is kept in a temporary file meanwhile."""
    try:
        with contextlib.ExitStack() as stack:
            file: IO[bytes] = sys.stdin.buffer
            if place != STANDARD:
                file = stack.enter_context(Path(place).expanduser().open("rb"))
            if place == STANDARD or not file.seekable():
                pipe, file = file, stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(pipe, file, CHUNK)
            name = "standard input" if place == STANDARD else place
            yield ExportFile(file, name, trusted=trusted, everything=everything)
    except OSError as error:
        raise FailedError(
            f"{place} cannot be read: {error.strerror or error}", hint="name a file that `recollect export` wrote"
        ) from error


class ExportFile:
    """An export that was checked line by line, and can be read as often as is needed.

    An export may come from anybody. Records, their history and their vectors are data, and always read. The rest is
    what a store knows of its machine, and it would be believed: which folders are mirrored, and may be opened and read
    again; what was read for facts, and is not read again; what an id of another system stands for; cached answers.
    That is read only with `everything`. Who wrote a record is believed with `trusted`. Without it, a record keeps an
    origin that is trusted least, and every other one becomes `import`; `distrusted` counts these.
    """

    def __init__(self, file: IO[bytes], name: str, *, trusted: bool, everything: bool) -> None:
        self._file = file
        self._name = name
        self._trusted = trusted
        self._everything = everything
        self.distrusted = 0
        self._session = f"import of {now().isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        self._counts, self.left_out = dict.fromkeys(FIELDS, 0), dict.fromkeys(FIELDS, 0)
        total, passages = export_format.Sum(), set[bytes]()
        for part, line in self._lines():
            if part is not None:
                total.add(part, line)
                (self._counts if self._takes(part, passages) else self.left_out)[part.kind] += 1
                self.distrusted += not trusted and part.kind == "record" and part.values[ORIGIN] not in UNTRUSTED
            elif line != total.line():
                raise self._damaged("its lines are not those that were written: the sums in its last line differ")

    def counts(self) -> Mapping[str, int]:
        """How many parts of each kind are read."""
        return self._counts

    def parts(self) -> Iterator[Part]:
        """The parts that are read, in the order of the file."""
        passages = set[bytes]()
        taken = (part for part, _ in self._lines() if part is not None and self._takes(part, passages))
        return taken if self._trusted else (of_stranger(part, self._session) for part in taken)

    def _takes(self, part: Part, passages: set[bytes]) -> bool:
        """Whether a part is read. A vector must be of a text in the same export: it may not stand for others."""
        if self._everything:
            return True
        if part.kind == "record":
            passages.add(passage(part))
        if part.kind == "vector":
            length = np.linalg.norm(np.frombuffer(part.values[2], dtype="<f4").astype(np.float64))
            return part.values[1] in passages and bool(length <= LONGEST_VECTOR)
        return part.kind in DATA

    def _lines(self) -> Iterator[tuple[Part | None, bytes]]:
        """Each part and its line, and None with the last line. An error names the number of the line."""
        number, checks = 0, _Checks()
        try:
            content = _plain(self._file)
            while line := content.readline(LONGEST_LINE):
                number += 1
                part = checks.read(line, number)
                if number > 1:
                    yield part, line
        except (OSError, EOFError, zlib.error) as error:
            raise self._damaged(f"it cannot be read beyond line {number:,}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"line {number:,}: {error}") from None
        if not checks.ended:
            raise self._damaged(f"it ends after line {number:,}, in the middle" if number else "it is empty")
        # Only now, when the sums were compared: where a line was lost, these would blame another one.
        for place, what in sorted(checks.open.values()):
            raise self._damaged(f"line {place:,}: {what}")

    def _damaged(self, what: str) -> UsageError:
        return UsageError(f"{self._name} is no whole export: {what}", hint="nothing was imported")


def passage(part: Part) -> bytes:
    """The hash under which the vectors of a record are stored."""
    return passage_hash(passage_of(part.values[3], part.values[2]))


def of_stranger(part: Part, session: str | None = None) -> Part:
    """A part that claims no trust for the writer of a record; `session` says when it was imported."""
    if part.kind == "record":
        origin, author, _ = part.values[ORIGIN:]
        origin = origin if origin in UNTRUSTED else "import"
        return Part("record", (*part.values[:ORIGIN], origin, author, session))
    if part.kind == "history" and "before" in part.values[4]:
        before = {name: value for name, value in part.values[4]["before"].items() if name not in WRITER}
        return Part("history", (*part.values[:4], {**part.values[4], "before": before}))
    return part


class _Checks:
    """Reads the lines of an export, and checks what depends on other lines: order, spaces, history of records."""

    def __init__(self) -> None:
        self.ended = False
        self.open: dict[str, tuple[int, str]] = {}
        """Record → the first line of its history that needs another line, and what is missing."""
        self._last: tuple[int, tuple[object, ...]] | None = None
        self._spaces: dict[str, int] = {}
        self._records: set[str] = set()

    def read(self, line: bytes, number: int) -> Part | None:
        """The part of a line; None for the first and the last."""
        if self.ended:
            raise ValueError("something follows the end")
        if number == 1 and not line.startswith(_START):
            raise ValueError("it does not begin as an export of Recollect does")
        fields = _DECODER.decode(line.decode("utf-8", "surrogatepass"))
        self.ended = isinstance(fields, dict) and fields.get("part") == "end"
        if number == 1:
            version = export_format.VERSION
            if fields.get("version") != version:
                raise ValueError(f"this version reads exports of version {version}, not {fields.get('version')!r}")
            if fields != export_format.HEAD:
                raise ValueError("there is more in the first line than this version knows")
        if number == 1 or self.ended:
            return None
        part = export_format.from_object(fields)
        self._check(part, number)
        return part

    def _check(self, part: Part, number: int) -> None:
        """Refuse a part that does not fit those before it. Keys rise, so that none stands there twice."""
        place = (_ORDER.index(part.kind), part.key)
        if self._last is not None and place <= self._last:
            raise ValueError(f"the {part.kind} {part.key[-1]!r} is not in its place")
        self._last = place
        match part.kind:
            case "space":
                self._spaces[part.values[0]] = part.values[2]
            case "record":
                self._records.add(part.values[0])
            case "vector" if len(part.values[2]) != 4 * self._spaces.get(part.values[0], 0):
                raise ValueError(f"the vector does not fit into the space {part.values[0]!r}")
            case "history":
                _, record, action, _, detail = part.values
                if record not in self._records:
                    self.open.setdefault(record, (number, f"there is no record {record!r}"))
                elif action == "purge":
                    self.open.pop(record, None)  # it has wiped the details before it
                elif not detail and export_format.ACTIONS[action][0]:
                    self.open.setdefault(record, (number, "'detail' is empty, and no purge follows"))
