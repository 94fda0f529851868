"""`recollect eval make-set`: questions from the user's own store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, filter_options, filters, json_flag, notice, open_memory, progress
from recollect.cli.plain import echo, plain

if TYPE_CHECKING:
    from recollect.evaluation.questions import Made, SetWishes
    from recollect.memory import Memory

_WISHES = ("count", "seed", "llm", "masked", "update", "force")


@click.command("make-set")
@click.option("-o", "--output", "folder", required=True, metavar="FOLDER", help="Where the set is to be.")
@click.option("-n", "--n", "count", default=200, show_default=True, type=click.IntRange(1), help="How many questions.")
@click.option("--llm", is_flag=True, help="Let the language model of [llm] ask half of them, in its own words.")
@click.option("--masked", is_flag=True, help="Also copy the records, without the words of their questions.")
@click.option("--seed", default=60, show_default=True, help="Another number, other questions.")
@click.option("--plan", is_flag=True, help="Say what would be made and sent; send and write nothing.")
@click.option("--update", is_flag=True, help="Keep the set that is there, with your edits, and add what is new.")
@click.option("--force", is_flag=True, help="Make the set that is there anew.")
@filters
@common
@json_flag
def make_set(folder: str, plan: bool, as_json: bool, **options: Any) -> int:
    """Make questions from your own store, each asking for one known thing: a set to measure search with.

    They come from headings, links, aliases, sentences and facts, and with --llm from a language model. FOLDER is
    for you to edit; `recollect eval run FOLDER` measures on it.
    """
    from recollect.cli.output import print_json
    from recollect.evaluation.questions import SetWishes, plan_set

    wishes = SetWishes(**{name: options[name] for name in _WISHES}, filters=filter_options(options))
    place = Path(folder).expanduser()
    with open_memory(options, reads=True) as memory:
        made = plan_set(memory, place, wishes, bars=progress) if plan else _make(memory, place, wishes)
    if as_json:
        print_json(made.as_dict())
    else:
        _show(made, plan)
    return 0


def _make(memory: Memory, place: Path, wishes: SetWishes) -> Made:
    from recollect.evaluation import questions

    return questions.make_set(memory, place, wishes, bars=progress, announce=notice)


def _show(made: Made, plan: bool) -> None:
    from recollect.cli.output import print_table
    from recollect.evaluation.questions.telling import COLUMNS, cells

    if made.leakage:
        print_table([COLUMNS, *map(cells, made.leakage)])
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in made.kinds.items())
    sides = f"{made.sides['test']:,} to report on, {made.sides['dev']:,} to try things on"
    echo(
        f"{'would be' if plan else plain(str(made.folder))}: {sum(made.sides.values()):,} questions ({kinds}); {sides}"
    )
    if plan:
        calls = f"{made.calls:,} calls of the language model, about {made.tokens:,} tokens to send; " * bool(made.calls)
        echo(f"{calls}nothing was sent or written")
    for warning in made.warnings:
        notice(f"note: {warning}")
