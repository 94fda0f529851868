"""Where the links of notes lead, among the files that are stored."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import unquote

from recollect.evaluation.questions import prose
from recollect.types import Record


@dataclass(frozen=True, slots=True)
class Linked:
    """A link, the file it stands in, and the file it leads to."""

    link: prose.Link
    origin: str
    path: str


@dataclass(frozen=True, slots=True)
class Paths:
    """Stored files by path, and by every run of last parts, with suffix and without, as wikis and web sites do."""

    known: frozenset[str]
    named: dict[str, set[str]]

    @classmethod
    def of(cls, paths: Iterable[str]) -> Paths:
        """All files there are."""
        known = frozenset(paths)
        named: dict[str, set[str]] = {}
        for path in known:
            parts = PurePath(path).parts
            for start in range(len(parts)):
                end = "/".join(parts[start:]).casefold()
                for name in (end, end.removesuffix(PurePath(path).suffix.casefold())):
                    named.setdefault(name, set()).add(path)
        return cls(known, named)

    def resolve(self, link: prose.Link, origin: str) -> str | None:
        """The one stored file a link leads to; a name that two files have leads nowhere."""
        target = unquote(link.target).partition("#")[0].strip()
        if not target or "://" in target or target.startswith("mailto:"):
            return None
        beside = os.path.normpath(os.path.join(os.path.dirname(origin), target))  # noqa: PTH118, PTH120 (`..` in it)
        if beside in self.known:
            return beside
        found = self.named.get(target.replace("\\", "/").strip("/").casefold(), set())
        return next(iter(found)) if len(found) == 1 else None


def follow(notes: Sequence[Record]) -> Iterator[Linked]:
    """Every link from one stored file to another, in order."""
    paths = Paths.of(record.path for record in notes if record.path)
    labels: dict[str, dict[str, str]] = {}
    for record in notes:
        labels.setdefault(record.path or "", {}).update(prose.definitions(record.text))
    for record in notes:
        origin = record.path or ""
        for link in prose.links(record.text, labels[origin]):
            path = paths.resolve(link, origin)
            if path is not None and path != origin:
                yield Linked(link, origin, path)
