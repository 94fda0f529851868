"""Commands on ranked lists: fuse, overlap."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import common, filter_options, filters, json_flag, open_memory
from recollect.cli.terminal import echo, notice, plain, progress
from recollect.errors import FailedError, SearchFailed, UsageError
from recollect.fusion import DEFAULT_K, METHODS, NORMALISATIONS

if TYPE_CHECKING:
    from recollect.evaluation.overlap import Fusing, Overlap
    from recollect.evaluation.runs import Run
    from recollect.fusion import Fused
    from recollect.memory import Memory
    from recollect.types import Answer, Record


STDIN = "-"
NAMELESS = "1"
"""The question's id in a TREC run of lists that name none."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--method", type=click.Choice(list(METHODS)), default="rrf", show_default=True, help="How to fuse.")
@click.option("--k", type=float, default=DEFAULT_K, show_default=True, help="RRF's constant; ranks count from 1.")
@click.option(
    "--normalisation",
    type=click.Choice(list(NORMALISATIONS)),
    default="none",
    show_default=True,
    help="Of scores, for weighted and combmnz.",
)
@click.option("--weights", metavar="LIST", help="bm25=0.3,dense=0.7, or one number a file, in order; 1 where not said.")
@click.option("--names", metavar="LIST", help="What to call the lists, in order; by default after their files.")
@click.option("--bounded", metavar="LIST", help="Lists whose scores are used as they are, as cosines should be.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="How many results; by default all.")
@click.option("--trec", "as_trec", is_flag=True, help="Print a TREC run.")
@json_flag
def fuse(files: tuple[str, ...], limit: int | None, as_trec: bool, as_json: bool, **options: Any) -> int:
    """Fuse ranked lists from FILEs (`-` is standard input) into one. No store is needed.

    A file is {"results": [{"id", "rank" or "score"}]}, a list of ids, the same as JSON lines, or a TREC run; which of
    them is found out by reading it. TREC runs are fused question by question.
    """
    from recollect.evaluation.runs import fuse_runs

    if as_json and as_trec:
        raise UsageError("--json and --trec are two forms of output: give one of them", hint="--json has the ranks")
    names = _names(files, options.pop("names"))
    weights = _weights(options.pop("weights"), names)
    bounded = _listed(options.pop("bounded"))
    runs = dict(zip(names, _read(files), strict=True))
    fused = fuse_runs(runs, **options, weights=weights, bounded=bounded)
    shown = {question: results[:limit] for question, results in fused.items()}
    fusion = _settings(options, {name: weights.get(name, 1.0) for name in names})
    if as_json:
        _print_fused_json(shown, fusion)
    elif as_trec:
        _print_trec(shown)
    else:
        _print_fused(shown, names, fusion)
    return 0 if any(shown.values()) else 1


def _listed(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",")] if words else []


def _names(files: Sequence[str], said: str | None) -> list[str]:
    """A name for each file, none of them twice."""
    if said is None:
        names: list[str] = []
        for file in files:
            stem = "stdin" if file == STDIN else Path(file).stem or file
            names.append(next(name for name in _numbered(stem) if name not in names))
    else:
        names = _listed(said)
    if len(names) != len(files) or len(set(names)) < len(names) or not all(names):
        raise UsageError(
            f"{len(files)} files need {len(files)} names that differ, not {', '.join(names)!r}", hint="--names a,b"
        )
    return names


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    yield from (f"{stem}-{number}" for number in itertools.count(2))


def _weights(said: str | None, names: Sequence[str]) -> dict[str, float]:
    """`a=0.7,b=0.3`, or one number a file."""
    words = _listed(said)
    pairs = [word.rpartition("=")[::2] for word in words]
    if words and not any(name for name, _ in pairs):
        if len(words) != len(names):
            raise UsageError(f"{len(words)} weights for {len(names)} lists", hint="one each, or --weights NAME=WEIGHT")
        pairs = list(zip(names, words, strict=True))
    try:
        weights = {name.strip(): float(number) for name, number in pairs}
    except ValueError:
        weights = {}
    if len(weights) < len(pairs) or not all(weights):
        raise UsageError(f"--weights {said!r} cannot be read", hint="--weights bm25=0.3,dense=0.7, each name once")
    return weights


