"""Commands on ranked lists: fuse, overlap."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from recollect.cli.flags import command, filters_of, json_flag, open_memory, option_flags, read_input
from recollect.cli.terminal import counted, echo, emit, notice, plain, print_table, progress, width
from recollect.errors import SearchFailed, UsageError
from recollect.evaluation.runs import fuse_runs, read_run, write_trec
from recollect.fusion import METHODS, NORMALISATIONS, Fused
from recollect.options import DEFAULT_K, SEARCH

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Answer

Rankings: TypeAlias = Mapping[str | None, Sequence[Fused]]  # query, or None if lists name none → its fused ranking

STDIN = "-"
NAMELESS_QUERY = "1"  # the query id in a TREC run of lists that name no query
MOST_RESULTS = 10_000  # the highest limit of a search
SEARCHED = [option for option in SEARCH if option.name in ("fetch_k", "sources", "rrf_k")]  # those of `overlap`

WHOLE_LIST: dict[str, Any] = {  # with these options a search returns one source's list as it is
    "min_score": 0.0, "min_confidence": 0.0, "mmr": False, "fusion": "rrf", "text_weight": 1.0, "vector_weight": 1.0,
    "by": "chunk",
}  # fmt: skip


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--method", type=click.Choice(list(METHODS)), default="rrf", show_default=True,
    help="How to fuse. rrf needs no scores; `search`, which has them, uses blend.",
)  # fmt: skip
@click.option("--k", type=float, default=DEFAULT_K, show_default=True, help="The constant of RRF; ranks start at 1.")
@click.option(
    "--normalisation", type=click.Choice(list(NORMALISATIONS)), default="none", show_default=True,
    help="How scores are scaled, for weighted and combmnz.",
)  # fmt: skip
@click.option("--weights", metavar="LIST", help="bm25=0.3,dense=0.7, or one number for each file in order; default 1.")
@click.option("--names", metavar="LIST", help="Names of the lists, in order; by default the file names.")
@click.option("--bounded", metavar="LIST", help="Lists whose scores are not scaled, such as cosines.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="How many results; by default all.")
@click.option("--trec", "as_trec", is_flag=True, help="Print a TREC run.")
@json_flag
def fuse(files: tuple[str, ...], limit: int | None, as_trec: bool, as_json: bool, **options: Any) -> int:
    """Fuse ranked lists from FILEs (`-` is standard input) into one. No store is needed.

    A file holds {"results": [{"id", "rank" or "score"}]}, a list of ids, the same as JSON lines, or a TREC run; the
    format is detected. TREC runs are fused query by query.
    """
    if as_json and as_trec:
        raise UsageError("--json and --trec exclude each other", hint="--json includes the ranks")
    if files.count(STDIN) > 1:
        raise UsageError("standard input can be read only once", hint="name the other lists as files")
    names = _names(files, options.pop("names"))
    weights = _weights(options.pop("weights"), names)
    bounded = _split(options.pop("bounded"))
    runs = {}
    for file, name in zip(files, names, strict=True):
        shown = "standard input" if file == STDIN else file
        runs[name] = read_run(read_input(file, "name files with ranked lists, or - for standard input"), shown)
        if not any(runs[name].values()):
            notice(f"{shown} holds no results; it counts as an empty list")
    fused = fuse_runs(runs, **options, weights=weights, bounded=bounded)
    rankings = {query: results[:limit] for query, results in fused.items()}
    if as_trec:
        pairs = {query: [(one.id, one.fused) for one in results] for query, results in rankings.items()}
        trec = {query or NAMELESS_QUERY: results for query, results in pairs.items()}
        for line in list(write_trec(trec)):  # every id is checked before the first is printed
            echo(plain(line))
    else:
        fusion = METHODS[options["method"]].as_dict(options["k"], options["normalisation"])
        fusion["weights"] = {name: weights.get(name, 1.0) for name in names}
        emit(as_json, lambda: _fused_document(rankings, fusion), lambda: _print_fused(rankings, names, fusion))
    return 0 if any(rankings.values()) else 1


def _split(text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",")] if text else []


def _names(files: Sequence[str], text: str | None) -> list[str]:
    names = _split(text)
    if text is None:
        for file in files:
            stem = "stdin" if file == STDIN else Path(file).stem or file
            numbered = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
            names.append(next(name for name in numbered if name not in names))
    if len(names) != len(files) or len(set(names)) < len(names) or not all(names):
        message = f"{len(files)} files need {len(files)} different names, not {', '.join(names)!r}"
        raise UsageError(message, hint="--names a,b")
    return names


def _weights(text: str | None, names: Sequence[str]) -> dict[str, float]:
    """`a=0.7,b=0.3`, or one number for each file."""
    words = _split(text)
    pairs = [word.rpartition("=")[::2] for word in words]
    if words and not any(name for name, _ in pairs):
        if len(words) != len(names):
            hint = "one for each list, or --weights NAME=WEIGHT"
            raise UsageError(f"{len(words)} weights for {len(names)} lists", hint=hint)
        pairs = list(zip(names, words, strict=True))
    try:
        weights = {name.strip(): float(number) for name, number in pairs}
    except ValueError:
        weights = {}
    if len(weights) < len(pairs) or not all(weights):
        raise UsageError(f"--weights {text!r} cannot be read", hint="--weights bm25=0.3,dense=0.7, each name once")
    if names and not any(weights.get(name, 1.0) for name in names):
        raise UsageError("every list has the weight 0", hint="give one of them a weight above 0")
    return weights


def _fused_document(rankings: Rankings, fusion: Mapping[str, Any]) -> dict[str, Any]:
    queries = {
        query: [
            {"id": one.id, "rank": rank, "score": one.score, "fused": one.fused, "sources": asdict(one)["shares"]}
            for rank, one in enumerate(results, 1)
        ]
        for query, results in rankings.items()
    }
    if len(queries) > 1:
        return {"fusion": fusion, "queries": queries}
    (query,) = queries
    return {**({} if query is None else {"query": query}), "fusion": fusion, "results": queries[query]}


def _print_fused(rankings: Rankings, names: Sequence[str], fusion: Mapping[str, Any]) -> None:
    for query, results in rankings.items():
        if query is not None and len(rankings) > 1:
            echo(click.style(plain(query), bold=True))
        rows = []
        for rank, one in enumerate(results, 1):
            ranks = (f"#{one.shares[name].rank}" if name in one.shares else "–" for name in names)
            rows.append((f"{rank}.", one.id, f"{one.score:.2f}", f"{one.fused:.6f}", *ranks))
        if rows:
            print_table([("", "id", "score", "fused", *names), *rows])
    method = f"rrf k={fusion['k']:g}" if "k" in fusion else str(fusion["method"])
    queries = f" for {len(rankings):,} queries" if len(rankings) > 1 else ""
    count = sum(map(len, rankings.values()))
    notice(f"{counted(count, 'result')}{queries} · {method}" if count else f"nothing to fuse · {method}")


@command()
@click.argument("queries", nargs=-1, metavar="[QUERY]…")
@click.option(
    "--queries", "file", metavar="FILE", help='More queries: one a line, or JSON lines with "text" or "query".'
)
@option_flags("filter", SEARCHED)
def overlap(queries: tuple[str, ...], file: str | None, as_json: bool, **options: Any) -> int:
    """Compare each pair of sources: what both find, how similar their order is, and whether to fuse them."""
    from recollect.evaluation.datasets import read_queries
    from recollect.evaluation.overlap import FusionSetup, advice, overlaps

    texts = list(queries)
    if file:
        data = read_input(file, "name a file with one query a line, or - for standard input")
        texts += read_queries(data, "standard input" if file == STDIN else file)
    if not texts:
        raise UsageError("there is no query", hint='recollect overlap "a question", or --queries FILE')
    filters = filters_of(options)
    with open_memory(options, {option.name: options[option.name] for option in SEARCHED}, reads=True) as memory:
        answer = memory.search(texts[0], limit=1, **filters)
        names = _comparable(answer)
        lists = _lists(memory, texts, names, filters)
        depths = {source.name: source.fetch_k for source in memory.settings.sources}
    query = answer.query
    weights = {name: query.weights.get(name, 1.0) for name in names}
    depths = {name: depths.get(name, query.fetch_k) for name in names}
    fusion = FusionSetup(query.ranking.fusion, query.ranking.rrf_k, weights, depths)
    pairs = overlaps(lists)
    document: dict[str, Any] = {
        "fusion": asdict(fusion),
        "pairs": [{**asdict(pair), "advice": advice(pair, fusion)} for pair in pairs],
        "queries": [
            {"query": text, "pairs": [asdict(pair) for pair in overlaps([by_source])]}
            for text, by_source in zip(texts, lists, strict=True)
        ],
    }
    emit(as_json, document, lambda: _print_overlap(document["pairs"], len(texts)))
    return 0 if any(pair.queries for pair in pairs) else 1


def _comparable(answer: Answer) -> list[str]:
    sources = answer.trace.sources
    for warning in answer.trace.warnings:
        notice(f"note: {warning}")
    if len(sources) == 1:
        message = f"overlap compares two or more sources, and only {sources[0].name} is searched"
        raise UsageError(message, hint="--sources keyword,vector")
    names = [source.name for source in sources if source.status == "ok"]
    if len(names) == 1:
        reasons = "; ".join(f"{source.name}: {source.reason}" for source in sources if source.status != "ok")
        raise SearchFailed(f"only {names[0]} answered, and overlap compares two sources ({reasons})")
    return names


def _lists(
    memory: Memory, texts: Sequence[str], names: Sequence[str], filters: Mapping[str, Any]
) -> list[dict[str, list[str]]]:
    """For each query the whole list of each source, which a fused ranking may cut off."""
    from recollect.evaluation.overlap import same_documents

    show = progress("searching") if len(texts) > 1 else None
    limit = min(memory.settings.search.fetch_k, MOST_RESULTS)
    lists = []
    for number, text in enumerate(texts, 1):
        pipeline, query = memory.prepare(text, limit=limit, **WHOLE_LIST, **filters)
        by_source = {}
        for ranked in (ranked for ranked in pipeline.ask(query) if ranked.source in names):
            try:
                results = pipeline.answer(query, [ranked], time.perf_counter()).results
            except SearchFailed as error:
                notice(f"note: {text!r} is left out for {ranked.source}: {error.message}")
                continue
            # Importance and decay change the order of the results, but not the ranks of the source.
            by_rank = {result.shares[ranked.source].rank: result.record for result in results}
            by_source[ranked.source] = [by_rank[rank] for rank in sorted(by_rank)]
        lists.append(same_documents(by_source))
        if show:
            show(number, len(texts))
    return lists


def _print_overlap(pairs: Sequence[Mapping[str, Any]], queries: int) -> None:
    from recollect.evaluation.overlap import percent

    digits = 0 if queries == 1 else 1
    rows = []
    for pair in pairs:
        counts = (f"{pair[name]:.{digits}f}" for name in ("both", "only_a", "only_b"))
        rows.append((f"{pair['a']} · {pair['b']}", *counts, percent(pair["share"]), f"{pair['rbo']:.2f}"))
    alone = (f"only {pairs[0]['a']}", f"only {pairs[0]['b']}") if len(pairs) == 1 else ("only 1st", "only 2nd")
    print_table([("sources", "both", *alone, "share", "RBO"), *rows])
    for pair in pairs:
        echo()
        for sentence in pair["advice"]:
            echo(click.wrap_text(f"{sentence[0].upper()}{sentence[1:]}.", width()))
    notice(counted(queries, "query") + ("" if queries == 1 else "; means over those with results"))
