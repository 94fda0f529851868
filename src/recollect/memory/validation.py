"""Records, filters, scopes, times and writers from the arguments of a call, checked."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from recollect.config.values import FILLED, TEXT, ValueCheck, brief, is_filled, is_text, number, one_of
from recollect.errors import Forbidden, UsageError
from recollect.options import (
    ANY_ORIGIN,
    FILTER_NAMES,
    FILTERS,
    FLAG,
    HTTP,
    MCP,
    ORIGINS,
    OUTSIDE,
    SCOPE_PARTS,
    SHARE,
    Option,
)
from recollect.ranking import HALF_LIVES, clean
from recollect.types import KINDS, Answer, Filter, Provenance, Record, Scope, Store, now
from recollect.types.records import MOST_LINES, new_id

MAX_TEXT = 1_000_000  # characters of one record; a longer text belongs into a file, which `recollect index` splits
UNADDRESSABLE = (".", "..")  # as ids: a browser and most HTTP clients remove these parts of an address

# The arguments of `Memory.search` that say which records it may find; the others are search options.
FILTER_ARGUMENTS = ("where", "scope", *SCOPE_PARTS, *FILTER_NAMES)

_OTHERS = ("scope", *SCOPE_PARTS, "supersedes")  # arguments of `add` that are not fields of the record

LONGEST_DAY = len("2026-03-14")  # a longer text in ISO 8601 has a time
_MINUTES = {
    **dict.fromkeys(("min", "minute", "minutes", "minuten"), 1),
    **dict.fromkeys(("h", "hour", "hours", "stunde", "stunden"), 60),
    "d": 1_440, "w": 10_080, "mo": 43_200, "y": 525_600,
}  # fmt: skip
_SPAN = re.compile(
    rf"(?P<before>vor\s+)?(?P<after>in\s+)?(?P<count>\d{{1,9}})\s*(?P<unit>{'|'.join(_MINUTES)})(?P<ago>\s+ago)?",
    re.ASCII | re.IGNORECASE,
)


def make_record(values: Mapping[str, Any], default: Scope) -> Record:
    """A record from the arguments of `add`, checked; None means left out."""
    scope = merge_scope(default, values.get("scope"), {part: values.get(part) for part in SCOPE_PARTS})
    fields = {name: _field(name, value) for name, value in values.items() if value is not None and name not in _OTHERS}
    _check("text" in fields, "a record needs a text", '{"text": "…"}')
    return Record(**{"id": fields.get("id") or new_id(), "scope": scope, **fields})


def make_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record, checked; None clears a field."""
    return {name: _field(name, value) for name, value in values.items()}


def _field(name: str, value: Any) -> Any:
    if name not in _FIELDS:
        raise UsageError(f"unknown field {name!r}", hint=f"there are {', '.join(_FIELDS)}, scope")
    check, needed = _FIELDS[name], name in ("id", "text")
    if value is None and not needed:
        return getattr(Record("", ""), name)
    if not check.admits(value):
        blank = needed and is_text(value)
        what = "must not be empty" if blank else f"must be {check.expected}, not {brief(value)}"
        raise UsageError(f"{name} {what}")
    if name == "id" and value in UNADDRESSABLE:
        raise UsageError(f"the id {value!r} cannot be part of an address", hint="choose another id, or none")
    if name == "text" and len(value) > MAX_TEXT:
        message = f"the text is longer than {MAX_TEXT:,} characters"
        raise UsageError(message, hint="split it, or index it as a file")
    return check.convert(value)


def make_filter(arguments: Mapping[str, Any], default: Scope, caller: Scope | None) -> Filter:
    """The filter that scope and filter arguments stand for, or the one that is given as `where`."""
    if unknown := [name for name in arguments if name not in FILTER_ARGUMENTS]:
        raise UsageError(f"unknown filter {unknown[0]!r}", hint=f"there are {', '.join(FILTER_NAMES)}")
    where: Filter | None = arguments.get("where")
    scope = merge_scope(default, arguments.get("scope"), {part: arguments.get(part) for part in SCOPE_PARTS})
    if caller is not None and (where is not None or scope != caller or arguments.get("any_scope")):
        raise Forbidden("another scope than the caller's cannot be asked for", hint="leave the scope out")
    named = [option for option in FILTERS if arguments.get(option.name) is not None]
    if where is None:
        values = {option.column or option.name: _filter_value(option, arguments[option.name]) for option in named}
        return Filter(scope, **values)
    _check(isinstance(where, Filter), f"`where` must be a Filter, not {brief(where)}", 'tags=["home"] is a filter, too')
    alone = scope == default and not named
    _check(alone, "give a filter as `where` or in single parts, not both", "put all into `where`")
    return replace(where, now=now())  # a Filter that was made earlier is applied as of now


def _filter_value(option: Option, value: Any) -> Any:
    match option.kind:
        case "flag":
            return bool(value)
        case "time":
            return parse_time(value)
        case "names":
            return _known_names(option, clean_names(option.name, value))
    if option.allowed:
        known = is_text(value) and value in option.allowed
        _check(known, f"unknown {option.name} {brief(value)}", f"there are {', '.join(option.allowed)}")
        return (value,)
    _check(is_text(value), f"{option.name} must be text, not {brief(value)}")
    return clean(value) or None


