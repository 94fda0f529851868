"""How the studies look on a terminal: tables, a small plot of blocks, and a sentence that says what follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import common, json_flag, load_settings
from recollect.cli.lab import judged_by, on_data
from recollect.cli.lab.run import interval
from recollect.cli.terminal import echo, notice, plain, print_json, print_table, progress, width
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.evaluation.recording import Judged, Options
    from recollect.evaluation.tuning import Tuning


BLOCKS = "▁▂▃▄▅▆▇█"
TOP = 10
EACH = 4
"""Columns of the plot that one depth takes."""


def show(told: Mapping[str, Any], draw: Callable[[Mapping[str, Any]], None], as_json: bool) -> None:
    """A study as JSON, or as a person reads it."""
    if as_json:
        print_json(told)
    else:
        draw(told)


def print_sweep(told: Mapping[str, Any]) -> None:
    """The table, the plot, the knee, the churn and the certificate."""
    changed = {_key(one["to"]): one["share"] for one in told["churn"] if one["along"] == "fetch_k"}
    rows = [
        (
            _name(row["options"]),
            str(row["options"]["fetch_k"]),
            interval(row),
            _percent(changed.get(_key(row["options"]))),
        )
        for row in told["rows"]
    ]
    print_table([("settings", "fetch_k", told["measure"], "top 10 changed"), *rows])
    echo()
    _plot(told)
    echo()
    _across(told)
    _say(_knee(told))
    _say(_prefix(told["prefix"]))
    if min(row["options"]["fetch_k"] for row in told["rows"]) < TOP:
        notice(f"a search for {TOP} results reads each source at least {TOP} deep, whatever fetch_k says")
    notice(f"{told['data']['name']}: {told['data']['questions']:,} questions, 95 % intervals")


def print_overlap(told: Mapping[str, Any]) -> None:
    """A line for each set, corpus and pair of sources, and the advice for each set."""
    rows = [
        (
            one["set"],
            f"{one['a']} · {one['b']}",
            *(f"{one[part] / one['relevant']:.1%}" if one["relevant"] else "–" for part in _PARTS),
            *(f"{one[part]:.1%}" for part in ("recall_a", "recall_b", "union", "overlap")),
        )
        for one in (*told["corpora"], *told["pairs"])
    ]
    names = {(one["a"], one["b"]) for one in told["pairs"]}
    a, b = min(names) if len(names) == 1 else ("1st", "2nd")
    print_table([("set", "sources", "both", f"only {a}", f"only {b}", "neither", a, b, "union", "overlap"), *rows])
    for one in told["pairs"]:
        echo()
        about = f"{plain(one['set'])}, {one['a']} and {one['b']}: {click.style(one['advice'], bold=True)}."
        _say(f"{about} {_sentence(one['why'])}")
        notice(f"{one['relevant']:,} relevant records of {one['questions']:,} questions, {told['depth']} deep")
    if any(one["advice"] == "gains little" for one in told["pairs"]):
        echo()
        _say("This is about what is found. Whether fusing puts it in a better order, `recollect eval sweep` measures.")


_PARTS = ("both", "only_a", "only_b", "neither")


def print_tuning(told: Mapping[str, Any]) -> None:
    """The held-out gain, what the folds chose, and the verdict."""
    if "gain" in told:
        print_table(
            [
                ("", told["measure"]),
                ("default", interval(told["default"])),
                ("tuned, held out", interval(told["held_out"])),
                ("gain", f"{interval(told['gain'], signed=True)}  p = {told['p']:.4f}"),
            ]
        )
        echo()
        folds = len(told["folds"])
        chosen = [(f"{one['folds']} of {folds} folds chose", said(one["settings"])) for one in told["stability"]]
        print_table([*chosen, ("all questions choose", said(told["chosen"]))])
        echo()
    _say(told["verdict"])
    if told.get("written"):
        _say(f"written to {told['written']}: use it with --config, or put its lines into your own settings")
    elif not told["keep_default"]:
        echo()
        echo("\n".join(settings_lines(told)))
    notice(f"{told['data']['name']}: {told['data']['questions']:,} questions, {told['tried']} settings tried")


def said(settings: Mapping[str, Any]) -> str:
    """Changed settings in a line."""
    return ", ".join(f"{name} = {_toml(value)}" for name, value in settings.items()) or "the default"


def settings_lines(told: Mapping[str, Any]) -> list[str]:
    """Chosen settings as TOML, with what speaks for them."""
    data, gain = told["data"], told["gain"]
    about = [
        f"Chosen by `recollect eval tune` on {plain(data['name'])} (fingerprint {data['fingerprint']}).",
        f"Held out, {data['questions']} questions: {told['measure']} {interval(told['held_out'])}.",
        f"The default has {interval(told['default'])}; gain {interval(gain, signed=True)}, p = {told['p']:.4f}.",
    ]
    lines = [f"# {line}" for line in about] + ["", "[search]"]
    return [*lines, *(f"{name} = {_toml(value)}" for name, value in told["settings"].items())]


def _plot(told: Mapping[str, Any]) -> None:
    """A line of blocks for each curve over depth, all on one scale; the knee is marked."""
    rows = told["rows"]
    low, high = min(row["mean"] for row in rows), max(row["mean"] for row in rows)
    depths = list(dict.fromkeys(row["options"]["fetch_k"] for row in rows))
    names = list(dict.fromkeys(_name(row["options"]) for row in rows))
    space = max(map(len, names))
    for name, knee in zip(names, told["knees"], strict=True):
        means = [row["mean"] for row in rows if _name(row["options"]) == name]
        bars = "".join(_block(mean, low, high) * EACH for mean in means)
        words = f"{means[0]:.3f} to {means[-1]:.3f}, knee at {knee['options']['fetch_k']}"
        echo(f"{name:<{space}}  {click.style(bars, fg='cyan')}  {words}")
    echo(click.style(f"{'fetch_k':<{space}}  {''.join(f'{depth:<{EACH}}'[:EACH] for depth in depths)}", dim=True))


def _block(value: float, low: float, high: float) -> str:
    place = (value - low) / (high - low) if high > low else 1.0
    return BLOCKS[round(place * (len(BLOCKS) - 1))]


def _across(told: Mapping[str, Any]) -> None:
    """How much of the top changes from one curve to the next, the mean over depths."""
    shares: dict[tuple[str, str], list[float]] = {}
    for one in told["churn"]:
        if one["along"] == "settings":
            shares.setdefault((_name(one["from"]), _name(one["to"])), []).append(one["share"])
    if shares:
        rows = [(a, b, _percent(sum(found) / len(found))) for (a, b), found in shares.items()]
        print_table([("from", "to", "top 10 changed"), *rows])
        echo()


def _knee(told: Mapping[str, Any]) -> str:
    knee = told["knee"]
    return (
        f"knee: {_name(knee['options'])} at fetch_k {knee['options']['fetch_k']}, {told['measure']} {interval(knee)}; "
        "nothing deeper is significantly better (paired test, p < 0.05)"
    )


def _prefix(prefix: Mapping[str, Any]) -> str:
    short, long = prefix["limits"]
    what = f"search(limit={short}) is a prefix of search(limit={long})"
    if prefix["held"]:
        return f"{what}: held in all {prefix['checked']} pairs of live searches ({prefix['questions']} questions)"
    first = prefix["broken"][0]
    return (
        f"{what}: BROKEN in {len(prefix['broken'])} of {prefix['checked']} pairs of live searches, "
        f"first for {first['question']!r} with {_name(first['options'])}"
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _say(words: str) -> None:
    echo(click.wrap_text(words, width()))


def _name(options: Mapping[str, Any]) -> str:
    from recollect.evaluation.sweep import label

    return label(options)


def _key(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
    return repr(value)


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
    from recollect.evaluation.sweep import swept

    lines = _curves(options)
    if plot and plot.suffix not in (".png", ".svg"):
        raise UsageError(f"{plot} cannot be drawn", hint="a name that ends in .png or .svg")
    _check_folder(plot)
    with judged_by(options, measure, max(depths)) as judged:
        told = swept(judged, lines, depths, progress=progress("sweeping"))
    if plot:
        _draw(told, plot)
    show(told, print_sweep, as_json)
    return 0 if told["prefix"]["held"] else FAILED


@click.command()
@on_data
@click.argument("more", nargs=-1, metavar="[DATASET]…")
@click.option("--fetch-k", type=click.IntRange(1), metavar="N", help="How deep each source is read (yours).")
@common
@json_flag
def overlap(more: tuple[str, ...], fetch_k: int | None, as_json: bool, **options: Any) -> int:
    """Count the relevant records that each source finds, and say whether fusing them is worth it."""
    from recollect.evaluation.overlap import shared, together

    depth = fetch_k or load_settings(options).settings.search.fetch_k
    found = []
    for dataset in (options["dataset"], *more):
        with judged_by({**options, "dataset": dataset}, MEASURE, depth) as judged:
            found.append(shared(judged, depth))
    told = together(found)
    show(told, print_overlap, as_json)
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
    from recollect.evaluation.sweep import FETCH_KS

    if out and out.exists() and not force:
        raise UsageError(f"{out} is there already", hint="another name, or --force to overwrite it")
    _check_folder(out)
    with judged_by(options, measure, max(FETCH_KS)) as judged:
        told = {"data": judged.as_dict(), "measure": judged.measure, **_tuned(judged)}
    if out and not told["keep_default"]:
        from recollect.evaluation.datasets import write_lines

        write_lines(out, settings_lines(told))
        told["written"] = str(out)
    show(told, print_tuning, as_json)
    return 0


def _check_folder(file: Path | None) -> None:
    """Said before the work is done, not after it."""
    if file and not file.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", hint="make it, or name another file")


def _curves(options: Mapping[str, Any]) -> list[Options]:
    """The settings that are swept at every depth; unknown names are refused before anything is asked."""
    from recollect.evaluation.sweep import curves_of

    search = load_settings(options).settings.search
    return curves_of(search, **{name: options[name] for name in ("fusions", "ks", "normalisations", "shares")})


def _tuned(judged: Judged) -> dict[str, Any]:
    """The study, and what follows from it."""
    from recollect.evaluation.sweep import candidates, completed, refinements
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
