"""What every framework's retriever does: take a memory and options at the start, then find texts with what is known."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.errors import UsageError
from recollect.memory import Memory
from recollect.memory.shapes import answer_dict

_log = logging.getLogger("recollect")


def named(options: Mapping[str, Any], word: str, count: int | None) -> dict[str, Any]:
    """Options of `Memory.search`, with the framework's own word for `limit` among them."""
    if count is None:
        return dict(options)
    if options.get("limit") not in (None, count):
        raise UsageError(f"`{word}` and `limit` are two names of one thing", hint=f"give `{word}` alone")
    return {**options, "limit": count}


def accepted(memory: Memory | str | Path, options: Mapping[str, Any]) -> Memory:
    """The memory, opened where only its store was named, after it has taken these options as good."""
    if isinstance(memory, Memory):
        memory.prepare("", **options)
        return memory
    if not isinstance(memory, str | Path):
        raise UsageError(f"a memory is a Memory or the path of a store, not {type(memory).__name__}")
    opened = Memory.open(memory)
    try:
        return accepted(opened, options)
    except BaseException:
        opened.close()
        raise


def found(memory: Memory, text: str, options: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each result's text and the rest of its JSON, best first. Warnings, which have no place there, are logged."""
    answer = memory.search(text, **options)
    for warning in answer.trace.warnings:
        _log.warning("%s", warning)
    return [(result.pop("text"), result) for result in answer_dict(answer)["results"]]
