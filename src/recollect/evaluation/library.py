"""The folder of reports that a server stores and shows."""

import json
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from recollect.disk import write_private
from recollect.errors import FailedError, UsageError
from recollect.evaluation import plots, results
from recollect.evaluation.report import FigureTable, compose
from recollect.evaluation.results import KINDS, label, part

MOST_BYTES = 64 * 1024 * 1024  # larger files are not read; a run on a hundred thousand questions has a tenth of this
LONGEST_NAME = 80
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""Device names on Windows, whatever follows a dot."""

_drawing_lock = threading.Lock()  # held while drawing: matplotlib's settings belong to the whole process


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report in the folder; `kind` is the study, `data` the name of its set."""

    name: str
    kind: Literal["run", "sweep", "overlap"]
    data: str
    at: str


@dataclass(frozen=True, slots=True)
class DrawnSection:
    """One finding: text, a plot (`shows` describes it), tables, and its data."""

    key: str
    title: str
    lead: str
    more: list[str]
    svg: str
    shows: str
    source: str
    tables: Sequence[FigureTable]


@dataclass(frozen=True, slots=True)
class ReportLibrary:
    """The folder. Files that are no reports are ignored."""

    folder: Path

    def all(self) -> list[StoredReport]:
        """Return every report, newest first."""
        return [report for _, _, report in sorted(self._reports(), key=lambda row: (-row[1][0], row[2].name))]

    def sections(self, name: str) -> list[DrawnSection] | None:
        """Return the sections of a report with their plots; None if there is no such report.

        Without matplotlib the plots are empty, and each section says how to install it.
        """
        for path, mark, report in self._reports():
            if report.name == name:
                with _drawing_lock:
                    return _drawn(path, mark)
        return None

    def check_free(self, name: str) -> None:
        """Refuse a name that is taken, or that is not a valid file name on every system."""
        kinds = [unicodedata.category(letter)[0] for letter in name]
        letters = all(kind in "LMN" or letter in " ._-" for kind, letter in zip(kinds, name, strict=True))
        short = 0 < len(name) <= LONGEST_NAME and len(name.encode()) <= 2 * LONGEST_NAME
        device = name.partition(".")[0].strip().upper() in _RESERVED
        if not (letters and short and kinds[0] in "LN") or device or name[-1] in " .":
            hint = f"use at most {LONGEST_NAME} letters, digits, spaces, `-`, `_` and `.`, a letter or digit first"
            raise UsageError(f"{label(name)!r} cannot be the name of a report", hint=hint)
        if (self.folder / f"{name}.json").exists():
            raise UsageError(f"there is a report {name!r} already", hint="choose another name, or remove that file")

    def put(self, name: str, report: Mapping[str, Any]) -> None:
        """Write a report, completely or not at all."""
        self.check_free(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_private(self.folder / f"{name}.json", json.dumps(report, ensure_ascii=False, indent=1))
        except OSError as error:
            hint = "check that the server may write there, or name another folder: `recollect serve --lab DIR`"
            raise FailedError(f"{self.folder} cannot be written: {error.strerror or error}", hint=hint) from error

    def _reports(self) -> Iterator[tuple[Path, tuple[int, int], StoredReport]]:
        """Yield each report with its path and a mark that changes with the file.

        Names come from the folder's listing, never from a caller, and links may not lead out of it.
        """
        try:
            folder, links = self.folder.resolve(), sorted(self.folder.glob("*.json"))
        except OSError as error:
            raise FailedError(f"{self.folder} cannot be read: {error.strerror or error}") from error
        for link in (link for link in links if link.stem.isprintable() and not link.name.startswith(".")):
            with suppress(OSError, RuntimeError):  # a link to itself raises one or the other
                path, status = link.resolve(), link.stat()
                mark, at = (status.st_mtime_ns, status.st_size), datetime.fromtimestamp(status.st_mtime, UTC)
                readable = path.parent == folder and path.is_file() and status.st_size <= MOST_BYTES
                if readable and (head := _head(path, mark)):
                    yield path, mark, StoredReport(link.stem, *head, at.isoformat())


@lru_cache(maxsize=1024)
def _head(path: Path, mark: tuple[int, int]) -> tuple[Any, str] | None:  # noqa: ARG001  (part of the cache key)
    try:
        report = json.loads(path.read_bytes())
        return KINDS[results.kind(report)][0], label(part(report, "data").get("name") or "")
    except (ValueError, RecursionError, UsageError):
        return None


@lru_cache(maxsize=8)
def _drawn(path: Path, mark: tuple[int, int]) -> list[DrawnSection]:  # noqa: ARG001
    try:
        parts = compose([json.loads(path.read_bytes())])
    except (OSError, ValueError, RecursionError) as error:
        raise FailedError(f"the report changed while it was read: {error}", hint="try again") from error
    svgs, notes = dict.fromkeys(parts, ""), []
    try:
        with plots.drawing():
            svgs = {key: plots.inline(one.draw(), f"plot-{key}", one.title, one.shows) for key, one in parts.items()}
    except UsageError as error:
        notes = [f"Not drawn: {error.message} ({error.hint})."]
    return [
        DrawnSection(
            key, one.title, one.lead, [*one.more, *one.legend, *notes], svgs[key], one.shows, one.source, one.tables
        )
        for key, one in parts.items()
    ]
