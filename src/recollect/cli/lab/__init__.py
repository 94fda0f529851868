"""`recollect eval`: the laboratory on the command line."""

from __future__ import annotations

import click

from recollect.cli.commands import Commands

STUDIES: dict[str, tuple[str, str]] = {}
"""Study → the module that has it, and its line in the help."""


@click.command(cls=Commands, table=STUDIES, package="recollect.cli.lab")
def eval_() -> None:
    """Measure search on judged questions: yours, or public sets."""
