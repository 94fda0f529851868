"""A part of a store as one line of JSON, and back: the format that docs/moving.md describes.

The same part is always the same bytes: fields in their order, those left out that say nothing, times in microseconds,
numbers as Python writes them (the shortest form that is read back the same), UTF-8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from recollect.analysis import LANGUAGES
from recollect.moving import values as field
from recollect.moving.history import ACTIONS, check_detail
from recollect.ranking import HALF_LIVES
from recollect.types.contents import FIELDS, MOVED_META, Part

VERSION = 1
HEAD = {"recollect": "export", "version": VERSION}

_REQUIRED = object()


class _Shape(NamedTuple):
    """How a field is read, what it is where it is left out, and how it is written where that is not as it is."""

    read: Callable[[Any], Any]
    default: object = _REQUIRED
    write: Callable[[Any], Any] | None = None


_TEXT, _TEXT_OR_NONE = _Shape(field.text), _Shape(field.optional(field.text), None)
_NAME, _NAME_OR_NONE = _Shape(field.name), _Shape(field.optional(field.name), None)
_TIME = _Shape(field.time, write=field.moment)
_TIME_OR_NONE = _Shape(field.optional(field.time), None, field.moment)
_LINE_OR_NONE = _Shape(field.optional(field.whole(-field.LARGEST)), None)
_PATH = _Shape(field.path)

_SHAPES: Mapping[str, Mapping[str, _Shape]] = {
    "meta": {"name": _Shape(field.choice(MOVED_META)), "value": _NAME},
    "space": {
        "fingerprint": _NAME,
        "embedder": _NAME,
        "dimension": _Shape(field.whole(1, field.LARGEST_DIMENSION)),
    },
    "record": {
        **dict.fromkeys(FIELDS["record"], _TEXT_OR_NONE),
        **dict.fromkeys(("user", "agent", "session", "superseded_by"), _NAME_OR_NONE),
        "id": _NAME,
        "text": _TEXT,
        "kind": _Shape(field.kind),
        "title": _Shape(field.text, ""),
        "tags": _Shape(field.texts, (), list),
        "importance": _Shape(field.share),
        "decay": _Shape(field.optional(field.choice(HALF_LIVES)), None),
        "created_at": _TIME,
        **dict.fromkeys(("happened_at", "expires_at", "edited_at", "superseded_at", "forgotten_at"), _TIME_OR_NONE),
        "purged": _Shape(field.flag, default=False),
        **dict.fromkeys(("first_line", "last_line"), _LINE_OR_NONE),
    },
    "history": {
        "seq": _Shape(field.whole(1)),
        "id": _NAME,
        "action": _Shape(field.choice(ACTIONS)),
        "at": _TIME,
        "detail": _Shape(field.obj, {}),
    },
    "vector": {
        "space": _TEXT,
        "passage": _Shape(field.digest, write=bytes.hex),
        "vector": _Shape(field.floats, write=field.blob),
    },
    "file": {
        "path": _PATH,
        "root": _PATH,
        "mtime_ns": _Shape(field.whole(-field.LARGEST_NS, field.LARGEST_NS)),
        "size": _Shape(field.whole(0)),
        "digest": _TEXT,
    },
    "root": {"root": _PATH, "told": _Shape(field.folder)},
    "ingested": {"digest": _TEXT, "at": _TIME},
    "join": {"source": _TEXT, "id": _TEXT, "scope": _Shape(field.text, ""), "path": _TEXT},
    "note": {"key": _TEXT, "value": _TEXT, "at": _TIME},
}
"""Sort → field → its shape, in the order of `FIELDS`."""

_ORDER = {sort: place for place, sort in enumerate(FIELDS)}


def to_line(part: Part) -> bytes:
    """A part as its line, which is always the same."""
    said: dict[str, Any] = {"part": part.kind}
    for (name, shape), value in zip(_SHAPES[part.kind].items(), part.values, strict=True):
        if value != shape.default:
            said[name] = shape.write(value) if shape.write else value
    return _dumped(said)


def from_object(said: Any) -> Part:
    """The part of a line that was read as JSON, or a ValueError that says what does not fit."""
    sort = said.get("part") if isinstance(said, dict) else None
    if not isinstance(sort, str) or sort not in _SHAPES:
        raise ValueError(f"there is no part {sort!r}")
    shapes = _SHAPES[sort]
    for name in said.keys() - shapes.keys() - {"part"}:
        raise ValueError(f"a {sort} has no field {name!r}")
    part = Part(sort, tuple(_read(name, shape, said) for name, shape in shapes.items()))
    match sort:
        case "meta" if part.values[0] == "language":
            _check_language(part.values[1])
        case "record":
            _check_record(dict(zip(FIELDS["record"], part.values, strict=True)))
        case "history":
            check_detail(part.values[2], part.values[4])
    return part


def head_line() -> bytes:
    """The first line of an export."""
    return _dumped(HEAD)


class Sum:
    """Counts and hashes what is written or read, line by line, and knows the last line that follows from it."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(FIELDS, 0)
        self._hash = hashlib.sha256(head_line())

    def add(self, part: Part, line: bytes) -> None:
        """Count one line."""
        self.counts[part.kind] += 1
        self._hash.update(line)

    @property
    def digest(self) -> str:
        """The hash of all lines so far, the first of the file included."""
        return self._hash.hexdigest()

    def line(self) -> bytes:
        """The last line: how many of each, and the hash of all before it."""
        return _dumped({"part": "end", "counts": self.counts, "sha256": self.digest})


def written(parts: Iterable[Part], total: Sum) -> Iterator[bytes]:
    """An export, line by line."""
    yield head_line()
    for part in parts:
        line = to_line(part)
        total.add(part, line)
        yield line
    yield total.line()


def before(part: Part, other: Part | None) -> bool:
    """Whether `other` may stand in a line above this one."""
    if other is None or _ORDER[other.kind] < _ORDER[part.kind]:
        return True
    return other.kind == part.kind and other.key < part.key


def _read(name: str, shape: _Shape, said: Mapping[str, Any]) -> Any:
    if name not in said:
        if shape.default is _REQUIRED:
            raise ValueError(f"{name!r} is missing")
        return shape.default
    try:
        return shape.read(said[name])
    except ValueError as error:
        raise ValueError(f"{name!r} {error}") from None


def _check_language(value: str) -> None:
    if value not in LANGUAGES:
        raise ValueError(f"the language {value!r} is not known; there are {', '.join(LANGUAGES)}")


def _check_record(said: Mapping[str, Any]) -> None:
    if (said["first_line"] is None) != (said["last_line"] is None):
        raise ValueError("'first_line' and 'last_line' go together")
    if said["purged"] and (said["text"] or said["title"] or said["tags"] or said["forgotten_at"] is None):
        raise ValueError("a purged record has no content")


def _dumped(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
