"""Commands that move what a store holds: copy, export, import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, load_settings, notice, progress
from recollect.cli.plain import echo, plain
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.moving import Moved

_NAMES = {
    "record": ("record", "records"),
    "history": ("line of history", "lines of history"),
    "vector": ("vector", "vectors"),
    "file": ("file", "files"),
    "ingested": ("piece read for facts", "pieces read for facts"),
    "join": ("outside id", "outside ids"),
    "note": ("kept answer", "kept answers"),
}
"""What is counted for a reader, and how one and several are called there."""

SHOWN = 20
"""Ids that differ, for a reader."""


@click.command()
@click.argument("from_", metavar="FROM")
@click.argument("to", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and do nothing.")
@click.option("--merge", is_flag=True, help="Into a store that holds other records: add what it lacks.")
@json_flag
def copy(from_: str, to: str, dry_run: bool, merge: bool, as_json: bool) -> int:
    """Copy all that the store FROM holds into the store TO: files, or URLs like postgresql://user@host/database.

    It can be interrupted and run again; at the end everything is read back and compared.
    """
    from recollect import moving

    moved = moving.copy(from_, to, dry_run=dry_run, merge=merge, steps=progress)
    return _show(moved, "copied", as_json, merge=merge)


@click.command()
@click.argument("file", default="-", metavar="[FILE]")
@common
@json_flag
def export(file: str, as_json: bool, **options: Any) -> int:
    """Write all that the store holds to FILE as JSON lines; `.gz` zips them, `-` is standard output."""
    from recollect import moving

    if file == "-" and as_json:
        raise UsageError("the export itself is on standard output", hint="name a FILE, or leave out --json")
    moved = moving.export(_place(options), file, steps=progress)
    if file == "-":
        notice(f"exported {_counted(moved.total)}")
    else:
        _show(moved, "exported", as_json)
    return 0


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and do nothing.")
@click.option("--merge", is_flag=True, help="Into a store that holds other records: add what it lacks.")
@click.option(
    "--with-folders", is_flag=True, help="For an export of your own: also its mirrored folders and kept answers."
)
@common
@json_flag
def import_(file: str, dry_run: bool, merge: bool, with_folders: bool, as_json: bool, **options: Any) -> int:
    """Add the records that `recollect export` wrote to FILE, or to standard input with `-`; each line is checked first.

    Records come with their history and vectors. What else a store knows comes only with --with-folders.
    """
    from recollect import moving

    moved = moving.import_(
        _place(options), file, dry_run=dry_run, merge=merge, with_folders=with_folders, steps=progress
    )
    return _show(moved, "imported", as_json, merge=merge)


def _place(options: dict[str, Any]) -> str:
    """The store that is meant: all of it, so that a scope would be misunderstood."""
    from recollect.memory import default_store

    for part in ("user", "agent", "session"):
        if given(options)[part] is not None:
            raise UsageError(f"the whole store is moved, not what is of one {part}", hint=f"leave out --{part}")
    return load_settings(options).settings.store or str(default_store())


def _show(moved: Moved, done: str, as_json: bool, *, merge: bool = False) -> int:
    """Say what was moved; a dry run of what would be refused ends as that would."""
    refused = moved.dry_run and not merge and bool(moved.others or moved.different)
    if as_json:
        from recollect.cli.output import print_json

        print_json(moved.as_dict())
    else:
        _tell(moved, done)
    for note in moved.notes:
        notice(note)
    if refused:
        notice("it would be refused: the target holds other records; --merge adds what it lacks")
    return 2 if refused else 0


def _tell(moved: Moved, done: str) -> None:
    echo(f"would be {done}: {_counted(moved.added)}" if moved.dry_run else f"{done} {_counted(moved.added)}")
    alike = {sort: moved.total[sort] - moved.added[sort] - moved.kept.get(sort, 0) for sort in moved.total}
    if any(alike[sort] for sort in _NAMES):
        echo(f"there already: {_counted(alike)}")
    if moved.different:
        echo(f"left as they are in the target, where they differ: {len(moved.different):,} records")
        for key in moved.different[:SHOWN]:
            echo(plain(f"  {key}"))
        if len(moved.different) > SHOWN:
            echo(f"  and {len(moved.different) - SHOWN:,} more; --json names all")
    caches = {**moved.kept, "record": 0}
    if any(caches.get(sort) for sort in _NAMES):
        echo(f"left behind, or as they are in the target: {_counted(caches)}")
    if moved.others:
        echo(f"{moved.others:,} other record{'s are' if moved.others > 1 else ' is'} in the target")
    if any(moved.left_out.values()):
        left = _counted({**moved.left_out, "file": moved.left_out["file"] + moved.left_out["root"]})
        echo(f"left out: {left}; --with-folders takes them over, for an export of your own")
    if moved.sha256:
        echo(f"sha256 {moved.sha256}")


def _counted(numbers: dict[str, int]) -> str:
    said = [f"{many:,} {names[many > 1]}" for sort, names in _NAMES.items() if (many := numbers.get(sort, 0))]
    return ", ".join(said) or "nothing"