def _known_names(option: Option, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names for a filter; with `any` among them it admits all."""
    for name in names if option.allowed else ():
        _check(name in option.allowed, f"unknown {option.name} {brief(name)}", f"there are {', '.join(option.allowed)}")
    return () if option.allowed and ANY_ORIGIN in names else names


def merge_scope(default: Scope, scope: Scope | Mapping[str, str] | None, parts: Mapping[str, str | None]) -> Scope:
    """The default scope with the parts that a call names."""
    parts = {part: value for part, value in parts.items() if value is not None}
    named = scope.as_dict() if isinstance(scope, Scope) else scope or {}
    if not named and not parts:
        return default
    if not isinstance(named, Mapping):
        raise UsageError(f"a scope must be an object, not {brief(scope)}", hint='{"user": "ada"}')
    if unknown := sorted(named.keys() - set(SCOPE_PARTS)):
        message = f"unknown part of a scope: {', '.join(map(str, unknown))}"
        raise UsageError(message, hint="there are user, agent, session")
    merged = {**default.as_dict(), **named, **parts}
    for part, value in merged.items():
        if not is_filled(value):
            message = f"the {part} of a scope must be a name, not {brief(value)}"
            raise UsageError(message, hint="leave out a part that is not set")
    return _scope(*map(merged.get, SCOPE_PARTS))


@lru_cache(1_024)  # a load names the same scopes again and again
def _scope(*names: str | None) -> Scope:
    return Scope(*(None if name is None else clean(name) for name in names))


def parse_time(value: datetime | str | None, *, ahead: bool = False) -> datetime | None:
    """A time from ISO 8601 (`2026-03-14T15:09Z`), a span (`2w`, `2 hours ago`) or words (`last week`, `Friday`).

    A span is before now and a weekday is the last one; if `ahead`, they are after now. A day, a week or a month stands
    for its beginning; if `ahead`, a day stands for its end.
    """
    if value is None:
        return None
    try:
        if isinstance(value, str) and (span := _SPAN.fullmatch(value.strip())):
            ahead = bool(span["after"]) or (ahead and not span["before"] and not span["ago"])
            return now() + _length(span) if ahead else now() - _length(span)
        at = value if isinstance(value, datetime) else _moment(value, ahead=ahead)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, AttributeError):
        hint = "write 2026-03-14, 2026-03-14T15:09Z, a span (90min, 36h, 3d, 2w, 3mo, 1y) or words (last week)"
        raise UsageError(f"{brief(value)} is not a time", hint=hint) from None


def _moment(text: str, *, ahead: bool) -> datetime:
    """A time in ISO 8601 or in words; ValueError if it is neither."""
    try:
        at = datetime.fromisoformat(text.strip())
        is_day = len(text.strip()) <= LONGEST_DAY
        return at + timedelta(days=1) if ahead and is_day and at.date() < date.max else at
    except ValueError:
        from recollect.dates import read_period

        if (period := read_period(text, now(), ahead=ahead)) is None:
            raise
        is_day = period.end - period.start == timedelta(days=1)
        return period.end if ahead and (is_day or period.start <= now()) else period.start  # "this week": its end


def parse_span(text: str) -> timedelta:
    """A span of time: `90min`, `36h`, `3d`, `2w`, `3mo`, `1y`."""
    span = _SPAN.fullmatch(text.strip())
    with contextlib.suppress(OverflowError):  # longer than Python can count
        if span and not (span["before"] or span["after"] or span["ago"]):
            return _length(span)
    raise UsageError(f"{brief(text)} is not a span of time", hint="write 90min, 36h, 3d, 2w, 3mo, 1y")


def _length(span: re.Match[str]) -> timedelta:
    return timedelta(minutes=int(span["count"]) * _MINUTES[span["unit"].lower()])


def parse_id(value: object) -> str:
    """An id as it is stored."""
    if not isinstance(value, str):
        raise UsageError(f"an id must be text, not {brief(value)}", hint="a search or a list shows the ids")
    return clean(value)


def clean_names(name: str, value: Any) -> tuple[str, ...]:
    """One name or a list of them, as a tuple that can be stored."""
    _check(is_text(value) or _is_texts(value), f"{name} must be text or a list of texts, not {brief(value)}")
    return (clean(value),) if is_text(value) else tuple(map(clean, value))


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(map(is_text, value))


def _is_lines(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:  # noqa: PLR2004
        return False
    return all(isinstance(line, int) and 0 <= line <= MOST_LINES for line in value)


def _check(holds: bool, message: str, hint: str = "") -> None:
    if not holds:
        raise UsageError(message, hint=hint)


_TIME = ValueCheck(lambda at: isinstance(at, str | datetime), "a time", parse_time)

# The fields of a record that can be set, and the values they take.
_FIELDS: Mapping[str, ValueCheck] = {
    **dict.fromkeys(("text", "id"), FILLED._replace(convert=clean)),
    "kind": one_of(KINDS),
    **dict.fromkeys(("title", "category", "source", "path", "place"), TEXT._replace(convert=clean)),
    "tags": ValueCheck(_is_texts, "a list of texts", lambda tags: tuple(dict.fromkeys(map(clean, tags)))),
    "importance": number(0, 1),
    "decay": one_of(HALF_LIVES),
    **dict.fromkeys(("created_at", "happened_at"), _TIME),
    "expires_at": _TIME._replace(convert=partial(parse_time, ahead=True)),
    "lines": ValueCheck(_is_lines, "two line numbers", tuple),
    "origin": one_of(ORIGINS),
    **dict.fromkeys(("author", "author_session"), FILLED._replace(convert=clean)),
}

_EVERYWHERE = (FLAG, HTTP, MCP)

FIELDS: tuple[Option, ...] = (  # the fields that flags, HTTP and MCP set, besides the text and the writer
    Option(None, "A short title.", "title", str | None, places=_EVERYWHERE),
    Option(
        None, "One word for what it is about: preference, decision, technical, …", "category", str | None,
        places=_EVERYWHERE, flag_help="One category, such as preference or decision.",
    ),
    Option(
        (), "Tags to find it by.", "tags", tuple[str, ...], places=_EVERYWHERE, flags=("--tag",), metavar="TAG",
        flag_help="A tag; repeat for more. `edit` replaces all.",
    ),
    Option(
        None, "0 to 1; 0.5 is the default.", "importance", float | None, bounds=SHARE, places=_EVERYWHERE,
        metavar="0..1",
    ),
    Option(
        None, "How fast its score falls with age.", "decay", str | None, choices=HALF_LIVES, places=_EVERYWHERE,
        metavar="CLASS", flag_help="How fast it ages: permanent, stable, active, session or checkpoint.",
    ),
    Option(None, "When it happened, if not now.", "happened_at", datetime | None, metavar="TIME"),
    Option(
        None, "When searches stop finding it: after 2026-03-14, or a span from now: 36h, 2w.", "expires_at",
        datetime | None, places=_EVERYWHERE, metavar="TIME",
        flag_help="When it expires; searches do not find it after that.",
    ),
    Option(None, "Where it comes from.", "source", str | None),
)  # fmt: skip


WRITER_FIELDS = ("origin", "author", "author_session")
OWNERS = ("file", "import")  # origins that only the owner of a store can give: indexing and importing do


def of_caller(scope: Scope, own: Provenance) -> Provenance:
    """How a scoped caller writes: one that is bound to an agent writes as that agent."""
    return Provenance("agent", own.author or scope.agent, scope.session) if scope.agent else own


def claimed(fields: Mapping[str, Any], own: Provenance, caller: Scope | None) -> dict[str, Any]:
    """The fields of a new record's provenance: those that a call names, else those of the memory.

    A scoped caller may claim less trust than it has, for text that it only passes on, and never more.
    """
    named = {name: fields[name] for name in WRITER_FIELDS if fields.get(name) is not None}
    origin = named.get("origin", own.origin)
    if caller is not None and isinstance(origin, str):
        more = Provenance(origin).distrust < own.distrust
        if more or (origin in OWNERS and origin != own.origin):
            hint = f"leave the origin out, or name {own.origin}, tool or web"
            raise Forbidden(f"this caller cannot write records of the origin {origin!r}", hint=hint)
    return own.as_dict() | named


def trusting(where: Filter, trusted: Sequence[str]) -> Filter:
    """The filter for what a model reads: records of trusted origins, and documents of the user's other sources."""
    return replace(where, origins=(*trusted, OUTSIDE))


def with_left_out(answer: Answer, store: Store) -> Answer:
    """The answer to a query of `trusting`, with the number of visible records that it left out."""
    where = answer.query.filter
    origins = tuple(origin for origin in ORIGINS if origin not in where.origins) if OUTSIDE in where.origins else ()
    count = store.count(replace(where, origins=origins))["total"] if origins else 0
    if not count:
        return answer
    names = " or ".join(filter(None, [", ".join(origins[:-1]), origins[-1]]))
    records = "1 record was" if count == 1 else f"{count:,} records were"
    how = '`origin: ["any"]` (--origin any) includes all'
    warning = f"{records} not searched because of the origin {names}: {how}"
    trace = answer.trace
    filtered = {**trace.filtered, "origin": count}
    return replace(answer, trace=replace(trace, filtered=filtered, warnings=(*trace.warnings, warning)))


def check_edit(old: Record, fields: Mapping[str, Any], own: Provenance) -> None:
    """Refuse an edit by a writer who is trusted less than the record's.

    Other fields are written in the name of an origin that the edit names; naming nothing else only says who wrote it.
    """
    named = Provenance(fields.get("origin", own.origin)) if fields.keys() - set(WRITER_FIELDS) else own
    writer = max(own, named, key=lambda one: one.distrust)
    if writer.distrust > old.provenance.distrust:
        hint = "add it as a record of its own" if writer.distrust > 1 else "supersede it: the old text stays"
        what = f"{old.id!r} has the origin {old.origin}, so a writer of the origin {writer.origin} cannot edit it"
        raise UsageError(what, hint=hint)
