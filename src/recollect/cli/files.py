"""Commands on folders and vectors: index, embed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, json_flag, notice, open_memory, progress

if TYPE_CHECKING:
    from recollect.ingest import Report


SHOWN = 5
"""Skipped files named for one reason; more are counted."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="PATH…")
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Only files like this, as in .gitignore; may be repeated."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="No files like this, as in .gitignore; may be repeated.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Put this tag on every chunk; repeat for more.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--confirm", is_flag=True, help="Remove files that vanished, however many.")
@click.option("--force", is_flag=True, help="Index even a whole home folder.")
@common
@json_flag
def index(as_json: bool, **options: Any) -> int:
    """Mirror the text files at each PATH, a folder or a file: notes, plain text, source code.

    Run it again at any time: only what changed is read.
    """
    from recollect.cli.output import print_json

    asked = {name: options[name] for name in ("paths", "tags", "include", "exclude", "dry_run", "confirm", "force")}
    with open_memory(options) as memory:
        report = memory.index(**asked, reading=progress("reading"), progress=progress("embedding"))
    if as_json:
        print_json(dataclasses.asdict(report))
    else:
        _show(report)
    return 0


def _show(report: Report) -> None:
    """The counts for a reader, the reasons on the side."""
    moved = f"{len(report.moved):,} moved, " if report.moved else ""
    counts = (
        f"{len(report.added):,} added, {len(report.changed):,} changed, {moved}{len(report.removed):,} removed, "
        f"{report.unchanged:,} unchanged, {len(report.skipped):,} skipped"
    )
    click.echo(f"would be: {counts}" if report.dry_run else counts)
    if report.dry_run:
        _list_changes(report)
    reasons: dict[str, list[str]] = {}
    for path, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(path)
    for reason, paths in sorted(reasons.items()):
        for path in paths[:SHOWN]:
            notice(f"skipped {path}: {reason}")
        if len(paths) > SHOWN:
            notice(f"skipped {len(paths) - SHOWN:,} more: {reason}")
    if report.unconfirmed:
        notice(
            f"{len(report.unconfirmed):,} files have vanished at once; nothing was removed. "
            "If that is right, run again with --confirm"
        )


def _list_changes(report: Report) -> None:
    for sign, paths in (("+", report.added), ("~", report.changed), ("-", report.removed)):
        for path in paths:
            click.echo(f"{sign} {path}")
    for old, new in report.moved.items():
        click.echo(f"> {old} → {new}")


@click.command()
@common
@json_flag
def embed(as_json: bool, **options: Any) -> int:
    """Compute the vectors that are missing: after a change of model, or after adding without one."""
    from recollect.cli.output import print_json

    with open_memory(options) as memory:
        count = memory.embed(progress=progress("embedding"))
    if as_json:
        print_json({"embedded": count})
    else:
        click.echo(f"{count:,} embedded")
    return 0
