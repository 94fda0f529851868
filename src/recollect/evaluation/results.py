"""Read the JSON of `eval run`, `sweep` and `overlap` for reports and plots; missing parts are left out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.evaluation.scoring import Comparison, Estimate, compare, estimate

Json: TypeAlias = Mapping[str, Any]

# The key that identifies a study's JSON → the study's name, and the type of its value.
KINDS = {"systems": ("run", dict), "rows": ("sweep", list), "pairs": ("overlap", list)}
LONGEST = 44  # characters of a name that are shown; ids and names come from anyone's data
GREATEST = 1e12  # larger numbers are invalid: no measure and no time reaches this
AXIS = "fetch_k"  # the option along the x axis of a sweep, if it was varied
MOST_CURVES = 6  # curves drawn in colour; of more, the best of each method is, and the rest are thin lines
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")
_SHORT = {"fusion": "", "normalisation": "", "vector_weight": "", "rrf_k": "k="}


@dataclass(frozen=True, slots=True)
class MeasuredSystem:
    """One system of a run: measure → mean, measure → question → value, the times of its searches, its confidence."""

    name: str
    measures: Mapping[str, Estimate]
    per_query: Mapping[str, Mapping[str, float]]
    took_ms: Sequence[float]
    timed: int
    p50: float | None
    p95: float | None
    confidence: Json


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
    """Shares of the `total` records that two sources find; without `neither` they are shares of the records found.

    `union` is the share that either finds, which fusion cannot exceed, and `best` that of the better source alone.
    """

    a: str
    b: str
    both: float
    only_a: float
    only_b: float
    neither: float | None
    union: float
    best: float
    total: float
    advice: Sequence[str]


@dataclass(frozen=True, slots=True)
class Curve:
    """One combination of the other options, the method first, and its estimate at each value of the axis."""

    name: str
    method: str
    points: list[tuple[float, Estimate]]

    @property
    def best(self) -> tuple[float, Estimate]:
        """The point with the highest mean."""
        return max(self.points, key=lambda point: point[1].mean)


@dataclass(frozen=True, slots=True)
class SweepChart:
    """A sweep as curves: those drawn in colour, the others, and the place of the knee on the axis."""

    measure: str
    axis: str
    curves: Sequence[Curve]
    others: Sequence[Curve]
    knee: float | None


def kind(report: Any, name: str = "this") -> str:
    """Return the key that identifies the kind of the report in the file `name`."""
    for key, (_, shape) in KINDS.items():
        if isinstance(report, dict) and isinstance(report.get(key), shape):
            return key
    hint = "recollect eval run … --json > run.json, and likewise sweep and overlap"
    raise UsageError(f"{name} is no evaluation report: it has neither systems, rows nor pairs", hint=hint)


def set_name(report: Any) -> str:
    """Return the name of the set that a report is about."""
    return label(part(report, "data").get("name") or "data without a name")


def about(report: Any) -> str:
    """Describe the data of a report: the set's name, its size and its fingerprint."""
    data = part(report, "data")
    words = [f"{data[one]:,} {one}" for one in ("questions", "documents") if isinstance(data.get(one), int)]
    marks = [str(one["fingerprint"]) for one in (data, *data.get("sets", ())) if one.get("fingerprint")]
    words += [f"fingerprint {' and '.join(map(label, marks))}"] if marks else []
    return f"{set_name(report)}: {', '.join(words) or 'size unknown'}"


def label(text: object, most: int = LONGEST) -> str:
    """Return a name without control characters, its middle left out where it is too long."""
    plain = " ".join(_INVISIBLE.sub(" ", str(text)).split()) or "–"
    if len(plain) <= most:
        return plain
    head = (most - 1) * 2 // 3
    return f"{plain[:head].rstrip()}…{plain[len(plain) - (most - 1 - head) :].lstrip()}"


def number(value: Any) -> Any:
    """Return a number that can be drawn; None stays None, and anything else is an error."""
    if value is not None and not abs(value) < GREATEST:
        raise ValueError(f"{value} cannot be drawn")
    return value


