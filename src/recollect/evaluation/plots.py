"""The laboratory's plots: each shows its uncertainty, and no axis flatters.

`sweep_plot` writes a file, PNG or SVG by its name; the others make figures inside `drawing()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import UsageError
from recollect.evaluation import marks
from recollect.evaluation.curves import Chart, read_chart
from recollect.evaluation.drawing import LIGHT, SERIES, SMALL, canvas, drawing, panel, series, write
from recollect.evaluation.results import Duel, Pair, System, about, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = 4
"""Measures that are drawn; the table has all."""

ROW = 38
SPACE = 1.25
"""Beyond the greatest win and loss there is room for the names, whatever the bars do."""


def sweep_plot(report: Mapping[str, Any], path: Path) -> None:
    """Write the curves of a sweep."""
    found = read_chart(report)
    if found is None:
        raise UsageError("this sweep has no rows to draw", hint="each row has options with a number, and a mean")
    with drawing():
        write(sweep_figure(found), path, about(report))


def measures_of(found: Sequence[System]) -> list[str]:
    """The measures of all systems, in the order in which they come."""
    return list(dict.fromkeys(name for system in found for name in system.measures))


def systems_figure(found: Sequence[System]) -> Figure:
    """A dot at each mean, a line over its interval; a panel for each measure, the best system of the first on top."""
    names = measures_of(found)[:MEASURES]
    first = [system for system in found if names[0] in system.measures]
    order = sorted(first, key=lambda system: -system.measures[names[0]].mean)
    order += [system for system in found if system not in order]
    height = ROW * len(order) + 46
    figure = canvas(height * len(names))
    for place, measure in enumerate(names):
        axes = panel(figure, top=place * height + 22, height=ROW * len(order) - 4, left=4, right=4)
        rows = [(system.name, found.index(system), system.measures.get(measure)) for system in order]
        axes.text(0, 1, label(measure), transform=axes.transAxes, weight="bold", va="bottom")
        marks.whiskers(axes, rows)
    return figure


def sweep_figure(found: Chart) -> Figure:
    """A curve with its band for each method, its name at its end, and a line where more no longer helps."""
    figure = canvas(330)
    axes = panel(figure, top=34, height=244, left=42, right=138)
    for curve in found.others:
        axes.plot(*marks.line(curve), color=LIGHT["rule"], linewidth=0.8)
    for place, curve in enumerate(found.curves):
        marks.trace(axes, curve, place, len(found.curves))
    axes.autoscale_view()
    spots = [spot for curve in (*found.curves, *found.others) for spot, _ in curve.points]
    marks.scale(axes, sorted(set(spots)))
    axes.grid(axis="y")
    axes.set_xlabel(label(found.axis))
    axes.text(-42, 264, label(found.measure), transform=marks.points(axes), weight="bold")
    for knee in found.knees:
        axes.axvline(knee, color=LIGHT["ink"], linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(f"knee: {knee:g}", (knee, 1), (0, 5), **marks.above(axes), ha="center", size=SMALL)
    marks.name_curves(axes, found.curves)
    return figure


def duel_figure(duel: Duel) -> Figure:
    """Every question's difference, greatest first: above the line the first system won, below it the second."""
    figure = canvas(290)
    axes = panel(figure, top=44, height=200, left=42, right=16)
    gains = list(duel.gains.values())
    for colour, side in (
        (SERIES[0], [max(gain, 0.0) for gain in gains]),
        (SERIES[1], [min(gain, 0) for gain in gains]),
    ):
        axes.stairs(side, fill=True, color=colour, linewidth=0)
    most = max((abs(gain) for gain in gains), default=0) * SPACE or 1
    axes.set(
        xlim=(0, max(len(gains), 1)), ylim=(-most, most), xlabel="questions, from the greatest win to the greatest loss"
    )
    axes.grid(axis="y")
    mean = duel.found.difference
    axes.axhspan(mean.low, mean.high, color=LIGHT["ink"], alpha=0.16, linewidth=0)
    axes.axhline(mean.mean, color=LIGHT["ink"], linewidth=1, linestyle=(0, (4, 2)))
    axes.axhline(0, color=LIGHT["muted"], linewidth=0.8)
    marks.name_sides(axes, duel)
    return figure


def overlap_figure(found: Sequence[Pair]) -> Figure:
    """A bar for each pair, from nothing to all: found by both, by one, by neither; and what they reach together."""
    row = 76
    figure = canvas(row * len(found) + 26)
    axes = panel(figure, top=0, height=row * len(found), left=4, right=4)
    axes.set(xlim=(0, 1), ylim=(row * len(found), 0), yticks=[], xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_xticklabels(["0", "25 %", "50 %", "75 %", "100 %"])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    for place, pair in enumerate(found):
        marks.shares(axes, pair, place * row)
    return figure


def latency_figure(found: Sequence[System]) -> Figure:
    """How many searches took how long, on an axis of equal ratios, with the half, the 95 % and the grades."""
    timed = [(place, system) for place, system in enumerate(found) if system.p50 is not None]
    row = 96
    figure = canvas(row * len(timed) + 48)
    bins = marks.edges([system for _, system in timed])
    for position, (place, system) in enumerate(timed):
        axes = panel(figure, top=position * row + 50, height=row - 36, left=34, right=8)
        axes.set_xscale("log")
        axes.set(xlim=(bins[0], bins[-1]))
        marks.times(axes, system, series(place)[0], bins)
        marks.grades(axes, bins[-1], named=position == 0)
        marks.time_axis(axes, last=position == len(timed) - 1)
    return figure
