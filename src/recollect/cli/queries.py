"""Commands that search: search, why-not, recall, demo."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import terminal
from recollect.cli.flags import command, common_options, filters_of, open_memory, search_flags, search_options
from recollect.cli.terminal import MARGIN, dim, echo, emit, notice, one_line, plain, plain_text, where, width
from recollect.fusion import METHODS
from recollect.options import FILTERS, RECALL_TOKENS, SEARCH
from recollect.types import now

if TYPE_CHECKING:
    from recollect.memory.explain import Verdict
    from recollect.types import Answer, Result

DEMO_ANSWERS = 5  # how many answers the demo prints; all judged questions are scored
FLAGS = {option.name: option.flag_names[0] for option in (*SEARCH, *FILTERS) if option.flag_names}  # option → its flag


@command()
@click.argument("query")
@search_flags
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
def search(query: str, explain: bool, as_json: bool, **options: Any) -> int:
    """Search for QUERY: the best results first, with the rank that each source gave."""
    from recollect.memory.shapes import answer_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        answer = memory.search(query, **filters_of(options))
        # Print before the memory closes: closing waits for sources that are late.
        emit(as_json, answer_dict(answer, explain=explain), lambda: _print_answer(answer, explain))
    return 0 if answer.results else 1


@command("why-not")
@click.argument("query")
@click.argument("target", metavar="ID_OR_PATH")
@search_flags
def why_not(query: str, target: str, as_json: bool, **options: Any) -> None:
    """Explain why a record is missing from the results for QUERY, and what would bring it back.

    Use the same flags as the search. ID_OR_PATH names a record, or a file, whose best chunk is then explained.
    """
    from recollect.memory.shapes import verdict_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        verdict = memory.why_not(query, target, **filters_of(options))
    emit(as_json, verdict_dict(query, verdict), lambda: _print_verdict(verdict, options["tags"]))


@command()
@click.argument("query", required=False)
@click.option("--tokens", type=int, metavar="N", help="Size limit of the block (1500; 1000 with --hook).")
@click.option("--hook", is_flag=True, help="Answer the prompt hook of an agent program: JSON in, JSON out.")
@search_flags
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
    from recollect.memory.shapes import recall_dict

    with open_memory(options, search_options(options), reads=True) as memory:
        recalled = memory.recall(query, tokens=RECALL_TOKENS if tokens is None else tokens, **filters_of(options))
        emit(as_json, recall_dict(recalled), recalled.text)
    if not as_json:
        for warning in recalled.warnings:
            notice(f"note: {warning}")
        if recalled.left_out:
            notice(f"{recalled.left_out} more results did not fit into {recalled.tokens} tokens; see --tokens")
    return 0 if recalled.citations else 1


@command()
def demo(as_json: bool, **options: Any) -> None:
    """Index the sample notes, search them, and show which source found what."""
    from recollect import sample
    from recollect.config import Settings
    from recollect.errors import SearchFailed
    from recollect.memory import Memory

    flags = common_options(options)
    store = flags["store"] or ":memory:"
    questions = sample.questions()
    scores = dict.fromkeys(("keyword", "vector", "fused"), 0)  # for how many questions the first result is relevant
    with Memory.open(store, embedder=flags["embedder"], settings=Settings(), announce=notice) as memory:
        report = memory.index(sample.NOTES, progress=terminal.progress("embedding"))
        for name in scores:
            sources = None if name == "fused" else [name]
            try:
                answers = [memory.search(question.text, limit=3, sources=sources) for question in questions]
            except SearchFailed:
                if sources is None:
                    raise
                continue  # there may be no embedding model
            for question, answer in zip(questions, answers, strict=True):
                first = answer.results[0].record.path or "" if answer.results else ""
                scores[name] += first.endswith(question.relevant)

    def show() -> None:
        echo(f"{len(report.added)} notes indexed: {plain(str(sample.NOTES))}\n")
        step = max(1, len(questions) // DEMO_ANSWERS)
        for number in [*range(0, len(questions), step)][:DEMO_ANSWERS]:
            echo(click.style(f"? {questions[number].text}", bold=True))
            for rank, result in enumerate(answers[number].results, 1):
                ranks = "  ".join(f"{name} #{share.rank}" for name, share in result.shares.items())
                file = where(result.record).rpartition("notes/")[2]
                echo(f"  {rank}. {plain(result.record.title)[:52]:<52}  {click.style(ranks, fg='cyan'):<34}  {file}")
            echo()
        program = "recollect" if shutil.which("recollect") else sys.argv[0]
        echo(
            f"The right note came first for {scores['fused']} of {len(questions)} judged questions "
            f"(keyword alone {scores['keyword']}, vector alone {scores['vector']}).\n\n"
            "Now with your own notes:\n"
            f"  {program} index ~/notes\n"
            f'  {program} search "…" --explain\n'
            f'  {program} add "The spare key is under the blue pot." --tag home'
        )

    emit(as_json, {"notes": len(report.added), "questions": len(questions), "right_at_1": scores}, show)


def _print_answer(answer: Answer, explain: bool) -> None:
    for rank, result in enumerate(answer.results, 1):
        echo(_headline(rank, result))
        if place := where(result.record):
            stale = f" ({result.freshness} since it was indexed)" if result.freshness in ("changed", "missing") else ""
            echo(dim(f"    {place}{stale}"))
        echo(terminal.indented(plain_text(result.snippet)))
        if explain:
            echo(dim(_explanation(result)))
    ranking, trace = answer.query.ranking, answer.trace
    if explain:
        for source in trace.sources:
            counts = f"{source.status:<8} {source.hits:>5} hits {source.took_ms:8.1f} ms  {source.reason}"
            echo(dim(plain(f"  {source.name:<10} {counts}").rstrip()), err=True)
        for stage in trace.stages:
            counts = f"{stage.given:>5} → {stage.left:<5} {'':>9}{stage.took_ms:8.1f} ms"
            echo(dim(f"  {stage.name:<10} {counts}"), err=True)
    how = f"{ranking.fusion} k={ranking.rrf_k:g}" if "rrf_k" in METHODS[ranking.fusion].reads else ranking.fusion
    outcome = terminal.counted(len(answer.results), "result") if answer.results else "nothing found"
    outcome = f"no answer: {trace.abstained}" if trace.abstained else outcome
    notice(f"{outcome} · {trace.mode} · {how} · {trace.took_ms:.0f} ms")
    for warning in trace.warnings:
        echo(click.style(one_line(f"note: {warning}"), fg="yellow"), err=True)


def _headline(rank: int, result: Result) -> str:
    record = result.record
    name = plain_text(textwrap.shorten(record.title or record.text, max(30, width() - 40), placeholder=" …"))
    confidence = "" if result.confidence is None else f" (confidence {result.confidence:.2f})"
    score = f"{result.score:.2f}{confidence}"
    ranks = "  ".join(f"{plain(source)} #{share.rank}" for source, share in result.shares.items())
    ranks += "  superseded" if record.superseded_at and record.superseded_at <= now() else ""
    name, score, ranks = click.style(name, bold=True), click.style(score, fg="green"), click.style(ranks, fg="cyan")
    return f"{rank:>2}. {name}  {score}  {ranks}"


def _explanation(result: Result) -> str:
    lines = []
    for name, share in result.shares.items():
        score = "–" if share.score is None else f"{share.score:.4f}"
        lines.append(f"      {plain(name)}: rank {share.rank}, score {score} → {share.contribution:.6f}")
    factors = "".join(f" × {name} {factor:.4f}" for name, factor in result.factors.items())
    moves = "".join(f", moved by {stage} from {old} to {new}" for stage, (old, new) in result.moves.items())
    fused = f"fused score {result.fused:.6f}, {result.base:.4f} of the highest possible"
    return "\n".join([*lines, f"      {fused}{factors} → {result.total:.4f}{moves}"])


def _print_verdict(verdict: Verdict, tags: Sequence[str]) -> None:
    if verdict.record is not None:
        name = textwrap.shorten(verdict.record.title or verdict.record.text, width() - 4, placeholder=" …")
        echo(click.style(plain_text(name), bold=True))
        echo(dim(f"{MARGIN}{plain(verdict.record.id)}  {where(verdict.record)}".rstrip()))
    in_results = verdict.stage == "found"
    echo(click.style("found", fg="green") if in_results else click.style(f"lost at: {verdict.stage}", fg="yellow"))
    echo(terminal.indented(one_line(verdict.reason)))
    for source, place in verdict.places.items():
        score = "" if place.score is None else f", score {place.score:.4f}"
        rank = "" if place.rank is None else f"rank {place.rank:,} of a list read to {place.fetch_k:,}{score} "
        echo(dim(plain(f"{MARGIN}{source:<10} {rank}{place.note}".rstrip())))
    if verdict.change:
        echo(plain(f"brings it back: the same search {_changed_flags(verdict.change, tags)}"))
    elif verdict.advice:
        echo(f"what to do: {one_line(verdict.advice)}")
    elif not in_results:
        echo("no single option of search brings it back")


def _changed_flags(change: Mapping[str, Any], tags: Sequence[str]) -> str:
    added, removed = [], []
    for name, value in change.items():
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        match value:
            case None | ():
                removed.append(flag)
            case tuple() | list() if name == "tags":
                removed += [f"{flag} {shlex.quote(tag)}" for tag in tags if tag not in value]
            case bool():
                added.append(flag if value else f"--no-{name.replace('_', '-')}")
            case _:
                parts = value if isinstance(value, tuple | list) else [value]
                added += [f"{flag} {shlex.quote(str(part))}" for part in parts]
    return " and ".join(filter(None, [" ".join(added), f"without {', '.join(removed)}" if removed else ""]))
