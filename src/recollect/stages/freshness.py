"""Whether what is shown is still what the file says: for the results alone, by stat, and by hash if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from recollect.types import FileState, Query, Result

StatesOf: TypeAlias = Callable[[Sequence[str]], Mapping[str, FileState]]
"""Paths → what was true of those files when they were indexed."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Marks each result that names a file as `fresh`, `changed` or `missing`; `unknown` where it was never indexed."""

    states: StatesOf

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:  # noqa: ARG002  (a stage's form)
        """The same results, marked."""
        paths = {result.record.path for result in results if result.record.path and result.record.kind != "outside"}
        if not paths:
            return results
        states = self.states(sorted(paths))
        marks = {path: freshness(path, states.get(path)) for path in paths}
        return [
            replace(result, freshness=marks[result.record.path]) if result.record.path in marks else result
            for result in results
        ]


def freshness(path: str, state: FileState | None) -> str:
    """How a file stands to what was indexed of it."""
    try:
        stat = Path(path).stat()
        if state is None:
            return "unknown"
        if (stat.st_mtime_ns, stat.st_size) == (state.mtime_ns, state.size):
            return "fresh"
        same = stat.st_size == state.size and FileState.digest_of(Path(path).read_bytes()) == state.digest
    except (OSError, ValueError):
        return "missing"
    return "fresh" if same else "changed"
