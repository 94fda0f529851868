"""`recollect overlap`: whether the sources find the same, and what that means for fusing them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, filter_options, filters, json_flag, notice, open_memory, progress
from recollect.cli.plain import echo
from recollect.errors import FailedError, SearchFailed, UsageError

if TYPE_CHECKING:
    from recollect.evaluation.overlap import Fusing, Overlap
    from recollect.memory import Memory
    from recollect.types import Answer, Record

MOST = 10_000
"""As many results as one search can give."""

_RANKING = ("fetch_k", "sources", "rrf_k")

_AS_IT_IS: dict[str, Any] = {
    "min_score": 0.0, "min_confidence": 0.0, "mmr": False, "fusion": "rrf", "text_weight": 1.0, "vector_weight": 1.0,
}  # fmt: skip
"""With these one source's list comes through whole, whatever the settings are."""


@click.command()
@click.argument("queries", nargs=-1, metavar="[QUERY]…")
@click.option("--queries", "file", metavar="FILE", help='More: one a line, or JSON lines with "text" or "query".')
@click.option("--sources", metavar="NAMES", help="Which sources are compared (all that are asked).")
@click.option("--fetch-k", type=int, metavar="N", help="How deep each source is read (100).")
@click.option("--rrf-k", type=float, metavar="K", help="RRF's constant (60).")
@filters
@common
@json_flag
def overlap(queries: tuple[str, ...], file: str | None, as_json: bool, **options: Any) -> int:
    """Show for each pair of sources what both find, how alike they rank it, and what that means for fusing them."""
    asked = [*queries, *(_from_file(file) if file else [])]
    if not asked:
        raise UsageError("there is no query", hint='recollect overlap "a question", or --queries FILE')
    with open_memory(options, {name: options[name] for name in _RANKING}, reads=True) as memory:
        where = filter_options(options)
        said = memory.search(asked[0], limit=1, **where)
        names = _answering(said)
        found = _ask(memory, asked, names, where)
        fusing = _fusing(memory, said, names)
    return _show(asked, found, fusing, as_json)


def _from_file(file: str) -> list[str]:
    from recollect.evaluation.datasets import read_queries

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise UsageError(f"{file} is no file", hint="a file with one query a line, or - for standard input") from error
    except OSError as error:
        raise FailedError(f"{file} cannot be read: {error.strerror or error}", hint="may you read it?") from error
    return read_queries(data, "standard input" if file == "-" else file)


def _answering(answer: Answer) -> list[str]:
    """The sources that can be compared; two at the least."""
    sources = answer.trace.sources
    for warning in answer.trace.warnings:
        notice(f"note: {warning}")
    if len(sources) == 1:
        message = f"overlap compares two sources or more, and only {sources[0].name} is asked"
        raise UsageError(message, hint="--sources keyword,vector")
    names = [source.name for source in sources if source.status == "ok"]
    if len(names) == 1:
        reasons = "; ".join(f"{source.name}: {source.reason}" for source in sources if source.status != "ok")
        raise SearchFailed(f"only {names[0]} answered, and overlap compares two sources ({reasons})")
    return names


def _ask(
    memory: Memory, asked: Sequence[str], names: Sequence[str], where: Mapping[str, Any]
) -> list[dict[str, list[str]]]:
    """Each query's list of each source."""
    from recollect.evaluation.overlap import same_documents

    show = progress("asking") if len(asked) > 1 else None
    found = []
    for number, query in enumerate(asked, 1):
        lists = {}
        for name in names:
            try:
                lists[name] = _alone(memory, query, name, where)
            except SearchFailed as error:
                notice(f"note: {query!r} is left out for {name}: {error.message}")
        found.append(same_documents(lists))
        if show:
            show(number, len(asked))
    return found


def _alone(memory: Memory, query: str, name: str, where: Mapping[str, Any]) -> list[Record]:
    """One source's own list: asked alone, since the head of the fused ranking need not hold all of it."""
    replaces = name == "hyde" or (name == "vector" and memory.settings.search.hyde == "replace")
    source = "vector" if name == "hyde" else name
    limit = min(memory.settings.search.fetch_k, MOST)
    answer = memory.search(
        query, sources=[source], limit=limit, hyde="replace" if replaces else False, **_AS_IT_IS, **where
    )
    if name == "hyde" and answer.trace.warnings:
        raise SearchFailed(answer.trace.warnings[0])  # it fell back to the question: that is the vector source's list
    # Importance and decay have moved the results; the source's own ranks have not changed.
    ranked = [(result.shares[source].rank, result.record) for result in answer.results if source in result.shares]
    return [record for _, record in sorted(ranked, key=lambda pair: pair[0])]


def _fusing(memory: Memory, answer: Answer, names: Sequence[str]) -> Fusing:
    from recollect.evaluation.overlap import Fusing

    ranking = answer.query.ranking
    outside = {source.name: source.fetch_k for source in memory.settings.sources}
    return Fusing(
        ranking.fusion,
        ranking.rrf_k,
        {name: ranking.weights.get(name, 1.0) for name in names},
        {name: outside.get(name, answer.query.fetch_k) for name in names},
    )


def _show(asked: Sequence[str], found: Sequence[dict[str, list[str]]], fusing: Fusing, as_json: bool) -> int:
    from recollect.cli.output import print_json
    from recollect.evaluation.overlap import advice, overlaps

    pairs = overlaps(found)
    if as_json:
        print_json(
            {
                "fusion": asdict(fusing),
                "pairs": [{**asdict(pair), "advice": advice(pair, fusing)} for pair in pairs],
                "queries": [
                    {"query": query, "pairs": [asdict(pair) for pair in overlaps([lists])]}
                    for query, lists in zip(asked, found, strict=True)
                ],
            }
        )
    else:
        _print(pairs, fusing, len(asked))
    return 0 if any(pair.queries for pair in pairs) else 1


def _print(pairs: Sequence[Overlap], fusing: Fusing, asked: int) -> None:
    from recollect.cli.output import print_table, width
    from recollect.evaluation.overlap import advice, percent

    digits = 0 if asked == 1 else 1
    rows = [
        (
            f"{pair.a} · {pair.b}",
            *(f"{count:.{digits}f}" for count in (pair.both, pair.only_a, pair.only_b)),
            percent(pair.share),
            f"{pair.rbo:.2f}",
        )
        for pair in pairs
    ]
    alone = (f"only {pairs[0].a}", f"only {pairs[0].b}") if len(pairs) == 1 else ("only 1st", "only 2nd")
    print_table([("sources", "both", *alone, "share", "RBO"), *rows])
    for pair in pairs:
        echo()
        for words in advice(pair, fusing):
            echo(click.wrap_text(f"{words[0].upper()}{words[1:]}.", width()))
    notice(f"{asked:,} {'query' if asked == 1 else 'queries, means of those that found something'}")
