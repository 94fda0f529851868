"""How the studies look on a terminal: tables, a small plot of blocks, and a sentence that says what follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from recollect.cli.lab.tables import interval
from recollect.cli.options import notice
from recollect.cli.output import print_json, print_table, width
from recollect.cli.plain import echo, plain

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
    from recollect.evaluation.grid import label

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
