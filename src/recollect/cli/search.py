"""Commands that ask a question: search, why-not, recall, demo."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import common, common_options, filters_of, json_flag, open_memory, search_flags, search_options
from recollect.cli.terminal import echo, notice, plain, progress

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Answer


@click.command()
@click.argument("query")
@search_flags
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@common
@json_flag
def search(query: str, explain: bool, as_json: bool, **options: Any) -> int:
    """Find what answers QUERY, best first, with the rank that each source gave."""
    from recollect.cli.output import print_answer
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import answer_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        answer = memory.search(query, **filters_of(options))
        # Shown before the memory closes: a source that is late must not hold up what has been found.
        if as_json:
            print_json(answer_dict(answer, explain=explain))
        else:
            print_answer(answer, explain=explain)
    return 0 if answer.results else 1


@click.command(name="why-not")
@click.argument("query")
@click.argument("target", metavar="ID_OR_PATH")
@search_flags
@common
@json_flag
def why_not(query: str, target: str, as_json: bool, **options: Any) -> int:
    """Say why a record is not in the answer to QUERY, and what would bring it back.

    Give the flags that the search was run with. ID_OR_PATH names a record, or a file: of its parts the nearest is
    looked at.
    """
    from recollect.cli.output import print_verdict
    from recollect.cli.terminal import print_json
    from recollect.memory.shapes import verdict_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        verdict = memory.why_not(query, target, **filters_of(options))
    if as_json:
        print_json(verdict_dict(query, verdict))
    else:
        print_verdict(verdict, options["tags"])
    return 0


@click.command()
@click.argument("query", required=False)
@click.option("--tokens", type=int, metavar="N", help="How large the block may be (1500; 1000 for a hook).")
@click.option("--hook", is_flag=True, help="Answer the hook of an agent's program: its JSON in, its JSON out.")
@search_flags
@common
@json_flag
def recall(query: str | None, tokens: int | None, hook: bool, as_json: bool, **options: Any) -> int:
    """Print what answers QUERY as one block of text: fenced, labelled as data, with numbers to cite.

    Put it into a model's context as it stands. With --json, what each number stands for comes with it.
    With --hook there is no QUERY: docs/agents.md says what is read and printed.
    """
    if hook:
        from recollect.cli import hook as hooks

        hooks.hook(tokens, options)
    if query is None:
        raise click.MissingParameter(param_hint="'QUERY'", param_type="argument")
    from recollect.cli.terminal import print_json
    from recollect.memory.recall import TOKENS
    from recollect.memory.shapes import recall_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        recalled = memory.recall(query, tokens=TOKENS if tokens is None else tokens, **filters_of(options))
        if as_json:
            print_json(recall_dict(recalled))
        else:
            echo(recalled.text)
    if not as_json:
        for warning in recalled.warnings:
            notice(f"note: {warning}")
        if recalled.left_out:
            notice(f"{recalled.left_out} more had no room in {recalled.tokens} tokens; see --tokens")
    return 0 if recalled.citations else 1


DEMO_QUESTIONS = 5
"""Of the judged questions; all of them are scored."""


@click.command()
@common
@json_flag
def demo(as_json: bool, **options: Any) -> int:
    """Index the sample notes, ask a few questions, and show which source found what."""
    from recollect import sample
    from recollect.cli.terminal import print_json
    from recollect.config import Settings
    from recollect.memory import Memory

    said = common_options(options)
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
    picked = [*range(0, len(asked), max(1, len(asked) // DEMO_QUESTIONS))][:DEMO_QUESTIONS]
    for number in picked:
        _show_example(asked[number].text, answers[number])
    _show_scores(len(asked), found.count(1), alone)
    return 0


def _show_example(question: str, answer: Answer) -> None:
    from recollect.cli.output import where

    echo(click.style(f"? {question}", bold=True))
    for rank, result in enumerate(answer.results, 1):
        ranks = "  ".join(f"{name} #{share.rank}" for name, share in result.shares.items())
        place = where(result.record).rpartition("notes/")[2]
        echo(f"  {rank}. {plain(result.record.title)[:52]:<52}  {click.style(ranks, fg='cyan'):<34}  {place}")
    echo()


def _show_scores(total: int, fused: int, alone: dict[str, int]) -> None:
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
