"""Add to a store what it lacks of the parts of another, batch by batch; then read everything back."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from recollect.errors import FailedError, UsageError
from recollect.moving import exports
from recollect.moving import format as export_format
from recollect.types import Progress, Steps
from recollect.types.parts import FIELDS, Contents, Part, Snapshot

BATCH_PARTS = 1_000
BATCH_BYTES = 4_000_000  # the most that is read, held in memory and written at once
HEAVY = {"record": "text", "vector": "vector", "history": "detail", "note": "value"}  # kind → its largest field
NAMED = 20  # ids that an error names; more are counted
TRUTH = ("record", "history")  # kinds that must be the same in both stores; of the rest the target keeps its own


@dataclass(frozen=True, slots=True)
class Moved:
    """The result: for each kind of part the total, how many were added, and how many the target has in another form.

    A later copy also has `changed` parts, which the target had as they were before, and `removed` ones. `different` are
    ids of records that the target has with other content, `others` counts records that only the target has, `left_out`
    what an import ignored, and `notes` are for the user.
    """

    total: dict[str, int]
    added: dict[str, int]
    not_copied: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    different: tuple[str, ...] = ()
    others: int = 0
    dry_run: bool = False
    sha256: str = ""
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        fields = asdict(self)
        not_copied = fields.pop("not_copied")
        return {**fields, "kept": not_copied, "different": list(self.different), "notes": list(self.notes)}


class PartComparison:
    """The parts of the source that the target has: how many are the same, and which records differ."""

    def __init__(self, target: Mapping[str, int]) -> None:
        self.target = target
        self.same = dict.fromkeys(FIELDS, 0)
        self.not_copied = dict.fromkeys(FIELDS, 0)
        self.renumbered = 0
        self.different: dict[str, None] = {}
        self.hidden: set[bytes] = set()
        self.notes: list[str] = []

    def add(self, part: Part, there: Part | None) -> None:
        """Compare one part with the one that has its key in the target."""
        if _agree(part, there):
            self.same[part.kind] += 1
        elif self.leaves_out(part):
            self.not_copied[part.kind] += 1
        elif part.kind == "history":
            self.renumbered += _same_event(part, there)
        elif there is not None:
            self.not_copied[part.kind] += 1
            if part.kind == "record":
                self.different[part.field("id")] = None
                self.hidden.add(exports.passage(part))
            if part.key == ("language",) and self.target["record"]:
                old, new = there.field("value"), part.field("value")
                self.notes.append(f"the store keeps its language, {old}; what is imported was read as {new}")

    @property
    def others(self) -> int:
        """The number of records that only the target has; never negative, though another process may add some now."""
        return max(0, self.target["record"] - self.same["record"] - self.not_copied["record"])

    @property
    def has_own_history(self) -> bool:
        """Whether the target has more than a part of the source; then the events of the target keep their numbers."""
        return bool(self.others or self.different or self.target["history"] > self.same["history"])

    def leaves_out(self, part: Part) -> bool:
        """Whether a part is not copied: history and vectors of records that differ in the target.

        External ids without a scope, in exports of older versions, are not copied either: they may be private.
        """
        if part.kind == "join":
            return not part.field("scope")
        if part.kind == "vector":
            return part.field("passage") in self.hidden
        return part.kind == "history" and part.field("id") in self.different


def not_as_written(part: Part, there: Part | None) -> FailedError:
    """The error for a part that the target has otherwise than it was written, or not at all."""
    state = "not in the target" if there is None else "another in the target"
    hint = "somebody may be changing the target at the same time; run it again"
    return FailedError(f"the {part.kind} {part.key[-1]!r} is {state}", hint=hint)


def refusal(others: int, different: Sequence[str]) -> UsageError:
    """The error for a target with other records than the source: how many it has alone, and which ones differ."""
    reasons = []
    if others:
        reasons.append(f"{others:,} that the source does not have")
    if different:
        ids = ", ".join(map(repr, different[:NAMED])) + (", …" if len(different) > NAMED else "")
        reasons.append(f"{len(different):,} that differ ({ids})")
    message = f"the target holds other records: {' and '.join(reasons)}"
    hint = "name an empty store; or --merge adds what is missing and leaves what is there as it is"
    return UsageError(message if reasons else "the target has a history of its own", hint=hint)


def add_missing(source: Snapshot, target: Contents, *, merge: bool, dry_run: bool, steps: Steps) -> Moved:
    """Add to the target what it lacks of the source. It can be interrupted at any time and run again."""
    total = dict(source.counts())
    with target.snapshot() as before:
        comparison = PartComparison(dict(before.counts()))
    if dry_run or any(comparison.target[kind] for kind in TRUTH):
        for batch in batches(source.parts(), steps("comparing"), total):
            for part, there in zip(batch, target.find(batch), strict=True):
                comparison.add(part, there)
    if comparison.has_own_history and not merge and not dry_run:
        raise refusal(comparison.others, list(comparison.different))
    added = {kind: total[kind] - comparison.same[kind] - comparison.not_copied[kind] for kind in FIELDS}
    added["history"] -= comparison.renumbered
    different, notes = tuple(comparison.different), tuple(comparison.notes)
    plan = Moved(
        total, added, comparison.not_copied, different=different, others=comparison.others, dry_run=dry_run, notes=notes
    )
    if dry_run:
        return plan
    for batch in batches(source.parts(), steps("copying"), total):
        _load(batch, target, comparison, total)
    target.finish(steps("indexing"))
    return verified(source, target, comparison, steps("checking"), plan)


def batches(parts: Iterable[Part], progress: Progress | None, total: Mapping[str, int]) -> Iterator[list[Part]]:
    """Yield parts of one kind together, as many as fit into memory easily, and report the progress after each batch."""
    batch: list[Part] = []
    size = done = 0
    for part in itertools.chain(parts, (None,)):
        if batch and (part is None or part.kind != batch[0].kind or is_full(len(batch), size)):
            yield batch
            done += len(batch)
            if progress:
                progress(done, sum(total.values()))
            batch, size = [], 0
        if part is not None:
            batch.append(part)
            size += weight(part)


def is_full(parts: int, size: int) -> bool:
    """Whether a batch of so many parts and bytes is written before it grows."""
    return parts >= BATCH_PARTS or size > BATCH_BYTES


def weight(part: Part) -> int:
    """About how many bytes the largest value of a part has."""
    value = part.field(HEAVY[part.kind]) if part.kind in HEAVY else ""
    return len(value if isinstance(value, str | bytes) else repr(value))


def _same_event(part: Part, there: Part | None) -> bool:
    """Whether two events are the same, apart from their numbers and earlier writers."""
    return there is not None and exports.of_stranger(part).values[1:] == exports.of_stranger(there).values[1:]


def _agree(part: Part, there: Part | None) -> bool:
    """Whether two parts have the same content. The writers of imported records are not compared: they are unknown."""
    if part == there or there is None:
        return part == there
    if part.kind == "history":
        return part.key == there.key and _same_event(part, there)
    imported = part.kind == "record" and any(one.field("origin") in exports.UNTRUSTED for one in (part, there))
    return imported and part.values[: exports.ORIGIN] == there.values[: exports.ORIGIN]


def _load(batch: list[Part], target: Contents, comparison: PartComparison, total: Mapping[str, int]) -> None:
    """Load a batch of a kind that is not complete yet."""
    kind = batch[0].kind
    if comparison.same[kind] == total[kind]:
        return
    parts = [part for part in batch if not comparison.leaves_out(part)]
    if comparison.has_own_history and kind == "history":
        parts = [part for part, there in zip(parts, target.find(parts), strict=True) if not _same_event(part, there)]
    target.load(parts, renumber=comparison.has_own_history)


def verified(
    source: Snapshot, target: Contents, comparison: PartComparison, progress: Progress | None, plan: Moved
) -> Moved:
    """Read everything back. A part that differs from the source must be one that was not to be copied."""
    sums, not_copied = export_format.Sum(), dict.fromkeys(FIELDS, 0)
    for batch in batches(source.parts(), progress, plan.total):
        for part, stored in zip(batch, target.find(batch), strict=True):
            there = stored
            if stored and stored.kind == "history" and comparison.has_own_history:  # under the number that it had
                there = Part("history", (part.field("seq"), *stored.values[1:]))
            line = export_format.to_line(part)
            if there is not None and (_agree(part, there) or export_format.to_line(there) == line):
                sums.add(part, line)
                continue
            not_copied[part.kind] += 1
            differs = part.kind == "record" and part.field("id") in comparison.different
            expected = differs or comparison.leaves_out(part)
            if not expected and (there is None or part.kind in TRUTH):
                raise not_as_written(part, there)
    return replace(plan, not_copied=not_copied, sha256=sums.digest)
