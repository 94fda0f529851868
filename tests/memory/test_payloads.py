"""The JSON that `shapes` builds has the fields that `payloads` lists, and no others."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from recollect import Memory
from recollect.memory import payloads, shapes
from recollect.types import Event

EXPLAINED = {"base", "factors", "moves", "total"}
"""Only in results that were asked for with `explain`, and so in no schema."""


PLAIN = {float: (int, float), datetime: str}


def required(shape: Any) -> set[str]:
    """The fields that must be there: of a dataclass, those without a default."""
    if is_dataclass(shape):
        return {field.name for field in fields(shape) if field.default is field.default_factory is MISSING}
    declared = get_type_hints(shape, include_extras=True)
    return {name for name, hint in declared.items() if get_origin(hint) is not NotRequired}


def differences(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Every field that is missing, unknown or of another type, by its place."""
    if isinstance(shape, types.UnionType):
        options = [list(differences(value, option, place)) for option in get_args(shape)]
        yield from min(options, key=len)
    elif is_typeddict(shape) or is_dataclass(shape):
        hints = get_type_hints(shape)
        yield from (f"{place}.{name} is missing" for name in required(shape) - value.keys())
        yield from (f"{place}.{name} is not in the schema" for name in value.keys() - hints.keys() - EXPLAINED)
        for name in value.keys() & hints.keys():
            yield from differences(value[name], hints[name], f"{place}.{name}")
    elif get_origin(shape) in (list, tuple):
        for item in value:
            yield from differences(item, get_args(shape)[0], f"{place}[]")
    elif get_origin(shape) in (dict, Mapping):
        for item in value.values():
            yield from differences(item, get_args(shape)[1], f"{place}.*")
    elif shape is not Any and not isinstance(value, PLAIN.get(shape, shape or type(None))):
        yield f"{place} is {value!r}, not {shape}"


def check(value: Any, shape: Any) -> None:
    assert list(differences(value, shape, shape.__name__)) == []


def test_the_json_of_a_memory_is_as_described(tmp_path):
    """Records with every field set, answers, recalls, verdicts, histories and source states match their schema."""
    (tmp_path / "tea.md").write_text("# Tea\n\nAda drinks green tea in the garden.\n")
    with Memory.open(tmp_path / "memory.db", embedder="hashing:64") as memory:
        memory.index(tmp_path / "tea.md", user="ada")
        full = {
            "title": "Cup",
            "category": "home",
            "tags": ["tea"],
            "importance": 0.9,
            "decay": "stable",
            "source": "me",
        }
        times = {"happened_at": "2026-01-02", "expires_at": "2126-01-02"}
        old = memory.add("The tea cup is blue.", user="ada", **full, **times)
        memory.edit(old.id, text="The tea cup is dark blue.")
        memory.supersede(old.id, text="The tea cup is broken.")
        old = memory.require(old.id)
        answer = memory.search("green tea", user="ada", confidence=True, superseded=True)
        check(shapes.record_dict(old), payloads.StoredRecord)
        check(shapes.bounded(shapes.record_dict(old), 4), payloads.StoredRecord)
        for explain in (False, True):
            check(shapes.answer_dict(answer, explain=explain), payloads.SearchAnswer)
        check(shapes.recall_dict(memory.recall("green tea", user="ada")), payloads.RecallBlock)
        verdict = memory.why_not("green tea", old.id, user="ada")
        check(shapes.verdict_dict("green tea", verdict), payloads.VerdictAnswer)
        for event in memory.history(old.id):
            check(shapes.event_dict(event), Event)
        for source in memory.sources():
            check(source, payloads.SourceHealth)


def test_the_comparison_finds_a_field_that_differs():
    """A missing field, an unknown field and a wrong type are each reported."""
    event = {"seq": "1", "id": "a", "action": "add", "detail": {}, "when": "now"}
    assert sorted(differences(event, Event, "event")) == [
        "event.at is missing",
        "event.seq is '1', not <class 'int'>",
        "event.when is not in the schema",
    ]
