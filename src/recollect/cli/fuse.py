"""`recollect fuse`: rankings of any systems into one, from files, with no store."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.options import json_flag, notice
from recollect.cli.plain import echo, plain
from recollect.errors import FailedError, UsageError
from recollect.fusion import DEFAULT_K, METHODS, NORMALISATIONS

if TYPE_CHECKING:
    from recollect.evaluation.runs import Run
    from recollect.fusion import Fused

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
        _print_json(shown, fusion)
    elif as_trec:
        _print_trec(shown)
    else:
        _print(shown, names, fusion)
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


def _print_json(fused: Mapping[str | None, Sequence[Fused]], fusion: Mapping[str, Any]) -> None:
    from recollect.cli.output import print_json

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


def _print(fused: Mapping[str | None, Sequence[Fused]], names: Sequence[str], fusion: Mapping[str, Any]) -> None:
    from recollect.cli.output import print_table

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
