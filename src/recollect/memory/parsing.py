"""What people and JSON lines say of a record or a time, checked and turned into our words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from recollect.errors import UsageError
from recollect.ranking import HALF_LIVES
from recollect.types import KINDS, Filter, Record, Scope, now

MAX_TEXT = 1_000_000
"""Characters of one record; a longer text is a file, and `recollect index` splits files."""

_SPAN = re.compile(r"(\d+)\s*(min|h|d|w|mo|y)", re.ASCII)
_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}
FILTERS = ("category", "tags", "kind", "path", "since", "until", "as_of", "superseded", "any_scope")
"""What a search and a listing can be narrowed by, beside scope."""

_FIELDS = frozenset(
    ("text", "id", "kind", "title", "category", "tags", "scope", "user", "agent", "session", "importance", "decay",
     "created_at", "happened_at", "expires_at", "source", "path", "lines")
)  # fmt: skip


def make_record(
    text: str,
    *,
    scope: Scope,
    id: str | None = None,  # noqa: A002  (the word users know)
    kind: str = "fact",
    title: str = "",
    category: str | None = None,
    tags: Iterable[str] = (),
    importance: float = 0.5,
    decay: str | None = None,
    created_at: datetime | str | None = None,
    happened_at: datetime | str | None = None,
    expires_at: datetime | str | None = None,
    source: str | None = None,
    path: str | None = None,
    lines: Sequence[int] | None = None,
) -> Record:
    """A record from what was given, or an error that says what does not fit."""
    _check(isinstance(text, str) and bool(text.strip()), "a record needs some text", "say what is to be remembered")
    _check(len(text) <= MAX_TEXT, f"the text is longer than {MAX_TEXT:,} characters", "split it, or index it as a file")
    _check(kind in KINDS, f"unknown kind {kind!r}", f"there are {', '.join(KINDS)}")
    _check(decay is None or decay in HALF_LIVES, f"unknown decay class {decay!r}", f"there are {', '.join(HALF_LIVES)}")
    _check(_is_share(importance), f"importance lies between 0 and 1, not {importance!r}", "0.5 is the middle")
    _check(not isinstance(tags, str), f"tags are a list, not {tags!r}", '["a", "b"]')
    _check(id is None or bool(str(id).strip()), "an id cannot be empty", "leave it out to have one made")
    return Record(
        id=clean(str(id)) if id is not None else uuid4().hex,
        text=clean(text),
        kind=kind,
        title=clean(title),
        category=category,
        tags=tuple(dict.fromkeys(clean(str(tag)) for tag in tags)),
        scope=scope,
        importance=float(importance),
        decay=decay,
        created_at=parse_time(created_at) or now(),
        happened_at=parse_time(happened_at),
        expires_at=parse_time(expires_at),
        source=source,
        path=path,
        lines=(int(lines[0]), int(lines[1])) if lines else None,
    )


def make_filter(
    scope: Scope,
    *,
    category: str | Sequence[str] | None = None,
    tags: Sequence[str] = (),
    kind: str | None = None,
    path: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    as_of: datetime | str | None = None,
    superseded: bool = False,
    any_scope: bool = False,
) -> Filter:
    """A filter from what was given; several categories mean any of them, several tags all of them."""
    _check(kind is None or kind in KINDS, f"unknown kind {kind!r}", f"there are {', '.join(KINDS)}")
    return Filter(
        scope=scope,
        categories=(category,) if isinstance(category, str) else tuple(category or ()),
        tags=(tags,) if isinstance(tags, str) else tuple(tags or ()),
        kinds=(kind,) if kind else (),
        path=path or None,
        since=parse_time(since),
        until=parse_time(until),
        as_of=parse_time(as_of),
        superseded=superseded,
        any_scope=any_scope,
    )


def record_from_json(line: object, default: Scope) -> Record:
    """One JSON object as a record: `{"text": …, "scope": {"user": …}, "category": …, "tags": […]}`."""
    _check(isinstance(line, dict), f"a record is a JSON object, not {line!r}", '{"text": "…"}')
    given = dict(line) if isinstance(line, dict) else {}
    _check("text" in given, "a record needs a `text`", '{"text": "…"}')
    unknown = sorted(given.keys() - _FIELDS)
    _check(not unknown, f"unknown field {', '.join(map(repr, unknown))}", f"there are {', '.join(sorted(_FIELDS))}")
    scope = _scope_from(given, default)
    _check_types(given)
    return make_record(
        given.pop("text"), scope=scope, **{key: value for key, value in given.items() if value is not None}
    )


def parse_time(value: datetime | str | None) -> datetime | None:
    """A time from ISO 8601 (`2026-03-14`, `2026-03-14T15:09Z`), or a span back from now (`2w`, `36h`, `3mo`)."""
    if value is None or isinstance(value, datetime):
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)
    if span := _SPAN.fullmatch(value.strip()):
        try:
            return now() - int(span[1]) * _UNITS[span[2]]
        except OverflowError:
            pass
    try:
        parsed = datetime.fromisoformat(value.strip())
    except ValueError:
        raise UsageError(
            f"{value!r} is not a time",
            hint="write 2026-03-14, 2026-03-14T15:09Z, or a span back from now: 36h, 2w, 3mo",
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def clean(text: str) -> str:
    """Text that can be stored: halves of surrogate pairs, which no encoding can hold, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _scope_from(given: dict[str, Any], default: Scope) -> Scope:
    named = given.pop("scope", None) or {}
    _check(isinstance(named, Mapping), f"a scope is an object, not {named!r}", '{"scope": {"user": "ada"}}')
    parts = {**named, **{part: given.pop(part) for part in ("user", "agent", "session") if part in given}}
    return parse_scope(parts) if parts else default


def parse_scope(parts: Mapping[str, Any]) -> Scope:
    """A scope from its parts by name."""
    unknown = sorted(parts.keys() - {"user", "agent", "session"})
    _check(not unknown, f"unknown part of a scope: {', '.join(unknown)}", "there are user, agent, session")
    fits = all(isinstance(value, str) and value for value in parts.values())
    _check(fits, f"a part of a scope is a name, not {parts!r}", "leave out what is not set")
    return Scope(**parts)


def _check_types(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        match name:
            case "tags":
                fits, wanted = isinstance(value, list) and all(isinstance(tag, str) for tag in value), "a list of text"
            case "lines":
                pair = isinstance(value, list) and len(value) == 2  # noqa: PLR2004  (first and last)
                fits, wanted = pair and all(isinstance(line, int) for line in value), "two line numbers"
            case "importance":
                fits, wanted = _is_share(value), "a number between 0 and 1"
            case _:
                fits, wanted = isinstance(value, str), "text"
        _check(fits or value is None, f"{name} must be {wanted}, not {value!r}", "")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1


def _check(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise UsageError(message, hint=hint)
