"""The pieces of the plots: dots with their intervals, curves, bars, lines and their names."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recollect.evaluation.curves import Curve
from recollect.evaluation.drawing import LIGHT, SERIES, SMALL, WIDTH, series
from recollect.evaluation.results import Duel, Pair, System, label, told
from recollect.evaluation.scoring import Estimate
from recollect.types.search import GRADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BIN_COUNT = 32
TICKS = 8
"""Numbers below an axis, at the most."""

BANDS = 2
"""Curves whose intervals can be bands; of more they would be one fog, and are lines at the points."""


def whiskers(axes: Axes, rows: Sequence[tuple[str, int, Estimate | None]]) -> None:
    """A dot and a line for each row of name, series and estimate."""
    known = [(place, colour, row) for place, (_, colour, row) in enumerate(rows) if row]
    low, high = min(row.low for *_, row in known), max(row.high for *_, row in known)
    space = (high - low) * 0.06 or 0.05
    axes.set(xlim=(low - space, high + space), ylim=(len(rows), 0), yticks=[])
    inner = (low - space / 4, high + space / 4)  # a number at the very edge would be cut
    axes.set_xticks([spot for spot in axes.get_xticks() if inner[0] < spot < inner[1]])
    for place, (name, colour, row) in enumerate(rows):
        axes.text(0, place + 0.42, label(name), transform=axes.get_yaxis_transform(), color=series(colour)[0])
        said = "not measured" if row is None else told(row)
        axes.axhline(place + 0.72, color=LIGHT["faint"], linewidth=1, zorder=1)
        axes.text(1, place + 0.42, said, transform=axes.get_yaxis_transform(), ha="right", size=SMALL)
    for place, colour, row in known:
        axes.plot(
            [row.low, row.high], [place + 0.72] * 2, color=series(colour)[0], linewidth=2.4, solid_capstyle="butt"
        )
        axes.plot(
            [row.mean], [place + 0.72], "o", color=series(colour)[0], markersize=8, markeredgecolor=LIGHT["paper"]
        )


def line(curve: Curve) -> tuple[list[float], list[float]]:
    """Its places and means."""
    return [place for place, _ in curve.points], [found.mean for _, found in curve.points]


def trace(axes: Axes, curve: Curve, place: int, count: int) -> None:
    """A curve with its intervals: a band, or of many curves a line at each point, a little beside the others."""
    from matplotlib.transforms import ScaledTranslation

    colour, dashes = series(place)
    spots, means = line(curve)
    low, high = [found.low for _, found in curve.points], [found.high for _, found in curve.points]
    if count <= BANDS:
        axes.fill_between(spots, low, high, color=colour, alpha=0.13, linewidth=0)
    beside = 0.0 if count <= BANDS else 3.4 * (place - (count - 1) / 2)
    where = axes.transData + ScaledTranslation(beside / 72, 0, axes.get_figure().dpi_scale_trans)  # type: ignore[union-attr]
    if count > BANDS:
        axes.vlines(spots, low, high, color=colour, linewidth=1.2, alpha=0.55, transform=where)
    (drawn,) = axes.plot(spots, means, color=colour, linestyle=dashes, linewidth=2, transform=where)
    drawn.set(marker="osD^vP"[place % 6], markersize=5, markeredgecolor=LIGHT["paper"], markeredgewidth=0.6)
    axes.update_datalim([*zip(spots, low, strict=True), *zip(spots, high, strict=True)])


def scale(axes: Axes, spots: Sequence[float]) -> None:
    """Equal ratios where the numbers span more than ten to one; below the axis stand those that were tried."""
    if spots[0] > 0 and spots[-1] / spots[0] > 10:  # noqa: PLR2004
        axes.set_xscale("log")
    step = -(-len(spots) // TICKS)
    axes.set_xticks(spots[::step], [f"{spot:g}" for spot in spots[::step]])
    axes.set_xticks([], minor=True)


def name_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Each name at the end of its curve, moved apart where they would touch."""
    low, high = axes.get_ylim()
    ends = sorted((curve.points[-1][1].mean, place) for place, curve in enumerate(curves))
    names = ["\n".join(textwrap.wrap(label(curve.name), 17)[:3]) for curve in curves]
    floor = -20.0
    for mean, place in ends:
        tall = 14 * (names[place].count("\n") + 1)
        spot = max((mean - low) / (high - low) * 244 - tall / 2, floor)
        floor = spot + tall + 3
        axes.text(WIDTH - 42 - 138 + 8, spot, names[place], transform=points(axes), color=series(place)[0], size=SMALL)


def name_sides(axes: Axes, duel: Duel) -> None:
    """What is compared, the mean difference, and each system's name on the side where it won."""
    found, at = duel.found, points(axes)
    title = f"{label(duel.measure, 24)}: {label(duel.a, 18)} − {label(duel.b, 18)}"
    axes.text(-42, 226, title, transform=at, weight="bold")
    axes.text(-42, 209, f"mean {told(found.difference, '+')}", transform=at, size=SMALL)
    won, lost = f"{label(duel.a, 28)} is better on {found.wins:,}", f"{label(duel.b, 24)} on {found.losses:,}"
    axes.text(0.99, 0.97, won, transform=axes.transAxes, ha="right", va="top", color=SERIES[0])
    axes.text(0.01, 0.03, lost, transform=axes.transAxes, va="bottom", color=SERIES[1])
    axes.text(
        1, 209 / 200, f"{found.ties:,} equal", transform=axes.transAxes, ha="right", size=SMALL, color=LIGHT["muted"]
    )


