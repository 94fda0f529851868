"""The curves of the figures over the number of records, both axes logarithmic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.speed.contender import CONTENDERS, OWN
from benchmarks.speed.report import CURVES, PLOTS, Figures, lines
from recollect.evaluation.plots import drawing

COLOURS = ("#c2410c", "#6b7280", "#2563eb", "#0d9488", "#7c3aed", "#ca8a04", "#db2777", "#65a30d", "#0891b2")


def write(figures: Figures, folder: Path) -> None:
    """One file of each group of curves."""
    from matplotlib.figure import Figure

    with drawing():
        for file, columns in PLOTS.items():
            rows = len(columns) // 2
            figure = Figure(figsize=(9, 3.4 * rows), layout="constrained")
            for at, column in enumerate(columns, 1):
                draw(figure.add_subplot(rows, 2, at), lines(figures, column), CURVES[column])
            labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(*labels, loc="outside lower center", ncols=5)
            figure.savefig(folder / file, metadata={"Date": None})


def draw(axes: Any, curves: dict[str, list[tuple[int, float]]], title: str) -> None:
    for name, colour in zip(CONTENDERS, COLOURS, strict=True):
        points = curves.get(name, [])
        look = {"color": colour, "linewidth": 2.5 if name == OWN else 1.2, "markersize": 4, "label": name}
        axes.plot([size for size, _ in points], [value for _, value in points], "o-", **look)
    axes.set(title=title, xscale="log", yscale="log")
    sizes = sorted({size for points in curves.values() for size, _ in points})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.xaxis.set_minor_formatter("")
    axes.yaxis.set_minor_formatter("")
    axes.grid(visible=True)
