"""Has search become worse? Two reports on the same questions, compared value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from recollect.errors import UsageError
from recollect.evaluation.statistics import Comparison, compare, noticeable


@dataclass(frozen=True, slots=True)
class Check:
    """One measure of one system, before and after.

    A fall of more than `noticeable` would have been noticed; None where too few questions changed for any.
    """

    system: str
    measure: str
    before: float
    after: float
    comparison: Comparison
    noticeable: float | None

    @property
    def fell(self) -> bool:
        """Whether it is lower by more than the noise."""
        return self.comparison.difference.mean < 0 and self.comparison.significant

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        numbers = {"before": self.before, "after": self.after, "noticeable": self.noticeable, "fell": self.fell}
        return {"system": self.system, "measure": self.measure, **numbers, **asdict(self.comparison)}


def gate(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> list[Check]:
    """Every measure of every system that both reports have."""
    for what, old, now in (
        ("the data's fingerprint", baseline["data"]["fingerprint"], new["data"]["fingerprint"]),
        *(
            (what, *(report.get("settings", {}).get(what) for report in (baseline, new)))
            for what in ("exclude_self", "depth", "filters")
        ),
    ):
        if old != now:
            message = f"the two reports cannot be compared: {what} was {old} and is {now}"
            raise UsageError(message, hint="make a new baseline: eval run … --save FILE")
    if not (checks := list(_checks(baseline["systems"], new["systems"]))):
        raise UsageError(
            f"the two reports have no measure of one system in common (baseline: {_contents(baseline)})",
            hint="measure the same systems: --compare and --measures",
        )
    return checks


def _checks(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Check]:
    for system in (name for name in old if name in new):
        for measure, before in old[system]["per_query"].items():
            after = new[system]["per_query"].get(measure)
            if after is None:
                continue
            if before.keys() != after.keys() or not before:
                message = f"{system} has values of {measure} for other questions than before"
                raise UsageError(message, hint="make a new baseline: eval run … --save FILE")
            means = fmean(before.values()), fmean(after.values())
            yield Check(system, measure, *means, compare(after, before), noticeable(after, before))


def _contents(report: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {', '.join(system['per_query'])}" for name, system in report["systems"].items())