def shares(axes: Axes, pair: Pair, top: float) -> None:
    """The bar of one pair with its names, `top` points from the top."""
    parts = [
        ("both", pair.both, SERIES[0]),
        (f"only {label(pair.a, 9)}", pair.only_a, SERIES[2]),
        (f"only {label(pair.b, 9)}", pair.only_b, SERIES[4]),
        ("neither", pair.neither, LIGHT["rule"]),
    ]
    axes.text(0, top + 14, f"{label(pair.a, 14)} · {label(pair.b, 14)}", weight="bold")
    start = 0.0
    for (name, share, colour), column in zip(parts, (0, 0.2, 0.5, 0.8), strict=True):
        if share is None:
            continue
        axes.barh(top + 34, share, left=start, height=20, color=colour, edgecolor=LIGHT["paper"], linewidth=1)
        axes.plot([column + 0.01], [top + 56], "s", color=colour, markersize=7)
        axes.text(column + 0.03, top + 60, f"{name} {share:.0%}".replace("%", " %"), size=SMALL)
        start += share
    if pair.neither is not None:
        ceiling(axes, pair, top)


def ceiling(axes: Axes, pair: Pair, top: float) -> None:
    """Lines at what the two find together, and at what the better one finds alone."""
    for share, dashes in ((pair.union, "-"), (pair.best, (0, (2, 1.5)))):
        axes.plot([share] * 2, [top + 20, top + 46], color=LIGHT["ink"], linewidth=1.5, linestyle=dashes, clip_on=False)
    said = f"together {100 * pair.union:.0f} % · best alone {100 * pair.best:.0f} %"
    axes.text(1, top + 14, said, ha="right", size=SMALL)


def edges(timed: Sequence[System]) -> Any:
    """The bins, of equal ratio, up to the first grade that all are within, so that one sees how far away it is."""
    import numpy as np

    seen = [ms for system in timed for ms in (*system.took_ms, system.p50, system.p95) if ms]
    low, high = max(min(seen, default=1.0), 0.01), max(seen, default=1.0)
    grade = next((limit for limit, _ in GRADES if high < limit), high)
    return np.geomspace(low / 1.15, max(grade, high) * 1.2, BIN_COUNT + 1)


def times(axes: Axes, system: System, colour: str, bins: Any) -> None:
    """How many searches took how long, from zero; where only the quantiles are known, a line between them."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    known = [spot for spot in (system.p50, system.p95) if spot is not None]
    if system.took_ms:
        counts, _ = np.histogram(np.maximum(system.took_ms, bins[0]), bins)
        axes.stairs(counts, bins, fill=True, color=colour, linewidth=0)
        axes.set_ylim(0, max(counts) * 1.1)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.grid(axis="y")
    else:
        axes.plot(known, [0.5] * len(known), color=colour, linewidth=6, solid_capstyle="butt")
        axes.set(ylim=(0, 1), yticks=[])
    for spot in known:
        axes.axvline(spot, color=LIGHT["ink"], linewidth=1.2)
    said = " · ".join(f"{name} within {ms(spot)}" for name, spot in zip(("half", "95 %"), known, strict=False))
    axes.text(-34, 66, label(system.name, 24), transform=points(axes), color=colour, weight="bold")
    axes.text(1, 66 / 60, said, transform=axes.transAxes, ha="right", size=SMALL)


def grades(axes: Axes, most: float, *, named: bool) -> None:
    """A line where each grade ends."""
    for limit, word in GRADES:
        if limit < most:
            axes.axvline(limit, color=LIGHT["muted"], linewidth=1, linestyle=(0, (1, 2)))
            for words, up in ((word, 36), (f"< {ms(limit)}", 24)) if named else ():
                axes.annotate(words, (limit, 1), (-2, up), **above(axes), ha="right", size=9, color=LIGHT["muted"])


def time_axis(axes: Axes, *, last: bool) -> None:
    """Round times along the axis, named below the last panel."""
    low, high = axes.get_xlim()
    spots = [number * 10.0**power for power in range(-2, 6) for number in (1, 2, 5)]
    shown = [spot for spot in spots if low <= spot <= high]
    shown = shown if len(shown) <= TICKS else [spot for spot in shown if f"{spot:e}"[0] == "1"]
    axes.set_xticks(shown, [ms(spot) for spot in shown] if last else [""] * len(shown))
    axes.set_xticks([], minor=True)


def ms(value: float) -> str:
    """A time as a person reads it; the space does not break."""
    return f"{value / 1000:.3g}\N{NO-BREAK SPACE}s" if value >= 1000 else f"{value:.3g}\N{NO-BREAK SPACE}ms"  # noqa: PLR2004


def points(axes: Axes) -> Any:
    """Coordinates in points from the axes' lower left corner."""
    from matplotlib.transforms import Affine2D

    box = axes.get_position()
    whole = axes.get_figure().get_figheight() * 72  # type: ignore[union-attr]
    return Affine2D().scale(1 / (box.width * WIDTH), 1 / (box.height * whole)) + axes.transAxes


def above(axes: Axes) -> dict[str, Any]:
    """A place along the axis and at the top of the panel, with an offset in points."""
    return {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
