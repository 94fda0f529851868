"""Try settings on recorded questions: measure a grid of them (`sweep`), or choose some by cross-validation (`tune`)."""

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any, TypeAlias

from recollect.config import SearchOptions, override
from recollect.evaluation.recording import AS_WRITTEN, TOP, JudgedSets, Options, Recording, ReplayOutcome
from recollect.evaluation.scoring import compare, estimate
from recollect.fusion import METHODS, NORMALISATIONS
from recollect.options import SEARCH
from recollect.types import Progress

DEPTHS = (5, 10, 20, 50, 100, 200)
KS = (1.0, 10.0, 60.0, 100.0)  # what is swept by default: depths (`fetch_k`), and values of RRF's constant
SHORT, LONG = 1, 50  # two limits: the results of a search with the first must begin those of a search with the second
PREFIX_QUESTIONS = 20  # questions that are searched for live to check that
OUTER, INNER = 5, 4  # the folds of the cross-validation
FEWEST = 30  # with fewer questions a gain of the usual size cannot be distinguished from chance
FETCH_KS = (50, 100, 200)
RRF_KS = (5.0, 20.0, 60.0)
SHARES = (0.3, 0.5, 0.7)  # the vector source's share of the weights; the keyword source has the rest
HALF_LIVES_DAYS = (30.0, 180.0)
LAMBDAS = (0.9, 0.7)

Values: TypeAlias = Mapping[str, float]  # question → the value of a measure


