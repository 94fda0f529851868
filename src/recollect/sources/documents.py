"""What an outside system answers: one JSON document, or one a line; anything else is an error that quotes it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from recollect.errors import SourceFailed

MOST_BYTES = 16 * 1024 * 1024
"""An answer is a few dozen rows. What is longer than this is no answer, and would fill the memory."""

SHOWN = 120
"""Characters of an answer that an error quotes."""

MOST_DIGITS = 308
"""A whole number with more may not fit into a float, which is what a score becomes."""

_BEFORE = 40
_SECRET = re.compile(r"auth|cookie|credential|key|passw|secret|token", re.IGNORECASE)
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_HINT = "it must print one JSON document, or one a line, in UTF-8"


def parse(content: bytes, who: str, secrets: Collection[str] = ()) -> Any:
    """The document, or the list of those that stand one a line; an answer with a secret in it is never quoted."""
    text = _decode(content, who, secrets)
    if not text.strip():
        raise SourceFailed(f"{who} answered with nothing", hint=f"{_HINT}; no results are an empty list: []")
    try:
        return _load(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.split("\n") if line.strip()]  # U+2028 may stand inside a document
        documents = _load_lines(lines, who, secrets) if len(lines) > 1 else None
        if documents is None:
            raise _wrong(f"{who} answered with what is not JSON", error, text, secrets) from error
        return documents


def excerpt(text: str, secrets: Collection[str] = (), *, around: int = 0, most: int = SHOWN) -> str:
    """A short piece of a text in quotes, on one line, safe to show; nothing of one that holds a secret."""
    if any(
        secret and form in text
        for secret in secrets
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
    ):
        return "(not shown, as a secret is in it)"
    start = max(0, around - _BEFORE)
    piece = text[start : start + 4 * most]
    line = " ".join("".join(char if char.isprintable() else " " for char in piece).split())
    cut = len(line) > most or start + len(piece) < len(text.rstrip())
    return f"“{'…' if start else ''}{line[:most]}{'…' if cut else ''}”"


def secrets_of(named: Mapping[str, str]) -> list[str]:
    """The values whose names say that they are nobody's business."""
    return [value for name, value in named.items() if _SECRET.search(name)]


def _decode(content: bytes, who: str, secrets: Collection[str]) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        shown = excerpt(content.decode("utf-8", "replace"), secrets)
        message = f"{who} answered with what is not UTF-8 (byte {error.start + 1}): {shown}"
        raise SourceFailed(message, hint=_HINT) from error


def _load(text: str) -> Any:
    value = json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    return _whole(value) if _HALF_PAIR.search(text) else value


def _load_lines(lines: list[str], who: str, secrets: Collection[str]) -> list[Any] | None:
    """One document a line; None where the first line is none, so that they were not meant as documents."""
    documents: list[Any] = []
    for number, line in enumerate(lines, 1):
        try:
            documents.append(_load(line))
        except (ValueError, RecursionError) as error:
            if number == 1:
                return None
            raise _wrong(
                f"{who} answered with JSON lines of which number {number} is none", error, line, secrets
            ) from error
    return documents


def _wrong(what: str, error: Exception, text: str, secrets: Collection[str]) -> SourceFailed:
    match error:
        case json.JSONDecodeError():
            return SourceFailed(f"{what}: {error.msg} at {excerpt(text, secrets, around=error.pos)}", hint=_HINT)
        case RecursionError():
            return SourceFailed(
                f"{what} that can be read: it is nested too deeply: {excerpt(text, secrets)}", hint=_HINT
            )
    return SourceFailed(f"{what} that can be read: {error}: {excerpt(text, secrets)}", hint=_HINT)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"a number has more than {MOST_DIGITS} digits")
    return int(digits)


def _whole(value: Any) -> Any:
    """The value with half surrogate pairs replaced: JSON can write them, but nothing can print or store them."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_whole(key): _whole(part) for key, part in value.items()}
        case list():
            return [_whole(part) for part in value]
    return value
