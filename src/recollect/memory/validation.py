"""Records, filters, scopes and times from the arguments of a call, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from recollect.config.values import FILLED, TEXT, ValueCheck, brief, is_text, number, one_of
from recollect.errors import UsageError
from recollect.options import FILTERS, SCOPE_PARTS, Option
from recollect.ranking import HALF_LIVES
from recollect.types import KINDS, Record, Scope, now

MAX_TEXT = 1_000_000
"""Characters of one record. A longer text belongs into a file, which `recollect index` splits."""

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


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(map(is_text, value))


def _is_lines(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(line, int) for line in value)  # noqa: PLR2004


_TIME = ValueCheck(lambda at: isinstance(at, str | datetime), "a time")

_FIELDS: Mapping[str, ValueCheck] = MappingProxyType(
    {
        **dict.fromkeys(("text", "id"), FILLED),
        "kind": one_of(KINDS),
        **dict.fromkeys(("title", "category", "source", "path"), TEXT),
        "tags": ValueCheck(_is_texts, "a list of texts"),
        "importance": number(0, 1),
        "decay": one_of(HALF_LIVES),
        **dict.fromkeys(TIMES, _TIME),
        "lines": ValueCheck(_is_lines, "two line numbers"),
    }
)
"""The fields of a record that can be set, and the values they take."""


def make_record(values: Mapping[str, Any], default: Scope) -> Record:
    """A record from its fields, checked; None means left out."""
    _check(isinstance(values, Mapping), f"a record must be an object, not {brief(values)}", '{"text": "…"}')
    given = {name: value for name, value in values.items() if value is not None}
    scope = merge_scope(default, given.pop("scope", None), {part: given.pop(part, None) for part in SCOPE_PARTS})
    _check("text" in given, "a record needs a text", '{"text": "…"}')
    return Record(**{"id": uuid4().hex, "scope": scope, **make_fields(given)})


def make_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record, checked; None clears a field."""
    blank = Record("", "")
    fields: dict[str, Any] = {}
    for name, value in values.items():
        _check(name in _FIELDS, f"unknown field {name!r}", f"there are {', '.join(_FIELDS)}, scope")
        if value is None and name not in ("id", "text"):
            fields[name] = getattr(blank, name)
            continue
        _check(not (is_text(value) and name in ("id", "text") and not value.strip()), f"{name} must not be empty", "")
        _check(_FIELDS[name].admits(value), f"{name} must be {_FIELDS[name].expected}, not {brief(value)}", "")
        too_long = name == "text" and len(value) > MAX_TEXT
        _check(not too_long, f"the text is longer than {MAX_TEXT:,} characters", "split it, or index it as a file")
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
            return clean_names(option.name, () if value is None else value)
    if value is None or (value == "" and not option.allowed):
        return () if option.allowed else None
    if option.allowed:
        known = ", ".join(option.allowed)
        _check(
            is_text(value) and value in option.allowed, f"unknown {option.name} {brief(value)}", f"there are {known}"
        )
        return (value,)
    _check(is_text(value), f"{option.name} must be text, not {brief(value)}", "")
    return clean(value)


def merge_scope(default: Scope, scope: Scope | Mapping[str, str] | None, parts: Mapping[str, str | None]) -> Scope:
    """The default scope with the parts that a call names."""
    named = scope.as_dict() if isinstance(scope, Scope) else scope or {}
    _check(isinstance(named, Mapping), f"a scope must be an object, not {brief(scope)}", '{"user": "ada"}')
    unknown = sorted(named.keys() - set(SCOPE_PARTS))
    _check(not unknown, f"unknown part of a scope: {', '.join(map(str, unknown))}", "there are user, agent, session")
    merged = default.as_dict() | dict(named) | {part: value for part, value in parts.items() if value is not None}
    for part, value in merged.items():
        fits = is_text(value) and bool(value.strip())
        _check(fits, f"the {part} of a scope must be a name, not {brief(value)}", "leave out a part that is not set")
    return Scope(**{part: clean(value) for part, value in merged.items()})


def parse_time(value: datetime | str | None, *, ahead: bool = False) -> datetime | None:
    """A time from ISO 8601 (`2026-03-14`, `2026-03-14T15:09Z`), or a span (`2w`, `36h`) before now, or after it."""
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
            f"{brief(value)} is not a time",
            hint="write 2026-03-14, 2026-03-14T15:09Z, or a span: 90min, 36h, 3d, 2w, 3mo, 1y",
        ) from None


def parse_span(text: str) -> timedelta:
    """A span of time: `90min`, `36h`, `3d`, `2w`, `3mo`, `1y`."""
    span = _SPAN.fullmatch(text.strip())
    _check(span is not None, f"{brief(text)} is not a span of time", "write 90min, 36h, 3d, 2w, 3mo, 1y")
    return int(span[1]) * _UNITS[span[2]] if span else timedelta()


def parse_id(value: object) -> str:
    """An id as it is stored."""
    _check(is_text(value), f"an id must be text, not {brief(value)}", "`recollect list` shows the ids")
    return clean(str(value))


def clean(text: str) -> str:
    """Text that can be stored: halves of surrogate pairs, which cannot be encoded, become U+FFFD."""
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
    _check(is_text(value) or _is_texts(value), f"{name} must be text or a list of texts, not {brief(value)}", "")
    return (clean(value),) if is_text(value) else tuple(map(clean, value))


def _check(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise UsageError(message, hint=hint)
