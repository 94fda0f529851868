"""Plots of evaluation results, drawn by matplotlib in light colours, which inside a page become its CSS variables."""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import UsageError
from recollect.evaluation import results
from recollect.evaluation.results import MeasuredSystem, interval_text, label, ms
from recollect.registry import missing_package
from recollect.types.search import GRADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROLES = {
    "paper": ("#ffffff", "#15181d"),
    "ink": ("#1c2024", "#e8ebef"),
    "muted": ("#59626d", "#a4aeba"),
    "faint": ("#e6e9ee", "#2f353e"),
    "rule": ("#c9d0d9", "#414a56"),
    "series-1": ("#0f5bd8", "#7db4ff"),
    "series-2": ("#8c2410", "#ef8a4a"),
    "series-3": ("#0a8060", "#4fdcae"),
    "series-4": ("#7a1fa0", "#c25cf5"),
    "series-5": ("#8a7000", "#f3da62"),
    "series-6": ("#39424e", "#c9ced6"),
}
"""Role → its colour on light and on dark. Tests check contrast, and that colour-blind readers can tell them apart."""

LIGHT = {role: light for role, (light, _) in ROLES.items()}
SERIES = [LIGHT[role] for role in ROLES if role.startswith("series")]
# System or fusion method → its place among the series; `blend` is the default method.
KNOWN = {"keyword": 0, "vector": 1, "rrf": 2, "weighted": 3, "default": 4, "blend": 4}
WIDTH = 460  # width in points: readable on a phone, and as large as the text on a desktop
TEXT, SMALL = 12, 10.5
DPI = 200
BIN_COUNT = 32
TICKS = 8  # numbers along an axis, at most
MEASURES = 4  # measures that are drawn; the table has all
BANDS = 2  # curves whose intervals are drawn as bands; with more, the bands would cover each other
HEADROOM = 1.25  # space above the greatest win and below the greatest loss, for the names
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans", "Microsoft YaHei")
_ROOT = re.compile(r'<svg [^>]*viewBox="([^"]*)"[^>]*>')
# Parts of matplotlib's SVG that a page does not need; its style sheet would apply to the whole page.
_UNUSED = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", flags=re.DOTALL)
_VARIABLES = {light: f"var(--{role})" for role, light in LIGHT.items()}  # no two roles may have the same light colour


@contextmanager
def drawing() -> Iterator[None]:
    """Set our fonts and colours while figures are made and written; text is never read as mathematics."""
    try:
        import matplotlib as mpl
        from matplotlib import font_manager
    except ImportError as error:
        raise missing_package(error, "drawing plots", "eval") from error
    installed = set(font_manager.get_font_names())
    style: Any = {
        "font.family": [name for name in _FONTS if name in installed],
        "font.size": TEXT,
        "text.color": LIGHT["ink"],
        "text.parse_math": False,
        "axes.axisbelow": True,
        "axes.edgecolor": LIGHT["rule"],
        "axes.facecolor": "none",
        "axes.labelcolor": LIGHT["muted"],
        "axes.labelsize": SMALL,
        **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
        "axes.titlelocation": "left",
        "axes.titlesize": TEXT,
        "axes.titleweight": "bold",
        "figure.facecolor": LIGHT["paper"],
        "grid.color": LIGHT["faint"],
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "recollect",
    }
    ticks = {"color": LIGHT["rule"], "labelcolor": LIGHT["muted"], "labelsize": SMALL, "major.size": 0, "minor.size": 0}
    style |= {f"{axis}.{name}": value for axis in ("xtick", "ytick") for name, value in ticks.items()}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def sweep_plot(report: Mapping[str, Any], path: Path) -> None:
    """Write the curves of a sweep as a file."""
    chart = results.sweep_chart(report)
    if chart is None:
        raise UsageError("this sweep has no rows to draw", hint="each row has options with a number, and a mean")
    with drawing():
        write(sweep_figure(chart), path, results.about(report))


