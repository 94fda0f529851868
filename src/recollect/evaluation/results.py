"""Read the JSON of `eval run`, `sweep` and `overlap` for reports and plots; missing or invalid parts are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.evaluation.scoring import Comparison, Estimate, compare, estimate

Json: TypeAlias = Mapping[str, Any]

KINDS = {"systems": ("run", dict), "rows": ("sweep", list), "pairs": ("overlap", list)}
"""The key that identifies a study's JSON → the study's name, and the type of its value."""

LONGEST = 44
"""Characters of a name that are shown; ids and names come from anyone's data."""

GREATEST = 1e12
"""Larger numbers are invalid: no measure and no time reaches this."""

AXIS = "fetch_k"
"""The option along the x axis of a sweep, if it was varied."""

MOST_CURVES = 6
"""Curves drawn in colour; of more, the best of each method is, and the rest are thin lines."""

_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")
_SHORT = {"fusion": "", "normalisation": "", "vector_weight": "", "rrf_k": "k="}


@dataclass(frozen=True, slots=True)
class MeasuredSystem:
    """One system of a run: measure → mean, measure → question → value, and the times of its searches."""

    name: str
    measures: Mapping[str, Estimate]
    per_query: Mapping[str, Mapping[str, float]]
    took_ms: Sequence[float]
    timed: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class SystemPair:
    """Two systems on the same questions; `gains` maps question → how much better the first is, greatest first."""

    a: str
    b: str
    measure: str
    comparison: Comparison
    gains: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SourcePair:
    """Shares of the records that two sources find; without `neither` they are shares of the records found."""

    a: str
    b: str
    both: float
    only_a: float
    only_b: float
    neither: float | None
    total: float
    advice: Sequence[str]

    @property
    def union(self) -> float:
        """The share that either finds; fusion cannot find more."""
        return self.both + self.only_a + self.only_b

    @property
    def best(self) -> float:
        """The share that the better of the two finds alone."""
        return self.both + max(self.only_a, self.only_b)


@dataclass(frozen=True, slots=True)
class Curve:
    """One combination of the other options, and its estimate at each value of the axis."""

    options: Json
    points: Sequence[tuple[float, Estimate]]

    @property
    def best(self) -> tuple[float, Estimate]:
        """The highest point; of equal ones the first."""
        return max(self.points, key=lambda point: point[1].mean)

    @property
    def name(self) -> str:
        """The options that distinguish it, the method first."""
        options = dict(self.options)
        if "vector_weight" in options:
            options["vector_weight"] = f"{_plain(options.pop('text_weight', 1))}/{_plain(options['vector_weight'])}"
        return " ".join(f"{_SHORT.get(key, f'{key}=')}{_plain(value)}" for key, value in options.items()) or "as set"


@dataclass(frozen=True, slots=True)
class SweepChart:
    """A sweep as curves: those drawn in colour, the others, and the knees on the axis."""

    measure: str
    axis: str
    curves: Sequence[Curve]
    others: Sequence[Curve]
    knees: Sequence[float]

    @property
    def best(self) -> tuple[Curve, float, Estimate]:
        """The best curve with its best point."""
        curve = max(self.curves, key=lambda one: one.best[1].mean)
        return curve, *curve.best


def kind(report: Any) -> str:
    """Return the key that identifies the kind of a report."""
    for name, (_, shape) in KINDS.items():
        if isinstance(report, dict) and isinstance(report.get(name), shape):
            return name
    raise UsageError(
        "this is no evaluation report: it has neither systems, rows nor pairs",
        hint="recollect eval run … --json > run.json, and likewise sweep and overlap",
    )


def about(report: Any) -> str:
    """Describe the data of a report: the set's name, its size and its fingerprint."""
    data = part(report, "data")
    counts = ((data.get(name), name) for name in ("questions", "documents"))
    words = [f"{count:,} {name}" for count, name in counts if isinstance(count, int)]
    marks = [str(one["fingerprint"]) for one in (data, *items(data, "sets")) if one.get("fingerprint")]
    words += [f"fingerprint {' and '.join(map(label, marks))}"] if marks else []
    return f"{label(data.get('name') or 'data without a name')}: {', '.join(words) or 'size unknown'}"


# -- values -------------------------------------------------------------------------------------------------


def label(text: object, most: int = LONGEST) -> str:
    """Return a name without control characters, its middle left out where it is too long."""
    plain = " ".join(_INVISIBLE.sub(" ", str(text)).split()) or "–"
    if len(plain) <= most:
        return plain
    head = (most - 1) * 2 // 3
    return f"{plain[:head].rstrip()}…{plain[len(plain) - (most - 1 - head) :].lstrip()}"


