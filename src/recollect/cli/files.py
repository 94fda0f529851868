"""Commands on folders and vectors: index, embed."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from recollect.cli.options import common, json_flag, notice, open_memory, progress


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Put this tag on every chunk; repeat for more.")
@common
@json_flag
def index(folder: str, tags: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Mirror the markdown files of FOLDER. Run it again at any time: only what changed is read."""
    from recollect.cli.output import print_json

    with open_memory(options) as memory:
        report = memory.index(folder, tags=tags, progress=progress("embedding"))
    if as_json:
        print_json(dataclasses.asdict(report))
        return 0
    click.echo(
        f"{len(report.added)} added, {len(report.changed)} changed, {len(report.removed)} removed, "
        f"{report.unchanged} unchanged, {len(report.skipped)} skipped"
    )
    for path, reason in report.skipped.items():
        notice(f"skipped {path}: {reason}")
    return 0


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
