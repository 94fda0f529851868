"""What a report says, section by section: in words first, then a plot, then the numbers in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from statistics import fmean
from typing import TYPE_CHECKING

from recollect.evaluation import plots, results
from recollect.evaluation.curves import Chart, Curve, read_chart
from recollect.evaluation.marks import ms
from recollect.evaluation.overlap import percent
from recollect.evaluation.results import Duel, Json, Pair, System, chance, label, number, part, signed, told
from recollect.types.search import GRADES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = 6
"""Comparisons that are drawn; the table has all."""

EXTREMES = 5
"""Questions that are named at either end of a comparison."""

ID_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers with a name; the columns of `words` hold words."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)


@dataclass(frozen=True, slots=True)
class Section:
    """One finding: `lead` is said at the head of the page too; `shows` is the plot in words."""

    slug: str
    title: str
    lead: str
    more: Sequence[str]
    draw: Callable[[], Figure]
    shows: str
    source: str
    tables: Sequence[Table]


def sections(report: Json) -> Iterator[Section]:
    """Whatever a report has enough for."""
    source = results.about(report)
    match results.kind(report):
        case "systems":
            found, compared = results.systems(report), results.duels(report)
            drawn = [one for one in compared if one.measure == compared[0].measure]
            if any(system.measures for system in found):
                yield _measured(found, compared, source)
            yield from (_duel(duel, source) for duel in drawn[:DRAWN])
            if any(system.p50 is not None for system in found):
                yield _timed(found, source)
        case "rows":
            if swept := read_chart(report):
                yield _swept(swept, report, source)
        case "pairs":
            if found_pairs := results.pairs(report):
                yield _shared(found_pairs, source)


def _measured(found: Sequence[System], compared: Sequence[Duel], source: str) -> Section:
    names = plots.measures_of(found)
    best = max((one for one in found if names[0] in one.measures), key=lambda one: one.measures[names[0]].mean)
    rows = [(label(one.name), *(told(one.measures.get(name)) for name in names)) for one in found]
    tables = [Table("Means and their intervals", ("system", *map(label, names)), rows)]
    more = ["A dot is the mean over all questions, the line the range in which 95 of 100 such means would lie."]
    if len(names) > plots.MEASURES:
        more.append(f"The first {plots.MEASURES} measures are drawn; the table has all {len(names)}.")
    more.append("The axes show the part where the intervals are; they do not begin at zero.")
    if compared:
        tables.append(_comparisons(compared))
    if len(compared) > 1:
        more.append(f"One in twenty comparisons of equals would look significant by chance; here are {len(compared)}.")
    lead = f"{label(best.name)} has the highest {label(names[0])}: {told(best.measures[names[0]])}."
    shows = "; ".join(f"{label(one.name)} {told(one.measures.get(names[0]))}" for one in found)
    draw = partial(plots.systems_figure, found)
    return Section("systems", "How well each system finds", lead, more, draw, shows, source, tables)


def _comparisons(compared: Sequence[Duel]) -> Table:
    rows = [
        (
            f"{label(one.a)} − {label(one.b)}", label(one.measure), told(one.found.difference, "+"),
            chance(one.found.p), f"{one.found.wins:,}", f"{one.found.losses:,}", f"{one.found.ties:,}",
        )
        for one in compared
    ]  # fmt: skip
    head = ("systems", "measure", "difference", "p", "won", "lost", "equal")
    return Table("Differences on the same questions", head, rows, (0, 1))


def _duel(duel: Duel, source: str) -> Section:
    found, a, b = duel.found, label(duel.a), label(duel.b)
    by = f"{label(duel.measure)} {told(found.difference, '+')}, {chance(found.p)}"
    if not found.significant:
        lead = f"{a} and {b}: no difference that chance could not make ({by})."
    elif found.difference.mean > 0:
        lead = f"{a} is better than {b} by more than chance would give ({by})."
    else:
        lead = f"{a} is worse than {b} by more than chance would give ({by})."
    counts = f"{a} is better on {found.wins:,} questions, {b} on {found.losses:,}, and {found.ties:,} are equal."
    more = [counts, "Each step is one question; the dashed line is the mean difference, the grey band its interval."]
    table = Table(
        "The questions that differ most", (f"{a} is better", "by", f"{b} is better", "by"), _extremes(duel), (0, 2)
    )
    draw = partial(plots.duel_figure, duel)
    return Section("wins", f"{a} against {b}, question by question", lead, more, draw, counts, source, [table])


def _extremes(duel: Duel) -> list[tuple[str, ...]]:
    """The greatest wins beside the greatest losses."""
    gains = list(duel.gains.items())
    won = [(label(key, ID_LENGTH), signed(gain)) for key, gain in gains[:EXTREMES] if gain > 0]
    lost = [(label(key, ID_LENGTH), signed(-gain)) for key, gain in gains[: -EXTREMES - 1 : -1] if gain < 0]
    return [(*left, *right) for left, right in zip_longest(won, lost, fillvalue=("", ""))]


def _timed(found: Sequence[System], source: str) -> Section:
    timed = [one for one in found if one.p50 is not None]
    slowest = max(timed, key=lambda one: one.p95 or one.p50 or 0.0)
    most = slowest.p95 or slowest.p50 or 0.0
    many = "half of the questions" if slowest.p95 is None else "95 of 100 questions"
    lead = f"The slowest, {label(slowest.name)}, answers {many} within {ms(most)} ({_grade(most)})."
    limits = ", ".join(f"{word} below {ms(limit)}" for limit, word in GRADES)
    more = [f"Grades: {limits}, bad above. On this axis equal steps are equal ratios; each bar begins at zero."]
    head = ("system", "searches", "half within", "95 % within", "slowest", "grade at 95 %")
    rows = [
        (
            label(one.name), f"{one.timed:,}" if one.timed else "–", _time(one.p50), _time(one.p95),
            _time(max(one.took_ms, default=None)), _grade(one.p95 or one.p50 or 0.0),
        )
        for one in timed
    ]  # fmt: skip
    shows = "; ".join(f"{label(one.name)}: half within {_time(one.p50)}, 95 % within {_time(one.p95)}" for one in timed)
    table = Table("Milliseconds of a search", head, rows)
    draw = partial(plots.latency_figure, found)
    return Section("latency", "How long a search takes", lead, more, draw, shows, source, [table])


def _swept(found: Chart, report: Json, source: str) -> Section:
    curve, place, best = found.best
    measure, axis = label(found.measure), label(found.axis)
    lead = f"The best setting tried is {label(curve.name)} at {axis} {place:g}: {measure} {told(best)}."
    more = [f"The knee is at {axis} {knee:g}: beyond it nothing was shown to be better." for knee in found.knees]
    more.append(
        "Bands and upright lines are 95 % intervals. The questions are the same: curves may differ though these meet."
    )
    if found.others:
        more.append(
            f"The thin lines are the other {len(found.others):,} settings tried; of each method the best is named."
        )
    tables = [_grid(found), *_churn(report, axis)]
    shows = "; ".join(
        f"{label(one.name)}: {told(one.points[0][1])} to {told(one.points[-1][1])}" for one in found.curves
    )
    draw = partial(plots.sweep_figure, found)
    return Section(
        "sweep", f"What {axis} and fusion change", lead, [*more, *_prefix(report)], draw, shows, source, tables
    )


def _grid(found: Chart) -> Table:
    spots = sorted({place for curve in found.curves for place, _ in curve.points})
    rows = [(f"{spot:g}", *(_cell(curve, spot) for curve in found.curves)) for spot in spots]
    return Table(
        f"{label(found.measure)} by {label(found.axis)}",
        (label(found.axis), *(label(one.name) for one in found.curves)),
        rows,
    )


def _cell(curve: Curve, spot: float) -> str:
    return told(next((estimate for place, estimate in curve.points if place == spot), None))


def _churn(report: Json, axis: str) -> Iterator[Table]:
    """How much of the top results each step along the axis changes, the mean over curves."""
    steps: dict[tuple[float, float], list[float]] = {}
    for row in results.items(report, "churn"):
        share, a, b = number(row.get("share")), *(number(part(row, end).get(axis)) for end in ("from", "to"))
        if share is not None and a is not None and b is not None and a != b:
            steps.setdefault((a, b), []).append(share)
    if steps:
        rows = [(f"{a:g} → {b:g}", percent(fmean(found))) for (a, b), found in steps.items()]
        yield Table("How much of the top ten a step changes", (axis, "changed"), rows)


def _prefix(report: Json) -> Iterator[str]:
    told_of = part(report, "prefix")
    checked = number(told_of.get("checked"))
    if checked:
        held = "began the longer one in all" if told_of.get("held") else "did NOT begin the longer one in some of"
        yield f"A shorter answer {held} {checked:,.0f} pairs of live searches."


def _shared(found: Sequence[Pair], source: str) -> Section:
    first = found[0]
    a, b = label(first.a), label(first.b)
    whole = "the relevant documents" if first.neither is not None else "what either finds"
    lead = f"Of {whole}, {a} and {b} both find {percent(first.both)}"
    more = [f"{label(pair.a)} and {label(pair.b)}: {words}." for pair in found for words in map(_end, pair.advice)]
    if first.neither is None:
        lead += "."
    else:
        lead += f"; together they reach {percent(first.union)}, the better one alone {percent(first.best)}."
        more.append(
            "The line is what they reach together, and no fusion can find more; the dashes are the better one alone."
        )
    head = ("sources", "both", "only the first", "only the second", "neither", "together", "best alone", "of")
    rows = [
        (
            f"{label(pair.a)} · {label(pair.b)}", *map(percent, (pair.both, pair.only_a, pair.only_b)),
            "–" if pair.neither is None else percent(pair.neither), percent(pair.union), percent(pair.best),
            f"{pair.total:,.4g}",
        )
        for pair in found
    ]  # fmt: skip
    shows = "; ".join(f"{row[0]}: both {row[1]}, only the first {row[2]}, only the second {row[3]}" for row in rows)
    draw = partial(plots.overlap_figure, found)
    return Section("overlap", "What the sources find", lead, more, draw, shows, source, [Table("Shares", head, rows)])


def _end(words: str) -> str:
    return label(words, 400).rstrip(".")


def _grade(took: float) -> str:
    return next((word for limit, word in GRADES if took < limit), "bad")


def _time(took: float | None) -> str:
    return "–" if took is None else ms(took)
