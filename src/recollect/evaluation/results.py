"""What the laboratory's JSON files hold, read leniently: a part that is missing or of no use is left out.

A file is a run of systems (`systems`), a sweep of settings (`rows`) or an overlap of sources (`pairs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.errors import UsageError
from recollect.evaluation.scoring import Comparison, Estimate, compare, estimate

Json: TypeAlias = Mapping[str, Any]

KINDS = {"systems": dict, "rows": list, "pairs": list}
"""The part by which a kind of file is known → what it is."""

LONGEST = 44
"""Letters of a name that are shown; ids and names come from anyone's data."""

GREATEST = 1e12
"""No measure and no time is greater; infinity is, and what is no number is not smaller."""

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")


@dataclass(frozen=True, slots=True)
class System:
    """One system of a run: measure → mean, measure → question → value, and how long its searches took."""

    name: str
    measures: Mapping[str, Estimate]
    per_query: Mapping[str, Mapping[str, float]]
    took_ms: Sequence[float]
    timed: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Duel:
    """Two systems on the same questions; `gains` is question → what the first has more, greatest first."""

    a: str
    b: str
    measure: str
    found: Comparison
    gains: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """What two sources find, in shares of one whole; without `neither` the whole is what they find together."""

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
        """The most that fusing the two could find."""
        return self.both + self.only_a + self.only_b

    @property
    def best(self) -> float:
        """What the better of the two finds alone."""
        return self.both + max(self.only_a, self.only_b)


def kind(report: Any) -> str:
    """The part by which a report is known."""
    for part, shape in KINDS.items():
        if isinstance(report, dict) and isinstance(report.get(part), shape):
            return part
    raise UsageError(
        "this is no report of the laboratory: it has neither systems, rows nor pairs",
        hint="recollect eval run … --json > run.json, and likewise sweep and overlap",
    )


def label(text: object, most: int = LONGEST) -> str:
    """A name as it can be shown: without control characters, and with its middle left out where it is long."""
    plain = " ".join(_UNSEEN.sub(" ", str(text)).split()) or "–"
    if len(plain) <= most:
        return plain
    head = (most - 1) * 2 // 3
    return f"{plain[:head].rstrip()}…{plain[len(plain) - (most - 1 - head) :].lstrip()}"


def about(report: Any) -> str:
    """What a report was made of, in words: the set, how much of it, and its fingerprint."""
    data = part(report, "data")
    counts = ((data.get(name), name) for name in ("questions", "documents"))
    said = [f"{count:,} {name}" for count, name in counts if isinstance(count, int)]
    marks = [str(one["fingerprint"]) for one in (data, *items(data, "sets")) if one.get("fingerprint")]
    said += [f"fingerprint {' and '.join(map(label, marks))}"] if marks else []
    return f"{label(data.get('name') or 'data without a name')}: {', '.join(said) or 'nothing more is known of it'}"