def curves(
    fusions: Sequence[str],
    *,
    ks: Sequence[float] = (),
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """Combine every fusion method with each value of the settings it reads; an empty list leaves a setting alone.

    A share is the vector source's part of the weights. Equal weights are 1 and 1, as in the default.
    """
    values: dict[str, Sequence[Any]] = {"rrf_k": ks, "normalisation": normalisations}
    both = [(1.0, 1.0) if share == 0.5 else (round(1 - share, 6), share) for share in shares]  # noqa: PLR2004
    weights: list[Options] = [{"text_weight": text, "vector_weight": vector} for text, vector in both]
    grid: list[Options] = []
    for fusion in fusions:
        names = [name for name in (METHODS[fusion].reads if fusion in METHODS else ()) if values[name]]
        for combination in itertools.product(*(values[name] for name in names)):
            options = {"fusion": fusion, **dict(zip(names, combination, strict=True))}
            grid += [{**options, **pair} for pair in weights or [{}]]
    return grid


def curves_of(search: SearchOptions, *, fusions: Sequence[str] = (), **values: Sequence[Any]) -> list[Options]:
    """Return the curves to sweep; by default those of the user's fusion method, rrf and weighted.

    `values` are the arguments of `curves`. Unknown names raise an error.
    """
    methods = tuple(fusions) or tuple(dict.fromkeys((search.fusion, "rrf", "weighted")))
    grid = curves(methods, **{"ks": KS, **values})
    for options in grid:
        override(search, options)
    return grid


def candidates() -> list[Options]:
    """Return the settings that tuning tries first, before decay and diversity."""
    grid = curves(["rrf"], ks=RRF_KS, shares=SHARES)
    grid += curves(["weighted"], normalisations=tuple(NORMALISATIONS), shares=SHARES)
    grid += curves(["combmnz"], normalisations=["minmax"], shares=SHARES)
    grid += curves([name for name in METHODS if not METHODS[name].reads], shares=SHARES)
    return [{**curve, "fetch_k": fetch_k} for curve in grid for fetch_k in FETCH_KS]


def refinements(chosen: Options) -> list[Options]:
    """Combine the chosen settings with every setting of decay and diversity."""
    ages: list[Options] = [{}, {"decay": False}, *({"decay": True, "half_life_days": days} for days in HALF_LIVES_DAYS)]
    likeness: list[Options] = [{}, {"mmr": False}, *({"mmr": True, "mmr_lambda": balance} for balance in LAMBDAS)]
    return [{**chosen, **age, **like} for age in ages for like in likeness]


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
    depths = sorted(set(depths))
    points: list[tuple[Options, ReplayOutcome]] = []
    rows: list[dict[str, Any]] = []
    for curve, depth in itertools.product(curves, depths):
        options: Options = {**curve, "fetch_k": depth}
        points.append((options, outcome(options)))
        mean = estimate(list(points[-1][1].values.values()))
        rows.append({"options": options, "mean": mean.mean, "low": mean.low, "high": mean.high})
        if progress:
            progress(len(points), len(curves) * len(depths))
    starts = range(0, len(points), len(depths))
    lines = [points[start : start + len(depths)] for start in starts]
    places = [knee([measured.values for _, measured in line]) for line in lines]
    knees = [rows[start + place] for start, place in zip(starts, places, strict=True)]
    along = [step for line in lines for step in _steps(line, "fetch_k")]
    across = [step for line in zip(*lines, strict=True) for step in _steps(line, "settings")]
    best = max(knees, key=lambda row: row["mean"])
    return {"rows": rows, "knee": best, "knees": knees, "churn": along + across}


def _steps(points: Sequence[tuple[Options, ReplayOutcome]], along: str) -> Iterator[dict[str, Any]]:
    for (a, before), (b, after) in itertools.pairwise(points):
        yield {"from": dict(a), "to": dict(b), "share": churn(before, after), "along": along}


def knee(values: Sequence[Values]) -> int:
    """Return the first position after which nothing is significantly better, by the paired test."""
    for place, here in enumerate(values[:-1]):
        later = [compare(deeper, here) for deeper in values[place + 1 :]]
        if not any(one.significant and one.difference.mean > 0 for one in later):
            return place
    return len(values) - 1


def churn(before: ReplayOutcome, after: ReplayOutcome) -> float:
    """Return the share of the top results that is replaced, averaged over the questions."""
    shares = []
    for key, top in before.tops.items():
        longest = min(TOP, max(len(top), len(after.tops[key])))
        shares.append(1 - len({*top} & {*after.tops[key]}) / longest if longest else 0.0)
    return fmean(shares)


def check_prefix(parts: Sequence[tuple[Recording, Sequence[str]]], curves: Sequence[Options]) -> dict[str, Any]:
    """Search live with a low and a high limit, and check that the short list begins the long one.

    `parts` holds, for each corpus, its recording and the texts of the questions to search for.
    """
    long, broken, questions = LONG, [], sum(len(texts) for _, texts in parts)
    for recording, texts in parts:
        memory = recording.memory
        long = min(LONG, memory.settings.search.fetch_k)  # a higher limit would read the sources deeper
        for options, text in itertools.product(curves, texts):
            search = partial(memory.search, text, work=recording.work, **AS_WRITTEN, **options)
            short, full = ([result.record.id for result in search(limit=limit).results] for limit in (SHORT, long))
            if short != full[:SHORT]:
                broken.append({"question": text, "options": dict(options)})
    counts = {"checked": len(curves) * questions, "held": not broken, "questions": questions}
    return {**counts, "limits": [SHORT, long], "broken": broken}


def sweep_report(
    judged: JudgedSets, curves: Sequence[Options], depths: Sequence[int], *, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the JSON of `recollect eval sweep`: the sweep, and the prefix check on some questions of each corpus."""
    measured = sweep(judged, curves, depths, progress=progress)
    parts = []
    for recording in (part.recording for part in judged.parts):
        texts = list(recording.texts.values())
        parts.append((recording, texts[:: max(1, -(-len(texts) * len(judged.parts) // PREFIX_QUESTIONS))]))
    return {"data": judged.as_dict(), "measure": judged.measure, **measured, "prefix": check_prefix(parts, curves)}


def default_settings(search: SearchOptions) -> dict[str, Any]:
    """Return the settings that tuning may change, as they are."""
    return {option.name: getattr(search, option.name) for option in SEARCH if option.tuned}


def changes(options: Options, default: Options) -> dict[str, Any]:
    """Return the options that change the ranking: only the ratio of the weights counts, `mmr_lambda` only with MMR."""
    idle = set() if options.get("mmr") else {"mmr_lambda"}
    if _share(options) == _share(default):
        idle |= {"text_weight", "vector_weight"}
    return {name: value for name, value in options.items() if name not in idle and value != default.get(name)}


def _share(options: Options) -> float:
    text, vector = options.get("text_weight", 1.0), options.get("vector_weight", 1.0)
    return round(vector / (text + vector), 6) if text + vector else 0.5


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """What is compared with the default: all `candidates`, then the refinements of the one chosen."""

    default: Options
    candidates: Sequence[Options]
    refine: Callable[[Options], Sequence[Options]] = lambda _: ()


def tune(values: Callable[[Options], Values], plan: TuningPlan, *, progress: Progress | None = None) -> dict[str, Any]:
    """Choose on four fifths of the questions and measure on the fifth, five times; then choose on all of them.

    In the result, `tried` counts the settings, `folds` are the choices with their gains, `stability` the choices with
    the number of folds that made them, and `chosen` is chosen on all questions. The default is kept where held-out
    questions show no significant gain, or where nothing better is chosen on all.
    """
    expected, known = 1 + len(plan.candidates) + len(plan.refine(plan.default)), dict[str, Values]()

    def trials(options: Options) -> Values:
        """Measure each setting only once."""
        name = json.dumps(options, sort_keys=True)
        if name not in known:
            known[name] = values(options)
            if progress:
                progress(len(known), max(len(known), expected))
        return known[name]

    default = trials(plan.default)
    held_out: dict[str, float] = {}
    folds = []
    for fold in deal(list(default), OUTER, "outer"):
        chosen = choose(trials, plan, [key for key in default if key not in fold])
        measured = trials({**plan.default, **chosen})
        held_out |= {key: measured[key] for key in fold}
        gain = fmean(measured[key] - default[key] for key in fold)
        folds.append({"questions": len(fold), "chosen": chosen, "gain": gain})
    held_out = {key: held_out[key] for key in default}  # the order of the questions moves the bootstrap interval
    chosen = choose(trials, plan, list(default))
    comparison = compare(held_out, default)
    gained, figures = comparison.significant and comparison.difference.low > 0, asdict(comparison)
    names = Counter(json.dumps(fold["chosen"], sort_keys=True) for fold in folds)
    return {
        "tried": len(known),
        "keep_default": not (gained and chosen),
        "default": asdict(estimate(list(default.values()))),
        "held_out": asdict(estimate(list(held_out.values()))),
        "gain": figures.pop("difference"),
        **figures,
        "chosen": chosen,
        "folds": folds,
        "stability": [{"settings": json.loads(name), "folds": count} for name, count in names.most_common()],
    }


def choose(trials: Callable[[Options], Values], plan: TuningPlan, questions: Sequence[str]) -> dict[str, Any]:
    """Return the changes to the default that these questions prefer; empty where the default is as good."""
    folds = deal(questions, INNER, "inner")
    best: Options = plan.default
    for proposals in (lambda _: plan.candidates, plan.refine):
        tried = [best, *({**plan.default, **options} for options in proposals(best))]
        means = [[fmean(trials(options)[key] for key in fold) for fold in folds] for options in tried]
        best = simplest(tried, plan.default, means)
    return changes(best, plan.default)


def simplest(tried: Sequence[Options], default: Options, means: Sequence[Sequence[float]]) -> Options:
    """Among the settings within one standard error of the best, return the one with the fewest changes.

    The error is that of the difference to the best, over the inner folds; ties go to the higher mean.
    """
    best, near = max(means, key=fmean), []
    for options, measured in zip(tried, means, strict=True):
        short = [high - low for high, low in zip(best, measured, strict=True)]
        if fmean(short) <= stdev(short) / math.sqrt(len(short)):
            near.append((len(changes(options, default)), -fmean(measured), options))
    return min(near, key=lambda row: row[:2])[2]


def deal(questions: Sequence[str], folds: int, salt: str) -> list[frozenset[str]]:
    """Deal questions into folds of equal size by a hash of each id, independent of their order and the machine."""
    shuffled = sorted(questions, key=lambda key: hashlib.blake2b(f"{salt} {key}".encode()).digest())
    return [frozenset(shuffled[start::folds]) for start in range(folds)]
