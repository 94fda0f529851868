"""Settings worth trying: which of them a fusion method reads, the curves of a sweep, the candidates of tuning."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from recollect.config import SearchOptions, override
from recollect.evaluation.recording import TOP, Judged, Options, Outcome, Part
from recollect.evaluation.scoring import Estimate, compare, estimate
from recollect.fusion import METHODS, NORMALISATIONS
from recollect.memory import Memory
from recollect.options import SEARCH
from recollect.types import Progress

FETCH_KS = (50, 100, 200)
RRF_KS = (5.0, 20.0, 60.0)
SHARES = (0.3, 0.5, 0.7)
"""The vector source's part of the weights; the keyword source has the rest."""

HALF_LIVES_DAYS = (30.0, 180.0)
LAMBDAS = (0.9, 0.7)

TUNED = tuple(option.name for option in SEARCH if option.tuned)
"""What tuning may set."""


def curves(
    fusions: Sequence[str],
    *,
    ks: Sequence[float] = (),
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """Every fusion method with each value of what it reads; what is left empty stays as the settings have it."""
    values: dict[str, Sequence[Any]] = {"rrf_k": ks, "normalisation": normalisations}
    found: list[Options] = []
    for fusion in fusions:
        names = [name for name in _reads(fusion) if values[name]]
        for picked in itertools.product(*(values[name] for name in names)):
            read = {"fusion": fusion, **dict(zip(names, picked, strict=True))}
            found += [{**read, **weights(share)} for share in shares] or [read]
    return found


def _reads(fusion: str) -> tuple[str, ...]:
    """The settings that a fusion method reads beside the weights; none of a name that is not known."""
    return METHODS[fusion].reads if fusion in METHODS else ()


def weights(share: float) -> dict[str, float]:
    """The two weights of which the vector source's is this part; equal ones are the default's 1 and 1."""
    equal = share == 0.5  # noqa: PLR2004
    return {"text_weight": 1.0 if equal else round(1 - share, 6), "vector_weight": 1.0 if equal else share}


def candidates() -> list[Options]:
    """What tuning tries before it looks at decay and diversity."""
    scored = curves(["weighted"], normalisations=tuple(NORMALISATIONS), shares=SHARES)
    scored += curves(["combmnz"], normalisations=["minmax"], shares=SHARES)
    ranked = curves(["rrf"], ks=RRF_KS, shares=SHARES)
    others = curves([name for name in METHODS if not _reads(name)], shares=SHARES)
    return [{**curve, "fetch_k": fetch_k} for curve in (*ranked, *scored, *others) for fetch_k in FETCH_KS]


def refinements(chosen: Options) -> list[Options]:
    """The chosen settings with every way to let age and likeness count."""
    ages: list[Options] = [{}, {"decay": False}]
    ages += [{"decay": True, "half_life_days": days} for days in HALF_LIVES_DAYS]
    likeness: list[Options] = [{}, {"mmr": False}, *({"mmr": True, "mmr_lambda": balance} for balance in LAMBDAS)]
    return [{**chosen, **age, **like} for age in ages for like in likeness]


def completed(options: Options, search: SearchOptions) -> dict[str, Any]:
    """All that tuning may set, with what the options leave out as the settings have it."""
    return {name: options.get(name, getattr(search, name)) for name in TUNED}


def changes(options: Options, default: Options) -> dict[str, Any]:
    """What a candidate changes, and counts for something: equal weights are equal whatever their size."""
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


def label(options: Options) -> str:
    """Settings as a person reads them: `rrf k=60`, `weighted minmax .3/.7`."""
    words = [str(options["fusion"])] if "fusion" in options else []
    words += [f"k={options['rrf_k']:g}"] if "rrf_k" in options else []
    words += [str(options["normalisation"])] if "normalisation" in options else []
    if "vector_weight" in options:
        words.append(f"{options.get('text_weight', 1.0):g}/{options['vector_weight']:g}")
    return " ".join(words)


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


DEPTHS = (5, 10, 20, 50, 100, 200)
KS = (1.0, 10.0, 60.0, 100.0)
"""What is swept where nothing is said: how deep sources are read, and RRF's constant."""

CERTIFIED = 20
"""Questions that are searched for live, to see that a short answer begins a long one."""


def curves_of(
    search: SearchOptions,
    *,
    fusions: Sequence[str] = (),
    ks: Sequence[float] = KS,
    normalisations: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Options]:
    """The settings that are swept at every depth, of the user's method, rrf and weighted where none is named.

    Names that nothing has are refused.
    """
    methods = tuple(fusions) or tuple(dict.fromkeys((search.fusion, "rrf", "weighted")))
    found = curves(methods, ks=ks, normalisations=normalisations, shares=shares)
    for curve in found:
        override(search, curve)
    return found


def swept(
    judged: Judged, lines: Sequence[Options], depths: Sequence[int], *, progress: Progress | None = None
) -> dict[str, Any]:
    """A sweep of these settings, with the certificate that a short answer begins a long one."""
    found = sweep(judged, lines, depths, progress=progress)
    prefix = Prefix.joined([_certified(part, lines, len(judged.parts)) for part in judged.parts])
    return {"data": judged.as_dict(), "measure": judged.measure, **found.as_dict(), "prefix": prefix.as_dict()}


def _certified(part: Part, lines: Sequence[Options], parts: int) -> Prefix:
    """The certificate on a few questions of a corpus, fewer where there are more corpora."""
    texts = list(part.recording.texts.values())
    return certify(part.recording.memory, texts[:: max(1, -(-len(texts) * parts // CERTIFIED))], lines)
