"""`recollect eval sweep`, `overlap` and `tune`: the effect of settings and sources, and which settings to choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import tomlkit

from recollect.cli.flags import command, complete_option, load_settings
from recollect.cli.lab import as_files_option, check_output, dataset_options, interval, print_findings, recorded, wrap
from recollect.cli.terminal import echo, emit, notice, plain, print_table, progress
from recollect.errors import UsageError
from recollect.evaluation import tuning
from recollect.evaluation.datasets import write_lines
from recollect.evaluation.overlap import join_overlaps, overlap_report
from recollect.evaluation.recording import JudgedSets
from recollect.evaluation.results import setting_label

MEASURE = "nDCG@10"
DEPTHS = "5,10,20,50,100,200"
KS = "1,10,60,100"
FAILED = 3
TOP = 10
BLOCKS = "▁▂▃▄▅▆▇█"
EACH = 4  # columns of the terminal plot for each depth


def _listed(kind: Callable[[str], Any], least: float = 0.0) -> Callable[..., tuple[Any, ...]]:
    """Return a callback that reads comma-separated values."""

    def read(_context: click.Context, option: click.Parameter, words: str | None) -> tuple[Any, ...]:
        try:
            values = tuple(kind(word.strip()) for word in words.split(",")) if words else ()
        except ValueError as error:
            raise click.BadParameter(f"{words!r} is not a list of numbers, such as 10,60", param=option) from error
        if any(not isinstance(value, str) and not least <= value < float("inf") for value in values):
            raise click.BadParameter(f"{words!r} holds a number below {least:g}", param=option)
        return tuple(dict.fromkeys(values))

    return read


_measure = click.option("--measure", default=MEASURE, metavar="NAME", help=f"The measure ({MEASURE}).")


@command()
@dataset_options
@as_files_option
@click.option(
    "--fetch-k", "depths", default=DEPTHS, callback=_listed(int, 1), metavar="LIST", help=f"Depths ({DEPTHS})."
)
@click.option("--k", "ks", default=KS, callback=_listed(float), metavar="LIST", help=f"RRF's constant ({KS}).")
@click.option(
    "--fusion", "fusions", callback=_listed(str), metavar="LIST", help="Methods (yours, rrf, weighted).",
    shell_complete=complete_option("fusion"),
)  # fmt: skip
@click.option(
    "--normalisation", "normalisations", callback=_listed(str), metavar="LIST", help="Of scores (yours).",
    shell_complete=complete_option("normalisation"),
)  # fmt: skip
@click.option("--vector-weight", "shares", callback=_listed(float), metavar="LIST", help="Parts of 1 (yours).")
@_measure
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Also draw it: .png or .svg.")
def sweep(depths: tuple[int, ...], measure: str, plot: Path | None, as_json: bool, **options: Any) -> int:
    """Measure every combination of depth and fusion, and find the depth beyond which results no longer change."""
    grid = {name: options[name] for name in ("fusions", "ks", "normalisations", "shares")}
    curves = tuning.curves_of(load_settings(options).settings.search, **grid)
    if plot and plot.suffix not in (".png", ".svg"):
        raise UsageError(f"{plot} cannot be drawn", hint="choose a name that ends in .png or .svg")
    check_output(plot, force=True)
    with recorded(options, measure, max(depths)) as judged:
        report = tuning.sweep_report(judged, curves, depths, progress=progress("sweeping"))
    if plot:
        from recollect.evaluation.plots import sweep_plot

        sweep_plot(report, plot)
    emit(as_json, report, partial(_print_sweep, report))
    return 0 if report["prefix"]["held"] else FAILED


@command()
@dataset_options
@click.argument("more", nargs=-1, metavar="[DATASET]…")
@click.option("--fetch-k", type=click.IntRange(1), metavar="N", help="How deep each source is read (yours).")
def overlap(more: tuple[str, ...], fetch_k: int | None, as_json: bool, **options: Any) -> int:
    """Count the relevant records that each source finds, and advise whether to fuse them."""
    depth = fetch_k or load_settings(options).settings.search.fetch_k
    reports = []
    for dataset in (options["dataset"], *more):
        with recorded({**options, "dataset": dataset}, MEASURE, depth) as judged:
            reports.append(overlap_report(judged, depth))
    report = join_overlaps(reports)
    emit(as_json, report, partial(_print_overlap, report))
    return 0


@command()
@dataset_options
@as_files_option
@_measure
@click.option("--out", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Write the settings to this file.")
@click.option("--force", is_flag=True, help="Overwrite that file.")
def tune(measure: str, out: Path | None, force: bool, as_json: bool, **options: Any) -> int:
    """Choose settings by nested cross-validation, and write them if held-out questions show a gain."""
    check_output(out, force=force)
    with recorded(options, measure, max(tuning.FETCH_KS)) as judged:
        report = {"data": judged.as_dict(), "measure": judged.measure, **_tune(judged)}
    if out and not report["keep_default"]:
        write_lines(out, _settings_lines(report))
        report["written"] = str(out)
    emit(as_json, report, partial(_print_tuning, report))
    return 0


def _tune(judged: JudgedSets) -> dict[str, Any]:
    if judged.questions < tuning.FEWEST:
        verdict = f"keep the default: {judged.questions} questions are too few to tell (at least {tuning.FEWEST})"
        return {"tried": 0, "keep_default": True, "verdict": verdict}
    default = tuning.default_settings(judged.parts[0].recording.memory.settings.search)
    plan = tuning.TuningPlan(default, tuning.candidates(), tuning.refinements)
    report = tuning.tune(lambda settings: judged(settings).values, plan, progress=progress("tuning"))
    gain = report["gain"]["mean"]
    if not report["keep_default"]:
        verdict = f"use the settings chosen on all questions: on held-out questions such settings gain {gain:+.3f}"
    elif not any(fold["chosen"] for fold in report["folds"]):
        verdict = "keep the default: no other setting is better by more than its standard error"
    elif gain > 0:
        verdict = f"keep the default: a gain of {gain:+.3f} on held-out questions may be chance"
    else:
        verdict = f"keep the default: settings chosen on some questions gain nothing on others ({gain:+.3f})"
    settings = {name: value for name, value in {**default, **report["chosen"]}.items() if value is not None}
    return {**report, "settings": settings, "verdict": verdict}


def _print_sweep(report: Mapping[str, Any]) -> None:
    measure, data = report["measure"], report["data"]
    changed = {str(one["to"]): f"{100 * one['share']:.1f} %" for one in report["churn"] if one["along"] == "fetch_k"}
    rows = [
        (_name(row["options"]), str(row["options"]["fetch_k"]), interval(row), changed.get(str(row["options"]), ""))
        for row in report["rows"]
    ]
    print_table([("settings", "fetch_k", measure, "top 10 changed"), *rows])
    echo()
    _plot(report)
    echo()
    shares: dict[tuple[str, str], list[float]] = {}
    for one in report["churn"]:
        if one["along"] == "settings":
            shares.setdefault((_name(one["from"]), _name(one["to"])), []).append(one["share"])
    if shares:
        steps = [(*pair, f"{100 * fmean(values):.1f} %") for pair, values in shares.items()]
        print_table([("from", "to", "top 10 changed"), *steps])
        echo()
    print_findings(report)
    for broken in report["prefix"]["broken"][:1]:
        wrap(f"first for {broken['question']!r} with {_name(broken['options'])}")
    if min(row["options"]["fetch_k"] for row in report["rows"]) < TOP:
        notice(f"a search for {TOP} results reads each source at least {TOP} deep, whatever fetch_k says")
    notice(f"{data['name']}: {data['questions']:,} questions, 95 % intervals")


def _plot(report: Mapping[str, Any]) -> None:
    """Print a line of blocks for each curve over depth, all on one scale."""
    means = [row["mean"] for row in report["rows"]]
    low, spread = min(means), max(means) - min(means)
    depths = dict.fromkeys(row["options"]["fetch_k"] for row in report["rows"])
    lines = [("fetch_k", "".join(f"{depth:<{EACH}}"[:EACH] for depth in depths), "")]
    curves = groupby(report["rows"], lambda row: _name(row["options"]))
    for (name, group), knee in zip(curves, report["knees"], strict=True):
        curve = [row["mean"] for row in group]
        heights = [(mean - low) / spread if spread else 1.0 for mean in curve]
        bars = "".join(BLOCKS[round(height * (len(BLOCKS) - 1))] * EACH for height in heights)
        words = f"{curve[0]:.3f} to {curve[-1]:.3f}, knee at {knee['options']['fetch_k']}"
        lines.append((name, bars, words))
    print_table(lines)


def _print_overlap(report: Mapping[str, Any]) -> None:
    if any(one["relevant"] for one in report["pairs"]):
        print_findings(report, "overlap")
    else:
        wrap("No question has a relevant record.")
    if any(one["advice"] == "gains little" for one in report["pairs"]):
        wrap("This compares what is found. `recollect eval sweep` measures whether fusing improves the order.")
    data = report["data"]
    notice(f"{data['name']}: {data['questions']:,} questions, each source {report['depth']} deep")


def _print_tuning(report: Mapping[str, Any]) -> None:
    if "gain" in report:
        means = [("", report["measure"]), ("default", interval(report["default"]))]
        gain = f"{interval(report['gain'], signed=True)}  p = {report['p']:.4f}"
        print_table([*means, ("tuned, held out", interval(report["held_out"])), ("gain", gain)])
        echo()
        folds = len(report["folds"])
        chosen = [(f"{one['folds']} of {folds} folds chose", one["settings"]) for one in report["stability"]]
        chosen.append(("all questions choose", report["chosen"]))
        print_table([(who, ", ".join(_toml(settings)) or "the default") for who, settings in chosen])
        echo()
    wrap(report["verdict"])
    if report.get("written"):
        wrap(f"written to {report['written']}: use it with --config, or copy its lines into your settings")
    elif not report["keep_default"]:
        echo()
        echo("\n".join(_settings_lines(report)))
    notice(f"{report['data']['name']}: {report['data']['questions']:,} questions, {report['tried']} settings tried")


def _settings_lines(report: Mapping[str, Any]) -> list[str]:
    """Write the chosen settings as TOML, with the figures behind them as comments."""
    data, gain = report["data"], report["gain"]
    comments = [
        f"Chosen by `recollect eval tune` on {plain(data['name'])} (fingerprint {data['fingerprint']}).",
        f"Held out, {data['questions']} questions: {report['measure']} {interval(report['held_out'])}.",
        f"The default has {interval(report['default'])}; gain {interval(gain, signed=True)}, p = {report['p']:.4f}.",
    ]
    return [*(f"# {line}" for line in comments), "", "[search]", *_toml(report["settings"])]


def _toml(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {tomlkit.item(value).as_string()}" for name, value in settings.items()]


def _name(options: Mapping[str, Any]) -> str:
    return setting_label({name: value for name, value in options.items() if name != "fetch_k"})
