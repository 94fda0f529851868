"""A sweep's rows as curves: one option along the axis, one curve for each way to set the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.evaluation.results import Json, interval, items, number, part
from recollect.evaluation.scoring import Estimate

AXIS = "fetch_k"
"""The option along the axis, where it was varied."""

MOST = 6
"""Curves that are told apart by colour; of more, the best of each method is, and the rest are thin lines."""


_SHORT = {"fusion": "", "normalisation": "", "vector_weight": "", "rrf_k": "k="}


@dataclass(frozen=True, slots=True)
class Curve:
    """One way to set the other options, and what it reached at each place of the axis."""

    options: Mapping[str, Any]
    points: Sequence[tuple[float, Estimate]]

    @property
    def best(self) -> tuple[float, Estimate]:
        """The highest point; of equal ones the first."""
        return max(self.points, key=lambda point: point[1].mean)

    @property
    def name(self) -> str:
        """What sets it apart: the method, and the options that only some curves have."""
        told = dict(self.options)
        if "vector_weight" in told:
            told["vector_weight"] = f"{_plain(told.pop('text_weight', 1))}/{_plain(told['vector_weight'])}"
        return " ".join(f"{_SHORT.get(key, f'{key}=')}{_plain(value)}" for key, value in told.items()) or "as set"


@dataclass(frozen=True, slots=True)
class Chart:
    """What was varied, the curves that are told apart, the others, and where more no longer helps."""

    measure: str
    axis: str
    curves: Sequence[Curve]
    others: Sequence[Curve]
    knees: Sequence[float]

    @property
    def best(self) -> tuple[Curve, float, Estimate]:
        """The best curve, and its best place."""
        curve = max(self.curves, key=lambda one: one.best[1].mean)
        return curve, *curve.best


def read_chart(report: Json) -> Chart | None:
    """The curves of a sweep; nothing where its rows have no mean at a number."""
    rows = [(part(row, "options"), found) for row in items(report, "rows") if (found := interval(row))]
    axis = _axis([options for options, _ in rows])
    if axis is None:
        return None
    varied = _varied([options for options, _ in rows], axis)
    grouped: dict[tuple[str, ...], tuple[dict[str, Any], list[tuple[float, Estimate]]]] = {}
    for options, found in rows:
        place = number(options.get(axis))
        if place is not None:
            key = tuple(repr(options.get(name)) for name in varied)
            told = {name: options[name] for name in varied if options.get(name) is not None}
            grouped.setdefault(key, (told, []))[1].append((place, found))
    curves = [Curve(told, sorted(points, key=lambda point: point[0])) for told, points in grouped.values()]
    chosen = _chosen(curves)
    others = [curve for curve in curves if curve not in chosen]
    return Chart(str(report.get("measure") or "mean"), axis, chosen, others, sorted(set(_knees(report, axis))))


def _axis(rows: Sequence[Json]) -> str | None:
    """The depth where it was varied, else the number that takes the most values."""
    seen: dict[str, set[float]] = {}
    for options in rows:
        for name, value in options.items():
            if (place := number(value)) is not None:
                seen.setdefault(str(name), set()).add(place)
    if len(seen.get(AXIS, ())) > 1 or not seen:
        return AXIS if seen else None
    return max(seen, key=lambda name: (len(seen[name]), name == AXIS))


def _varied(rows: Sequence[Json], axis: str) -> list[str]:
    """The other options that are not the same in all rows, the method first."""
    names = list(dict.fromkeys(str(name) for options in rows for name in options if name != axis))
    varied = [name for name in names if len({repr(options.get(name)) for options in rows}) > 1]
    return sorted(varied, key=lambda name: name != "fusion") or [name for name in names if name == "fusion"]


def _chosen(curves: Sequence[Curve]) -> list[Curve]:
    if len(curves) <= MOST:
        return list(curves)
    best: dict[str, Curve] = {}
    for curve in sorted(curves, key=lambda one: -one.best[1].mean):
        best.setdefault(str(next(iter(curve.options.values()), "")), curve)
    return list(best.values())[:MOST]


def _knees(report: Json, axis: str) -> Iterator[float]:
    """Where the knee is, said directly, among options, or once for each method."""
    told = report.get("knee")
    for one in [told, *(told.values() if isinstance(told, Mapping) else told if isinstance(told, list) else ())]:
        if isinstance(one, Mapping):
            place = number(one.get(axis, part(one, "options").get(axis)))
            if place is not None:
                yield place


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
