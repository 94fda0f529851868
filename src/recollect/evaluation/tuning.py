"""Choose settings by nested cross-validation: settings chosen on some questions are measured on others.

The questions are dealt into outer folds by a hash of their ids. For each fold, `choose` sees only the other folds, and
its choice is measured on this fold. These held-out values are compared with the default's on the same questions, and
only that comparison decides. The settings to write are chosen by the same procedure on all questions.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any, TypeAlias

from recollect.config import SearchOptions
from recollect.evaluation.recording import Options
from recollect.evaluation.scoring import Comparison, Estimate, compare, estimate
from recollect.evaluation.sweep import curves, reads
from recollect.fusion import METHODS, NORMALISATIONS
from recollect.options import SEARCH
from recollect.types import Progress

OUTER = 5
INNER = 4
FEWEST = 30
"""With fewer questions no gain of a usual size could be told from chance."""

FETCH_KS = (50, 100, 200)
RRF_KS = (5.0, 20.0, 60.0)
SHARES = (0.3, 0.5, 0.7)
"""The vector source's share of the weights; the keyword source has the rest."""

HALF_LIVES_DAYS = (30.0, 180.0)
LAMBDAS = (0.9, 0.7)

TUNED = tuple(option.name for option in SEARCH if option.tuned)
"""The settings that tuning may change."""

Values: TypeAlias = Mapping[str, float]
"""Question → the value of a measure."""


def candidates() -> list[Options]:
    """Return the settings that tuning tries first, before decay and diversity."""
    scored = curves(["weighted"], normalisations=tuple(NORMALISATIONS), shares=SHARES)
    scored += curves(["combmnz"], normalisations=["minmax"], shares=SHARES)
    ranked = curves(["rrf"], ks=RRF_KS, shares=SHARES)
    others = curves([name for name in METHODS if not reads(name)], shares=SHARES)
    return [{**curve, "fetch_k": fetch_k} for curve in (*ranked, *scored, *others) for fetch_k in FETCH_KS]


def refinements(chosen: Options) -> list[Options]:
    """Combine the chosen settings with every setting of decay and diversity."""
    ages: list[Options] = [{}, {"decay": False}]
    ages += [{"decay": True, "half_life_days": days} for days in HALF_LIVES_DAYS]
    likeness: list[Options] = [{}, {"mmr": False}, *({"mmr": True, "mmr_lambda": balance} for balance in LAMBDAS)]
    return [{**chosen, **age, **like} for age in ages for like in likeness]


def completed(options: Options, search: SearchOptions) -> dict[str, Any]:
    """Fill in the tuned settings that the options leave out."""
    return {name: options.get(name, getattr(search, name)) for name in TUNED}


def changes(options: Options, default: Options) -> dict[str, Any]:
    """Return the options that change the ranking: only the ratio of the weights counts, `mmr_lambda` only with MMR."""
    return dict(_changes(options, default))


def _changes(options: Options, default: Options) -> Iterator[tuple[str, Any]]:
    for name in options:
        if name in ("text_weight", "vector_weight") and _share(options) == _share(default):
            continue
        if name == "mmr_lambda" and not options.get("mmr"):
            continue
        if options[name] != default.get(name):
            yield name, options[name]


def _share(options: Options) -> float:
    text, vector = options.get("text_weight", 1.0), options.get("vector_weight", 1.0)
    return round(vector / (text + vector), 6) if text + vector else 0.5


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """What is compared with the default: all `candidates`, then the refinements of the one chosen."""

    default: Options
    candidates: Sequence[Options]
    refine: Callable[[Options], Sequence[Options]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Fold:
    """One outer fold: the settings chosen on the other folds, and their gain over the default on this one."""

    questions: int
    chosen: Options
    gain: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result: `tried` counts the settings, `chosen` is chosen on all questions."""

    tried: int
    folds: tuple[Fold, ...]
    held_out: Estimate
    default: Estimate
    comparison: Comparison
    chosen: Options

    @property
    def keeps_default(self) -> bool:
        """Whether the default stays: no significant gain on held-out questions, or nothing better chosen on all."""
        gained = self.comparison.significant and self.comparison.difference.low > 0
        return not (gained and self.chosen)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        comparison = asdict(self.comparison)
        return {
            "tried": self.tried,
            "keep_default": self.keeps_default,
            "default": asdict(self.default),
            "held_out": asdict(self.held_out),
            "gain": comparison.pop("difference"),
            **comparison,
            "chosen": dict(self.chosen),
            "folds": [asdict(fold) for fold in self.folds],
            "stability": self.stability(),
        }

    def stability(self) -> list[dict[str, Any]]:
        """Return each choice with the number of folds that made it, the most frequent first."""
        names = Counter(json.dumps(fold.chosen, sort_keys=True) for fold in self.folds)
        return [{"settings": json.loads(name), "folds": count} for name, count in names.most_common()]


def tune(values: Callable[[Options], Values], plan: TuningPlan, *, progress: Progress | None = None) -> Tuning:
    """Choose on four fifths of the questions and measure on the fifth, five times; then choose on all of them."""
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
        folds.append(Fold(len(fold), chosen, fmean(measured[key] - default[key] for key in fold)))
    chosen = choose(trials, plan, list(default))
    return Tuning(
        len(known),
        tuple(folds),
        estimate([held_out[key] for key in default]),
        estimate(list(default.values())),
        compare(held_out, default),
        chosen,
    )


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
    best = max(means, key=fmean)
    near = [place for place, measured in enumerate(means) if _within(best, measured)]
    return tried[min(near, key=lambda place: (len(changes(tried[place], default)), -fmean(means[place])))]


def deal(questions: Sequence[str], folds: int, salt: str) -> list[frozenset[str]]:
    """Deal questions into folds of equal size by a hash of each id, independent of their order and the machine."""
    shuffled = sorted(questions, key=lambda key: hashlib.blake2b(f"{salt} {key}".encode()).digest())
    return [frozenset(shuffled[start::folds]) for start in range(folds)]


def _within(best: Sequence[float], measured: Sequence[float]) -> bool:
    short = [high - low for high, low in zip(best, measured, strict=True)]
    return fmean(short) <= stdev(short) / math.sqrt(len(short))
