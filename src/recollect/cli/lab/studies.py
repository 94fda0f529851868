"""`recollect eval sweep`, `overlap` and `tune`: what settings change, what sources add, and which settings to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.lab import sheets
from recollect.cli.lab.data import judged_by, on_data
from recollect.cli.options import common, json_flag, load_settings, progress
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.evaluation.grid import Options
    from recollect.evaluation.judged import Judged
    from recollect.evaluation.tuning import Tuning

MEASURE = "nDCG@10"
DEPTHS = "5,10,20,50,100,200"
KS = "1,10,60,100"
FAILED = 3


def _listed(kind: Callable[[str], Any], least: float = 0.0) -> Callable[..., tuple[Any, ...]]:
    """Reads values between commas."""

    def read(_context: click.Context, option: click.Parameter, words: str | None) -> tuple[Any, ...]:
        try:
            values = tuple(kind(word.strip()) for word in words.split(",")) if words else ()
        except ValueError as error:
            raise click.BadParameter(f"{words!r} is not a list of numbers, such as 10,60", param=option) from error
        if any(not isinstance(value, str) and not least <= value < float("inf") for value in values):
            raise click.BadParameter(f"{words!r} holds a number below {least:g}", param=option)
        return tuple(dict.fromkeys(values))

    return read


_measure = click.option("--measure", default=MEASURE, metavar="NAME", help=f"What is measured ({MEASURE}).")


@click.command()
@on_data
@click.option(
    "--fetch-k", "depths", default=DEPTHS, callback=_listed(int, 1), metavar="LIST", help=f"Depths ({DEPTHS})."
)
@click.option("--k", "ks", default=KS, callback=_listed(float), metavar="LIST", help=f"RRF's constant ({KS}).")
@click.option("--fusion", "fusions", callback=_listed(str), metavar="LIST", help="Methods (yours, rrf, weighted).")
@click.option("--normalisation", "normalisations", callback=_listed(str), metavar="LIST", help="Of scores (yours).")
@click.option("--vector-weight", "shares", callback=_listed(float), metavar="LIST", help="Parts of 1 (yours).")
@_measure
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Also draw it: .png or .svg.")
@common
@json_flag
def sweep(depths: tuple[int, ...], measure: str, plot: Path | None, as_json: bool, **options: Any) -> int:
    """Measure every combination of depth and fusion, and find the depth from which on more gains nothing."""
    from recollect.evaluation.studies import swept

    lines = _curves(options)
    if plot and plot.suffix not in (".png", ".svg"):
        raise UsageError(f"{plot} cannot be drawn", hint="a name that ends in .png or .svg")
    _check_folder(plot)
    with judged_by(options, measure, max(depths)) as judged:
        told = swept(judged, lines, depths, progress=progress("sweeping"))
    if plot:
        _draw(told, plot)
    sheets.show(told, sheets.print_sweep, as_json)
    return 0 if told["prefix"]["held"] else FAILED


@click.command()
@on_data
@click.argument("more", nargs=-1, metavar="[DATASET]…")
@click.option("--fetch-k", type=click.IntRange(1), metavar="N", help="How deep each source is read (yours).")
@common
@json_flag
def overlap(more: tuple[str, ...], fetch_k: int | None, as_json: bool, **options: Any) -> int:
    """Count the relevant records that each source finds, and say whether fusing them is worth it."""
    from recollect.evaluation.studies import shared, together

    depth = fetch_k or load_settings(options).settings.search.fetch_k
    found = []
    for dataset in (options["dataset"], *more):
        with judged_by({**options, "dataset": dataset}, MEASURE, depth) as judged:
            found.append(shared(judged, depth))
    told = together(found)
    sheets.show(told, sheets.print_overlap, as_json)
    return 0


@click.command()
@on_data
@_measure
@click.option("--out", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Where the settings are written.")
@click.option("--force", is_flag=True, help="Overwrite that file.")
@common
@json_flag
def tune(measure: str, out: Path | None, force: bool, as_json: bool, **options: Any) -> int:
    """Choose settings by nested cross-validation, and write them if held-out questions show a gain."""
    from recollect.evaluation.grid import FETCH_KS

    if out and out.exists() and not force:
        raise UsageError(f"{out} is there already", hint="another name, or --force to overwrite it")
    _check_folder(out)
    with judged_by(options, measure, max(FETCH_KS)) as judged:
        told = {"data": judged.as_dict(), "measure": judged.measure, **_tuned(judged)}
    if out and not told["keep_default"]:
        from recollect.evaluation.judgments import write_lines

        write_lines(out, sheets.settings_lines(told))
        told["written"] = str(out)
    sheets.show(told, sheets.print_tuning, as_json)
    return 0


def _check_folder(file: Path | None) -> None:
    """Said before the work is done, not after it."""
    if file and not file.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", hint="make it, or name another file")


def _curves(options: Mapping[str, Any]) -> list[Options]:
    """The settings that are swept at every depth; unknown names are refused before anything is asked."""
    from recollect.evaluation.studies import curves_of

    search = load_settings(options).settings.search
    return curves_of(search, **{name: options[name] for name in ("fusions", "ks", "normalisations", "shares")})


def _tuned(judged: Judged) -> dict[str, Any]:
    """The study, and what follows from it."""
    from recollect.evaluation.grid import candidates, completed, refinements
    from recollect.evaluation.tuning import FEWEST, Plan, tune

    if judged.questions < FEWEST:
        verdict = f"keep the default: {judged.questions} questions are too few to tell (at least {FEWEST})"
        return {"tried": 0, "keep_default": True, "verdict": verdict}
    default = completed({}, judged.parts[0].recording.memory.settings.search)
    plan = Plan(default, candidates(), refinements)
    found = tune(lambda settings: judged(settings).values, plan, progress=progress("tuning"))
    settings = {name: value for name, value in {**default, **found.chosen}.items() if value is not None}
    return {**found.as_dict(), "settings": settings, "verdict": _verdict(found)}


def _verdict(found: Tuning) -> str:
    gain = found.comparison.difference
    if not found.keeps_default:
        return (
            f"take what all questions choose: on questions they were not chosen on, such settings gain {gain.mean:+.3f}"
        )
    if not any(fold.chosen for fold in found.folds):
        return "keep the default: nothing that was tried is better by more than its error"
    if gain.mean > 0:
        return f"keep the default: a gain of {gain.mean:+.3f} on held-out questions may be chance"
    return f"keep the default: what was chosen on some questions gains nothing on others ({gain.mean:+.3f})"


def _draw(told: Mapping[str, Any], path: Path) -> None:
    from recollect.evaluation import plots

    plots.sweep_plot(told, path)
