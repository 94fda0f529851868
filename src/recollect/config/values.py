"""Single values from files and calls: checks, their words for error messages, and addresses without their secrets."""

import json
import math
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from recollect.errors import ConfigError
from recollect.options import HUGE

LONGEST = 60  # characters of a wrong value that an error shows


class ValueCheck(NamedTuple):
    """The values that are accepted: a check, its description, and the conversion of an accepted value."""

    admits: Callable[[Any], bool]
    expected: str
    convert: Callable[[Any], Any] = lambda value: value


def number(low: float, high: float = math.inf, example: str = "") -> ValueCheck:
    """A number within bounds."""
    bounds = f"of {low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
    words = f"a number {bounds}{example}"
    return ValueCheck(lambda value: is_number(value) and low <= value <= high and value < HUGE, words, float)


def whole(low: int, high: int, example: str = "") -> ValueCheck:
    """A whole number within bounds."""
    words = f"a whole number from {low} to {high}{example}"
    return ValueCheck(lambda value: is_number(value) and low <= value <= high and value == int(value), words, int)


def one_of(words: Collection[str]) -> ValueCheck:
    """One of these words."""
    return ValueCheck(lambda value: value in tuple(words), f"one of {', '.join(words)}")


def is_number(value: object) -> bool:
    """Whether this is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether this is text, empty or not."""
    return isinstance(value, str)


def is_filled(value: object) -> bool:
    """Whether this is text that is not only white space."""
    return isinstance(value, str) and bool(value.strip())


FLAG = ValueCheck(lambda value: isinstance(value, bool), "true or false")
TEXT = ValueCheck(is_text, "text")
FILLED = ValueCheck(is_filled, "text that is not empty", str.strip)


def read_at_most(path: Path, most: int, hint: str) -> bytes:
    """The content of a file; ConfigError where it cannot be read, or is larger than `most` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", hint="check the file") from error
    if len(content) > most:
        raise ConfigError(f"{path} is larger than {most // 1024} KiB", hint=hint)
    return content


def brief(value: object) -> str:
    """A value in a few characters, without any that could control a terminal."""
    match value:
        case dict():  # its values may be secrets
            names = ", ".join(json.dumps(key) for key in value)[:LONGEST]
            return f"an object with {names}" if names else "an empty object"
        case list() | tuple():
            return "a list"
        case int() if not isinstance(value, bool) and abs(value) > 10**LONGEST:
            return f"a number of more than {LONGEST} digits"
    try:
        shown = json.dumps(value)
    except (TypeError, ValueError):
        shown = f"a value of type {type(value).__name__}"
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


SECRETS = ("password", "sslpassword")  # parameters of a URL that are never shown

_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
_WITH_SIGN = re.compile(r"[A-Za-z][\w+.-]+://[^/@?]*:[^/@]*\?[^/]*@")


def shown_place(place: str) -> str:
    """An address without its passwords, before the host and among the parameters."""
    if not _SCHEME.match(place):
        return place
    head = _WITH_SIGN.match(place)  # a password may hold a question mark, though it should be written %3F
    start = head.end() if head else 0
    rest, mark, query = place[start:].partition("?")
    where = place[:start] + rest
    account, at, host = where.rpartition("@")
    if at:
        scheme = account[: account.rfind("://") + 3] if "://" in account else account[: account.index(":") + 1]
        where = f"{scheme}{account[len(scheme) :].partition(':')[0]}@{host}"
    shown = "&".join(filter(None, map(_shown_parameter, query.split("&"))))
    return f"{where}{mark if shown or not query else ''}{shown}"


def parameters(url: str) -> list[tuple[str, str]]:
    """The parameters of a URL, read as libpq does: a plus sign is not a space."""
    pairs = (pair.partition("=") for pair in url.partition("?")[2].split("&") if pair)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def has_secret(place: str) -> bool:
    """Whether an address holds a password."""
    return shown_place(place) != place


def misspelt(place: str) -> bool:
    """Whether an address looks like a URL whose two slashes are missing, such as `postgresql:/host`.

    Taken for a path, it would leave a folder `postgresql:` behind. A file of that name that exists is a path.
    """
    scheme = _SCHEME.match(place)
    return scheme is not None and not place.startswith("//", scheme.end()) and not os.path.lexists(place)


def _shown_parameter(parameter: str) -> str:
    """A parameter without secrets. Its value may be an address too, such as that of a replica."""
    name, sign, value = parameter.partition("=")
    if name in SECRETS:
        return ""
    inner = unquote(value)
    return f"{name}{sign}{quote(shown_place(inner), safe='/:@,?=')}" if has_secret(inner) else parameter
