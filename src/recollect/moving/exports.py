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

from recollect.disk import at_home, replacing
from recollect.errors import FailedError, UsageError, file_errors
from recollect.moving import format as export_format
from recollect.stores.rows import passage_hash
from recollect.types import now
from recollect.types.parts import FIELDS, Part
from recollect.types.records import passage_of

GZIP, START = b"\x1f\x8b", b'{"recollect":"export"'  # how a compressed export begins, and a plain one
STANDARD = "-"  # the name of standard output, and of standard input
LONGEST_LINE = 64_000_000  # bytes; a record of a million characters is far shorter
CHUNK = 1 << 20
DATA = ("meta", "space", "record", "history", "vector")  # the kinds of parts that every import adds
LONGEST_VECTOR = 1.01  # vectors have length 1; a longer one would rank first in every answer
ORIGIN = FIELDS["record"].index("origin")  # the position of a record's origin; its author and session follow
WRITER = FIELDS["record"][ORIGIN:]
IMPORT_OF = "import of "  # how the session of records begins that were imported without trust
UNTRUSTED = ("tool", "web", "import")  # origins that anybody may claim

_ORDER = list(FIELDS)
_DECODER = json.JSONDecoder(parse_float=export_format.finite, parse_constant=export_format.finite)


def write(place: str, content: Iterable[bytes]) -> None:
    """Write lines to standard output or to a file; an earlier export is replaced when the new one is complete."""
    path = at_home(place)
    try:
        if place == STANDARD:
            sys.stdout.buffer.writelines(content)
            sys.stdout.buffer.flush()
            return
        if path.exists() and not _is_export(path):
            raise UsageError(f"{path} exists and is no export", hint="name another file; it was left untouched")
        with replacing(path) as file:
            if path.suffix == ".gz":  # without name and time, so that the same content is the same bytes
                with io.BufferedWriter(gzip.GzipFile("", "wb", 6, file, mtime=0), CHUNK) as zipped:
                    zipped.writelines(content)
            else:
                file.writelines(content)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"{'standard output' if place == STANDARD else place} cannot be written: {error.strerror or error}"
        raise FailedError(message, hint="check its folder, permissions and space") from error


def _is_export(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file, contextlib.suppress(OSError, EOFError, zlib.error):
            return _plain(file).read(len(START)) == START or not path.stat().st_size
    return False


def _plain(file: IO[bytes]) -> IO[bytes]:
    """The content of a file from its beginning, decompressed if it is zipped."""
    file.seek(0)
    zipped = file.read(2) == GZIP
    file.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=file), CHUNK) if zipped else file


@contextlib.contextmanager
def read(place: str, *, trusted: bool, everything: bool) -> Iterator[ExportFile]:
    """The export in a file or on standard input. The content of a pipe is read into a temporary file first."""
    hint = "name a file that `recollect export` wrote"
    with file_errors(place, "read", hint=hint), contextlib.ExitStack() as stack:
        file: IO[bytes] = sys.stdin.buffer
        if place != STANDARD:
            file = stack.enter_context(at_home(place).open("rb"))
        if place == STANDARD or not file.seekable():
            pipe, file = file, stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(pipe, file, CHUNK)
        name = "standard input" if place == STANDARD else place
        yield ExportFile(file, name, trusted=trusted, everything=everything)


