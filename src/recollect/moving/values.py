"""What may stand in a field of an export, read strictly; what does not fit is a ValueError that says what should."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from recollect.stores import rows
from recollect.types import KINDS

LARGEST = 2**53
"""The largest whole number that every reader of JSON keeps; counting on from it a store has room for as many again."""

LARGEST_NS = 2**63 - 1
"""Nanoseconds since 1970 need more."""

LARGEST_DIMENSION = 65_536
HASH_BYTES = 16


def text(value: Any) -> str:
    """A text that can be stored."""
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004  (all that is wrong with a line is one kind of error)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair") from None
    return value


def name(value: Any) -> str:
    """A text that names something: an id, a user, a model."""
    if not text(value).strip():
        raise ValueError("must not be empty")
    return str(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise ValueError("must be a list of text")  # noqa: TRY004
    return tuple(map(text, value))


def choice(names: Collection[str]) -> Callable[[Any], str]:
    """One of these names."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    return read


kind = choice(KINDS)
"""A kind of record."""


def whole(least: int, most: int = LARGEST) -> Callable[[Any], int]:
    """A whole number in these bounds."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least:,} to {most:,}")
        return value

    return read


def line_numbers(value: Any) -> list[int]:
    """The first and the last line of something."""
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        raise ValueError("must be two whole numbers")
    return [whole(-LARGEST)(number) for number in value]


def path(value: Any) -> str:
    """An absolute path of this or another system, without steps upwards."""
    places = PurePosixPath(text(value)), PureWindowsPath(value)
    absolute = next((place for place in places if place.is_absolute()), None)
    if absolute is None or ".." in absolute.parts:
        raise ValueError("must be an absolute path without '..'")
    return str(value)


def share(value: Any) -> float:
    """A number between 0 and 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError("must be a number between 0 and 1")
    return float(value)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004
    return value


def obj(value: Any) -> dict[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise ValueError("must be an object")  # noqa: TRY004
    return value


def time(value: Any) -> int:
    """A time as stores keep it, of one as `moment` writes it."""
    try:
        at = rows.micros(datetime.fromisoformat(text(value)))
    except (TypeError, OverflowError, ValueError):
        at = None
    if at is None or moment(at) != value:
        raise ValueError("must be a time like 2026-03-14T15:09:26.535897Z")
    return at


def moment(value: int) -> str:
    """A time as it is written."""
    at = rows.moment(value) or rows.EPOCH
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def iso_time(value: Any) -> str:
    """A time in any form of ISO 8601, as details of history have it."""
    try:
        datetime.fromisoformat(text(value)).astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError("must be a time") from None
    return str(value)


def folder(value: Any) -> str:
    """How a folder is mirrored: an object of JSON, as text, whose known fields are of the right types."""
    try:
        said = obj(json.loads(text(value)))
        readers = {"tags": texts, "include": texts, "exclude": texts, "force": flag, "scope": obj}
        for field, read in readers.items():
            read(said.get(field, [] if read is texts else {} if read is obj else False))
        for part in said.get("scope", {}).items():
            choice(("user", "agent", "session"))(part[0]), name(part[1])
    except ValueError as error:
        raise ValueError(f"must be an object that says how a folder is mirrored: {error}") from None
    return str(value)


def digest(value: Any) -> bytes:
    """What a vector is kept under."""
    try:
        found = bytes.fromhex(text(value))
    except ValueError:
        found = b""
    if len(found) != HASH_BYTES or found.hex() != value:
        raise ValueError(f"must be {HASH_BYTES} bytes as hexadecimal digits")
    return found


def floats(value: Any) -> bytes:
    """A vector's bytes: little-endian float32, all of them numbers."""
    try:
        found = base64.b64decode(text(value), validate=True)
        right = bool(found) and bool(np.isfinite(np.frombuffer(found, dtype="<f4")).all())
    except (binascii.Error, ValueError):
        right = False
    if not right or blob(found) != value:
        raise ValueError("must be float32 numbers as base64")
    return found


def blob(value: bytes) -> str:
    """Bytes as they are written."""
    return base64.b64encode(value).decode("ascii")


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What may be null, too."""
    return lambda value: None if value is None else read(value)


def finite(value: str) -> float:
    """JSON knows no NaN and no Infinity, though Python's reader does."""
    if not math.isfinite(float(value)):
        raise ValueError(f"{value} is no number of JSON")
    return float(value)
