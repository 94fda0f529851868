"""What may stand in a field of an export, read strictly; what does not fit is a ValueError that says what should."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np

from recollect.stores import rows
from recollect.types import KINDS

LARGEST = 2**63 - 1
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


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise ValueError("must be a list of text")  # noqa: TRY004
    return tuple(map(text, value))


def kind(value: Any) -> str:
    """A kind of record."""
    if value not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return str(value)


def whole(value: Any) -> int:
    """A whole number that fits into eight bytes."""
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        raise ValueError("must be a whole number")
    return value


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
