"""`recollect demo`: the first minute, on the notes that come with the package."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, given, json_flag, notice, progress
from recollect.cli.plain import echo, plain

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Answer

SHOWN = 5
"""Of the judged questions; all of them are scored."""


@click.command()
@common
@json_flag
def demo(as_json: bool, **options: Any) -> int:
    """Index the sample notes, ask a few questions, and show which source found what."""
    from recollect import sample
    from recollect.cli.output import print_json
    from recollect.config import Settings
    from recollect.memory import Memory

    said = given(options)
    with Memory.open(
        said["store"] or ":memory:", embedder=said["embedder"], settings=Settings(), announce=notice
    ) as memory:
        report = memory.index(sample.NOTES, progress=progress("embedding"))
        asked = sample.questions()
        answers = [memory.search(question.text, limit=3) for question in asked]
        found = [_first_right(answer, question.relevant) for answer, question in zip(answers, asked, strict=True)]
        alone = {name: _right_at_first(memory, asked, name) for name in ("keyword", "vector")}
    if as_json:
        print_json(
            {"notes": len(report.added), "questions": len(asked), "right_at_1": {**alone, "fused": found.count(1)}}
        )
        return 0
    echo(f"{len(report.added)} notes indexed: {plain(str(sample.NOTES))}\n")
    picked = [*range(0, len(asked), max(1, len(asked) // SHOWN))][:SHOWN]
    for number in picked:
        _show(asked[number].text, answers[number])
    _close(len(asked), found.count(1), alone)
    return 0


def _show(question: str, answer: Answer) -> None:
    from recollect.cli.output import where

    echo(click.style(f"? {question}", bold=True))
    for rank, result in enumerate(answer.results, 1):
        ranks = "  ".join(f"{name} #{share.rank}" for name, share in result.shares.items())
        place = where(result.record).rpartition("notes/")[2]
        echo(f"  {rank}. {plain(result.record.title)[:52]:<52}  {click.style(ranks, fg='cyan'):<34}  {place}")
    echo()


def _close(total: int, fused: int, alone: dict[str, int]) -> None:
    echo(f"The right note came first for {fused} of {total} judged questions ", nl=False)
    echo(f"(keyword alone {alone['keyword']}, vector alone {alone['vector']}).\n")
    name = _own_name()
    echo("Now your own:")
    echo(f"  {name} index ~/notes")
    echo(f'  {name} search "…" --explain')
    echo(f'  {name} add "The spare key is under the blue pot." --tag home')


def _own_name() -> str:
    """What to type: the bare name where it is on the path, else the way this was started."""
    return "recollect" if shutil.which("recollect") else sys.argv[0]


def _first_right(answer: Answer, relevant: tuple[str, ...]) -> int | None:
    """The rank of the first relevant note."""
    for rank, result in enumerate(answer.results, 1):
        if (result.record.path or "").endswith(relevant):
            return rank
    return None


def _right_at_first(memory: Memory, asked: list[Any], source: str) -> int:
    """How many questions one source alone answers with the right note first."""
    from recollect.errors import SearchFailed

    try:
        answers = [memory.search(question.text, limit=1, sources=[source]) for question in asked]
    except SearchFailed:
        return 0
    return sum(_first_right(answer, question.relevant) == 1 for answer, question in zip(answers, asked, strict=True))
