"""Commands that search: search, why-not, recall, demo."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import common, common_options, filters_of, json_flag, open_memory, search_flags, search_options
from recollect.cli.terminal import echo, emit, notice, plain, progress

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Answer

DEMO_ANSWERS = 5
"""How many answers the demo prints; all judged questions are scored."""


@click.command()
@click.argument("query")
@search_flags
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
@common
@json_flag
def search(query: str, explain: bool, as_json: bool, **options: Any) -> int:
    """Search for QUERY: the best results first, with the rank that each source gave."""
    from recollect.cli.output import print_answer
    from recollect.memory.shapes import answer_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        answer = memory.search(query, **filters_of(options))
        # Print before the memory closes: closing waits for sources that are late.
        emit(as_json, answer_dict(answer, explain=explain), lambda: print_answer(answer, explain=explain))
    return 0 if answer.results else 1


@click.command(name="why-not")
@click.argument("query")
@click.argument("target", metavar="ID_OR_PATH")
@search_flags
@common
@json_flag
def why_not(query: str, target: str, as_json: bool, **options: Any) -> None:
    """Explain why a record is missing from the results for QUERY, and what would bring it back.

    Use the same flags as the search. ID_OR_PATH names a record, or a file, whose best chunk is then explained.
    """
    from recollect.cli.output import print_verdict
    from recollect.memory.shapes import verdict_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        verdict = memory.why_not(query, target, **filters_of(options))
    emit(as_json, verdict_dict(query, verdict), lambda: print_verdict(verdict, options["tags"]))


@click.command()
@click.argument("query", required=False)
@click.option("--tokens", type=int, metavar="N", help="Size limit of the block (1500; 1000 with --hook).")
@click.option("--hook", is_flag=True, help="Answer the prompt hook of an agent program: JSON in, JSON out.")
@search_flags
@common
@json_flag
def recall(query: str | None, tokens: int | None, hook: bool, as_json: bool, **options: Any) -> int:
    """Search for QUERY and print one block of text for a model's context: fenced, marked as data, with numbers to cite.

    --json also lists the record behind each number. With --hook there is no QUERY: docs/agents.md describes the input
    and the output.
    """
    if hook:
        from recollect.cli.hook import run_hook

        run_hook(tokens, options)
    if query is None:
        raise click.MissingParameter(param_hint="'QUERY'", param_type="argument")
    from recollect.memory.recall import TOKENS
    from recollect.memory.shapes import recall_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        recalled = memory.recall(query, tokens=TOKENS if tokens is None else tokens, **filters_of(options))
        emit(as_json, recall_dict(recalled), recalled.text)
    if not as_json:
        for warning in recalled.warnings:
            notice(f"note: {warning}")
        if recalled.left_out:
            notice(f"{recalled.left_out} more results did not fit into {recalled.tokens} tokens; see --tokens")
    return 0 if recalled.citations else 1


@click.command()
@common
@json_flag
def demo(as_json: bool, **options: Any) -> None:
    """Index the sample notes, search them, and show which source found what."""
    from recollect import sample
    from recollect.config import Settings
    from recollect.memory import Memory

    flags = common_options(options)
    store = flags["store"] or ":memory:"
    with Memory.open(store, embedder=flags["embedder"], settings=Settings(), announce=notice) as memory:
        report = memory.index(sample.NOTES, progress=progress("embedding"))
        questions = sample.questions()
        answers = [memory.search(question.text, limit=3) for question in questions]
        fused = sum(map(_right_first, answers, questions))
        alone = {name: _right_alone(memory, questions, name) for name in ("keyword", "vector")}

    def show() -> None:
        echo(f"{len(report.added)} notes indexed: {plain(str(sample.NOTES))}\n")
        step = max(1, len(questions) // DEMO_ANSWERS)
        for number in [*range(0, len(questions), step)][:DEMO_ANSWERS]:
            _print_example(questions[number].text, answers[number])
        _print_scores(len(questions), fused, alone)

    right = {**alone, "fused": fused}
    emit(as_json, {"notes": len(report.added), "questions": len(questions), "right_at_1": right}, show)


def _right_first(answer: Answer, question: Any) -> bool:
    """Whether the first result is a relevant note."""
    return bool(answer.results) and (answer.results[0].record.path or "").endswith(question.relevant)


def _right_alone(memory: Memory, questions: list[Any], source: str) -> int:
    """How many questions one source alone answers with a relevant note first."""
    from recollect.errors import SearchFailed

    try:
        answers = [memory.search(question.text, limit=1, sources=[source]) for question in questions]
    except SearchFailed:
        return 0
    return sum(map(_right_first, answers, questions))


def _print_example(question: str, answer: Answer) -> None:
    from recollect.cli.output import where

    echo(click.style(f"? {question}", bold=True))
    for rank, result in enumerate(answer.results, 1):
        ranks = "  ".join(f"{name} #{share.rank}" for name, share in result.shares.items())
        file = where(result.record).rpartition("notes/")[2]
        echo(f"  {rank}. {plain(result.record.title)[:52]:<52}  {click.style(ranks, fg='cyan'):<34}  {file}")
    echo()


def _print_scores(total: int, fused: int, alone: dict[str, int]) -> None:
    command = "recollect" if shutil.which("recollect") else sys.argv[0]
    echo(
        f"The right note came first for {fused} of {total} judged questions "
        f"(keyword alone {alone['keyword']}, vector alone {alone['vector']}).\n\n"
        "Now with your own notes:\n"
        f"  {command} index ~/notes\n"
        f'  {command} search "…" --explain\n'
        f'  {command} add "The spare key is under the blue pot." --tag home'
    )