def _read(files: Sequence[str]) -> list[Run]:
    from recollect.evaluation.runs import read_run

    if files.count(STDIN) > 1:
        raise UsageError("standard input can be read once", hint="name the other lists as files")
    runs = []
    for file in files:
        name = "standard input" if file == STDIN else file
        runs.append(read_run(_bytes(file), name))
        if not any(runs[-1].values()):
            notice(f"{name} holds nothing; it counts as an empty list")
    return runs


def _bytes(file: str) -> bytes:
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        what = "is a folder" if isinstance(error, IsADirectoryError) else "is not there"
        raise UsageError(f"{file} {what}", hint="name files with ranked lists, or - for standard input") from error
    except OSError as error:
        raise FailedError(f"{file} cannot be read: {error.strerror or error}", hint="may you read it?") from error


def _settings(options: Mapping[str, Any], weights: Mapping[str, float]) -> dict[str, Any]:
    """What the ranking was made with; only what counts under the method."""
    said: dict[str, Any] = {"method": options["method"]}
    reads = METHODS[options["method"]].reads
    if "rrf_k" in reads:
        said["k"] = int(options["k"]) if float(options["k"]).is_integer() else options["k"]
    if "normalisation" in reads:
        said["normalisation"] = options["normalisation"]
    return {**said, "weights": dict(weights)}


def _print_fused_json(fused: Mapping[str | None, Sequence[Fused]], fusion: Mapping[str, Any]) -> None:
    from recollect.cli.terminal import print_json

    rows = {question: [_row(rank, one) for rank, one in enumerate(of, 1)] for question, of in fused.items()}
    if len(rows) > 1:
        print_json({"fusion": fusion, "queries": rows})
        return
    (question,) = rows
    print_json({**({} if question is None else {"query": question}), "fusion": fusion, "results": rows[question]})


def _row(rank: int, one: Fused) -> dict[str, Any]:
    sources = {
        name: {"rank": share.rank, "score": share.score, "contribution": share.contribution}
        for name, share in one.shares.items()
    }
    return {"id": one.id, "rank": rank, "score": one.score, "fused": one.fused, "sources": sources}


def _print_trec(fused: Mapping[str | None, Sequence[Fused]]) -> None:
    from recollect.evaluation.runs import write_trec

    named = {question or NAMELESS: [(one.id, one.fused) for one in results] for question, results in fused.items()}
    if lines := list(write_trec(named)):
        echo("\n".join(map(plain, lines)))


def _print_fused(fused: Mapping[str | None, Sequence[Fused]], names: Sequence[str], fusion: Mapping[str, Any]) -> None:
    from recollect.cli.terminal import print_table

    for question, results in fused.items():
        if question is not None and len(fused) > 1:
            echo(click.style(plain(question), bold=True))
        rows = [_cells(rank, one, names) for rank, one in enumerate(results, 1)]
        if rows:
            print_table([("", "id", "score", "fused", *names), *rows])
    count = sum(map(len, fused.values()))
    how = f"rrf k={fusion['k']:g}" if "k" in fusion else str(fusion["method"])
    questions = f" for {len(fused):,} questions" if len(fused) > 1 else ""
    notice(f"{count:,} result{'s' * (count != 1)}{questions} · {how}" if count else f"nothing to fuse · {how}")


def _cells(rank: int, one: Fused, names: Sequence[str]) -> tuple[str, ...]:
    ranks = (f"#{one.shares[name].rank}" if name in one.shares else "–" for name in names)
    return (f"{rank}.", one.id, f"{one.score:.2f}", f"{one.fused:.6f}", *ranks)


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
    return _show_overlap(asked, found, fusing, as_json)


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


def _show_overlap(asked: Sequence[str], found: Sequence[dict[str, list[str]]], fusing: Fusing, as_json: bool) -> int:
    from recollect.cli.terminal import print_json
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
        _print_overlap(pairs, fusing, len(asked))
    return 0 if any(pair.queries for pair in pairs) else 1


def _print_overlap(pairs: Sequence[Overlap], fusing: Fusing, asked: int) -> None:
    from recollect.cli.terminal import print_table, width
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
