"""Copy, export and import: whole stores, with all that they hold."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from recollect import stores
from recollect.config import shown_place
from recollect.errors import UsageError
from recollect.moving import exports, following
from recollect.moving import format as export_format
from recollect.moving.transfer import TRUTH, Moved, add_missing, batches
from recollect.types import Change, Put, Steps, Store
from recollect.types.parts import FIELDS, Snapshot, StoreSnapshot
from recollect.types.records import default_origin

__all__ = ["Moved", "copy", "export", "import_"]

NOT_TRUSTED = (
    "new records with the origin `import`, which recall and agents leave out: {count:,};"
    " if the export is your own, give the same command with --trust"
)

Place: TypeAlias = str | Path | Store  # a path, a URL, or an open store


def copy(
    source: Place,
    target: Place,
    *,
    dry_run: bool = False,
    merge: bool = False,
    verify: bool = False,
    steps: Steps = lambda _: None,
) -> Moved:
    """Copy the whole content of a store into another: records, history, vectors and the rest. Then read it back.

    It can be interrupted at any time. Run again, it brings the target up to date with the source, whatever has changed
    there, and reads back what it has written; with `verify`, everything. A target with records or changes of its own is
    refused, unless `merge` is true; then what it lacks is added.
    """
    with opened(source, required=True) as old, old.contents.snapshot() as snapshot:
        if dry_run and not _is_there(target):
            return _all_new(snapshot)
        with opened(target) as new:
            if old.contents.identity == new.contents.identity:
                raise UsageError("both are the same store", hint="name another one to copy to")
            return _copied(snapshot, new, merge=merge, dry_run=dry_run, verify=verify, steps=steps)


def _copied(source: StoreSnapshot, store: Store, *, merge: bool, dry_run: bool, verify: bool, steps: Steps) -> Moved:
    with store.contents.snapshot() as present:
        before = dict(present.counts())
    first: Moved | None = None
    if not any(before[kind] for kind in TRUTH):  # all in bulk, which is faster
        getattr(source, "check", lambda: None)()  # servers and stores of other packages have no such check
        first = add_missing(source, store.contents, merge=merge, dry_run=dry_run, steps=steps)
        if dry_run or not any(before[kind] for kind in FIELDS if kind != "meta"):
            return first
    changes = following.compare(source, store, dry_run=dry_run)
    if not changes.own:
        later = following.follow(source, store, changes, dry_run=dry_run, verify=verify, steps=steps)
        return replace(later, added=first.added, sha256=first.sha256) if first else later
    if not merge and not dry_run:
        raise following.refusal(source, changes)
    return add_missing(source, store.contents, merge=merge, dry_run=dry_run, steps=steps)


def export(source: Place, file: str | Path = exports.STANDARD, *, steps: Steps = lambda _: None) -> Moved:
    """Write the whole content of a store as JSON lines, compressed if the name ends with .gz; `-` is standard output.

    The same content gives the same bytes, whatever store it is in.
    """
    with opened(source, required=True) as store, store.contents.snapshot() as snapshot:
        total, sums = dict(snapshot.counts()), export_format.Sum()
        parts = (part for batch in batches(snapshot.parts(), steps("exporting"), total) for part in batch)
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
        if dry_run and not _is_there(target):
            moved = _all_new(snapshot)
        else:
            with opened(target) as store:
                moved = add_missing(snapshot, store.contents, merge=merge, dry_run=dry_run, steps=steps)
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
        for batch in batches(snapshot.parts(), None, snapshot.counts()):
            named = {part.field("id"): part for part in batch if part.kind == "record"}
            changes: list[Change] = []
            for record in store.records.get(list(named)):
                _, kind, text, *_, origin, author, session = named[record.id].values
                origin = origin or default_origin(kind)
                written = replace(record, origin=origin, author=author, author_session=session)
                distrusted = record.origin == "import" or (record.author_session or "").startswith(exports.IMPORT_OF)
                if distrusted and written != record and record.text == text:
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


def _is_there(place: Place) -> bool:
    """Whether there is a store at a place."""
    return not isinstance(place, str | Path) or stores.exists(str(place))


def _all_new(source: Snapshot) -> Moved:
    """What a copy to a new store would do."""
    total = dict(source.counts())
    return Moved(total, total, dry_run=True)
