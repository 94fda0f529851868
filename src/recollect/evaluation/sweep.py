"""A measure over a grid of settings: where depth stops to matter, and how much of an answer each step changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from recollect.evaluation.grid import Options
from recollect.evaluation.judged import TOP, Outcome
from recollect.evaluation.statistics import Estimate, compare, estimate
from recollect.memory import Memory
from recollect.types import Progress

SHORT, LONG = 1, 50
"""The two limits of the certificate: an answer of the first length must begin one of the second."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of the grid, and what it came to."""

    options: Options
    estimate: Estimate

    def as_dict(self) -> dict[str, Any]:
        """For JSON and plots."""
        found = self.estimate
        return {"options": dict(self.options), "mean": found.mean, "low": found.low, "high": found.high}


@dataclass(frozen=True, slots=True)
class Churn:
    """The mean share of the top results that differs between two neighbouring settings."""

    a: Options
    b: Options
    share: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON and plots."""
        return {"from": dict(self.a), "to": dict(self.b), "share": self.share}


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows by curve and depth, each curve's knee, the churn along the curves (`deeper`) and between them (`across`)."""

    questions: int
    rows: tuple[Row, ...]
    knees: tuple[Row, ...]
    deeper: tuple[Churn, ...]
    across: tuple[Churn, ...]

    @property
    def knee(self) -> Row:
        """That of the best curve: the one whose knee measures most."""
        return max(self.knees, key=lambda row: row.estimate.mean)

    def as_dict(self) -> dict[str, Any]:
        """For JSON and plots."""
        churns = [{**one.as_dict(), "along": "fetch_k"} for one in self.deeper]
        churns += [{**one.as_dict(), "along": "settings"} for one in self.across]
        return {
            "rows": [row.as_dict() for row in self.rows],
            "knee": self.knee.as_dict(),
            "knees": [row.as_dict() for row in self.knees],
            "churn": churns,
        }


@dataclass(frozen=True, slots=True)
class Prefix:
    """How many pairs of live searches were made, and those in which the short answer did not begin the long one."""

    checked: int
    questions: int
    long: int
    broken: tuple[tuple[str, Options], ...] = ()

    @classmethod
    def joined(cls, several: Sequence[Prefix]) -> Prefix:
        """The certificate of several corpora."""
        broken = tuple(itertools.chain.from_iterable(one.broken for one in several))
        checked, questions = sum(one.checked for one in several), sum(one.questions for one in several)
        return cls(checked, questions, several[0].long, broken)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        broken = [{"question": text, "options": dict(options)} for text, options in self.broken]
        limits = {"limits": [SHORT, self.long], "broken": broken}
        return {"checked": self.checked, "held": not broken, "questions": self.questions, **limits}


def sweep(
    outcome: Callable[[Options], Outcome],
    curves: Sequence[Options],
    depths: Sequence[int],
    *,
    progress: Progress | None = None,
) -> Sweep:
    """Every curve at every depth."""
    depths = sorted(set(depths))
    grid = [[{**curve, "fetch_k": depth} for depth in depths] for curve in curves]
    found: list[list[Outcome]] = []
    for line in grid:
        found.append([])
        for options in line:
            found[-1].append(outcome(options))
            if progress:
                progress(sum(map(len, found)), len(curves) * len(depths))
    estimates = [[estimate(list(one.values.values())) for one in line] for line in found]
    rows = [list(itertools.starmap(Row, zip(*pair, strict=True))) for pair in zip(grid, estimates, strict=True)]
    return Sweep(
        questions=rows[0][0].estimate.n,
        rows=tuple(itertools.chain.from_iterable(rows)),
        knees=tuple(line[knee([one.values for one in values])] for line, values in zip(rows, found, strict=True)),
        deeper=tuple(itertools.chain.from_iterable(_churns(*pair) for pair in zip(grid, found, strict=True))),
        across=tuple(
            itertools.chain.from_iterable(
                _churns(*pair) for pair in zip(_turned(grid), _turned(found), strict=True)
            )
        ),
    )  # fmt: skip


def knee(deepening: Sequence[Mapping[str, float]]) -> int:
    """The first place after which nothing is significantly better, by the paired test."""
    for place, values in enumerate(deepening[:-1]):
        later = [compare(deeper, values) for deeper in deepening[place + 1 :]]
        if not any(one.significant and one.difference.mean > 0 for one in later):
            return place
    return len(deepening) - 1


def churn(before: Outcome, after: Outcome) -> float:
    """The share of the top results that is replaced, the mean over questions."""
    return fmean(_replaced(before.tops[key], after.tops[key]) for key in before.tops)


def certify(memory: Memory, questions: Sequence[str], settings: Sequence[Options]) -> Prefix:
    """Really search, with a low limit and a high one, and see whether the one answer begins the other."""
    long = min(LONG, memory.settings.search.fetch_k)  # asking for more than that reads the sources deeper
    broken = tuple(
        (text, options)
        for options in settings
        for text in questions
        if _ids(memory, text, SHORT, options) != _ids(memory, text, long, options)[:SHORT]
    )
    return Prefix(len(settings) * len(questions), len(questions), long, broken)


def _churns(settings: Sequence[Options], outcomes: Sequence[Outcome]) -> list[Churn]:
    neighbours = zip(itertools.pairwise(settings), itertools.pairwise(outcomes), strict=True)
    return [Churn(*pair, churn(*found)) for pair, found in neighbours]


def _turned(lines: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*lines, strict=True))


def _replaced(before: Sequence[str], after: Sequence[str]) -> float:
    longest = min(TOP, max(len(before), len(after)))
    return 1 - len({*before} & {*after}) / longest if longest else 0.0


def _ids(memory: Memory, text: str, limit: int, options: Options) -> list[str]:
    return [result.record.id for result in memory.search(text, limit=limit, **options).results]
