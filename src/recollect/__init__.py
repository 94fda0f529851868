"""Recollect: hybrid memory search for agents, and for people with folders of notes.

    from recollect import Memory

    with Memory.open("notes.db") as memory:
        memory.add("The spare key is under the blue pot.")
        for result in memory.search("how do I get in?").results:
            print(result.score, result.record.text)

Importing this package loads nothing heavy: each name below is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.errors import RecollectError
    from recollect.fusion import Fused, RankedList, calculate_rrf_score, fuse
    from recollect.memory import Memory
    from recollect.types import Answer, Filter, Query, Record, Result, Scope

__version__ = "0.1.0"

_HOMES = {
    "errors": ("RecollectError",),
    "fusion": ("Fused", "RankedList", "calculate_rrf_score", "fuse"),
    "memory": ("Memory",),
    "types": ("Answer", "Filter", "Query", "Record", "Result", "Scope"),
}

__all__ = [
    "Answer", "Filter", "Fused", "Memory", "Query", "RankedList", "RecollectError", "Record", "Result", "Scope",
    "calculate_rrf_score", "fuse",
]  # fmt: skip


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
