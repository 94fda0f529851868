"""Commands on folders and vectors: index, embed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, json_flag, notice, open_memory, progress
from recollect.cli.plain import echo, plain

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
        _show(report, _owner(memory.scope.as_dict(), options["tags"]))
    return 0


def _owner(scope: Mapping[str, str], tags: Sequence[str]) -> str:
    """Whose the files are now, and with which tags."""
    whose = ", ".join(f"{part} {name}" for part, name in scope.items()) or "everybody"
    return whose + (f", with the tag{'s' if len(tags) > 1 else ''} {', '.join(tags)}" if tags else "")


def _show(report: Report, owner: str) -> None:
    """The counts for a reader, the reasons on the side."""
    moved = f"{len(report.moved):,} moved, " if report.moved else ""
    counts = (
        f"{len(report.added):,} added, {len(report.changed):,} changed, {moved}{len(report.removed):,} removed, "
        f"{report.unchanged:,} unchanged, {len(report.skipped):,} skipped"
    )
    echo(f"would be: {counts}" if report.dry_run else counts)
    if report.rescoped:
        count = len(report.rescoped)
        files = f"{count:,} file{'s' if count > 1 else ''}"
        belong = "would belong" if report.dry_run else "now belong" if count > 1 else "now belongs"
        echo(plain(f"{files} {belong} to {owner}"))
    if report.dry_run:
        _list_changes(report)
    reasons: dict[str, list[str]] = {}
    for path, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(path)
    for reason, paths in sorted(reasons.items()):
        for path in paths[:SHOWN]:
            notice(f"skipped {plain(path)}: {reason}")
        if len(paths) > SHOWN:
            notice(f"skipped {len(paths) - SHOWN:,} more: {reason}")
    if report.unconfirmed:
        notice(
            f"{len(report.unconfirmed):,} files have vanished at once; they were not removed. "
            "If that is right, run again with --confirm"
        )


def _list_changes(report: Report) -> None:
    for sign, paths in (("+", report.added), ("~", report.changed), ("-", report.removed)):
        for path in paths:
            echo(f"{sign} {plain(path)}")
    for old, new in report.moved.items():
        echo(f"> {plain(old)} → {plain(new)}")


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
        echo(f"{count:,} embedded")
    return 0
