"""The export format: each part of a store as one line of JSON, always the same bytes. docs/moving.md describes it."""

import base64
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from recollect.analysis import LANGUAGES
from recollect.ranking import HALF_LIVES
from recollect.stores import rows
from recollect.types import KINDS, ORIGINS
from recollect.types.parts import FIELDS, MOVED_META, Part

VERSION = 1
HEAD = {"recollect": "export", "version": VERSION}
LARGEST = 2**53  # the largest whole number that every reader of JSON keeps
LARGEST_NS = 2**63 - 1  # of nanoseconds since 1970
LARGEST_DIMENSION = 65_536
HASH_BYTES = 16
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

Reader: TypeAlias = Callable[[Any], Any]
"""Turns a value of JSON into the value that stores use; raises ValueError with what it must be."""


def rule(expected: str, read: Reader, accepts: Callable[[Any], bool] = lambda _: True) -> Reader:
    """A reader that refuses what `accepts` denies or what `read` cannot read, with "must be `expected`"."""

    def checked(value: Any) -> Any:
        try:
            if accepts(value):
                return read(value)
        except (TypeError, ValueError, OverflowError):
            pass
        raise ValueError(f"must be {expected}")

    return checked


def text(value: Any) -> str:
    """A text that can be stored."""
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004  (everything wrong with a line is one kind of error)
    try:
        _ = value.isascii() or value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair") from None
    return value


def name(value: Any) -> str:
    """A text that names something: an id, a user, a model."""
    if not text(value).strip():
        raise ValueError("must not be empty")
    return str(value)


def optional(read: Reader) -> Reader:
    """A value that may be null."""
    return lambda value: None if value is None else read(value)


def choice(names: Collection[str]) -> Reader:
    """One of these names."""
    return rule(f"one of {', '.join(names)}", str, lambda value: isinstance(value, str) and value in names)


def whole(least: int, most: int = LARGEST) -> Reader:
    """A whole number in these bounds."""
    words = f"a whole number from {least:,} to {most:,}"
    return rule(words, int, lambda value: type(value) is int and least <= value <= most)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of text")  # noqa: TRY004
    return tuple(map(text, value))


def _is_path(value: Any) -> bool:
    """Whether it is an absolute path of this or another system, without `..`."""
    absolute = [path for path in (PurePosixPath(text(value)), PureWindowsPath(value)) if path.is_absolute()]
    return bool(absolute) and ".." not in absolute[0].parts


def _micros(value: Any) -> int:
    at = rows.micros(datetime.fromisoformat(text(value)))
    if at is None or iso(at) != value:
        raise ValueError
    return at


def iso(value: int) -> str:
    """A time as it is written."""
    return (rows.moment(value) or rows.EPOCH).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _hash(value: Any) -> bytes:
    digest = bytes.fromhex(text(value))
    if len(digest) != HASH_BYTES or digest.hex() != value:
        raise ValueError
    return digest


def _vector(value: Any) -> bytes:
    """The bytes of little-endian float32 numbers."""
    vector = base64.b64decode(text(value), validate=True)
    if not vector or not np.isfinite(np.frombuffer(vector, dtype="<f4")).all() or blob(vector) != value:
        raise ValueError
    return vector


def blob(value: bytes) -> str:
    """Bytes as they are written."""
    return base64.b64encode(value).decode("ascii")


def _folder(value: Any) -> str:
    """How a folder is mirrored: an object of JSON, as text, whose known fields are of the right types."""
    try:
        options = obj(json.loads(text(value)))
        for field in ("tags", "include", "exclude"):
            _texts(options.get(field, []))
        flag(options.get("force", False))
        for part, owner in obj(options.get("scope", {})).items():
            choice(("user", "agent", "session"))(part), name(owner)
    except ValueError as error:
        raise ValueError(f"must be an object that says how a folder is mirrored: {error}") from None
    return str(value)