def part(report: Any, name: str) -> Json:
    """Return an object inside an object, or an empty one."""
    value = report.get(name) if isinstance(report, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def interval(row: Json) -> Estimate:
    """Read a mean with its interval; without an interval, the mean is both ends."""
    mean, low, high = (number(row.get(end, row["mean"])) for end in ("mean", "low", "high"))
    return Estimate(mean, low, high, row.get("n", 0))


def interval_text(value: Estimate | None, sign: str = "") -> str:
    """Write a mean with its interval."""
    if value is None:
        return "–"
    around = f" [{signed(value.low, sign)}, {signed(value.high, sign)}]" if value.high > value.low else ""
    return f"{signed(value.mean, sign)}{around}"


def signed(value: float, sign: str = "+") -> str:
    """Write a number with three digits and a typographic minus."""
    return f"{value:{sign}.3f}".replace("-", "−")


def ms(value: float | None) -> str:
    """Write a time with a space that does not break."""
    if value is None:
        return "–"
    return f"{value / 1000:.3g}\N{NO-BREAK SPACE}s" if value >= 1000 else f"{value:.3g}\N{NO-BREAK SPACE}ms"  # noqa: PLR2004


def systems(report: Json) -> list[MeasuredSystem]:
    """Read the systems of a run, in order."""
    import numpy as np

    measured = []
    for name, body in report["systems"].items():
        listed = body.get("per_query", {}).items()
        per_query = {measure: {key: number(one) for key, one in values.items()} for measure, values in listed if values}
        measures = {measure: interval(row) for measure, row in body.get("measures", {}).items()}
        missing = [measure for measure in per_query if measure not in measures]
        measures |= {measure: estimate(list(per_query[measure].values())) for measure in missing}
        latency = body.get("latency_ms", {})
        took = [float(number(time)) for time in latency.get("values", ())]
        p50, p95 = number(latency.get("p50")), number(latency.get("p95"))
        if took:
            p50, p95 = (float(np.percentile(took, at)) if p is None else p for p, at in ((p50, 50), (p95, 95)))
        times = (took, len(took) or latency.get("n", 0), p50, p95)
        measured.append(MeasuredSystem(name, measures, per_query, *times, part(body, "confidence")))
    return measured


def measures_of(measured: Sequence[MeasuredSystem]) -> list[str]:
    """Return the measures of all systems, in order."""
    return list(dict.fromkeys(name for system in measured for name in system.measures))


def system_pairs(report: Json) -> list[SystemPair]:
    """Read the comparisons of a run; without any, compare the best system with each other one."""
    by_name = {system.name: system for system in systems(report)}
    rows, pairs = report.get("comparisons"), []
    if not rows:
        measure = next((name for system in by_name.values() for name in system.per_query), "")
        judged = [system for system in by_name.values() if measure in system.per_query]
        best = max(judged, key=lambda system: system.measures[measure].mean, default=None)
        rows = [{"a": best.name, "b": one.name, "measure": measure} for one in judged if best and one is not best]
    for row in rows:
        a, b, measure = by_name.get(row["a"]), by_name.get(row["b"]), row["measure"]
        if a and b and measure in a.per_query and measure in b.per_query:
            ours, theirs = a.per_query[measure], b.per_query[measure]
            differences = {key: value - theirs[key] for key, value in ours.items() if key in theirs}
            gains = dict(sorted(differences.items(), key=lambda pair: -pair[1]))
            figures = row if "p" in row else asdict(compare(ours, theirs))
            won, lost = (sum(gain * sign > 0 for gain in gains.values()) for sign in (1, -1))
            difference, ties = interval(figures["difference"]), len(gains) - won - lost
            comparison = Comparison(difference, number(figures["p"]), won, lost, ties)
            pairs.append(SystemPair(a.name, b.name, measure, comparison, gains))
    return pairs


def source_pairs(report: Json) -> list[SourcePair]:
    """Read the pairs of sources that have anything to count."""
    rows, pairs = report.get("pairs") or (), []
    several = len({repr(row.get("set")) for row in rows}) > 1
    for row in rows:
        counts = [number(row[name]) for name in ("both", "only_a", "only_b")]
        neither = number(row.get("neither"))
        if total := sum(counts, neither or 0):
            first = f"{row['set']}: {row['a']}" if several else str(row["a"])
            both, only_a, only_b = (count / total for count in counts)
            rest = None if neither is None else neither / total
            reach = (both + only_a + only_b, both + max(only_a, only_b))
            advice, why = row.get("advice") or (), row.get("why")  # sentences, or one word and its reason
            words = [f"{advice}: {why}" if why else advice] if isinstance(advice, str) else list(map(str, advice))
            pairs.append(SourcePair(first, str(row["b"]), both, only_a, only_b, rest, *reach, total, words))
    return pairs


def sweep_chart(report: Json) -> SweepChart | None:
    """Read the curves of a sweep; None where no row has a mean and a number to plot it over.

    The axis is the depth if it was varied, else the numeric option of every row with the most values.
    """
    rows = [(row["options"], interval(row)) for row in report["rows"] if row.get("mean") is not None]
    spots: dict[str, set[float]] = {}
    for name, value in (pair for options, _ in rows for pair in options.items()):
        if isinstance(value, int | float) and not isinstance(value, bool):
            spots.setdefault(name, set()).add(number(value))
    if not spots:
        return None
    common = {name: values for name, values in spots.items() if all(name in options for options, _ in rows)} or spots
    depths = len(spots.get(AXIS, ()))
    axis = AXIS if depths > 1 else max(common, key=lambda name: (len(common[name]), name == AXIS))
    names = dict.fromkeys(name for options, _ in rows for name in options if name != axis)
    varied = [name for name in names if len({repr(options.get(name)) for options, _ in rows}) > 1]
    varied = sorted(varied, key=lambda name: name != "fusion") or [name for name in names if name == "fusion"]
    groups: dict[str, Curve] = {}
    for options, mean in rows:
        if (place := options.get(axis)) in spots[axis]:
            own = {name: options[name] for name in varied if options.get(name) is not None}
            curve = Curve(setting_label(own), str(next(iter(own.values()), "")), [])
            groups.setdefault(repr(own), curve).points.append((place, mean))
    curves = list(groups.values())
    for curve in curves:
        curve.points.sort(key=lambda point: point[0])
    coloured = curves
    if len(curves) > MOST_CURVES:
        best: dict[str, Curve] = {}
        for curve in sorted(curves, key=lambda one: -one.best[1].mean):
            best.setdefault(curve.method, curve)
        coloured = list(best.values())[:MOST_CURVES]
    others = [curve for curve in curves if curve not in coloured]
    knee = number(part(part(report, "knee"), "options").get(AXIS)) if depths > 1 else None
    return SweepChart(str(report.get("measure") or "mean"), axis, coloured, others, knee)


def setting_label(options: Json) -> str:
    """Write settings in short: `rrf k=60`, `weighted minmax 0.3/0.7`."""
    words = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in options.items()}
    if "vector_weight" in words:
        words["vector_weight"] = f"{words.pop('text_weight', '1')}/{words['vector_weight']}"
    return " ".join(f"{_SHORT.get(key, f'{key}=')}{word}" for key, word in words.items()) or "as set"
