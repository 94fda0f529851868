"""What the model said, read with patience: fences and prose are passed over, and a bad line costs that line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.models.text import well_formed

MAX_TEXT = 2000
"""Characters of one fact; a longer one is a copy of the file."""

MAX_LABEL = 40
MOST_TAGS = 8

_DECODER = json.JSONDecoder()
_FIRST = re.compile(r"^[ \t]*(?:\[|[-*]|\d+[.)])?[ \t]*(?=\{)", re.MULTILINE)
"""The beginning of a line that holds an object: bare, in a list, or after a bullet."""

_NEXT = re.compile(r"[ \t]*,?[ \t]*(?=\{)")
"""What may stand between two objects on one line."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that the model proposes."""

    text: str
    span: str = ""
    category: str | None = None
    tags: tuple[str, ...] = ()
    supersedes: str | None = None


def parse(answer: str) -> tuple[list[Candidate], list[str]]:
    """The facts of an answer, and the lines that were meant to be facts and are not."""
    candidates: list[Candidate] = []
    malformed: list[str] = []
    for value, line in _objects(answer):
        candidate = _candidate(value)
        if candidate is None:
            malformed.append(line)
        else:
            candidates.append(candidate)
    return candidates, malformed


def _objects(answer: str) -> Iterator[tuple[Any, str]]:
    """Each object with the line it begins on; None in place of one that cannot be read."""
    place = 0
    while found := (_NEXT.match(answer, place) if place else None) or _FIRST.search(answer, place):
        begin = found.end()
        line = answer[begin:].partition("\n")[0].strip()
        try:
            value, place = _DECODER.raw_decode(answer, begin)
        except (ValueError, RecursionError):
            yield None, line
            place = begin + len(answer[begin:].partition("\n")[0])
            continue
        inside = value.get("facts")
        for each in inside if isinstance(inside, list) else [value]:
            yield each, line


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
