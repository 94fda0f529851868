"""Bring an earlier copy up to date. The histories of both stores tell what has changed.

A copy has the events of its source under the same numbers. So a store whose history is a part of another one's has not
been changed by itself, and each record with an event that it lacks can be replaced by what the record is now. A store
that has an event which the source has not was changed by somebody else, and is left as it is.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recollect.errors import Overtaken, UsageError
from recollect.moving import transfer
from recollect.moving.format import to_line
from recollect.moving.transfer import Moved, PartComparison, is_full, verified, weight
from recollect.types import Steps, Store
from recollect.types.parts import FIELDS, KEYS, Part, StoreSnapshot

ROUND = 100_000  # differences that are held in memory at once
CHUNK = 100  # parts that are read at once: a text may be a megabyte
STATES = ("space", "vector", "file", "root", "ingested", "join", "note", "meta")
"""The kinds without history, in the order in which they are copied: the vectors of a model before its use."""

Head: TypeAlias = tuple[Any, ...]  # the first values of a part, as `HEADS` counts them
Difference: TypeAlias = tuple[Head | None, Head | None]  # of a part in the source and in the target


@dataclass(frozen=True, slots=True)
class HistoryComparison:
    """What the histories of two stores say: events that the target lacks, and ids of records that it changed itself.

    `newest` is the number of the target's last event when the comparison began. At most `ROUND` events are listed if
    they are to be copied; then the stores are compared again.
    """

    missing: list[Head]
    own: dict[str, None]
    newest: int


def compare(source: StoreSnapshot, store: Store, *, dry_run: bool = False) -> HistoryComparison:
    """Compare the histories of two stores."""
    newest = store.changes.newest()  # before the comparison: a later event is noticed when something is written
    missing, own = list[Head](), dict[str, None]()
    with (
        store.contents.snapshot() as present,
        contextlib.closing(differences("history", source, present)) as pairs,
    ):
        for old, new in pairs:
            if new is not None:
                own[new[1]] = None
            elif old is not None and (dry_run or len(missing) < ROUND):
                missing.append(old)
    return HistoryComparison(missing, own, newest)


def refusal(source: StoreSnapshot, changes: HistoryComparison) -> UsageError:
    """The error for a target that was changed by itself: which of its records."""
    known = [part.field("id") for part in _whole(source, (Part("record", (key,)) for key in changes.own))]
    return transfer.refusal(len(changes.own) - len(known), known)


def differences(kind: str, source: StoreSnapshot, target: StoreSnapshot) -> Generator[Difference, None, None]:
    """The parts of a kind that two stores do not have alike, by rising key."""
    key = KEYS[kind]
    with contextlib.closing(source.heads(kind)) as ours, contextlib.closing(target.heads(kind)) as theirs:
        old, new = next(ours, None), next(theirs, None)
        while old is not None or new is not None:
            if new is None or (old is not None and old[:key] < new[:key]):
                yield old, None
                old = next(ours, None)
            elif old is None or new[:key] < old[:key]:
                yield None, new
                new = next(theirs, None)
            else:
                if old != new:
                    yield old, new
                old, new = next(ours, None), next(theirs, None)


def follow(
    source: StoreSnapshot, store: Store, changes: HistoryComparison, *, dry_run: bool, verify: bool, steps: Steps
) -> Moved:
    """Bring a store up to date with its source. It can be interrupted at any time and run again."""
    copying = _Copying(source, store, steps, dry_run=dry_run)
    copying.follow_history(changes)
    if not dry_run and copying.lacks_records():
        transfer.add_missing(source, store.contents, merge=False, dry_run=False, steps=steps)
    copying.follow_states()
    moved = Moved(copying.total, copying.added, changed=copying.changed, removed=copying.removed, dry_run=dry_run)
    if dry_run:
        return moved
    store.contents.finish(steps("indexing"))  # also if nothing has changed: an earlier run may have ended before
    if copying.purged and (warning := store.scrub()):
        moved = replace(moved, notes=(warning,))
    if verify:
        nothing = PartComparison(dict.fromkeys(FIELDS, 0))
        moved = verified(source, store.contents, nothing, steps("checking"), moved)
    return moved


class _Copying:
    """One run: what it reads from, what it writes to, and how many parts it has added, changed and removed."""

    def __init__(self, source: StoreSnapshot, store: Store, steps: Steps, *, dry_run: bool) -> None:
        self.source, self.store, self.dry_run = source, store, dry_run
        self.total = dict(source.counts())
        self.added, self.changed, self.removed = (dict.fromkeys(FIELDS, 0) for _ in range(3))
        self.purged = False
        self._spaces = {fingerprint for fingerprint, *_ in source.heads("space")}
        with store.contents.snapshot() as present:
            self._before = dict(present.counts())
        self._expected = sum(max(0, self.total[kind] - self._before[kind]) for kind in ("history", "vector"))
        self._progress = None if dry_run else steps("copying")

    def follow_history(self, changes: HistoryComparison) -> None:
        """Store the records that have changed, each with the events that the target lacks."""
        while changes.missing:
            newest = changes.newest
            for records, events in self._batches(changes.missing):
                before = self.store.contents.find(records)
                stale = [part for part, there in zip(records, before, strict=True) if part != there]
                self.added["record"] += before.count(None)
                self.changed["record"] += len(stale) - before.count(None)
                self.added["history"] += len(events)
                if not self.dry_run:
                    self.store.contents.follow(stale, events, newest=newest)
                    newest = max(newest, events[-1].field("seq"))
                    self.purged = self.purged or any(event.field("action") == "purge" for event in events)
                    self._check(stale)
                    self._check(events)
            if self.dry_run:
                return
            last, changes = changes, compare(self.source, self.store)
            if changes.own or changes.missing == last.missing:
                raise Overtaken("the target is being changed by another process", hint="stop it, and run this again")

    def lacks_records(self) -> bool:
        """Whether the target has other records than the source, though its history is the same: some without events."""
        return self._before["record"] + self.added["record"] != self.total["record"]

    def _batches(self, heads: Sequence[Head]) -> Iterator[tuple[list[Part], list[Part]]]:
        """Events in their order, and with the first one of each record that record as it is now."""
        records, events, known = list[Part](), list[Part](), set[str]()
        for start in range(0, len(heads), CHUNK):
            some = heads[start : start + CHUNK]
            ids = dict.fromkeys(key for _, key, *_ in some if key not in known)
            known.update(ids)
            records += _whole(self.source, (Part("record", (key,)) for key in ids))
            events += _whole(self.source, (Part("history", head) for head in some))
            if is_full(len(records) + len(events), sum(map(weight, (*records, *events)))):
                yield records, events
                records, events = [], []
        if events:
            yield records, events

    def follow_states(self) -> None:
        """Store what the target lacks or has otherwise of the kinds without history; remove what the source has not."""
        last: dict[str, list[Difference]] = {}
        while different := self._different_states():
            if different == last:
                raise Overtaken("the target is being changed by another process", hint="stop it, and run this again")
            for kind, pairs in different.items():
                stored = [Part(kind, old) for old, _ in pairs if old is not None]
                gone = [Part(kind, new) for old, new in pairs if new is not None and old is None]
                self.changed[kind] += sum(old is not None and new is not None for old, new in pairs)
                self.added[kind] += sum(new is None for _, new in pairs)
                self.removed[kind] += len(gone)
                if not self.dry_run:
                    self._store(kind, stored, gone)
            if self.dry_run:
                return
            last = different

    def _different_states(self) -> dict[str, list[Difference]]:
        """The parts that are not alike, by kind; kinds without a difference are left out."""
        different: dict[str, list[Difference]] = {}
        with self.store.contents.snapshot() as present:
            for kind in STATES:
                most = None if self.dry_run else ROUND - sum(map(len, different.values()))
                with contextlib.closing(differences(kind, self.source, present)) as pairs:
                    followed = (pair for pair in pairs if self._concerns(kind, *pair))
                    if some := list(itertools.islice(followed, most)):
                        different[kind] = some
        return different

    def _concerns(self, kind: str, old: Head | None, new: Head | None) -> bool:
        """Whether a difference is followed. Models that only the target has stay, with their vectors."""
        match kind:
            case "space":
                return new is None
            case "vector":
                return old is not None or (new is not None and new[0] in self._spaces)
            case "meta":
                return old is not None and (old[0] != "space" or new is None or new[1] in self._spaces)
        return True

    def _store(self, kind: str, stored: Sequence[Part], gone: Sequence[Part]) -> None:
        contents = self.store.contents
        for start in range(0, len(gone), transfer.BATCH_PARTS):
            contents.replace([], gone[start : start + transfer.BATCH_PARTS])
        parts = _whole(self.source, stored) if kind == "vector" else stored
        for batch in transfer.batches(parts, None, self.total):
            contents.load(batch) if kind == "space" else contents.replace(batch)
            self._check(batch)

    def _check(self, parts: Sequence[Part]) -> None:
        """Read back what was written, all of one kind."""
        for part, there in zip(parts, self.store.contents.find(parts), strict=True):
            if there is None or (part != there and to_line(part) != to_line(there)):
                raise transfer.not_as_written(part, there)
        if self._progress and parts and parts[0].kind in ("history", "vector"):
            done = min(self._expected, self.added["history"] + self.added["vector"])
            self._progress(done, self._expected)


def _whole(source: StoreSnapshot, parts: Iterable[Part]) -> Iterator[Part]:
    """The whole parts of a source, some at a time."""
    heads = iter(parts)
    while some := list(itertools.islice(heads, CHUNK)):
        yield from (part for part in source.find(some) if part is not None)