kind = choice(KINDS)
flag = rule("true or false", bool, lambda value: isinstance(value, bool))
obj = rule("an object", dict, lambda value: isinstance(value, dict))
path = rule("an absolute path without '..'", str, _is_path)
share = rule("a number between 0 and 1", float, lambda value: type(value) in (int, float) and 0 <= value <= 1)
time = rule("a time like 2026-03-14T15:09:26.535897Z", _micros)
any_time = rule("a time", str, lambda value: bool(datetime.fromisoformat(text(value)).astimezone(UTC)))
two_lines = rule("two whole numbers", lambda value: [whole(-LARGEST)(n) for n in value], lambda value: len(value) == 2)  # noqa: PLR2004
digest = rule(f"{HASH_BYTES} bytes as hexadecimal digits", _hash)
vector = rule("float32 numbers as base64", _vector)


def finite(value: str) -> float:
    """Refuse NaN and Infinity, which Python reads but JSON does not have."""
    if not math.isfinite(float(value)):
        raise ValueError(f"{value} is no number of JSON")
    return float(value)


_REQUIRED = object()


class _Field(NamedTuple):
    """How a field is read, its value where the line leaves it out, and how it is written where that differs."""

    read: Reader
    default: object = _REQUIRED
    write: Callable[[Any], Any] | None = None


_TEXT, _OPTIONAL_TEXT = _Field(text), _Field(optional(text), None)
_NAME, _OPTIONAL_NAME = _Field(name), _Field(optional(name), None)
_TIME, _OPTIONAL_TIME = _Field(time, write=iso), _Field(optional(time), None, iso)
_PATH, _LINE = _Field(path), _Field(optional(whole(-LARGEST)), None)

_BEFORE: Mapping[str, Reader] = {  # what an update replaced: fields of the record as they were
    "text": text, "title": text, "kind": kind, "category": optional(text), "tags": _texts, "importance": share,
    "decay": optional(choice(HALF_LIVES)), "happened_at": optional(any_time), "expires_at": optional(any_time),
    "source": optional(text), "path": optional(text), "lines": optional(two_lines),
    "origin": choice(ORIGINS), "author": optional(text), "author_session": optional(text),
    "place": optional(text),
}  # fmt: skip


def _before(value: Any) -> None:
    _check_detail(obj(value), {}, _BEFORE)


_WRITER = {"origin": choice(ORIGINS), "author": text, "author_session": text}

ACTIONS: Mapping[str, tuple[Mapping[str, Reader], Mapping[str, Reader]]] = {
    "add": ({}, {}),
    "update": ({"before": _before}, _WRITER),
    "supersede": ({"by": name}, {"from": any_time, **_WRITER}),
    "supersedes": ({"id": name}, {"made": flag}),
    "forget": ({}, _WRITER),
    "purge": ({}, _WRITER),
    "restore": ({"undid": choice(("forget", "supersede"))}, {"by": name}),
    "undo": ({"undoes": whole(1)}, _WRITER),
}
"""Action → the fields of its detail that must be there, and those that may. `undo` reads these details."""

FORMAT: Mapping[str, Mapping[str, _Field]] = {
    "meta": {"name": _Field(choice(MOVED_META)), "value": _NAME},
    "space": {"fingerprint": _NAME, "embedder": _NAME, "dimension": _Field(whole(1, LARGEST_DIMENSION))},
    "record": {
        **dict.fromkeys(FIELDS["record"], _OPTIONAL_TEXT),
        **dict.fromkeys(("user", "agent", "session", "superseded_by"), _OPTIONAL_NAME),
        **dict.fromkeys(("happened_at", "expires_at", "edited_at", "superseded_at", "forgotten_at"), _OPTIONAL_TIME),
        **dict.fromkeys(("first_line", "last_line"), _LINE),
        "id": _NAME,
        "text": _TEXT,
        "kind": _Field(kind),
        "title": _Field(text, ""),
        "tags": _Field(_texts, (), list),
        "importance": _Field(share),
        "decay": _Field(optional(choice(HALF_LIVES)), None),
        "origin": _Field(optional(choice(ORIGINS)), None),
        "created_at": _TIME,
        "purged": _Field(flag, default=False),
    },
    "history": {
        "seq": _Field(whole(1)),
        "id": _NAME,
        "action": _Field(choice(ACTIONS)),
        "at": _TIME,
        "detail": _Field(obj, {}),
    },
    "vector": {"space": _TEXT, "passage": _Field(digest, write=bytes.hex), "vector": _Field(vector, write=blob)},
    "file": {
        "path": _PATH,
        "root": _PATH,
        "mtime_ns": _Field(whole(-LARGEST_NS, LARGEST_NS)),
        "size": _Field(whole(0)),
        "digest": _TEXT,
    },
    "root": {"root": _PATH, "told": _Field(_folder)},
    "ingested": {"digest": _TEXT, "at": _TIME},
    "join": {"source": _TEXT, "id": _TEXT, "scope": _Field(text, ""), "path": _TEXT},
    "note": {"key": _TEXT, "value": _TEXT, "at": _TIME},
}
"""Kind of part → field → how it is read and written, in the order of `FIELDS`."""


