"""What people and JSON lines say of a record, a filter or a time, checked and turned into our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from recollect.errors import UsageError
from recollect.options import FILTERS, SCOPE_PARTS, Option
from recollect.ranking import HALF_LIVES
from recollect.types import KINDS, Record, Scope, now

MAX_TEXT = 1_000_000
"""Characters of one record; a longer text is a file, and `recollect index` splits files."""

TIMES = ("created_at", "happened_at", "expires_at")

_SPAN = re.compile(r"(\d{1,9})\s*(min|h|d|w|mo|y)", re.ASCII)
_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(map(_is_text, value))


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_lines(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(line, int) for line in value)  # noqa: PLR2004


_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "text": (lambda text: _is_text(text) and bool(text.strip()), "some text"),
        "id": (lambda key: _is_text(key) and bool(key.strip()), "a name that is not empty"),
        "kind": (lambda kind: _is_text(kind) and kind in KINDS, f"one of {', '.join(KINDS)}"),
        "title": (_is_text, "text"),
        "category": (_is_text, "text"),
        "tags": (_is_texts, "a list of text"),
        "importance": (_is_share, "a number between 0 and 1"),
        "decay": (lambda decay: _is_text(decay) and decay in HALF_LIVES, f"one of {', '.join(HALF_LIVES)}"),
        "created_at": (lambda at: isinstance(at, str | datetime), "a time"),
        "happened_at": (lambda at: isinstance(at, str | datetime), "a time"),
        "expires_at": (lambda at: isinstance(at, str | datetime), "a time"),
        "source": (_is_text, "text"),
        "path": (_is_text, "text"),
        "lines": (_is_lines, "two line numbers"),
    }
)
"""What may be said of a record: field → what its value must pass, and that in words."""


def make_record(said: Mapping[str, Any], default: Scope) -> Record:
    """A record from what was said of it, or an error that says what does not fit. None means left out."""
    _check(isinstance(said, Mapping), f"a record is an object, not {_brief(said)}", '{"text": "…"}')
    given = {name: value for name, value in said.items() if value is not None}
    scope = merge_scope(default, given.pop("scope", None), {part: given.pop(part, None) for part in SCOPE_PARTS})
    _check("text" in given, "a record needs some text", '{"text": "…"}')
    return Record(**{"id": uuid4().hex, "scope": scope, **make_fields(given)})


def make_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record from what was said of them, checked; None is what a record without that field has."""
    blank = Record("", "")
    fields: dict[str, Any] = {}
    for name, value in said.items():
        _check(name in _FIELDS, f"unknown field {name!r}", f"there are {', '.join(_FIELDS)}, scope")
        if value is None and name not in ("id", "text"):
            fields[name] = getattr(blank, name)
            continue
        fits, words = _FIELDS[name]
        _check(fits(value), f"{name} must be {words}, not {_brief(value)}", "")
        too_long = name == "text" and len(value) > MAX_TEXT
        _check(not too_long, f"the text is longer than {MAX_TEXT:,} characters", "split it, or index it")
        fields[name] = _cleaned(name, value)
    return fields


def filter_fields(filters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Filter` for filters by name, checked; None is a filter that lets everything through."""
    return {option.column or option.name: _parsed(option, filters[option.name]) for option in FILTERS
            if option.name in filters}  # fmt: skip


def _parsed(option: Option, value: Any) -> Any:
    match option.kind:
        case "flag":
            return bool(value)
        case "time":
            return parse_time(value)
        case "names":
            return clean_names(option.name, value or ())
    if value is None or (value == "" and not option.allowed):
        return () if option.allowed else None
    if option.allowed:
        known = ", ".join(option.allowed)
        _check(
            _is_text(value) and value in option.allowed, f"unknown {option.name} {_brief(value)}", f"there are {known}"
        )
        return (value,)
    _check(_is_text(value), f"a {option.name} is text, not {_brief(value)}", "")
    return clean(value)


def merge_scope(default: Scope, scope: Scope | Mapping[str, str] | None, parts: Mapping[str, str | None]) -> Scope:
    """The scope that a call names, part by part, over the one that is set."""
    named = scope.as_dict() if isinstance(scope, Scope) else scope or {}
    _check(isinstance(named, Mapping), f"a scope is an object, not {_brief(scope)}", '{"user": "ada"}')
    unknown = sorted(named.keys() - set(SCOPE_PARTS))
    _check(not unknown, f"unknown part of a scope: {', '.join(map(str, unknown))}", "there are user, agent, session")
    merged = default.as_dict() | dict(named) | {part: value for part, value in parts.items() if value is not None}
    for part, value in merged.items():
        fits = _is_text(value) and bool(value.strip())
        _check(fits, f"the {part} of a scope must be a name, not {_brief(value)}", "leave out what is not set")
    return Scope(**{part: clean(value) for part, value in merged.items()})


def parse_time(value: datetime | str | None, *, ahead: bool = False) -> datetime | None:
    """A time from ISO 8601 (`2026-03-14`, `2026-03-14T15:09Z`), or a span (`2w`, `36h`) back from now, or ahead."""
    if value is None:
        return None
    try:
        if isinstance(value, str) and (span := _SPAN.fullmatch(value.strip())):
            distance = int(span[1]) * _UNITS[span[2]]
            return now() + distance if ahead else now() - distance
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, AttributeError):
        raise UsageError(
            f"{_brief(value)} is not a time",
            hint="write 2026-03-14, 2026-03-14T15:09Z, or a span: 90min, 36h, 3d, 2w, 3mo, 1y",
        ) from None


def parse_span(words: str) -> timedelta:
    """A span of time: `90min`, `36h`, `3d`, `2w`, `3mo`, `1y`."""
    span = _SPAN.fullmatch(words.strip())
    _check(span is not None, f"{_brief(words)} is not a span of time", "write 90min, 36h, 3d, 2w, 3mo, 1y")
    return int(span[1]) * _UNITS[span[2]] if span else timedelta()


def parse_id(value: object) -> str:
    """An id as it is stored."""
    _check(_is_text(value), f"an id is text, not {_brief(value)}", "`recollect list` shows the ids that are there")
    return clean(str(value))


def clean(text: str) -> str:
    """Text that can be stored: halves of surrogate pairs, which no encoding can hold, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _cleaned(name: str, value: Any) -> Any:
    if name in TIMES:
        return parse_time(value, ahead=name == "expires_at")
    match name:
        case "tags":
            return tuple(dict.fromkeys(map(clean, value)))
        case "lines":
            return tuple(value)
        case "importance":
            return float(value)
    return clean(value)


def clean_names(name: str, value: Any) -> tuple[str, ...]:
    """One name or a list of them, as a tuple that can be stored."""
    _check(_is_text(value) or _is_texts(value), f"{name} is text or a list of text, not {_brief(value)}", "")
    return (clean(value),) if _is_text(value) else tuple(map(clean, value))


def _brief(value: object) -> str:
    """A value as it can be shown in a message: cut, and with nothing that cannot be printed."""
    try:
        shown = ascii(value)
    except ValueError:  # a number of more digits than Python writes
        shown = f"a very large {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:57]}…"  # noqa: PLR2004  (about a line)


def _check(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise UsageError(message, hint=hint)
