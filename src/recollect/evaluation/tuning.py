"""Settings chosen by nested cross-validation over questions: what is chosen on some is measured on others.

The questions are dealt into outer folds by a hash of their ids. For each fold the procedure `choose` sees the other
folds alone, and what it chooses is measured on this one. Put together, these held-out values are compared with the
default's on the same questions; that comparison, and no other, decides. What would be written is chosen by the same
procedure on all questions.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any, TypeAlias

from recollect.evaluation.recording import Options
from recollect.evaluation.scoring import Comparison, Estimate, compare, estimate
from recollect.evaluation.sweep import changes
from recollect.types import Progress

OUTER = 5
INNER = 4
FEWEST = 30
"""With fewer questions no gain of a usual size could be told from chance."""

Values: TypeAlias = Mapping[str, float]
"""Question → what a measure gives."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried: first all `candidates`, then the `refine`ments of the one chosen; and against what."""

    default: Options
    candidates: Sequence[Options]
    refine: Callable[[Options], Sequence[Options]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Fold:
    """One outer fold: what the others chose, and the gain over the default that this one saw."""

    questions: int
    chosen: Options
    gain: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """What came of it. `tried` counts all settings, `chosen` is the choice of all questions together."""

    tried: int
    folds: tuple[Fold, ...]
    held_out: Estimate
    default: Estimate
    comparison: Comparison
    chosen: Options

    @property
    def keeps_default(self) -> bool:
        """Whether no gain was shown: held-out questions must agree, and so must the choice of all."""
        gained = self.comparison.significant and self.comparison.difference.low > 0
        return not (gained and self.chosen)

    def as_dict(self) -> dict[str, Any]:
        """For JSON and for the settings file."""
        return {
            "tried": self.tried,
            "keep_default": self.keeps_default,
            "default": asdict(self.default),
            "held_out": asdict(self.held_out),
            "gain": asdict(self.comparison.difference),
            "p": self.comparison.p,
            "wins": self.comparison.wins,
            "losses": self.comparison.losses,
            "ties": self.comparison.ties,
            "chosen": dict(self.chosen),
            "folds": [asdict(fold) for fold in self.folds],
            "stability": self.stability(),
        }

    def stability(self) -> list[dict[str, Any]]:
        """Each choice that a fold made, with how many made it, the most frequent first."""
        names = Counter(json.dumps(fold.chosen, sort_keys=True) for fold in self.folds)
        return [{"settings": json.loads(name), "folds": count} for name, count in names.most_common()]


@dataclass(slots=True)
class Trials:
    """Every setting is tried once, whoever asks for it."""

    values: Callable[[Options], Values]
    expected: int
    progress: Progress | None = None
    known: dict[str, Values] = field(default_factory=dict)

    def __call__(self, options: Options) -> Values:
        """Each question's value under these options."""
        name = json.dumps(options, sort_keys=True)
        if name not in self.known:
            self.known[name] = self.values(options)
            if self.progress:
                self.progress(len(self.known), max(len(self.known), self.expected))
        return self.known[name]


def tune(values: Callable[[Options], Values], plan: Plan, *, progress: Progress | None = None) -> Tuning:
    """Choose on four fifths of the questions, measure on the fifth, five times; then choose on all of them."""
    trials = Trials(values, 1 + len(plan.candidates) + len(plan.refine(plan.default)), progress)
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
        len(trials.known),
        tuple(folds),
        estimate([held_out[key] for key in default]),
        estimate(list(default.values())),
        compare(held_out, default),
        chosen,
    )


def choose(trials: Callable[[Options], Values], plan: Plan, questions: Sequence[str]) -> dict[str, Any]:
    """What the questions prefer to the default, as the changes to it; nothing where the default is as good."""
    folds = deal(questions, INNER, "inner")
    best: Options = plan.default
    for candidates in (lambda _: plan.candidates, plan.refine):
        rivals = [best, *({**plan.default, **rival} for rival in candidates(best))]
        best = simplest(rivals, plan.default, [_means(trials(rival), folds) for rival in rivals])
    return changes(best, plan.default)


def simplest(rivals: Sequence[Options], default: Options, means: Sequence[Sequence[float]]) -> Options:
    """Of all that are within one standard error of the best, the one that changes least, then the best of those.

    The error is that of the difference to the best, over the inner folds.
    """
    best = max(means, key=fmean)
    near = [place for place, found in enumerate(means) if _within(best, found)]
    return rivals[min(near, key=lambda place: (len(changes(rivals[place], default)), -fmean(means[place])))]


def deal(questions: Sequence[str], folds: int, salt: str) -> list[frozenset[str]]:
    """Folds of equal size, by a hash of each id: the same on every machine, in whatever order the questions come."""
    shuffled = sorted(questions, key=lambda key: hashlib.blake2b(f"{salt} {key}".encode()).digest())
    return [frozenset(shuffled[start::folds]) for start in range(folds)]


def _means(values: Values, folds: Sequence[frozenset[str]]) -> list[float]:
    return [fmean(values[key] for key in fold) for fold in folds]


def _within(best: Sequence[float], found: Sequence[float]) -> bool:
    short = [high - low for high, low in zip(best, found, strict=True)]
    return fmean(short) <= stdev(short) / math.sqrt(len(short))