def number(value: Any) -> float | None:
    """Return a number that can be drawn, or None."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < GREATEST
    return float(value) if good else None


def part(report: Any, name: str) -> Json:
    """Return an object inside an object, or an empty one."""
    value = report.get(name) if isinstance(report, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(report: Any, name: str) -> list[Json]:
    """Return the objects of a list inside an object."""
    value = report.get(name) if isinstance(report, Mapping) else None
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def interval(row: Any) -> Estimate | None:
    """Read a mean with its interval; without an interval, the mean is both ends."""
    mean = number(row.get("mean")) if isinstance(row, Mapping) else None
    if mean is None:
        return None
    low, high, n = (number(row.get(name)) for name in ("low", "high", "n"))
    return Estimate(mean, mean if low is None else low, mean if high is None else high, int(n or 0))


def interval_text(value: Estimate | None, sign: str = "") -> str:
    """Write a mean with its interval."""
    if value is None:
        return "–"
    around = f" [{signed(value.low, sign)}, {signed(value.high, sign)}]" if value.high > value.low else ""
    return f"{signed(value.mean, sign)}{around}"


def signed(value: float, sign: str = "+") -> str:
    """Write a number with three digits and a typographic minus."""
    return f"{value:{sign}.3f}".replace("-", "−")


def p_value(p: float) -> str:
    """Write a p value with no more digits than it has."""
    return f"p = {p:.4f}" if p >= 0.0001 else "p < 0.0001"  # noqa: PLR2004


def ms(value: float | None) -> str:
    """Write a time with a space that does not break."""
    if value is None:
        return "–"
    return f"{value / 1000:.3g}\N{NO-BREAK SPACE}s" if value >= 1000 else f"{value:.3g}\N{NO-BREAK SPACE}ms"  # noqa: PLR2004


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- runs ---------------------------------------------------------------------------------------------------


def systems(report: Json) -> list[MeasuredSystem]:
    """Read the systems of a run, in order."""
    return [_system(str(name), body) for name, body in part(report, "systems").items() if isinstance(body, Mapping)]


def measures_of(measured: Sequence[MeasuredSystem]) -> list[str]:
    """Return the measures of all systems, in order."""
    return list(dict.fromkeys(name for system in measured for name in system.measures))


def system_pairs(report: Json) -> list[SystemPair]:
    """Read the comparisons of a run; without any, compare the best system with each other one."""
    measured = systems(report)
    by_name = {system.name: system for system in measured}
    listed = [pair for row in items(report, "comparisons") if (pair := _system_pair(row, by_name))]
    measure = next((name for system in measured for name in system.per_query), None)
    judged = [system for system in measured if measure in system.per_query]
    if listed or measure is None or len(judged) < 2:  # noqa: PLR2004
        return listed
    best = max(judged, key=lambda system: system.measures[measure].mean)
    rows = [{"a": best.name, "b": system.name, "measure": measure} for system in judged if system is not best]
    return [pair for row in rows if (pair := _system_pair(row, by_name))]


def _system(name: str, body: Json) -> MeasuredSystem:
    per_query = {str(measure): _numbers(values) for measure, values in part(body, "per_query").items()}
    per_query = {measure: values for measure, values in per_query.items() if values}
    means = {str(measure): interval(row) for measure, row in part(body, "measures").items()}
    measures = {measure: mean for measure, mean in means.items() if mean}
    measures |= {name: estimate(list(values.values())) for name, values in per_query.items() if name not in measures}
    latency = part(body, "latency_ms")
    listed = latency.get("values")
    times = map(number, listed) if isinstance(listed, list | tuple) else ()
    took = [time for time in times if time is not None and time >= 0]
    timed = len(took) or int(number(latency.get("n")) or 0)
    return MeasuredSystem(name, measures, per_query, took, timed, *(_quantile(latency, took, q) for q in (50, 95)))


def _quantile(latency: Json, took: Sequence[float], percent: int) -> float | None:
    value = number(latency.get(f"p{percent}"))
    if value is not None or not took:
        return value
    import numpy as np

    return float(np.percentile(took, percent))


def _numbers(values: Any) -> dict[str, float]:
    pairs = values.items() if isinstance(values, Mapping) else ()
    return {str(key): good for key, value in pairs if (good := number(value)) is not None}


def _system_pair(row: Json, by_name: Mapping[str, MeasuredSystem]) -> SystemPair | None:
    a, b = by_name.get(str(row.get("a"))), by_name.get(str(row.get("b")))
    measure = str(row.get("measure"))
    if not a or not b or not a.per_query.get(measure) or not b.per_query.get(measure):
        return None
    ours, theirs = a.per_query[measure], b.per_query[measure]
    gains = {key: value - theirs[key] for key, value in ours.items() if key in theirs}
    gains = dict(sorted(gains.items(), key=lambda pair: -pair[1]))
    difference, p = interval(row.get("difference")), number(row.get("p"))
    if difference is None or p is None:
        return SystemPair(a.name, b.name, measure, compare(ours, theirs), gains)
    wins, losses = sum(gain > 0 for gain in gains.values()), sum(gain < 0 for gain in gains.values())
    comparison = Comparison(difference, p, wins, losses, len(gains) - wins - losses)
    return SystemPair(a.name, b.name, measure, comparison, gains)


# -- overlaps -----------------------------------------------------------------------------------------------


def source_pairs(report: Json) -> list[SourcePair]:
    """Read the pairs of sources of which at least one found something."""
    rows = items(report, "pairs")
    several = len({repr(row.get("set")) for row in rows}) > 1
    return [pair for row in rows if (pair := _source_pair(row, f"{row.get('set')}: " if several else ""))]


def _source_pair(row: Json, prefix: str) -> SourcePair | None:
    both, only_a, only_b, neither = (number(row.get(name)) for name in ("both", "only_a", "only_b", "neither"))
    if both is None or only_a is None or only_b is None:
        return None
    counts = (both, only_a, only_b, neither or 0.0)
    total = sum(counts)
    if total <= 0 or min(counts) < 0:
        return None
    shares = (both / total, only_a / total, only_b / total, None if neither is None else neither / total)
    return SourcePair(f"{prefix}{row.get('a')}", str(row.get("b")), *shares, total, _advice(row))


def _advice(row: Json) -> list[str]:
    """Read the advice: a list of sentences, or one word and its reason."""
    advice, why = row.get("advice") or (), row.get("why")
    if isinstance(advice, str):
        return [f"{advice}: {why}" if why else advice]
    return [str(words) for words in advice] if isinstance(advice, list | tuple) else []


# -- sweeps -------------------------------------------------------------------------------------------------


def sweep_chart(report: Json) -> SweepChart | None:
    """Read the curves of a sweep; None where no row has a mean and a number to plot it over."""
    rows = [(part(row, "options"), mean) for row in items(report, "rows") if (mean := interval(row))]
    axis = _axis([options for options, _ in rows])
    if axis is None:
        return None
    varied = _varied([options for options, _ in rows], axis)
    points: dict[tuple[str, ...], list[tuple[float, Estimate]]] = {}
    named: dict[tuple[str, ...], Json] = {}
    for options, mean in rows:
        if (place := number(options.get(axis))) is not None:
            key = tuple(repr(options.get(name)) for name in varied)
            named.setdefault(key, {name: options[name] for name in varied if options.get(name) is not None})
            points.setdefault(key, []).append((place, mean))
    curves = [Curve(named[key], sorted(listed, key=lambda point: point[0])) for key, listed in points.items()]
    chosen = _chosen(curves)
    others = [curve for curve in curves if curve not in chosen]
    return SweepChart(str(report.get("measure") or "mean"), axis, chosen, others, sorted(set(_knees(report, axis))))


def _axis(rows: Sequence[Json]) -> str | None:
    """Return the depth if it was varied, else the numeric option with the most values."""
    values: dict[str, set[float]] = {}
    for options in rows:
        for name, value in options.items():
            if (place := number(value)) is not None:
                values.setdefault(str(name), set()).add(place)
    if len(values.get(AXIS, ())) > 1 or not values:
        return AXIS if values else None
    return max(values, key=lambda name: (len(values[name]), name == AXIS))


def _varied(rows: Sequence[Json], axis: str) -> list[str]:
    """Return the other options that differ between rows, the method first."""
    names = list(dict.fromkeys(str(name) for options in rows for name in options if name != axis))
    varied = [name for name in names if len({repr(options.get(name)) for options in rows}) > 1]
    return sorted(varied, key=lambda name: name != "fusion") or [name for name in names if name == "fusion"]


def _chosen(curves: Sequence[Curve]) -> list[Curve]:
    if len(curves) <= MOST_CURVES:
        return list(curves)
    best: dict[str, Curve] = {}
    for curve in sorted(curves, key=lambda one: -one.best[1].mean):
        best.setdefault(str(next(iter(curve.options.values()), "")), curve)
    return list(best.values())[:MOST_CURVES]


def _knees(report: Json, axis: str) -> Iterator[float]:
    """Read the knee: a row, a mapping of rows, or a list of rows."""
    knee = report.get("knee")
    for row in [knee, *(knee.values() if isinstance(knee, Mapping) else knee if isinstance(knee, list) else ())]:
        if isinstance(row, Mapping):
            place = number(row.get(axis, part(row, "options").get(axis)))
            if place is not None:
                yield place