def write(figure: Figure, path: Path, note: str = "") -> None:
    """Write the figure as PNG or SVG, by the file's name, with a note below it."""
    text = figure.text(0, -10 / (figure.get_figheight() * 72), note, size=SMALL, color=LIGHT["muted"], va="top")
    options: dict[str, Any] = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": DPI}
    figure.savefig(path, bbox_inches="tight", pad_inches=0.2, **options)
    text.remove()


def inline(figure: Figure, key: str, title: str, description: str) -> str:
    """Return the figure as an `<svg>` for a page, with the page's colours and ids that begin with `key`."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    head, body = _ROOT.split(_UNUSED.sub("", buffer.getvalue()), maxsplit=1)[1:]
    body = re.sub("<[^>]*>", lambda tag: _adapt(tag[0], key), body)
    names = f'aria-labelledby="{key}-title {key}-desc"'
    texts = f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-desc">{escape(description)}</desc>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{head}" role="img" {names}>{texts}{body}'


def _adapt(tag: str, key: str) -> str:
    """Make ids unique, replace colours by variables, drop fonts, and round to hundredths of a point."""
    tag = re.sub(r'(?<=<g) id="[^"]*"', "", tag).replace("xlink:href", "href")
    tag = re.sub(r'( id="|href="#|url\(#)', rf"\1{key}-", tag)
    tag = re.sub(r"font-family: [^;]*; ?", "", re.sub(r"(\.\d\d)\d+", r"\1", tag))
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _VARIABLES.get(colour[0], colour[0]), tag)


def _panels(heights: Sequence[float], **options: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure of stacked axes with these heights in points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, sum(heights) / 72), layout="constrained")
    grid = figure.subplots(len(heights), squeeze=False, height_ratios=list(heights), **options)
    return figure, [row[0] for row in grid]


def _styles(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return colour and dashes of each series; a known system or method has the same colour in every plot."""
    keys = [name.partition(" ")[0] for name in names]
    fixed = [KNOWN.get(key) if keys.count(key) == 1 else None for key in keys]
    fixed = [place if fixed.count(place) == 1 else None for place in fixed]
    free = (place for place in itertools.count() if place not in fixed)
    places = [next(free) if place is None else place for place in fixed]
    return [(SERIES[place % len(SERIES)], ("-", "--", ":", "-.")[place // len(SERIES) % 4]) for place in places]


def systems_figure(systems: Sequence[MeasuredSystem]) -> Figure:
    """Draw the mean of each system as a dot, its interval as a line, and one panel for each measure."""
    names = results.measures_of(systems)[:MEASURES]
    order = sorted(systems, key=lambda one: -one.measures[names[0]].mean if names[0] in one.measures else float("inf"))
    colours = _styles([system.name for system in systems])
    figure, panels = _panels([26 * len(order) + 52] * len(names))
    for axes, measure in zip(panels, names, strict=True):
        axes.set_title(label(measure))
        values = [system.measures.get(measure) for system in order]
        for place, (system, value) in enumerate(zip(order, values, strict=True)):
            colour = colours[systems.index(system)][0]
            if value:
                axes.plot([value.low, value.high], [place, place], color=colour, linewidth=2.4)
                axes.plot([value.mean], [place], "o", color=colour, markersize=8, markeredgecolor=LIGHT["paper"])
        axes.set_yticks(range(len(order)), [label(system.name, 24) for system in order], color=LIGHT["ink"])
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(axis="y")
        right = axes.secondary_yaxis("right")
        texts = [interval_text(value) if value else "not measured" for value in values]
        right.set_yticks(range(len(order)), texts, color=LIGHT["ink"])
        right.spines["right"].set_visible(False)
        axes.locator_params(axis="x", nbins=5)
    return figure


def sweep_figure(chart: results.SweepChart) -> Figure:
    """Draw one curve for each combination of settings with its intervals, and a line at the knee."""
    figure, (axes,) = _panels([330])
    for curve in chart.others:
        axes.plot(*zip(*((spot, value.mean) for spot, value in curve.points), strict=True), color=LIGHT["rule"], lw=0.8)
    styles, count = _styles([curve.name for curve in chart.curves]), len(chart.curves)
    for place, (curve, (colour, dashes)) in enumerate(zip(chart.curves, styles, strict=True)):
        spots, values = [spot for spot, _ in curve.points], [value for _, value in curve.points]
        means, low, high = ([getattr(value, name) for value in values] for name in ("mean", "low", "high"))
        if count <= BANDS:
            axes.fill_between(spots, low, high, color=colour, alpha=0.13, linewidth=0)
        else:  # upright lines, slightly apart
            spots = [spot * 1.02 ** (place - (count - 1) / 2) for spot in spots]
            axes.vlines(spots, low, high, color=colour, linewidth=1.2, alpha=0.55)
        marker: Any = {"marker": "osD^vP"[place % 6], "markersize": 5, "markeredgecolor": LIGHT["paper"]}
        axes.plot(spots, means, color=colour, linestyle=dashes, linewidth=2, label=label(curve.name, 32), **marker)
    spots = sorted({spot for curve in (*chart.curves, *chart.others) for spot, _ in curve.points})
    if spots[0] > 0 and spots[-1] / spots[0] > 10:  # noqa: PLR2004
        axes.set_xscale("log")
    step = -(-len(spots) // TICKS)
    axes.set_xticks(spots[::step], [f"{spot:g}" for spot in spots[::step]])
    axes.set_xticks([], minor=True)
    axes.grid(axis="y")
    axes.set_xlabel(label(chart.axis))
    axes.set_ylabel(label(chart.measure, 28))
    if chart.knee is not None:
        axes.axvline(chart.knee, color=LIGHT["ink"], linewidth=1, linestyle=(0, (2, 2)))
        at, text = axes.get_xaxis_transform(), f"knee: {chart.knee:g}"
        axes.annotate(text, (chart.knee, 1), (0, 5), at, "offset points", ha="center", size=SMALL)
    short = max(len(curve.name) for curve in chart.curves) <= 20  # noqa: PLR2004  (characters that fit in a column)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3 if short else 1)
    return figure


def gains_figure(pair: results.SystemPair) -> Figure:
    """Draw the difference of every question, greatest first: above zero the first system is better."""
    figure, (axes,) = _panels([290])
    gains, comparison = list(pair.gains.values()), pair.comparison
    axes.stairs([max(gain, 0.0) for gain in gains], fill=True, color=SERIES[0], linewidth=0)
    axes.stairs([min(gain, 0.0) for gain in gains], fill=True, color=SERIES[1], linewidth=0)
    most = max((abs(gain) for gain in gains), default=0) * HEADROOM or 1
    axes.set(xlim=(0, max(len(gains), 1)), ylim=(-most, most))
    axes.set_xlabel("questions, from the greatest win to the greatest loss")
    axes.grid(axis="y")
    mean = comparison.difference
    axes.axhspan(mean.low, mean.high, color=LIGHT["ink"], alpha=0.16, linewidth=0)
    axes.axhline(mean.mean, color=LIGHT["ink"], linewidth=1, linestyle=(0, (4, 2)))
    axes.axhline(0, color=LIGHT["muted"], linewidth=0.8)
    title = f"{label(pair.measure, 24)}: {label(pair.a, 18)} − {label(pair.b, 18)}"
    axes.set_title(f"{title}\nmean {interval_text(mean, '+')}, {comparison.ties:,} equal")
    won, lost = f"{label(pair.a, 28)} is better on {comparison.wins:,}", f"{label(pair.b, 24)} on {comparison.losses:,}"
    axes.text(0.99, 0.97, won, transform=axes.transAxes, ha="right", va="top", color=SERIES[0])
    axes.text(0.01, 0.03, lost, transform=axes.transAxes, va="bottom", color=SERIES[1])
    return figure


def overlap_figure(pairs: Sequence[results.SourcePair]) -> Figure:
    """Draw one bar for each pair: found by both, by one, by neither; and lines at the union and the better source."""
    figure, panels = _panels([100] * len(pairs))
    for axes, pair in zip(panels, pairs, strict=True):
        parts = {
            "both": (pair.both, SERIES[0]),
            f"only {label(pair.a, 9)}": (pair.only_a, SERIES[2]),
            f"only {label(pair.b, 9)} ": (pair.only_b, SERIES[4]),  # the space keeps it apart from an equal name
            "neither": (pair.neither, LIGHT["rule"]),
        }
        start = 0.0
        for name, (share, colour) in parts.items():
            if share is not None:
                text = f"{name.rstrip()} {share:.0%}".replace("%", " %")
                axes.barh(0, share, left=start, color=colour, edgecolor=LIGHT["paper"], linewidth=1, label=text)
                start += share
        axes.set_title(f"{label(pair.a, 12)} · {label(pair.b, 12)}")
        if pair.neither is not None:
            for share, dashes in ((pair.union, "-"), (pair.best, (0, (2, 1.5)))):
                axes.axvline(share, color=LIGHT["ink"], linewidth=1.5, linestyle=dashes, clip_on=False)
            text = f"together {100 * pair.union:.0f} % · alone {100 * pair.best:.0f} %"
            axes.set_title(text, loc="right", size=SMALL, weight="normal")
        axes.set(xlim=(0, 1), yticks=[])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=4, handlelength=0.8, columnspacing=1)
    return figure


def latency_figure(systems: Sequence[MeasuredSystem]) -> Figure:
    """Draw a histogram of the search times of each system on a log axis, with median, 95 % and grades."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    timed = [(place, system) for place, system in enumerate(systems) if system.p50 is not None]
    times = [time for _, system in timed for time in (*system.took_ms, system.p50, system.p95) if time]
    longest = max(times, default=1.0)
    grade = next((limit for limit, _ in GRADES if longest < limit), longest)
    low, high = max(min(times, default=1.0), 0.01) / 1.15, max(grade, longest) * 1.2
    bins, styles = np.geomspace(low, high, BIN_COUNT + 1), _styles([system.name for system in systems])
    figure, panels = _panels([108, *[88] * (len(timed) - 1)], sharex=True)
    for axes, (place, system) in zip(panels, timed, strict=True):
        axes.set(xscale="log", xlim=(low, high))
        colour, quantiles = styles[place][0], [spot for spot in (system.p50, system.p95) if spot is not None]
        if system.took_ms:
            counts, _ = np.histogram(np.maximum(system.took_ms, low), bins)
            axes.stairs(counts, bins, fill=True, color=colour, linewidth=0)
            axes.set_ylim(0, max(counts) * 1.1)
            axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
            axes.grid(axis="y")
        else:  # only the quantiles are known: a line between them
            axes.plot(quantiles, [0.5] * len(quantiles), color=colour, linewidth=6, solid_capstyle="butt")
            axes.set(ylim=(0, 1), yticks=[])
        for spot in quantiles:
            axes.axvline(spot, color=LIGHT["ink"], linewidth=1.2)
        text = " · ".join(f"{name} within {ms(spot)}" for name, spot in zip(("half", "95 %"), quantiles, strict=False))
        axes.set_title(label(system.name, 24), color=colour)
        axes.set_title(text, loc="right", size=SMALL, weight="normal")
        for limit, _ in GRADES:
            axes.axvline(limit, color=LIGHT["muted"], linewidth=1, linestyle=(0, (1, 2)))
    limits = [(limit, f"{word}\n< {ms(limit)}") for limit, word in GRADES if limit < high]
    top = panels[0].secondary_xaxis("top")
    top.set_xticks([limit for limit, _ in limits], [text for _, text in limits], ha="right", size=9)
    top.set_xticks([], minor=True)
    top.spines["top"].set_visible(False)
    spots = [digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5)]
    ticks = [spot for spot in spots if low <= spot <= high]
    ticks = ticks if len(ticks) <= TICKS else [spot for spot in ticks if f"{spot:e}"[0] == "1"]
    panels[-1].set_xticks(ticks, [ms(spot) for spot in ticks])
    panels[-1].set_xticks([], minor=True)
    return figure
