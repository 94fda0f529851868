"""Files of conversations: exports, transcripts, folders and archives of them, read value by value.

A file is a JSON array, JSON lines, or one JSON object. Arrays and lines are streamed: an export may have 500 MB. What
is broken is skipped and counted, and what was read before it stays.
"""

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import IO, Any

from recollect.disk import at_home
from recollect.errors import UsageError
from recollect.ingest.discovery import reason_of
from recollect.ingest.turns import FORMATS, Conversation

SUFFIXES = (".json", ".jsonl", ".ndjson", ".zip")
PEEKED = 50  # values from which a format is recognised: transcripts begin with lines that only say little
MAX_OBJECT = MAX_LINE = 256 * 1024 * 1024  # bytes of one JSON object; a longer one is broken
MAX_RATIO = 200  # of the size of an archive's member to its compressed size; JSON comes to about 20
UNKNOWN = "no conversation in a known format"
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


@dataclass(slots=True)
class ChatFile:
    """A file, or a member of an archive: its name, its format, and how much of it was skipped for which reasons."""

    name: str
    format: str = ""
    skipped: Counter[str] = field(default_factory=Counter)

    def skip(self, reason: str) -> None:
        """Count something that is skipped."""
        self.skipped[reason] += 1


def chat_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files that the paths name; of a folder, all below it whose suffix is that of an export or a transcript."""
    files: dict[Path, None] = {}
    for path in paths:
        place = at_home(path)
        if place.is_dir():
            below = (file for file in sorted(place.rglob("*")) if file.suffix.lower() in SUFFIXES)
            files.update(dict.fromkeys(file for file in below if file.is_file() and not file.is_symlink()))
        elif place.exists():
            files[place] = None
        else:
            raise UsageError(f"{path} does not exist", hint="name an export, a transcript or a folder of them")
    if not files:
        named = ", ".join(map(str, paths))
        raise UsageError(f"no file of conversations in {named}", hint=f"their names end in {', '.join(SUFFIXES)}")
    return list(files)


def read_chats(path: Path, format_: str | None = None) -> Iterator[tuple[ChatFile, Iterator[Conversation]]]:
    """The conversations of a file; of an archive, those of every member that is `conversations*.json`.

    The conversations of one file must be read before the next one is asked for. Errors of reading are counted.
    """
    with ExitStack() as stack:
        try:
            if path.suffix.lower() != ".zip":
                stream = stack.enter_context(path.open("rb"))
                yield _chat_file(str(path), path.stem, stream, format_)
                return
            archive = stack.enter_context(zipfile.ZipFile(path))
        except (OSError, zipfile.BadZipFile) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "not a zip archive"
            yield ChatFile(str(path), skipped=Counter([reason])), iter(())
            return
        members = [member for member in archive.infolist() if _holds_conversations(PurePath(member.filename))]
        if not members:
            yield ChatFile(str(path), skipped=Counter(["no conversations.json in the archive"])), iter(())
        for member in members:
            yield from _read_member(archive, member, str(path), format_)


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str, format_: str | None
) -> Iterator[tuple[ChatFile, Iterator[Conversation]]]:
    name = f"{path}/{member.filename}"
    if member.file_size > MAX_RATIO * max(member.compress_size, 1):
        yield ChatFile(name, skipped=Counter(["its compressed size cannot be that of a conversation"])), iter(())
        return
    try:
        with archive.open(member) as stream:
            yield _chat_file(name, PurePath(member.filename).stem, stream, format_)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # unknown compression; encrypted
        yield ChatFile(name, skipped=Counter([f"cannot be unpacked: {error}"])), iter(())


def _holds_conversations(name: PurePath) -> bool:
    return name.name.startswith("conversations") and name.suffix == ".json" and "__MACOSX" not in name.parts


def _chat_file(name: str, stem: str, stream: IO[bytes], format_: str | None) -> tuple[ChatFile, Iterator[Conversation]]:
    file = ChatFile(name, format_ or "")
    return file, _conversations(file, stem, stream)


def _conversations(file: ChatFile, stem: str, stream: IO[bytes]) -> Iterator[Conversation]:
    values = peeked(stream, file, _recognise, UNKNOWN)
    if file.format:
        yield from FORMATS[file.format].read(values, stem, file.skip)


def peeked(
    stream: IO[bytes], file: ChatFile, recognise: Callable[[Sequence[Mapping[str, Any]]], str], unknown: str
) -> Iterator[dict[str, Any]]:
    """The values of a file. If its format was not named, the first ones tell; `unknown` is noted if they do not."""
    values = json_values(stream, file)
    head = list(islice(values, PEEKED))
    file.format = file.format or recognise(head)
    if not file.format and not file.skipped:
        file.skip(unknown if head else "empty")
    return chain(head, values)


def _recognise(values: Iterable[Mapping[str, Any]]) -> str:
    """The format of the first value that has a known one; empty if no value has."""
    return next((name for value in values for name, format_ in FORMATS.items() if format_.matches(value)), "")


def json_values(stream: IO[bytes], file: ChatFile) -> Iterator[dict[str, Any]]:
    """The objects of a JSON array, of JSON lines, or the one object of a file."""
    try:
        first = _first_byte(stream)
        values = _array(stream, file) if first == b"[" else _lines(stream, file)
        for value in values:
            if isinstance(value, dict):
                yield value
            else:
                file.skip("not a JSON object")
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        file.skip(f"not read to its end: {reason_of(error) if isinstance(error, OSError) else error}")


def _first_byte(stream: IO[bytes]) -> bytes:
    """The first byte that is not blank, to which the stream goes back; a byte order mark is passed."""
    start = len(_BOM) if stream.read(len(_BOM)) == _BOM else 0
    stream.seek(start)
    while (byte := stream.read(1)) and byte in _BLANK:
        start += 1
    stream.seek(start)
    return byte


def _array(stream: IO[bytes], file: ChatFile) -> Iterator[Any]:
    import ijson

    count = 0
    try:
        for value in ijson.items(stream, "item", use_float=True):
            count += 1
            yield value
    except (ijson.JSONError, UnicodeDecodeError):
        file.skip(f"the JSON is cut off or broken; complete conversations before that: {count:,}")


def _lines(stream: IO[bytes], file: ChatFile) -> Iterator[Any]:
    start = stream.tell()
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), 1):
        if not line.strip(_BLANK + b"\0"):
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            cut = number == 1 and not line.rstrip().endswith(b"}")
            if cut and (value := _whole(stream, start)) is not None:
                yield value
                return
            file.skip("a line that is not JSON")


def _whole(stream: IO[bytes], start: int) -> Any:
    """The one object of a file that is written over several lines; None if it is broken."""
    stream.seek(start)
    try:
        return json.loads(stream.read(MAX_OBJECT))
    except (ValueError, RecursionError):
        stream.seek(start)
        stream.readline()
        return None
