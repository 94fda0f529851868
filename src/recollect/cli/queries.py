"""Commands that search: search, why-not, recall, related, demo."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import terminal
from recollect.cli.answers import note_other_scopes, record_named, save_answer
from recollect.cli.flags import command, common_options, filters_of, open_memory, option_flags, search_options
from recollect.cli.terminal import MARGIN, dim, echo, emit, notice, one_line, plain, plain_text, where, width
from recollect.config import Settings
from recollect.errors import SearchFailed
from recollect.fusion import METHODS
from recollect.memory import Memory
from recollect.memory.shapes import answer_dict, moved, name_of, recall_dict, short_ids_of, verdict_dict
from recollect.options import FILTERS, RECALL, RECALL_TOKENS, SEARCH, SIMILAR
from recollect.types import Answer, Result, Trace, now
from recollect.types.records import short_id, short_ids

if TYPE_CHECKING:
    from recollect.memory.explain import Verdict
    from recollect.memory.related import Related

ADJOINING = 2  # lines from the end of a passage to the next one, with a blank line between them
DEMO_ANSWERS = 5  # how many answers the demo prints; all judged questions are scored
FLAGS = {option.name: option.flag_names[0] for option in (*SEARCH, *FILTERS) if option.flag_names}  # option → its flag


@command()
@click.argument("query")
@option_flags("search", SEARCH)
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
@click.option("--passages", is_flag=True, help="Show the further passages of each file, too.")
def search(query: str, explain: bool, passages: bool, as_json: bool, **options: Any) -> int:
    """Search for QUERY: the best results first, with the rank that each source gave.

    A file is one result: its best passage, and how many more there are. --by chunk lists every chunk by itself.
    """
    with open_memory(options, search_options(options), reads=True) as memory:
        answer = memory.search(query, **filters_of(options))
        save_answer(memory, (result.record.id for result in answer.results))
        # Print before the memory closes: closing waits for sources that are late.
        emit(as_json, lambda: answer_dict(answer, explain=explain), lambda: _print_answer(answer, explain, passages))
        if not answer.likely and not as_json:
            note_other_scopes(memory, answer.query.filter)
    return 0 if answer.results else 1


@command("why-not")
@click.argument("query")
@click.argument("target", metavar="ID_OR_PATH")
@option_flags("search", SEARCH)
def why_not(query: str, target: str, as_json: bool, **options: Any) -> None:
    """Explain why a record is missing from the results for QUERY, and what would bring it back.

    Use the same flags as the search. ID_OR_PATH names a record, or a file, whose best chunk is then explained.
    """
    with open_memory(options, search_options(options), reads=True) as memory:
        verdict = memory.why_not(query, record_named(memory, target), **filters_of(options))
    emit(as_json, verdict_dict(query, verdict), lambda: _print_verdict(verdict, options["tags"]))


@command()
@click.argument("query", required=False)
@click.option("--tokens", type=int, metavar="N", help="Size limit of the block (1500; 1000 with --hook).")
@click.option("--hook", is_flag=True, help="Answer the prompt hook of an agent program: JSON in, JSON out.")
@option_flags("search", RECALL)
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
    with open_memory(options, search_options(options), reads=True, for_model=True) as memory:
        filters = filters_of(options)
        recalled = memory.recall(query, tokens=RECALL_TOKENS if tokens is None else tokens, **filters)
        save_answer(memory, (citation.id for citation in recalled.citations))
        emit(as_json, lambda: recall_dict(recalled), recalled.text)
        if not recalled.citations and not as_json:
            note_other_scopes(memory, memory.prepare(query, for_model=True, **filters)[1].filter)
    if not as_json:
        for warning in recalled.warnings:
            notice(f"note: {warning}")
        if recalled.left_out:
            notice(f"{recalled.left_out} more results did not fit into {recalled.tokens} tokens; see --tokens")
    return 0 if recalled.citations else 1


@command()
@click.argument("target", metavar="ID_OR_PATH")
@click.option(
    "--limit", "-n", type=click.IntRange(0, 100), default=SIMILAR, show_default=True, help="How many similar notes."
)
def related(target: str, limit: int, as_json: bool, **options: Any) -> int:
    """List the notes that a note links to, those that link to it, and similar ones.

    ID_OR_PATH names a record or an indexed file; a part of a file stands for the whole file. Links are [[wikilinks]]
    and Markdown links to indexed files. Similar notes are found by their vectors.
    """
    with open_memory(options, reads=True) as memory:
        answer = memory.related(record_named(memory, target), limit=limit)
        save_answer(memory, (note.record.id for note in answer.notes))
    emit(as_json, answer.as_dict, lambda: _print_related(answer))
    return 0 if answer.notes else 1


@command()
def demo(as_json: bool, **options: Any) -> None:
    """Index the sample notes, search them, and show which source found what."""
    from recollect import sample

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
        started = f"{sys.executable} -m recollect" if sys.argv[0].endswith("__main__.py") else sys.argv[0]
        program = "recollect" if shutil.which("recollect") else started
        echo(
            f"The right note came first for {scores['fused']} of {len(questions)} judged questions "
            f"(keyword alone {scores['keyword']}, vector alone {scores['vector']}).\n\n"
            "Now with your own notes:\n"
            f"  {program} index ~/notes\n"
            f'  {program} search "…" --explain\n'
            f'  {program} add "The spare key is under the blue pot." --tag home'
        )

    emit(as_json, {"notes": len(report.added), "questions": len(questions), "right_at_1": scores}, show)


UNRELATED = "— below: probably unrelated —"
STALE = {state: f"{state} since it was indexed" for state in ("changed", "missing")} | {
    "unreadable": "cannot be read now"
}
ALL_UNRELATED = "— nothing here seems to answer this —"


def _about(result: Result) -> Iterator[str]:
    """Lines about a result: who wrote it, if that was not the user, and where it is."""
    record = result.record
    if record.kind == "turn":
        name = f": {record.place}" if record.place and not record.title else ""
        yield plain(f"{record.author}, {record.time:%Y-%m-%d}, in the conversation {record.author_session}{name}")
    elif record.origin not in ("user", "file", "outside"):
        yield plain(f"origin: {record.origin}{f' ({record.author})' if record.author else ''}")
    if place := terminal.linked_where(record):
        stale = STALE.get(result.freshness or "", "")
        yield f"{place} ({stale})" if stale else place


def _print_answer(answer: Answer, explain: bool, passages: bool) -> None:
    short = short_ids_of(answer)
    for rank, result in enumerate(answer.results, 1):
        if rank == answer.likely + 1:
            echo(dim(UNRELATED if answer.likely else ALL_UNRELATED))
        _print_result(rank, result, short[result.record.id], shows_confidence=answer.query.ranking.confidence)
        _print_passages(result.passages, passages)
        if explain:
            echo(dim(_explanation(result)))
    ranking, trace = answer.query.ranking, answer.trace
    if explain:
        for source in trace.sources:
            note = source.reason or (f"read as: {source.read_as}" if source.read_as else "")
            counts = f"{source.status:<8} {source.hits:>5} hits {source.took_ms:8.1f} ms  {note}"
            echo(dim(plain(f"  {source.name:<10} {counts}").rstrip()), err=True)
        for stage in trace.stages:
            counts = f"{stage.given:>5} → {stage.left:<5} {'':>9}{stage.took_ms:8.1f} ms"
            echo(dim(f"  {stage.name:<10} {counts}"), err=True)
    how = f"{ranking.fusion} k={ranking.rrf_k:g}" if "rrf_k" in METHODS[ranking.fusion].reads else ranking.fusion
    outcome = terminal.counted(len(answer.results), "result") if answer.results else "nothing found"
    outcome = f"no answer: {trace.abstained}" if trace.abstained else outcome
    notice(f"{outcome} · {trace.mode} · {how} · {trace.took_ms:.0f} ms")
    _print_readings(trace)
    if closest := answer.closest:
        name = plain_text(name_of(closest.record))
        notice(f"closest: {name} (id {plain(short_id(closest.record.id))}, confidence {closest.confidence or 0.0:.2f})")
    for warning in trace.warnings:
        echo(click.style(one_line(f"note: {warning}"), fg="yellow"), err=True)


def _print_result(rank: int, result: Result, short: str, *, shows_confidence: bool) -> None:
    name, text = _name_and_text(result)
    known = shows_confidence and result.confidence is not None
    score = f"{result.score:.2f}" + (f" (confidence {result.confidence:.2f})" if known else "")
    echo(_headline(rank, result, name, score, plain(short)))
    for line in _about(result):
        echo(dim(f"    {line}"))
    if text:
        echo(terminal.indented(text))


def _print_readings(trace: Trace) -> None:
    """How the query was read: the time that it names, and words that were searched for misspelled ones."""
    if trace.favours:
        notice(f"favours {plain(trace.favours)}")
    if trace.also_searched:
        notice(f"also searched: {plain(', '.join(trace.also_searched))}")


def _print_passages(passages: Sequence[Result], shown: bool) -> None:
    """How many further passages a file has and where they are; if they are `shown`, also what they say."""
    if not passages:
        return
    joined = _neighbours(passages)
    lines = ", ".join(f"{first}–{last}" for first, last, group in joined if last and not group[0].record.place)
    places = ", ".join(_places(group) for _, _, group in joined if group[0].record.place)
    named = f": lines {lines}" if lines else f": {plain(places)}" if places else ""
    echo(dim(f"{MARGIN}and {terminal.counted(len(passages), 'more passage')}{named}"))
    for first, last, group in joined if shown else ():
        place = plain(_places(group)) or f"lines {first}–{last}"
        echo(dim(f"{MARGIN}{MARGIN}{place}  {max(one.score for one in group):.2f}"))
        for one in group:
            echo(terminal.indented(_snippet(one), MARGIN * 2))


def _places(group: Sequence[Result]) -> str:
    """The pages, slides or messages of adjoining passages, each once."""
    return ", ".join(dict.fromkeys(one.record.place for one in group if one.record.place))


def _neighbours(passages: Sequence[Result]) -> list[tuple[int, int, list[Result]]]:
    """Passages in the order of the file as (first line, last line, passages); those that adjoin are one entry."""
    joined: list[tuple[int, int, list[Result]]] = []
    for passage in sorted(passages, key=lambda one: one.record.lines or (0, 0)):
        first, last = passage.record.lines or (0, 0)
        if joined and first <= joined[-1][1] + ADJOINING:
            start, end, group = joined.pop()
            joined.append((start, max(end, last), [*group, passage]))
        else:
            joined.append((first, last, [passage]))
    return joined


def _name_and_text(result: Result) -> tuple[str, str]:
    """The name of a result and the text below it. What has no title is printed once: as the name if it is short."""
    record, text = result.record, _snippet(result)
    name = plain_text(name_of(record, max(30, width() - 40)))
    if record.title:
        return name.replace("`", ""), text
    return (name, "") if " ".join(record.text.split()) == name else ("", text)


def _snippet(result: Result) -> str:
    """The part of a result that matches; of Markdown, without its marks."""
    record = result.record
    return plain_text(
        result.snippet_of(terminal.without_markdown(record.text)) if record.is_markdown else result.snippet
    )


def _headline(rank: int, result: Result, name: str, score: str, short: str) -> str:
    record = result.record
    ranks = "  ".join(f"{plain(source)} #{share.rank}" for source, share in result.shares.items())
    ranks += "  superseded" if record.superseded_at and record.superseded_at <= now() else ""
    name = f"{click.style(name, bold=True)}  " if name else ""
    # A document of another system has no record here that other commands could name.
    key = "" if record.origin == "outside" else f"  {dim(short)}"
    move = f"  {dim(words)}" if (words := moved(rank, result)) else ""
    return f"{rank:>2}. {name}{click.style(score, fg='green')}  {click.style(ranks, fg='cyan')}{key}{move}"


def _explanation(result: Result) -> str:
    lines = []
    for name, share in result.shares.items():
        score = "–" if share.score is None else f"{share.score:.4f}"
        lines.append(f"      {plain(name)}: rank {share.rank}, score {score} → {share.contribution:.6f}")
    factors = "".join(f" × {name} {factor:.4f}" for name, factor in result.factors.items())
    moves = "".join(f", moved by {stage} from {old} to {new}" for stage, (old, new) in result.moves.items())
    fused = f"fused score {result.fused:.6f}, {result.base:.4f} of the highest possible"
    return "\n".join([*lines, f"      {fused}{factors} → {result.total:.4f}{moves}"])


def _print_related(related: Related) -> None:
    if not related.notes:
        notice("no note is related to it")
    short = short_ids(note.record.id for note in related.notes)
    numbers = itertools.count(1)
    for heading, notes in (
        ("links to", related.links),
        ("linked from", related.backlinks),
        ("similar", related.similar),
    ):
        if notes:
            echo(click.style(heading, bold=True))
        for note in notes:
            name = plain_text(name_of(note.record, max(30, width() - 24)))
            echo(f"{next(numbers):>2}. {name}  {dim(plain(short[note.record.id]))}")
            echo(dim(f"{MARGIN}{plain(note.why)}  {terminal.linked_where(note.record)}".rstrip()))
    if related.unresolved:
        echo(click.style("links to no indexed file", bold=True))
    for link in related.unresolved:
        echo(dim(f"{MARGIN}line {link.line}: {plain(link.written)}"))


def _print_verdict(verdict: Verdict, tags: Sequence[str]) -> None:
    if verdict.record is not None:
        echo(click.style(plain_text(name_of(verdict.record, width() - 4)), bold=True))
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
    import shlex

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
