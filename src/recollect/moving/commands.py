"""The three ways to move what a store holds: into another store, into a file, and from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recollect.errors import UsageError
from recollect.moving import files, lines
from recollect.moving.places import Place, exists, opened, require
from recollect.moving.transfer import Moved, Steps, nothing_told, planned, stepping, transfer


def copy(
    source: Place, target: Place, *, dry_run: bool = False, merge: bool = False, steps: Steps = nothing_told
) -> Moved:
    """Copy every record, its history, every vector and all else that a store holds into another, and read it back.

    A target that is no part of the source is refused, unless `merge` is to add what it lacks. It can be interrupted
    anywhere and run again. `steps` is asked for a `Progress` for each step by its name.
    """
    require(source)
    with opened(source) as from_, from_.snapshot() as snapshot:
        if dry_run and not exists(target):
            return planned(snapshot)
        with opened(target) as to:
            if from_.identity == to.identity:
                raise UsageError("both are the same store", hint="name another one to copy to")
            return transfer(snapshot, to, merge=merge, dry_run=dry_run, steps=steps)


def export(source: Place, file: str | Path = files.STANDARD, *, steps: Steps = nothing_told) -> Moved:
    """Write all that a store holds as JSON lines, zipped where the name ends with .gz; `-` is standard output.

    The same content gives the same bytes, whatever store it is in.
    """
    require(source)
    with opened(source) as from_, from_.snapshot() as snapshot:
        total, sums = dict(snapshot.counts()), lines.Sum()
        parts = (part for batch in stepping(snapshot, steps("exporting"), total) for part in batch)
        files.write(str(file), lines.written(parts, sums))
        return Moved(total, total, sha256=sums.digest)


def import_(
    target: Place,
    file: str | Path,
    *,
    dry_run: bool = False,
    merge: bool = False,
    with_folders: bool = False,
    steps: Steps = nothing_told,
) -> Moved:
    """Add what an export holds to a store, as `copy` does. Every line is checked before the first is added.

    Records come with their history and vectors. Which folders are mirrored, what is known of their files, what was read
    for facts, kept answers and outside ids come only with `with_folders`, which is for an export of one's own.
    """
    with files.read(str(file), everything=with_folders) as snapshot:
        if dry_run and not exists(target):
            moved = planned(snapshot)
        else:
            with opened(target) as to:
                moved = transfer(snapshot, to, merge=merge, dry_run=dry_run, steps=steps)
        return replace(moved, left_out=dict(snapshot.left_out))
