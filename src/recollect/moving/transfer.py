"""From a snapshot into a store: what is missing is added, what is there stays, and at the end all is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from recollect.errors import FailedError, UsageError
from recollect.moving.lines import Sum, to_line
from recollect.stores.rows import passage_hash
from recollect.types import Progress
from recollect.types.contents import FIELDS, Contents, Part, Snapshot

BATCH_PARTS = 1_000
BATCH_BYTES = 4_000_000
"""What is read, held and written at once, at the most."""

NAMED = 20
"""Ids that a report names; more are counted."""

TRUTH = ("record", "history")
"""What may not differ between two stores that are to be one. The rest is cache or state: there, the target's holds."""

Steps: TypeAlias = Callable[[str], Progress | None]
"""The name of a step → what to tell its progress to."""


def nothing_told(step: str) -> Progress | None:  # noqa: ARG001
    """For those who do not want to know how far it is."""
    return None


def _none() -> dict[str, int]:
    return dict.fromkeys(FIELDS, 0)


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved: of each sort how many there were, were added, were there already, and were kept otherwise.

    `left_out` is what an import did not take over, `notes` what else the one who moves should know.
    """

    total: dict[str, int]
    added: dict[str, int]
    kept: dict[str, int] = field(default_factory=dict)
    different: tuple[str, ...] = ()
    others: int = 0
    dry_run: bool = False
    sha256: str = ""
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "different": list(self.different), "notes": list(self.notes)}


@dataclass(slots=True)
class _Survey:
    """What the target has of the source: how many alike, and which records otherwise."""

    there: Mapping[str, int]
    alike: dict[str, int] = field(default_factory=_none)
    kept: dict[str, int] = field(default_factory=_none)
    renumbered: int = 0
    different: dict[str, None] = field(default_factory=dict)
    hidden: set[bytes] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def see(self, part: Part, found: Part | None) -> None:
        """Take note of one part and what has its key."""
        if part == found:
            self.alike[part.kind] += 1
        elif self.leaves_out(part):
            self.kept[part.kind] += 1
        elif part.kind == "history":
            self.renumbered += same_event(part, found)
        elif found is not None:
            self.kept[part.kind] += 1
            if part.kind == "record":
                self.different[part.values[0]] = None
                self.hidden.add(passage(part))

    @property
    def others(self) -> int:
        """Records that the source knows nothing of. What an interrupted copy still wrote may have come meanwhile."""
        return max(0, self.there["record"] - self.alike["record"] - self.kept["record"])

    @property
    def apart(self) -> bool:
        """Whether the target is more than a part of the source: then its events keep their numbers."""
        return bool(self.others or self.different or self.there["history"] > self.alike["history"])

    def leaves_out(self, part: Part) -> bool:
        """Whether a part stays behind: the history and the vectors of records that the target has otherwise.

        So does what an outside id stood for, where an older version did not keep for which scope: it may be private.
        """
        if part.kind == "join":
            return not part.values[2]
        if part.kind == "vector":
            return part.values[1] in self.hidden
        return part.kind == "history" and part.values[1] in self.different


def transfer(source: Snapshot, target: Contents, *, merge: bool, dry_run: bool, steps: Steps) -> Moved:
    """Add to the target what it lacks of the source. It can be interrupted anywhere and run again."""
    total = dict(source.counts())
    with target.snapshot() as there:
        survey = _Survey(dict(there.counts()))
    if dry_run or any(survey.there[sort] for sort in TRUTH):
        for batch in stepping(source, steps("comparing"), total):
            for part, found in zip(batch, target.find(batch), strict=True):
                survey.see(part, found)
                survey.notes += _language_note(part, found, empty=not survey.there["record"])
    if survey.apart and not merge and not dry_run:
        raise _refusal(survey)
    added = {sort: total[sort] - survey.alike[sort] - survey.kept[sort] for sort in FIELDS}
    added["history"] -= survey.renumbered
    plan = Moved(total, added, survey.kept, tuple(survey.different), survey.others, dry_run, notes=tuple(survey.notes))
    if dry_run:
        return plan
    _fill(source, target, survey, steps("copying"), total)
    target.finish(steps("indexing"))
    return _verified(source, target, survey, steps("checking"), plan)


def _language_note(part: Part, found: Part | None, *, empty: bool) -> list[str]:
    """Word of a language that the target does not take over, since its records are read in another."""
    if part.key != ("language",) or found is None or part == found or empty:
        return []
    return [f"the store keeps its language, {found.values[1]}; what is imported was read as {part.values[1]}"]


def planned(source: Snapshot) -> Moved:
    """What would be moved into a store that is not there yet."""
    total = dict(source.counts())
    return Moved(total, total, dry_run=True)


def batches(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Parts of one sort together, no more at once than fits into memory easily."""
    batch: list[Part] = []
    weight = 0
    for part in parts:
        if batch and (part.kind != batch[0].kind or len(batch) == BATCH_PARTS or weight > BATCH_BYTES):
            yield batch
            batch, weight = [], 0
        batch.append(part)
        weight += _weight(part)
    if batch:
        yield batch


