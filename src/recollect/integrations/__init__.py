"""A memory as a retriever of other frameworks: `langchain` and `llamaindex`. What both share is here."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.errors import UsageError
from recollect.memory import Memory
from recollect.memory.shapes import answer_dict
from recollect.memory.validation import trusting
from recollect.options import OUTSIDE
from recollect.types import Filter

_log = logging.getLogger("recollect")


def with_limit(options: Mapping[str, Any], name: str, count: int | None) -> dict[str, Any]:
    """Options of `Memory.search`, with `limit` from the framework's own option `name`."""
    if count is None:
        return dict(options)
    if options.get("limit") not in (None, count):
        raise UsageError(f"`{name}` and `limit` are two names of one thing", hint=f"give `{name}` alone")
    return {**options, "limit": count}


def open_memory(memory: Memory | str | Path, options: Mapping[str, Any]) -> Memory:
    """The memory, opened if only its store is named, after it has accepted these options."""
    if isinstance(memory, Memory):
        memory.prepare("", **options)
        return memory
    if not isinstance(memory, str | Path):
        raise UsageError(f"a memory is a Memory or the path of a store, not {type(memory).__name__}")
    opened = Memory.open(memory)
    try:
        return open_memory(opened, options)
    except BaseException:
        opened.close()
        raise


def search(memory: Memory, text: str, options: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The text of each result and the rest of its JSON, best first. Warnings of the search are logged.

    A model will read the results: unless the options name origins, only records of trusted ones are searched.
    """
    trusted, where = memory.settings.search.trusted_origins, options.get("where")
    if isinstance(where, Filter) and not where.origins:
        options = {**options, "where": trusting(where, trusted)}
    elif where is None and not options.get("origin"):
        options = {**options, "origin": (*trusted, OUTSIDE)}
    answer = memory.search(text, **{"by": "chunk", **options})
    for warning in answer.trace.warnings:
        _log.warning("%s", warning)
    return [(result.pop("text"), result) for result in answer_dict(answer)["results"]]