class ExportFile:
    """An export whose every line was checked, and which can be read several times.

    An export may come from anybody. Records, history and vectors are data, and always read. The other kinds control
    what a store does: which folders it reads, which texts it has read for facts, what external ids mean, and which
    cached answers it gives. They are read only with `everything`. With `trusted`, records keep their writers. Without
    it, every origin but the least trusted ones becomes `import`; `distrusted` counts these records.
    """

    def __init__(self, file: IO[bytes], name: str, *, trusted: bool, everything: bool) -> None:
        self._file, self._name, self._trusted, self._everything = file, name, trusted, everything
        self.distrusted = 0
        self._session = f"{IMPORT_OF}{now().isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        self._counts, self.left_out = dict.fromkeys(FIELDS, 0), dict.fromkeys(FIELDS, 0)
        total, passages = export_format.Sum(), set[bytes]()
        for part, line in self._lines():
            if part is not None:
                total.add(part, line)
                (self._counts if self._takes(part, passages) else self.left_out)[part.kind] += 1
                self.distrusted += not trusted and part.kind == "record" and part.field("origin") not in UNTRUSTED
            elif line != total.line():
                raise self._damaged("its lines are not those that were written: the sums in its last line differ")

    def counts(self) -> Mapping[str, int]:
        """How many parts of each kind are read."""
        return self._counts

    def parts(self) -> Iterator[Part]:
        """The parts that are read, in the order of the file."""
        passages = set[bytes]()
        parts = (part for part, _ in self._lines() if part is not None and self._takes(part, passages))
        return parts if self._trusted else (of_stranger(part, self._session) for part in parts)

    def _takes(self, part: Part, passages: set[bytes]) -> bool:
        """Whether a part is read. A vector must be of a text in the same export, so that it replaces no other."""
        if self._everything:
            return True
        if part.kind == "record":
            passages.add(passage(part))
        if part.kind == "vector":
            length = np.linalg.norm(np.frombuffer(part.field("vector"), dtype="<f4").astype(np.float64))
            return part.field("passage") in passages and bool(length <= LONGEST_VECTOR)
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
        # Only after the sums were compared: if a line is missing, these errors would name another one.
        for place, what in sorted(checks.problems()):
            raise self._damaged(f"line {place:,}: {what}")

    def _damaged(self, what: str) -> UsageError:
        return UsageError(f"{self._name} is no whole export: {what}", hint="nothing was imported")


def passage(part: Part) -> bytes:
    """The hash under which the vectors of a record are stored."""
    return passage_hash(passage_of(part.field("title"), part.field("text")))


def of_stranger(part: Part, session: str | None = None) -> Part:
    """The part without the writer of its record, unless that has an untrusted origin; `session` names the import."""
    if part.kind == "record":
        origin, author, _ = part.values[ORIGIN:]
        origin = origin if origin in UNTRUSTED else "import"
        return Part("record", (*part.values[:ORIGIN], origin, author, session))
    if part.kind == "history" and "before" in part.field("detail"):
        *fields, detail = part.values
        before = {name: value for name, value in detail["before"].items() if name not in WRITER}
        return Part("history", (*fields, {**detail, "before": before}))
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
        self._without_history: dict[str, int] = {}
        self._superseded: dict[str, tuple[int, str]] = {}

    def read(self, line: bytes, number: int) -> Part | None:
        """The part of a line; None for the first and the last."""
        if self.ended:
            raise ValueError("something follows the end")
        if number == 1 and not line.startswith(START):
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
        """Refuse a part that does not fit those before it. Keys rise, so that none occurs twice."""
        place = (_ORDER.index(part.kind), part.key)
        if self._last is not None and place <= self._last:
            raise ValueError(f"the {part.kind} {part.key[-1]!r} is not in its place")
        self._last = place
        match part.kind:
            case "space":
                self._spaces[part.field("fingerprint")] = part.field("dimension")
            case "record":
                key, successor = part.field("id"), part.field("superseded_by")
                self._records.add(key)
                self._without_history[key] = number
                if successor:
                    self._superseded[key] = number, successor
            case "vector" if len(part.field("vector")) != 4 * self._spaces.get(part.field("space"), 0):
                raise ValueError(f"the vector does not fit into the space {part.field('space')!r}")
            case "history":
                _, record, action, _, detail = part.values
                self._without_history.pop(record, None)
                if record not in self._records:
                    self.open.setdefault(record, (number, f"there is no record {record!r}"))
                elif action == "purge":
                    self.open.pop(record, None)  # it has wiped the details before it
                elif not detail and export_format.ACTIONS[action][0]:
                    self.open.setdefault(record, (number, "'detail' is empty, and no purge follows"))

    def problems(self) -> Iterator[tuple[int, str]]:
        """What is missing or impossible after the last line, each with the number of its line."""
        yield from self.open.values()
        yield from ((number, f"the record {key!r} has no history") for key, number in self._without_history.items())
        checked = set[str]()
        for key, (number, successor) in self._superseded.items():
            if successor not in self._records:
                yield number, f"the record {successor!r}, which supersedes {key!r}, is not there"
            chain, last = {key}, successor
            while last in self._superseded and last not in checked and last not in chain:
                chain.add(last)
                last = self._superseded[last][1]
            if last in chain:
                yield number, f"the record {key!r} would supersede itself"
            checked |= chain
