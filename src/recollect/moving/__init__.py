"""Copy, export and import: what the target lacks is added, what it has stays, and at the end all is read back."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from recollect import stores
from recollect.config import shown_place
from recollect.errors import FailedError, UsageError
from recollect.moving import exports
from recollect.moving import format as export_format
from recollect.types import Change, Progress, Put, Store
from recollect.types.parts import FIELDS, Contents, Part, Snapshot
from recollect.types.records import default_origin

__all__ = ["Moved", "copy", "export", "import_"]

BATCH_PARTS = 1_000
BATCH_BYTES = 4_000_000  # the most that is read, held in memory and written at once
HEAVY = {"record": 2, "vector": 2, "history": 4, "note": 1}  # kind → the position of its largest value
NAMED = 20  # ids that an error names; more are counted
TRUTH = ("record", "history")  # kinds that must be the same in both stores; of the rest the target keeps its own
NOT_TRUSTED = (
    "new records with the origin `import`, which recall and agents leave out: {count:,};"
    " if the export is your own, give the same command with --trust"
)

Place: TypeAlias = str | Path | Store  # a path, a URL, or an open store
Steps: TypeAlias = Callable[[str], Progress | None]  # makes the progress bar of a step from its name


@dataclass(frozen=True, slots=True)
class Moved:
    """The result: for each kind of part the total, how many were added, and how many the target has in another form.

    `different` are ids of records that the target has with other content, `others` counts records that only the target
    has, `left_out` what an import ignored, and `notes` are for the user.
    """

    total: dict[str, int]
    added: dict[str, int]
    not_copied: dict[str, int] = field(default_factory=dict)
    different: tuple[str, ...] = ()
    others: int = 0
    dry_run: bool = False
    sha256: str = ""
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        fields = asdict(self)
        kept = fields.pop("not_copied")
        return {**fields, "kept": kept, "different": list(self.different), "notes": list(self.notes)}


def copy(
    source: Place, target: Place, *, dry_run: bool = False, merge: bool = False, steps: Steps = lambda _: None
) -> Moved:
    """Copy the whole content of a store into another: records, history, vectors and the rest. Then read it back.

    A target that holds other records is refused, unless `merge` is true; then what it lacks is added. A copy can be
    interrupted at any time and run again.
    """
    with opened(source, required=True) as store, store.contents.snapshot() as snapshot:
        return _transfer(snapshot, target, store.contents.identity, merge=merge, dry_run=dry_run, steps=steps)


def export(source: Place, file: str | Path = exports.STANDARD, *, steps: Steps = lambda _: None) -> Moved:
    """Write the whole content of a store as JSON lines, compressed if the name ends with .gz; `-` is standard output.

    The same content gives the same bytes, whatever store it is in.
    """
    with opened(source, required=True) as store, store.contents.snapshot() as snapshot:
        total, sums = dict(snapshot.counts()), export_format.Sum()
        parts = (part for batch in _batches(snapshot, steps("exporting"), total) for part in batch)
        exports.write(str(file), export_format.written(parts, sums))
        return Moved(total, total, sha256=sums.digest)


def import_(
    target: Place,
    file: str | Path,
    *,
    dry_run: bool = False,
    merge: bool = False,
    trust: bool = False,
    with_folders: bool = False,
    steps: Steps = lambda _: None,
) -> Moved:
    """Add the content of an export to a store, as `copy` does. Every line is checked before the first is added.

    Records come with their history and vectors. Mirrored folders and the state of their files, what was read for facts,
    cached answers and ids of external systems come only with `with_folders`, which is for an export of one's own.
    Records of users, files and agents get the origin `import`. With `trust` or `with_folders` they keep the writers
    that the export names, also those imported before.
    """
    with exports.read(str(file), trusted=trust or with_folders, everything=with_folders) as snapshot:
        moved = _transfer(snapshot, target, merge=merge, dry_run=dry_run, steps=steps)
        notes = list(moved.notes)
        if moved.added["record"] and snapshot.distrusted:
            notes.append(NOT_TRUSTED.format(count=min(snapshot.distrusted, moved.added["record"])))
        were_there = moved.added["record"] < moved.total["record"] and not dry_run
        if were_there and (trust or with_folders) and (count := _name_writers(snapshot, target)):
            notes.append(f"records of an earlier import that now have the writers that the export names: {count:,}")
        return replace(moved, left_out=dict(snapshot.left_out), notes=tuple(notes))


def _name_writers(snapshot: Snapshot, place: Place) -> int:
    """Give records of an earlier import, which was not trusted, the writers that the export names; return how many."""
    count = 0
    with opened(place) as store:
        for batch in _batches(snapshot, None, snapshot.counts()):
            named = {part.values[0]: part for part in batch if part.kind == "record"}
            changes: list[Change] = []
            for record in store.records.get(list(named)):
                _, kind, text, *_, origin, author, session = named[record.id].values
                origin = origin or default_origin(kind)
                if record.origin == "import" != origin and record.text == text:
                    written = replace(record, origin=origin, author=author, author_session=session)
                    changes.append(Put(written, any_writer=True))
            store.records.apply([changes] if changes else [])
            count += len(changes)
    return count


@contextlib.contextmanager
def opened(place: Place, *, required: bool = False) -> Iterator[Store]:
    """The store at a place; one that is opened here is closed again. `required` refuses to create one."""
    if not isinstance(place, str | Path):
        yield place
        return
    if required and not stores.exists(str(place)):
        raise UsageError(f"there is no store at {shown_place(str(place))}", hint="check the name; nothing was made")
    with contextlib.closing(stores.open_store(str(place))) as store:
        yield store


class _Comparison:
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
                self.different[part.values[0]] = None
                self.hidden.add(exports.passage(part))
            if part.key == ("language",) and self.target["record"]:
                self.notes.append(
                    f"the store keeps its language, {there.values[1]}; what is imported was read as {part.values[1]}"
                )

    @property
    def others(self) -> int:
        """The number of records that only the target has; never negative, though another process may add some now."""
        return max(0, self.target["record"] - self.same["record"] - self.not_copied["record"])

    @property
    def apart(self) -> bool:
        """Whether the target has more than a part of the source; then the events of the target keep their numbers."""
        return bool(self.others or self.different or self.target["history"] > self.same["history"])

    def leaves_out(self, part: Part) -> bool:
        """Whether a part is not copied: history and vectors of records that differ in the target.

        External ids without a scope, which an older version stored, are not copied either: they may be private.
        """
        if part.kind == "join":
            return not part.values[2]
        if part.kind == "vector":
            return part.values[1] in self.hidden
        return part.kind == "history" and part.values[1] in self.different

    def refusal(self) -> UsageError:
        reasons = []
        if self.others:
            reasons.append(f"{self.others:,} that the source does not have")
        if self.different:
            ids = ", ".join(map(repr, list(self.different)[:NAMED])) + (", …" if len(self.different) > NAMED else "")
            reasons.append(f"{len(self.different):,} that differ ({ids})")
        others = f"the target holds other records: {' and '.join(reasons)}"
        hint = "name an empty store; or --merge adds what is missing and leaves what is there as it is"
        return UsageError(others if reasons else "the target has a history of its own", hint=hint)


def _transfer(source: Snapshot, place: Place, identity: str = "", *, merge: bool, dry_run: bool, steps: Steps) -> Moved:
    """Add to the target what it lacks of the source. It can be interrupted at any time and run again."""
    total = dict(source.counts())
    if dry_run and isinstance(place, str | Path) and not stores.exists(str(place)):
        return Moved(total, total, dry_run=True)
    with opened(place) as store:
        target = store.contents
        if identity == target.identity:
            raise UsageError("both are the same store", hint="name another one to copy to")
        with target.snapshot() as before:
            comparison = _Comparison(dict(before.counts()))
        if dry_run or any(comparison.target[kind] for kind in TRUTH):
            for batch in _batches(source, steps("comparing"), total):
                for part, there in zip(batch, target.find(batch), strict=True):
                    comparison.add(part, there)
        if comparison.apart and not merge and not dry_run:
            raise comparison.refusal()
        added = {kind: total[kind] - comparison.same[kind] - comparison.not_copied[kind] for kind in FIELDS}
        added["history"] -= comparison.renumbered
        different, notes = tuple(comparison.different), tuple(comparison.notes)
        plan = Moved(total, added, comparison.not_copied, different, comparison.others, dry_run, notes=notes)
        if dry_run:
            return plan
        for batch in _batches(source, steps("copying"), total):
            _load(batch, target, comparison, total)
        target.finish(steps("indexing"))
        return _verified(source, target, comparison, steps("checking"), plan)


def _batches(source: Snapshot, progress: Progress | None, total: Mapping[str, int]) -> Iterator[list[Part]]:
    """Yield parts of one kind together, as many as fit into memory easily, and report the progress after each batch."""
    batch: list[Part] = []
    weight = done = 0
    for part in itertools.chain(source.parts(), (None,)):
        full = len(batch) == BATCH_PARTS or weight > BATCH_BYTES
        if batch and (part is None or part.kind != batch[0].kind or full):
            yield batch
            done += len(batch)
            if progress:
                progress(done, sum(total.values()))
            batch, weight = [], 0
        if part is not None:
            batch.append(part)
            if part.kind in HEAVY:
                value = part.values[HEAVY[part.kind]]
                weight += len(value if isinstance(value, str | bytes) else repr(value))


def _same_event(part: Part, there: Part | None) -> bool:
    """Whether two events are the same, apart from their numbers and earlier writers."""
    return there is not None and exports.of_stranger(part).values[1:] == exports.of_stranger(there).values[1:]


def _agree(part: Part, there: Part | None) -> bool:
    """Whether two parts have the same content. The writers of imported records are not compared: they are unknown."""
    if part == there or there is None:
        return part == there
    if part.kind == "history":
        return part.key == there.key and _same_event(part, there)
    imported = part.kind == "record" and any(one.values[exports.ORIGIN] in exports.UNTRUSTED for one in (part, there))
    return imported and part.values[: exports.ORIGIN] == there.values[: exports.ORIGIN]


def _load(batch: list[Part], target: Contents, comparison: _Comparison, total: Mapping[str, int]) -> None:
    """Load a batch of a kind that is not complete yet."""
    kind = batch[0].kind
    if comparison.same[kind] == total[kind]:
        return
    parts = [part for part in batch if not comparison.leaves_out(part)]
    if comparison.apart and kind == "history":
        parts = [part for part, there in zip(parts, target.find(parts), strict=True) if not _same_event(part, there)]
    target.load(parts, renumber=comparison.apart)


def _verified(
    source: Snapshot, target: Contents, comparison: _Comparison, progress: Progress | None, plan: Moved
) -> Moved:
    """Read everything back. A part that differs from the source must be one that was not to be copied."""
    sums, not_copied = export_format.Sum(), dict.fromkeys(FIELDS, 0)
    for batch in _batches(source, progress, plan.total):
        for part, stored in zip(batch, target.find(batch), strict=True):
            there = stored
            if stored and stored.kind == "history" and comparison.apart:  # under the number that it had
                there = Part("history", (part.values[0], *stored.values[1:]))
            line = export_format.to_line(part)
            if there is not None and (_agree(part, there) or export_format.to_line(there) == line):
                sums.add(part, line)
                continue
            not_copied[part.kind] += 1
            expected = comparison.leaves_out(part) or (part.kind == "record" and part.values[0] in comparison.different)
            if not expected and (there is None or part.kind in TRUTH):
                what = f"the {part.kind} {part.key[-1]!r}"
                message = f"{what} is {'not in the target' if there is None else 'another in the target'}"
                hint = "somebody may be changing the target at the same time; run it again"
                raise FailedError(message, hint=hint)
    return replace(plan, not_copied=not_copied, sha256=sums.digest)
