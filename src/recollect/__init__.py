"""Recollect: hybrid memory search for agents, and for people with folders of notes.

    from recollect import Memory

    with Memory.open("notes.db") as memory:
        memory.add("The spare key is under the blue pot.")
        for result in memory.search("how do I get in?").results:
            print(result.score, result.record.text)

Importing this package loads nothing heavy: each name below is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.errors import RecollectError
    from recollect.fusion import Fused, RankedList, calculate_rrf_score, fuse
    from recollect.memory import Memory
    from recollect.types import Answer, Filter, Query, Record, Result, Scope

__version__ = "0.1.0"

_HOMES = {
    "Answer": "types",
    "Filter": "types",
    "Fused": "fusion",
    "Memory": "memory",
    "Query": "types",
    "RankedList": "fusion",
    "RecollectError": "errors",
    "Record": "types",
    "Result": "types",
    "Scope": "types",
    "calculate_rrf_score": "fusion",
    "fuse": "fusion",
}

__all__ = [
    "Answer",
    "Filter",
    "Fused",
    "Memory",
    "Query",
    "RankedList",
    "RecollectError",
    "Record",
    "Result",
    "Scope",
    "calculate_rrf_score",
    "fuse",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
