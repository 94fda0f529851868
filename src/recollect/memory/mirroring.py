"""Folders and files, mirrored; and mirrored again as they were told to be the last time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from recollect.errors import RecollectError, UsageError
from recollect.ingest import Mirror, Report, Step, Telling, Wishes, in_batches, roots_of
from recollect.types import Mirrors, Progress, Scope, Store

UNTOLD = "how it was indexed is not known; `recollect index` it once more"
APART = "holds folders that were indexed in another way; `recollect index` them one by one"


@dataclass(frozen=True, slots=True)
class Showing:
    """Whether anything is stored, and who is told how far it is: while reading, while embedding."""

    dry_run: bool = False
    reading: Progress | None = None
    embedding: Progress | None = None


@dataclass(frozen=True, slots=True)
class Mirroring:
    """Keeps one store's chunks as the files are."""

    store: Store
    embed: Callable[[Progress | None], int] | None
    announce: Callable[[str], None]

    def index(self, paths: Sequence[str | Path], telling: Telling, showing: Showing) -> Report:
        """Mirror these, and keep what was told of them for the next time."""
        report = self._mirrored(paths, telling, showing)
        self._embed(report, showing)
        return report

    def again(self, paths: Sequence[str], new: Sequence[str], scope: Scope, showing: Showing) -> Report:
        """Mirror folders, or what is inside them, as the last time; folders that are `new` for that scope."""
        whole = Report(dry_run=showing.dry_run)
        kept = self.store.files.roots()
        for path in paths:
            telling = _as_before(path, kept, new, scope) if Path(path).exists() else "not there"
            if isinstance(telling, str):
                whole.skipped[path] = telling
            else:
                _add(whole, self._mirrored([path], telling, showing))
        self._embed(whole, showing)
        return whole

    def _mirrored(self, paths: Sequence[str | Path], telling: Telling, showing: Showing) -> Report:
        report = Report(dry_run=showing.dry_run)
        roots = roots_of(paths, telling.wishes)
        mirror = Mirror(roots, self.store.files, telling, report)
        failed: dict[str, str] = {}
        for batch in chain([list(mirror.notes())], in_batches(mirror.steps(showing.reading))):
            if not showing.dry_run:
                self._store(batch, failed)
        for path, reason in failed.items():
            report.fail(path, reason)
        if not showing.dry_run:
            self.store.records.apply([[Mirrors(str(root), _told(telling)) for root in roots]])
        return report

    def _store(self, batch: Sequence[Step], failed: dict[str, str]) -> None:
        """Store what files ask for. A file that the store refuses is left as it was, and the others are stored."""
        steps = [step for step in batch if step.path not in failed]
        try:
            self.store.records.apply(step.changes for step in steps)
        except UsageError:
            for step in steps:
                if step.path not in failed:
                    try:
                        self.store.records.apply([step.changes])
                    except UsageError as error:
                        failed[step.path] = f"not stored: {error.message}"

    def _embed(self, report: Report, showing: Showing) -> None:
        if self.embed is not None and not showing.dry_run:
            try:
                report.embedded = self.embed(showing.embedding)
            except RecollectError as error:
                self.announce(f"indexed without vectors: {error.message}")


def _as_before(
    path: str, kept: Mapping[str, Mapping[str, Any] | None], new: Sequence[str], scope: Scope
) -> Telling | str:
    """What was told of the nearest folder around a path; or why it cannot be mirrored in one way.

    Nobody who asks for a second look has given what was kept from some to all.
    """
    around = [root for root in kept if Path(path).is_relative_to(root)]
    if not around and not any(Path(path).is_relative_to(folder) for folder in new):
        raise UsageError(f"{path} is not indexed", hint="`recollect index` mirrors it")
    said = kept[max(around, key=len)] if around else _told(Telling(scope))
    if said is None:
        return UNTOLD
    inside = [told for root, told in kept.items() if root != path and Path(root).is_relative_to(path)]
    return APART if any(told != said for told in inside) else _telling_of(said)


def _told(telling: Telling) -> dict[str, Any]:
    """What is kept of a telling: all but what was meant for one run."""
    wishes = telling.wishes
    lists = {"tags": telling.tags, "include": wishes.include, "exclude": wishes.exclude}
    return {"scope": telling.scope.as_dict(), "force": wishes.force, **{name: list(of) for name, of in lists.items()}}


def _telling_of(said: Mapping[str, Any]) -> Telling:
    wishes = Wishes(tuple(said["include"]), tuple(said["exclude"]), bool(said["force"]))
    return Telling(Scope(**said["scope"]), tuple(said["tags"]), wishes)


def _add(whole: Report, more: Report) -> None:
    """One run told together with those before it."""
    for name, value in asdict(more).items():
        held = getattr(whole, name)
        if isinstance(held, dict):
            held.update(value)
        elif isinstance(held, list):
            held.extend(value)
        elif not isinstance(held, bool):
            setattr(whole, name, held + value)
