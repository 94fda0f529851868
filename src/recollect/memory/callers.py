"""Who calls and who writes: views of a memory for a scope or a writer, and the rollback of writers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Self

from recollect.dataclass import dataclass
from recollect.errors import Forbidden, UsageError
from recollect.memory.changes import Writer, retried, values_before
from recollect.memory.naming import MOST_LISTED
from recollect.memory.validation import (
    WRITER_FIELDS,
    claimed,
    make_fields,
    make_filter,
    merge_scope,
    of_caller,
    parse_time,
)
from recollect.types import EVERYTHING, GLOBAL, Event, Provenance, Record, Scope
from recollect.types.records import Change, ExpectUnchanged, Forget, MarkUndo, Put, Restore


class ScopedWriter(Writer):
    """The methods of `Memory` that are about who calls: in which scope, in whose name."""

    def within(self, scope: Scope | Mapping[str, str]) -> Self:
        """Return a view of this memory for a scoped caller, such as a client of a server.

        The view behaves like a store that holds only what `scope` may see. It can change only records that the scope
        owns, and no call can name another scope, this one included: that raises `Forbidden`. View and memory share
        everything; closing one closes both.
        """
        view, scope = copy.copy(self), merge_scope(GLOBAL, scope, {})
        if self.caller not in (None, scope):
            raise Forbidden("another scope than the caller's cannot be used", hint="leave the scope out")
        view.scope, view.caller, view.store = scope, scope, self.store.within(scope)
        view.provenance = of_caller(scope, self.provenance)
        return view

    def scoped(self, scope: Scope | Mapping[str, str]) -> Self:
        """Return a view of this memory with another default scope; calls may still name other scopes.

        A scoped caller can only name its own scope here; another one raises `Forbidden`.
        """
        if (scope := merge_scope(GLOBAL, scope, {})) == self.scope:
            return self
        view = self.within(scope)
        view.caller, view.provenance = None, self.provenance
        return view

    def written_by(self, author: str | None, *, origin: str | None = None, session: str | None = None) -> Self:
        """Return a view of this memory whose new records name this author, origin and session.

        What is None stays as it is. A scoped caller cannot claim an origin that is trusted more than its own.
        """
        named = {"origin": origin, "author": author, "author_session": session}
        view = copy.copy(self)
        view.provenance = Provenance(**make_fields(claimed(named, self.provenance, self.caller)))
        return view

    @retried
    def roll_back(
        self,
        *,
        origin: str | Sequence[str] = (),
        author: str | Sequence[str] = (),
        author_session: str | Sequence[str] = (),
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        purge: bool = False,
        confirm: bool = False,
    ) -> Rollback:
        """Forget the facts of some writers, and bring back what they replaced; without `confirm`, only say what.

        `since` and `until` are about when a fact was stored or changed. A fact that one of these writers only changed
        gets its earlier version back. All facts of the scope of this memory are looked at; for the owner without a
        scope, those of all scopes. Up to 500 facts are one transaction: if a longer rollback fails on the way, run it
        again. Each record can be brought back with `undo`, unless `purge` erases it.
        """
        names = {"origin": origin, "author": author, "author_session": author_session}
        rollback = plan(self, {**names, "since": since, "until": until}, purge=purge)
        if not confirm or not rollback.groups:
            return rollback
        self.store.records.apply(rollback.groups)
        if purge and (warning := self.store.scrub()):
            self.announce(warning)
        return replace(rollback, done=True)

    def _require_owner(self, action: str = "index files", command: str = "index") -> None:
        if self.caller is not None:
            raise Forbidden(f"only the owner of the store can {action}", hint=f"ask them to `recollect {command}`")


BATCH = 500  # records that are rolled back in one transaction
SELECTING = (*WRITER_FIELDS, "since", "until")  # of which one must be named


@dataclass(frozen=True, slots=True)
class Rollback:
    """What is rolled back: facts that are `forgotten`, facts whose earlier version is `reverted` to, and `restored`.

    Restored are facts that one of the forgotten had superseded. With `done` it has happened.
    """

    forgotten: tuple[Record, ...] = ()
    reverted: tuple[Record, ...] = ()
    restored: tuple[Record, ...] = ()
    purge: bool = False
    done: bool = False
    groups: tuple[Sequence[Change], ...] = field(default=(), repr=False, compare=False)


def plan(memory: Writer, filters: Mapping[str, Any], *, purge: bool) -> Rollback:
    """What rolling back the records of these filters would change. `since` and `until` are when they were written."""
    records = _selected(memory, filters)
    rolled_back, writer = {record.id: record for record in records}, memory.provenance
    forgotten, reverted, restored, groups = list[Record](), list[Record](), list[Record](), list[list[Change]]()
    for record in records:
        events = memory.store.records.history(record.id)
        changes: list[Change] = [ExpectUnchanged(record.id, events[-1].seq)]
        if earlier := _earlier(record, events, filters):
            reverted.append(earlier)
            changes.append(Put(earlier, any_writer=True, writer=writer))
        else:
            old = list(_replaced_by(memory, record, events, rolled_back))
            forgotten.append(record)
            restored += [one for one, _ in old]
            changes += [change for one, seq in old for change in (Restore(one.id), MarkUndo(one.id, seq, writer))]
            changes.append(Forget(record.id, purge, writer))
        groups.append(changes)
    joined = tuple([change for group in groups[at : at + BATCH] for change in group]
                   for at in range(0, len(groups), BATCH))  # fmt: skip
    return Rollback(tuple(forgotten), tuple(reverted), tuple(restored), purge, groups=joined)


def _selected(memory: Writer, filters: Mapping[str, Any]) -> list[Record]:
    """The facts that the caller may change: those of the scope that is named, or of all scopes."""
    if not any(filters.get(name) for name in SELECTING):
        raise UsageError("name what to roll back", hint=f"one of {', '.join(SELECTING)}")
    named = {name: filters.get(name) for name in WRITER_FIELDS}
    everyone = memory.scope == GLOBAL and memory.caller is None
    where = replace(
        make_filter(named, memory.scope, memory.caller),
        kinds=("fact", "turn"), superseded=True, now=EVERYTHING.now, any_scope=everyone,
        written_since=parse_time(filters.get("since")), written_until=parse_time(filters.get("until")),
    )  # fmt: skip
    records = memory.store.records.list(where, limit=MOST_LISTED)
    return [record for record in records if everyone or memory.scope.owns(record.scope)]


def _earlier(record: Record, events: Sequence[Event], filters: Mapping[str, Any]) -> Record | None:
    """The last version that is of another writer or from before the period; None if there is no such version."""
    version, since = record, parse_time(filters.get("since"))
    for event in reversed(events):
        if since and event.at < since:
            return None if version is record else version
        if event.action == "add":
            return None
        if event.action == "update":
            version = replace(version, **values_before(event))
            if not _matches(version, filters):
                return version
    return None


def _matches(version: Record, filters: Mapping[str, Any]) -> bool:
    """Whether a version is of the writer that is rolled back."""
    for name in WRITER_FIELDS:
        names = filters.get(name) or ()
        if names and getattr(version, name) not in ((names,) if isinstance(names, str) else names):
            return False
    return True


def _replaced_by(
    memory: Writer, record: Record, events: Sequence[Event], rolled_back: Mapping[str, Record]
) -> Iterator[tuple[Record, int]]:
    """The records that this one supersedes and that are not rolled back, and the number of that event.

    If a record that stays has superseded this one since, the older ones stay superseded.
    """
    successor: Record | None = record
    while successor and successor.superseded_by:
        if successor.superseded_by not in rolled_back and memory.store.records.get([successor.superseded_by]):
            return
        successor = rolled_back.get(successor.superseded_by)
    keys = [str(event.detail.get("id")) for event in events if event.action == "supersedes"]
    for old in memory.store.records.get(list(dict.fromkeys(keys))):
        owned = memory.caller is None or memory.caller.owns(old.scope)
        if owned and old.superseded_by == record.id and old.id not in rolled_back:
            supersede = [event.seq for event in memory.store.records.history(old.id) if event.action == "supersede"]
            yield old, supersede[-1]