def _weight(part: Part) -> int:
    match part.kind:
        case "record" | "vector":
            return len(part.values[2])
        case "history":
            return len(repr(part.values[4]))
        case "note":
            return len(part.values[1])
    return 0


def same_event(part: Part, found: Part | None) -> bool:
    """Whether two lines of history say the same, whatever their numbers."""
    return found is not None and part.values[1:] == found.values[1:]


def passage(part: Part) -> bytes:
    """What the vectors of a record are kept under."""
    words, title = part.values[2], part.values[3]
    return passage_hash(f"{title}\n{words}" if title else words)


def stepping(source: Snapshot, progress: Progress | None, total: Mapping[str, int]) -> Iterator[list[Part]]:
    """All batches of the source, and word of each that is done."""
    done, whole = 0, sum(total.values())
    for batch in batches(source.parts()):
        yield batch
        done += len(batch)
        if progress:
            progress(done, whole)


def _fill(
    source: Snapshot, target: Contents, survey: _Survey, progress: Progress | None, total: Mapping[str, int]
) -> None:
    """Load every sort that is not complete yet."""
    for batch in stepping(source, progress, total):
        sort = batch[0].kind
        if survey.alike[sort] == total[sort]:
            continue
        wanted = [part for part in batch if not survey.leaves_out(part)]
        if survey.apart and sort == "history":
            found = target.find(wanted)
            wanted = [part for part, held in zip(wanted, found, strict=True) if not same_event(part, held)]
        target.load(wanted, renumber=survey.apart)


def _verified(source: Snapshot, target: Contents, survey: _Survey, progress: Progress | None, plan: Moved) -> Moved:
    """Read everything back: each part must be there as it is in the source, or have been kept as it was."""
    ours, theirs, kept = Sum(), Sum(), _none()
    for batch in stepping(source, progress, plan.total):
        for part, held in zip(batch, target.find(batch), strict=True):
            found = _numbered_as(part, held) if survey.apart else held
            if part != found:
                _refuse_loss(part, found, survey)
                kept[part.kind] += 1
                continue
            ours.add(part, to_line(part))
            theirs.add(found, to_line(found))
    if (ours.counts, ours.digest) != (theirs.counts, theirs.digest):
        raise FailedError("what was read back is not what was written", hint="run it again; nothing was overwritten")
    return replace(plan, kept=kept, sha256=theirs.digest)


def _numbered_as(part: Part, held: Part | None) -> Part | None:
    """An event that was given another number, under the number it had."""
    return Part(held.kind, (part.values[0], *held.values[1:])) if held and held.kind == "history" else held


def _refuse_loss(part: Part, found: Part | None, survey: _Survey) -> None:
    """What is missing afterwards, or differs where nothing may, is an error."""
    expected = survey.leaves_out(part) or (part.kind == "record" and part.values[0] in survey.different)
    if expected or (found is not None and part.kind not in TRUTH):
        return
    what = f"the {part.kind} {part.key[-1]!r}"
    raise FailedError(
        f"{what} is not in the target" if found is None else f"{what} is another in the target",
        hint="somebody may be changing the target at the same time; run it again",
    )


def _refusal(survey: _Survey) -> UsageError:
    said = []
    if survey.others:
        said.append(f"{survey.others:,} that the source does not have")
    if survey.different:
        named = ", ".join(map(repr, list(survey.different)[:NAMED]))
        said.append(f"{len(survey.different):,} that differ ({named}{', …' if len(survey.different) > NAMED else ''})")
    return UsageError(
        f"the target holds other records: {' and '.join(said)}" if said else "the target has a history of its own",
        hint="name an empty store; or --merge adds what is missing and leaves what is there as it is",
    )