def to_line(part: Part) -> bytes:
    """The line of a part; equal parts have equal lines."""
    fields: dict[str, Any] = {"part": part.kind}
    for (key, field), value in zip(FORMAT[part.kind].items(), part.values, strict=True):
        if value != field.default:
            fields[key] = field.write(value) if field.write else value
    return dumped(fields)


def from_object(line: Any) -> Part:
    """The part of a line that was parsed as JSON; ValueError if it is not valid."""
    kind_ = line.get("part") if isinstance(line, dict) else None
    if not isinstance(kind_, str) or kind_ not in FORMAT:
        raise ValueError(f"there is no part {kind_!r}")
    fields = FORMAT[kind_]
    for key in line.keys() - fields.keys() - {"part"}:
        raise ValueError(f"a {kind_} has no field {key!r}")
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key not in line and field.default is _REQUIRED:
            raise ValueError(f"{key!r} is missing")
        try:
            values[key] = field.read(line[key]) if key in line else field.default
        except ValueError as error:
            raise ValueError(f"{key!r} {error}") from None
    match kind_:
        case "meta" if values["name"] == "language" and values["value"] not in LANGUAGES:
            raise ValueError(f"the language {values['value']!r} is not known; there are {', '.join(LANGUAGES)}")
        case "record" if (values["first_line"] is None) != (values["last_line"] is None):
            raise ValueError("'first_line' and 'last_line' go together")
        case "record" if values["purged"] and (
            values["text"] or values["title"] or values["tags"] or values["forgotten_at"] is None
        ):
            raise ValueError("a purged record has no content")
        case "history" if values["detail"]:  # an empty one passes: a purge wipes the details before it
            _check_detail(values["detail"], *ACTIONS[values["action"]])
    return Part(kind_, tuple(values.values()))


def _check_detail(detail: Mapping[str, Any], required: Mapping[str, Reader], more: Mapping[str, Reader]) -> None:
    readers = {**required, **more}
    for key in required.keys() - detail.keys():
        raise ValueError(f"'detail' has no {key!r}")
    for key, value in detail.items():
        if key not in readers:
            raise ValueError(f"'detail' has a field {key!r} that is not known")
        try:
            readers[key](value)
        except ValueError as error:
            raise ValueError(f"'detail': {key!r} {error}") from None


class Sum:
    """Counts and hashes the lines of an export, and makes the last line of them."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(FIELDS, 0)
        self._hash = hashlib.sha256(dumped(HEAD))

    def add(self, part: Part, line: bytes) -> None:
        """Count one line."""
        self.counts[part.kind] += 1
        self._hash.update(line)

    @property
    def digest(self) -> str:
        """The hash of all lines so far, including the first."""
        return self._hash.hexdigest()

    def line(self) -> bytes:
        """The last line: how many parts of each kind, and the hash of all lines before it."""
        return dumped({"part": "end", "counts": self.counts, "sha256": self.digest})


def written(parts: Iterable[Part], total: Sum) -> Iterator[bytes]:
    """An export, line by line."""
    yield dumped(HEAD)
    for part in parts:
        line = to_line(part)
        total.add(part, line)
        yield line
    yield total.line()


def dumped(fields: Mapping[str, Any]) -> bytes:
    """An object as a line."""
    return _ENCODER.encode(fields).encode() + b"\n"
