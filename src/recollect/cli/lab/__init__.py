"""`recollect eval`: the laboratory on the command line."""

from __future__ import annotations

import click

from recollect.cli.commands import Commands

STUDIES: dict[str, tuple[str, str]] = {
    "run": ("run", "Measure search on judged questions."),
    "sweep": ("studies", "Measure a grid of settings, and find where depth stops to matter."),
    "overlap": ("studies", "Say what each source finds, and whether fusing is worth it."),
    "tune": ("studies", "Choose settings by cross-validation, if that gains anything."),
    "make-set": ("sets", "Make questions from your own store."),
    "gate": ("run", "Fail when a measure fell by more than the noise."),
    "report": ("report", "Write one page with the plots."),
}
"""Study → the module that has it, and its line in the help."""


@click.command(cls=Commands, table=STUDIES, package="recollect.cli.lab")
def eval_() -> None:
    """Measure search on judged questions: yours, or public sets."""
