"""Reports and gates as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from recollect.cli.options import notice
from recollect.cli.output import print_json, print_table
from recollect.cli.plain import echo

if TYPE_CHECKING:
    from recollect.evaluation.gate import Check

CERTAIN = 0.05


def show_report(report: Mapping[str, Any], *, as_json: bool) -> None:
    """The whole report as JSON, or its means, intervals and comparisons as tables."""
    if as_json:
        print_json(report)
        return
    measures = list(dict.fromkeys(name for system in report["systems"].values() for name in system["measures"]))
    rows = [_row(name, system, measures) for name, system in report["systems"].items()]
    timed = any(system["latency_ms"] for system in report["systems"].values())
    head = ("system", *measures, "ms p50 / p95")
    print_table([row if timed else row[:-1] for row in (head, *rows)])
    if report["comparisons"]:
        echo()
        head = ("against " + report["comparisons"][0]["b"], "measure", "difference", "p", "won : lost : same")
        print_table([head, *map(_comparison, report["comparisons"])])
    notice(_about(report))
    for warning in report["warnings"]:
        notice(f"note: {warning}")


def show_checks(checks: Sequence[Check], *, as_json: bool) -> int:
    """What the gate found, and its exit code."""
    fell = [check for check in checks if check.fell]
    if as_json:
        print_json({"passed": not fell, "checks": [check.as_dict() for check in checks]})
        return 1 if fell else 0
    rows = [
        (
            check.system,
            check.measure,
            f"{check.before:.4f}",
            f"{check.after:.4f}",
            interval(asdict(check.comparison.difference), signed=True),
            f"{check.comparison.p:.4f}",
            _verdict(check),
        )
        for check in checks
    ]
    print_table([("system", "measure", "before", "after", "difference", "p", ""), *rows])
    outcome = f"{len(fell)} of {len(checks)} fell" if fell else "nothing fell by more than noise"
    notice(f"{checks[0].comparison.difference.n:,} questions · {outcome}")
    return 1 if fell else 0


def interval(estimate: Mapping[str, float], *, signed: bool = False) -> str:
    """A mean and its 95 % interval."""
    form = "+.3f" if signed else ".3f"
    low, high, mean = (format(estimate[name], form) for name in ("low", "high", "mean"))
    return f"{mean} [{low}, {high}]"


def _row(name: str, system: Mapping[str, Any], measures: Sequence[str]) -> tuple[str, ...]:
    found, took = system["measures"], system["latency_ms"]
    times = f"{took['p50']:.1f} / {took['p95']:.1f}" if took else "–"
    return (name, *(interval(found[measure]) if measure in found else "–" for measure in measures), times)


def _comparison(found: Mapping[str, Any]) -> tuple[str, ...]:
    counts = f"{found['wins']:,} : {found['losses']:,} : {found['ties']:,}"
    sure = f"{found['p']:.4f}{' *' if found['p'] < CERTAIN else ''}"
    return (found["a"], found["measure"], interval(found["difference"], signed=True), sure, counts)


def _about(report: Mapping[str, Any]) -> str:
    data, settings = report["data"], report["settings"]
    split = f" ({data['split']})" if data["split"] else ""
    corpora = f" in {len(data['corpora'])} corpora" if len(data["corpora"]) > 1 else ""
    documents = f"{data['documents']:,} documents{corpora} · " if data["documents"] else ""
    model = settings["embedder"] or "runs alone"
    stars = " · * p < 0.05" if report["comparisons"] else ""
    return (
        f"{data['name']}{split} · {documents}{data['questions']:,} questions · {data['fingerprint']} · {model}"
        f" · means with 95 % intervals{stars}"
    )


def _verdict(check: Check) -> str:
    """What became of it; of one that may be noise, how large a fall would not have been."""
    found = check.comparison
    if found.significant:
        return "FELL" if check.fell else "rose"
    if not found.wins + found.losses:
        return "unchanged"
    if check.noticeable is None:
        return f"only {found.wins + found.losses} questions changed, too few to tell from noise"
    return f"within noise; a fall of more than {check.noticeable:.3f} would be noticed"
