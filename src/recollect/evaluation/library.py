"""A folder of evaluation reports: list them, show one, and add one. The folder may hold any other files too."""

from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from recollect.config.toml import write_private
from recollect.errors import FailedError, UsageError
from recollect.evaluation.plots import drawing, inline
from recollect.evaluation.report import ReportPart, compose
from recollect.evaluation.results import KINDS, kind, label, part

MOST_BYTES = 64 * 1024 * 1024
"""Larger files are not read; a run on a hundred thousand questions has a tenth of this."""

LONGEST_NAME = 80
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""Device names on Windows, whatever follows a dot."""

_drawing_lock = threading.Lock()
"""Held while drawing: matplotlib's settings belong to the whole process."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report in the folder; `kind` is the study, `data` the name of its set, `mark` changes with the file."""

    name: str
    kind: str
    data: str
    at: str
    path: Path
    mark: tuple[int, int]

    def as_dict(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"name": self.name, "kind": self.kind, "data": self.data, "at": self.at}


@dataclass(frozen=True, slots=True)
class ReportLibrary:
    """The folder. Files that are no reports are ignored."""

    folder: Path

    def all(self) -> list[StoredReport]:
        """Return every report, newest first."""
        return sorted(self._reports(), key=lambda report: (-report.mark[0], report.name))

    def sections(self, name: str) -> list[dict[str, Any]] | None:
        """Return the sections of a report with their plots; None if there is no such report.

        Without matplotlib the plots are empty, and each section says how to install it.
        """
        report = next((report for report in self._reports() if report.name == name), None)
        if report is None:
            return None
        with _drawing_lock:
            return _drawn(report.path, report.mark)

    def check_free(self, name: str) -> None:
        """Refuse a name that is taken, or that is not a valid file name on every system."""
        if not _valid(name):
            hint = f"use at most {LONGEST_NAME} letters, digits, spaces, `-`, `_` and `.`, a letter or digit first"
            raise UsageError(f"{label(name)!r} cannot be the name of a report", hint=hint)
        if self._path(name).exists():
            raise UsageError(f"there is a report {name!r} already", hint="choose another name, or remove that file")

    def put(self, name: str, report: Mapping[str, Any]) -> None:
        """Write a report, completely or not at all."""
        self.check_free(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_private(self._path(name), json.dumps(report, ensure_ascii=False, indent=1))
        except OSError as error:
            hint = "check that the server may write there, or name another folder: `recollect serve --lab DIR`"
            raise FailedError(f"{self.folder} cannot be written: {error.strerror or error}", hint=hint) from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _reports(self) -> Iterator[StoredReport]:
        """Read the folder. Names come from its listing, never from a caller, and links may not lead out of it."""
        try:
            folder, paths = self.folder.resolve(), sorted(self.folder.glob("*.json"))
        except OSError as error:
            raise FailedError(f"{self.folder} cannot be read: {error.strerror or error}") from error
        for path in paths:
            if path.stem.isprintable() and not path.name.startswith("."):
                yield from _stored(path, folder)


def _stored(link: Path, folder: Path) -> Iterator[StoredReport]:
    try:
        path = link.resolve()
        if path.parent != folder:
            return
        status = path.stat()
        mark = (status.st_mtime_ns, status.st_size)
        head = _head(path, mark) if path.is_file() and status.st_size <= MOST_BYTES else None
    except (OSError, RuntimeError):  # a link to itself raises one or the other
        return
    if head is not None:
        yield StoredReport(link.stem, *head, datetime.fromtimestamp(status.st_mtime, UTC).isoformat(), path, mark)


@lru_cache(maxsize=1024)
def _head(path: Path, mark: tuple[int, int]) -> tuple[str, str] | None:  # noqa: ARG001  (part of the cache key)
    """Read kind and data of a report, or None if the file is none."""
    try:
        report = json.loads(path.read_bytes())
        return KINDS[kind(report)][0], label(part(report, "data").get("name") or "")
    except (ValueError, RecursionError, UsageError):
        return None


@lru_cache(maxsize=8)
def _drawn(path: Path, mark: tuple[int, int]) -> list[dict[str, Any]]:  # noqa: ARG001
    try:
        named = compose([json.loads(path.read_bytes())])
    except (OSError, ValueError, RecursionError) as error:
        raise FailedError(f"the report changed while it was read: {error}", hint="try again") from error
    try:
        with drawing():
            return [_section(key, one, inline(one.draw(), f"plot-{key}", one.title, one.shows))
                    for key, one in named.items()]  # fmt: skip
    except UsageError as error:
        note = f"Not drawn: {error.message} ({error.hint})."
        return [_section(key, one, "", note) for key, one in named.items()]


def _section(key: str, section: ReportPart, svg: str, *notes: str) -> dict[str, Any]:
    return {
        "key": key,
        "title": section.title,
        "lead": section.lead,
        "more": [*section.more, *notes],
        "svg": svg,
        "shows": section.shows,
        "source": section.source,
        "tables": [asdict(table) for table in section.tables],
    }


def _valid(name: str) -> bool:
    """Whether a file may have this name on every system."""
    kinds = [unicodedata.category(letter)[0] for letter in name]
    letters = all(kind in "LMN" or letter in " ._-" for kind, letter in zip(kinds, name, strict=True))
    short = 0 < len(name) <= LONGEST_NAME and len(name.encode()) <= 2 * LONGEST_NAME
    device = name.partition(".")[0].strip().upper() in _RESERVED
    return letters and short and kinds[0] in "LN" and not device and name[-1] not in " ."
