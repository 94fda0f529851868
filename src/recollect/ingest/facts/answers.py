"""What the model said, read with patience: fences and prose are passed over, and a bad line costs that line.

An answer that is not what was asked for at all (prose, half an answer, nothing) is an error, so that the piece is not
taken for one without facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.errors import LlmError
from recollect.models.endpoint import well_formed

MAX_TEXT = 2000
"""Characters of one fact; a longer one is a copy of the file."""

MAX_LABEL = 40
MOST_TAGS = 8

_DECODER = json.JSONDecoder()
_FIRST = re.compile(r"^[ \t]*(?:\[|[-*]|\d+[.)])?[ \t]*(?=\{)", re.MULTILINE)
"""The beginning of a line that holds an object: bare, in a list, or after a bullet."""

_NEXT = re.compile(r"[ \t]*,?[ \t]*(?=\{)")
"""What may stand between two objects on one line."""


_NO_FACTS = re.compile(r'^[ \t]*(?:\[\s*\]|\{\s*"facts"\s*:\s*\[\s*\]\s*\})[ \t]*$', re.MULTILINE)
"""The answer of a model that found nothing: an empty list."""

_CLOSED = re.compile(r"\}[\s,\]`]*$", re.MULTILINE)
"""The end of an object, at the end of a line."""

SHOWN = 100
"""Characters of an answer that an error quotes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that the model proposes."""

    text: str
    span: str = ""
    category: str | None = None
    tags: tuple[str, ...] = ()
    supersedes: str | None = None


def parse(answer: str) -> tuple[list[Candidate], list[str]]:
    """The facts of an answer, and the lines that were meant to be facts and are not.

    An `LlmError` says why the answer is none: it has no JSON lines and no empty list, or was cut off.
    """
    candidates: list[Candidate] = []
    malformed: list[str] = []
    unread = ""
    for value, text in _objects(answer):
        candidate = _candidate(value)
        unread = text if value is None else ""
        if candidate is None:
            malformed.append(text.partition("\n")[0].strip())
        else:
            candidates.append(candidate)
    if unread and not _CLOSED.search(unread):
        raise LlmError(f"the answer ends in the middle of a fact: {_quoted(unread)}")
    if not candidates:
        _refuse_unasked(answer, malformed)
    return candidates, malformed


def _refuse_unasked(answer: str, malformed: list[str]) -> None:
    """Refuse an answer without facts, unless it says by an empty list that there are none."""
    if not answer.strip():
        raise LlmError("the model answered nothing; where there is no fact, the answer is []")
    if malformed:
        raise LlmError(f"no line of the answer is a fact: {_quoted(malformed[0])}")
    if not _NO_FACTS.search(answer):
        raise LlmError(f"the answer is not JSON lines: {_quoted(answer)}")


def _quoted(text: str) -> str:
    """The beginning of a text on one line, with nothing in it that cannot be printed."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * SHOWN]).split())
    return f"“{line[:SHOWN]}{'…' if len(line) > SHOWN else ''}”"


def _objects(answer: str) -> Iterator[tuple[Any, str]]:
    """Each object with the text from its beginning on; None in place of one that cannot be read."""
    place = 0
    while found := (_NEXT.match(answer, place) if place else None) or _FIRST.search(answer, place):
        begin = found.end()
        text = answer[begin:]
        try:
            value, place = _DECODER.raw_decode(answer, begin)
        except (ValueError, RecursionError):
            yield None, text
            place = begin + len(text.partition("\n")[0])
            continue
        inside = value.get("facts")
        for each in inside if isinstance(inside, list) else [value]:
            yield each, text


def _candidate(value: Any) -> Candidate | None:
    if not isinstance(value, Mapping):
        return None
    text = _line(value.get("text"))
    if not text or len(text) > MAX_TEXT:
        return None
    span, tags = value.get("span"), value.get("tags")
    labels = [_label(tag) for tag in tags] if isinstance(tags, list) else []
    return Candidate(
        text=text,
        span=well_formed(span).strip() if isinstance(span, str) else "",
        category=_label(value.get("category")) or None,
        tags=tuple(dict.fromkeys(label for label in labels if label))[:MOST_TAGS],
        supersedes=_line(value.get("supersedes")) or None,
    )


def _line(value: object) -> str:
    return " ".join(well_formed(value).split()) if isinstance(value, str) else ""


def _label(value: object) -> str:
    """A category or tag: one short word or two; what is longer is none."""
    label = _line(value).casefold()
    return label if len(label) <= MAX_LABEL else ""