def number(value: Any) -> float | None:
    """A number that can be drawn, or nothing."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < GREATEST
    return float(value) if good else None


def part(report: Any, name: str) -> Json:
    """An object inside an object; an empty one where there is none."""
    value = report.get(name) if isinstance(report, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(report: Any, name: str) -> list[Json]:
    """The objects of a list inside an object."""
    value = report.get(name) if isinstance(report, Mapping) else None
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def interval(row: Any) -> Estimate | None:
    """A mean with its interval; without one it is as narrow as a point."""
    mean = number(row.get("mean")) if isinstance(row, Mapping) else None
    if mean is None:
        return None
    low, high, n = (number(row.get(name)) for name in ("low", "high", "n"))
    return Estimate(mean, mean if low is None else low, mean if high is None else high, int(n or 0))


def told(found: Estimate | None, sign: str = "") -> str:
    """A mean with its interval, as it is written everywhere."""
    if found is None:
        return "–"
    around = f" [{signed(found.low, sign)}, {signed(found.high, sign)}]" if found.high > found.low else ""
    return f"{signed(found.mean, sign)}{around}"


def signed(value: float, sign: str = "+") -> str:
    """Three digits, and a minus that is one."""
    return f"{value:{sign}.3f}".replace("-", "−")


def chance(p: float) -> str:
    """A p value in words that do not claim more digits than there are."""
    return f"p = {p:.4f}" if p >= 0.0001 else "p < 0.0001"  # noqa: PLR2004


def systems(report: Json) -> list[System]:
    """The systems of a run in their order."""
    return [_system(str(name), body) for name, body in part(report, "systems").items() if isinstance(body, Mapping)]


def duels(report: Json) -> list[Duel]:
    """The comparisons of a run; where it has none, the best system against each other one."""
    by_name = {system.name: system for system in systems(report)}
    listed = [_duel(row, by_name) for row in items(report, "comparisons")]
    return [duel for duel in listed if duel] or _against_best(list(by_name.values()))


def pairs(report: Json) -> list[Pair]:
    """The pairs of sources that found something."""
    rows = items(report, "pairs")
    several = len({repr(row.get("set")) for row in rows}) > 1
    return [pair for row in rows if (pair := _pair(row, f"{row.get('set')}: " if several else ""))]


def _system(name: str, body: Json) -> System:
    per_query = {str(measure): _numbers(values) for measure, values in part(body, "per_query").items()}
    per_query = {measure: values for measure, values in per_query.items() if values}
    given = {str(measure): interval(row) for measure, row in part(body, "measures").items()}
    measures = {measure: found for measure, found in given.items() if found}
    measures |= {name: estimate(list(values.values())) for name, values in per_query.items() if name not in measures}
    latency = part(body, "latency_ms")
    listed = latency.get("values")
    found = map(number, listed) if isinstance(listed, list | tuple) else ()
    took = [ms for ms in found if ms is not None and ms >= 0]
    timed = len(took) or int(number(latency.get("n")) or 0)
    return System(name, measures, per_query, took, timed, *(_quantile(latency, took, q) for q in (50, 95)))


def _quantile(latency: Json, took: Sequence[float], percent: int) -> float | None:
    given = number(latency.get(f"p{percent}"))
    if given is not None or not took:
        return given
    import numpy as np

    return float(np.percentile(took, percent))


def _numbers(values: Any) -> dict[str, float]:
    found = values if isinstance(values, Mapping) else {}
    return {str(key): good for key, value in found.items() if (good := number(value)) is not None}


def _duel(row: Json, by_name: Mapping[str, System]) -> Duel | None:
    a, b = by_name.get(str(row.get("a"))), by_name.get(str(row.get("b")))
    measure = str(row.get("measure"))
    if not a or not b or not a.per_query.get(measure) or not b.per_query.get(measure):
        return None
    gains = _gains(a, b, measure)
    difference, p = interval(row.get("difference")), number(row.get("p"))
    wins = sum(gain > 0 for gain in gains.values())
    losses = sum(gain < 0 for gain in gains.values())
    if difference is None or p is None:
        return Duel(a.name, b.name, measure, compare(a.per_query[measure], b.per_query[measure]), gains)
    return Duel(a.name, b.name, measure, Comparison(difference, p, wins, losses, len(gains) - wins - losses), gains)


def _against_best(found: Sequence[System]) -> list[Duel]:
    measure = next((name for system in found for name in system.per_query), None)
    judged = [system for system in found if measure in system.per_query]
    if measure is None or len(judged) < 2:  # noqa: PLR2004  (one system has no opponent)
        return []
    best = max(judged, key=lambda system: system.measures[measure].mean)
    rows = [{"a": best.name, "b": system.name, "measure": measure} for system in judged if system is not best]
    return [duel for row in rows if (duel := _duel(row, {system.name: system for system in judged}))]


def _gains(a: System, b: System, measure: str) -> dict[str, float]:
    theirs = b.per_query[measure]
    gains = {key: value - theirs[key] for key, value in a.per_query[measure].items() if key in theirs}
    return dict(sorted(gains.items(), key=lambda pair: -pair[1]))


def _pair(row: Json, of: str) -> Pair | None:
    both, only_a, only_b, neither = (number(row.get(name)) for name in ("both", "only_a", "only_b", "neither"))
    if both is None or only_a is None or only_b is None:
        return None
    parts = (both, only_a, only_b, neither or 0.0)
    total = sum(parts)
    if total <= 0 or min(parts) < 0:
        return None
    shares = (both / total, only_a / total, only_b / total, None if neither is None else neither / total)
    return Pair(f"{of}{row.get('a')}", str(row.get("b")), *shares, total, _advice(row))


def _advice(row: Json) -> list[str]:
    """A list of words, or one word and why."""
    said, why = row.get("advice") or (), row.get("why")
    if isinstance(said, str):
        return [f"{said}: {why}" if why else said]
    return [str(words) for words in said] if isinstance(said, list | tuple) else []
