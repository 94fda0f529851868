"""Measure a grid of settings: the effect of depth and fusion, and the depth beyond which results no longer change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from recollect.config import SearchOptions, override
from recollect.evaluation.recording import TOP, JudgedSets, Options, Recording, ReplayOutcome
from recollect.evaluation.scoring import compare, estimate
from recollect.fusion import METHODS
from recollect.types import Progress

DEPTHS = (5, 10, 20, 50, 100, 200)
KS = (1.0, 10.0, 60.0, 100.0)
"""The default grid: depths (`fetch_k`), and values of RRF's constant."""

SHORT, LONG = 1, 50
"""Two limits: the results of a search with the first must begin those of a search with the second."""

PREFIX_QUESTIONS = 20
"""Questions that are searched for live to check that."""


def curves(
    fusions: Sequence[str],
    *,
    ks: Sequence[float] = (),
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """Combine every fusion method with each value of the settings it reads; an empty list leaves a setting alone."""
    values: dict[str, Sequence[Any]] = {"rrf_k": ks, "normalisation": normalisations}
    grid: list[Options] = []
    for fusion in fusions:
        names = [name for name in reads(fusion) if values[name]]
        for picked in itertools.product(*(values[name] for name in names)):
            options = {"fusion": fusion, **dict(zip(names, picked, strict=True))}
            grid += [{**options, **weights(share)} for share in shares] or [options]
    return grid


def reads(fusion: str) -> tuple[str, ...]:
    """Return the settings that a fusion method reads besides the weights."""
    return METHODS[fusion].reads if fusion in METHODS else ()


def weights(share: float) -> dict[str, float]:
    """Return the weights that give the vector source this share; equal weights are 1 and 1, as in the default."""
    equal = share == 0.5  # noqa: PLR2004
    return {"text_weight": 1.0 if equal else round(1 - share, 6), "vector_weight": 1.0 if equal else share}


def curves_of(
    search: SearchOptions,
    *,
    fusions: Sequence[str] = (),
    ks: Sequence[float] = KS,
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """Return the settings to sweep; by default those of the user's fusion method, rrf and weighted.

    Unknown names raise an error.
    """
    methods = tuple(fusions) or tuple(dict.fromkeys((search.fusion, "rrf", "weighted")))
    grid = curves(methods, ks=ks, normalisations=normalisations, shares=shares)
    for options in grid:
        override(search, options)
    return grid


def setting_label(options: Options) -> str:
    """Write settings in short: `rrf k=60`, `weighted minmax .3/.7`."""
    words = [str(options["fusion"])] if "fusion" in options else []
    words += [f"k={options['rrf_k']:g}"] if "rrf_k" in options else []
    words += [str(options["normalisation"])] if "normalisation" in options else []
    if "vector_weight" in options:
        words.append(f"{options.get('text_weight', 1.0):g}/{options['vector_weight']:g}")
    return " ".join(words)


def sweep(
    outcome: Callable[[Options], ReplayOutcome],
    curves: Sequence[Options],
    depths: Sequence[int],
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every curve at every depth.

    The result has the `rows` by curve and depth, each curve's knee (`knees`), the knee with the highest mean (`knee`),
    and the `churn`: the share of top results that differs between neighbouring settings, along depth and across curves.
    """
    grid = [[{**curve, "fetch_k": depth} for depth in sorted(set(depths))] for curve in curves]
    outcomes: list[list[ReplayOutcome]] = []
    for line in grid:
        outcomes.append([])
        for options in line:
            outcomes[-1].append(outcome(options))
            if progress:
                progress(sum(map(len, outcomes)), len(grid) * len(line))
    rows = [list(map(_row, line, measured)) for line, measured in zip(grid, outcomes, strict=True)]
    knees = [
        line[knee([one.values for one in measured])] for line, measured in zip(rows, outcomes, strict=True)
    ]  # fmt: skip
    across = zip(zip(*grid, strict=True), zip(*outcomes, strict=True), strict=True)
    return {
        "rows": list(itertools.chain.from_iterable(rows)),
        "knee": max(knees, key=lambda row: row["mean"]),
        "knees": knees,
        "churn": [
            *(step for line in zip(grid, outcomes, strict=True) for step in _churns(*line, "fetch_k")),
            *(step for line in across for step in _churns(*line, "settings")),
        ],
    }


def _row(options: Options, outcome: ReplayOutcome) -> dict[str, Any]:
    mean = estimate(list(outcome.values.values()))
    return {"options": dict(options), "mean": mean.mean, "low": mean.low, "high": mean.high}


def knee(values: Sequence[Mapping[str, float]]) -> int:
    """Return the first position after which nothing is significantly better, by the paired test."""
    for place, here in enumerate(values[:-1]):
        later = [compare(deeper, here) for deeper in values[place + 1 :]]
        if not any(one.significant and one.difference.mean > 0 for one in later):
            return place
    return len(values) - 1


def churn(before: ReplayOutcome, after: ReplayOutcome) -> float:
    """Return the share of the top results that is replaced, averaged over the questions."""
    return fmean(_replaced(before.tops[key], after.tops[key]) for key in before.tops)


def _churns(settings: Sequence[Options], outcomes: Sequence[ReplayOutcome], along: str) -> list[dict[str, Any]]:
    steps = zip(itertools.pairwise(settings), itertools.pairwise(outcomes), strict=True)
    return [
        {"from": dict(a), "to": dict(b), "share": churn(before, after), "along": along}
        for (a, b), (before, after) in steps
    ]


def _replaced(before: Sequence[str], after: Sequence[str]) -> float:
    longest = min(TOP, max(len(before), len(after)))
    return 1 - len({*before} & {*after}) / longest if longest else 0.0


def check_prefix(parts: Sequence[tuple[Recording, Sequence[str]]], curves: Sequence[Options]) -> dict[str, Any]:
    """Search live with a low and a high limit, and check that the short list begins the long one.

    `parts` holds, for each corpus, its recording and the texts of the questions to search for.
    """
    checked, questions, long, broken = 0, 0, LONG, []
    for recording, texts in parts:
        memory, work = recording.memory, recording.work
        long = min(LONG, memory.settings.search.fetch_k)  # a higher limit would read the sources deeper
        checked, questions = checked + len(curves) * len(texts), questions + len(texts)
        for options, text in itertools.product(curves, texts):
            short, full = (
                [result.record.id for result in memory.search(text, limit=limit, work=work, **options).results]
                for limit in (SHORT, long)
            )
            if short != full[:SHORT]:
                broken.append({"question": text, "options": dict(options)})
    limits = [SHORT, long]
    return {"checked": checked, "held": not broken, "questions": questions, "limits": limits, "broken": broken}


def sweep_report(
    judged: JudgedSets, curves: Sequence[Options], depths: Sequence[int], *, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the JSON of `recollect eval sweep`: the sweep, and the prefix check on some questions of each corpus."""
    measured = sweep(judged, curves, depths, progress=progress)
    parts = []
    for recording in (part.recording for part in judged.parts):
        texts = list(recording.texts.values())
        parts.append((recording, texts[:: max(1, -(-len(texts) * len(judged.parts) // PREFIX_QUESTIONS))]))
    prefix = check_prefix(parts, curves)
    return {"data": judged.as_dict(), "measure": judged.measure, **measured, "prefix": prefix}
