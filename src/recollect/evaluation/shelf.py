"""Reports kept in a folder: which there are, what one of them says, and a new one beside them."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from recollect.errors import FailedError, UsageError
from recollect.evaluation.drawing import drawing, inline
from recollect.evaluation.page import compose
from recollect.evaluation.results import kind, label, part
from recollect.evaluation.sections import Section

WORDS = {"systems": "run", "rows": "sweep", "pairs": "overlap"}
"""The part by which a report is known → the study that made it."""

MOST_BYTES = 64 * 1024 * 1024
"""Of a file that is read; a run on a hundred thousand questions has a tenth of it."""

LONGEST_NAME = 80
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""What Windows takes for devices, whatever follows a dot."""

_pen = threading.Lock()
"""One drawing at a time: matplotlib's settings are the whole process's."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A report in the folder; `kind` is the study that made it, `data` the name of its set."""

    name: str
    kind: str
    data: str
    at: str
    path: Path
    mark: tuple[int, int]

    def as_dict(self) -> dict[str, str]:
        """For a list."""
        return {"name": self.name, "kind": self.kind, "data": self.data, "at": self.at}


@dataclass(frozen=True, slots=True)
class Shelf:
    """The folder. What lies in it may be anybody's: a file that is no report is passed over."""

    folder: Path

    def all(self) -> list[Kept]:
        """Every report, newest first."""
        return sorted(self._kept(), key=lambda kept: (-kept.mark[0], kept.name))

    def sections(self, name: str) -> list[dict[str, Any]] | None:
        """What the report of that name says, with its plots; None where there is no such report."""
        kept = next((kept for kept in self._kept() if kept.name == name), None)
        if kept is None:
            return None
        with _pen:
            return _drawn(kept.path, kept.mark)

    def check_free(self, name: str) -> None:
        """Refuse a name that is no file's everywhere, or that is taken."""
        if not _sound(name):
            hint = f"letters, digits, spaces, `-`, `_` and `.`, {LONGEST_NAME} at the most, a letter or digit first"
            raise UsageError(f"{label(name)!r} cannot be the name of a report", hint=hint)
        if self._place(name).exists():
            raise UsageError(f"there is a report {name!r} already", hint="another name, or remove that file")

    def put(self, name: str, report: Mapping[str, Any]) -> None:
        """Keep a report: all of it, or nothing."""
        self.check_free(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(self._place(name), json.dumps(report, ensure_ascii=False, indent=1))
        except OSError as error:
            hint = "may the server write there? `recollect serve --lab DIR` names another folder"
            raise FailedError(f"{self.folder} cannot be written: {error.strerror or error}", hint=hint) from error

    def _place(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _kept(self) -> Iterator[Kept]:
        """Only files of the folder itself: names come from its list, never from a caller, and no link leads out."""
        try:
            inside, paths = self.folder.resolve(), sorted(self.folder.glob("*.json"))
        except OSError as error:
            raise FailedError(f"{self.folder} cannot be read: {error.strerror or error}") from error
        for path in paths:
            if path.stem.isprintable() and not path.name.startswith("."):
                yield from _looked_at(path, inside)


def _looked_at(link: Path, inside: Path) -> Iterator[Kept]:
    try:
        path = link.resolve()
        if path.parent != inside:
            return
        about = path.stat()
        mark = (about.st_mtime_ns, about.st_size)
        head = _head(path, mark) if path.is_file() and about.st_size <= MOST_BYTES else None
    except (OSError, RuntimeError):  # a link that leads to itself is one or the other
        return
    if head is not None:
        yield Kept(link.stem, *head, datetime.fromtimestamp(about.st_mtime, UTC).isoformat(), path, mark)


@lru_cache(maxsize=1024)
def _head(path: Path, mark: tuple[int, int]) -> tuple[str, str] | None:  # noqa: ARG001  (a changed file has another)
    """Kind and data of a report, or nothing where it is none."""
    try:
        report = json.loads(path.read_bytes())
        return WORDS[kind(report)], label(part(report, "data").get("name") or "")
    except (ValueError, RecursionError, UsageError):
        return None


@lru_cache(maxsize=8)
def _drawn(path: Path, mark: tuple[int, int]) -> list[dict[str, Any]]:  # noqa: ARG001
    try:
        named = compose([json.loads(path.read_bytes())])
    except (OSError, ValueError, RecursionError) as error:
        raise FailedError(f"the report changed while it was read: {error}", hint="try again") from error
    with drawing():
        return [_told(key, section) for key, section in named.items()]


def _told(key: str, section: Section) -> dict[str, Any]:
    tables = [
        {"caption": one.caption, "head": list(one.head), "rows": [list(row) for row in one.rows],
         "words": list(one.words)}
        for one in section.tables
    ]  # fmt: skip
    return {
        "key": key,
        "title": section.title,
        "lead": section.lead,
        "more": list(section.more),
        "svg": inline(section.draw(), f"plot-{key}", section.title, section.shows),
        "shows": section.shows,
        "source": section.source,
        "tables": tables,
    }


def _sound(name: str) -> bool:
    """Whether a file may be called that on every system."""
    kinds = [unicodedata.category(letter)[0] for letter in name]
    whole = all(kind in "LMN" or letter in " ._-" for kind, letter in zip(kinds, name, strict=True))
    short = 0 < len(name) <= LONGEST_NAME and len(name.encode()) <= 2 * LONGEST_NAME
    device = name.partition(".")[0].strip().upper() in _RESERVED
    return whole and short and kinds[0] in "LN" and not device and name[-1] not in " ."


def _write(place: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".report-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
