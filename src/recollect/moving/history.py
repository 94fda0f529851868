"""What a line of history may say: the actions there are, and what the detail of each holds.

`undo` reads these details, and an export may come from anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from recollect.moving import values as field
from recollect.ranking import HALF_LIVES


class _Detail(NamedTuple):
    """The fields of an action's detail: those that must be there, and those that may."""

    required: Mapping[str, Callable[[Any], Any]] = {}
    optional: Mapping[str, Callable[[Any], Any]] = {}


_BEFORE: Mapping[str, Callable[[Any], Any]] = {
    "text": field.text,
    "title": field.text,
    "kind": field.kind,
    "category": field.optional(field.text),
    "tags": field.texts,
    "importance": field.share,
    "decay": field.optional(field.choice(HALF_LIVES)),
    "happened_at": field.optional(field.iso_time),
    "expires_at": field.optional(field.iso_time),
    "source": field.optional(field.text),
    "path": field.optional(field.text),
    "lines": field.optional(field.line_numbers),
}
"""What an update replaced: fields of the record as they were."""


def _before(value: Any) -> dict[str, Any]:
    _check(field.obj(value), _Detail(optional=_BEFORE))
    return dict(value)


_DETAILS: Mapping[str, _Detail] = {
    "add": _Detail(),
    "update": _Detail({"before": _before}),
    "supersede": _Detail({"by": field.name}, {"from": field.iso_time}),
    "supersedes": _Detail({"id": field.name}, {"made": field.flag}),
    "forget": _Detail(),
    "purge": _Detail(),
    "restore": _Detail({"undid": field.choice(("forget", "supersede"))}, {"by": field.name}),
    "undo": _Detail({"undoes": field.whole(1)}),
}

ACTIONS = tuple(_DETAILS)


def check_detail(action: str, detail: Mapping[str, Any]) -> None:
    """Refuse a detail that is not what the action notes. An empty one passes: a purge wipes the details before it."""
    if detail:
        _check(detail, _DETAILS[action])


def is_wiped(action: str, detail: Mapping[str, Any]) -> bool:
    """Whether an action's detail is missing, as after a purge of the record."""
    return not detail and bool(_DETAILS[action].required)


def _check(detail: Mapping[str, Any], fields: _Detail) -> None:
    known = {**fields.required, **fields.optional}
    for name in fields.required.keys() - detail.keys():
        raise ValueError(f"'detail' has no {name!r}")
    for name, value in detail.items():
        if name not in known:
            raise ValueError(f"'detail' has a field {name!r} that is not known")
        try:
            known[name](value)
        except ValueError as error:
            raise ValueError(f"'detail': {name!r} {error}") from None
