"""Reports and gates as a person reads them."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import (
    common,
    common_options,
    filter_flags,
    filters_of,
    json_flag,
    load_settings,
    open_memory,
    search_flags,
    search_options,
)
from recollect.cli.lab import on_data, on_questions, open_set, read_bytes, read_sets
from recollect.cli.terminal import echo, notice, plain, print_json, print_table, progress
from recollect.errors import FailedError, UsageError

if TYPE_CHECKING:
    from recollect.evaluation.datasets import Dataset
    from recollect.evaluation.questions import Made, SetWishes
    from recollect.evaluation.trials import Check, Plan, Report, Rival
    from recollect.memory import Memory


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


TIMED = "100"
"""Searches that are timed where no number is given."""


_rivals = click.option("--run", "rivals", multiple=True, metavar="[NAME=]FILE", help="Also score this run; repeatable.")


@click.command()
@on_data
@_rivals
@click.option("--measures", "-m", multiple=True, metavar="NAMES", help="nDCG@10 R@5 AP P@1 … (nDCG@10 R@20 RR@10).")
@click.option("--compare", default="default", metavar="NAMES", help="keyword, vector, rrf, weighted, default; none.")
@click.option("--against", metavar="NAME", help="The system that the others are compared with.")
@click.option("--exclude-self", is_flag=True, help="Drop the document that has the question's own id.")
@click.option(
    "--latency",
    metavar="[N]",
    is_flag=False,
    flag_value=TIMED,
    type=click.IntRange(min=1),
    help=f"Time N real searches of each system ({TIMED}).",
)
@click.option("--save", metavar="FILE", help="Write the report as JSON.")
@click.option("--save-run", metavar="FILE", help="Write the rankings as a TREC run; of several systems, one file each.")
@click.option("--save-qrels", metavar="FILE", help="Write the judgments as TREC qrels.")
@search_flags
@common
@json_flag
def run(dataset: str | None, as_json: bool, **options: Any) -> int:
    """Measure search on judged questions.

    DATASET is a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels.tsv or qrels/test.tsv; subfolders are
    corpora of their own), or one without corpus.jsonl, whose questions are to your own store. Without DATASET give
    --queries and --qrels.
    """
    from recollect.evaluation.scoring import MEASURES, parse_measures
    from recollect.evaluation.trials import Plan, named_systems

    plan = Plan(
        named_systems(options["compare"]),
        parse_measures(options["measures"] or MEASURES),
        filters_of(options),
        options["limit"],
        options["exclude_self"],
        options["latency"] or 0,
        options["against"],
    )
    report, qrels = _measure(dataset, plan, options)
    found = report.as_dict()
    show_report(found, as_json=as_json)
    if options["save"]:
        _write(options["save"], [json.dumps(found, ensure_ascii=False, indent=1)])
    _save(report, qrels, options)
    return 0


@click.command()
@click.argument("new", required=False, metavar="[REPORT_OR_DATASET]")
@click.option("--baseline", required=True, metavar="FILE", help="The report to hold against: eval run … --save FILE.")
@on_questions
@_rivals
@search_flags
@common
@json_flag
def gate(new: str | None, baseline: str, as_json: bool, **options: Any) -> int:
    """Exit 1 when a measure fell by more than the noise since the baseline.

    REPORT_OR_DATASET is a newer report, or a set on which the baseline's systems are measured again.
    """
    from recollect.evaluation.trials import gate as check
    from recollect.evaluation.trials import read_report

    old = read_report(Path(baseline))
    if new is not None and Path(new).is_file():
        checks = check(old, read_report(Path(new)))
    else:
        split = options["split"] or old["data"].get("split") or ""
        report, _ = _measure(new, _same_plan(old, options), {**options, "split": split})
        checks = check(old, report.as_dict())
    return show_checks(checks, as_json=as_json)


def _same_plan(old: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    """What the baseline was made with, as far as it is ours."""
    from recollect.evaluation.trials import SYSTEMS, Plan

    measures = dict.fromkeys(measure for system in old["systems"].values() for measure in system["per_query"])
    return Plan(
        {name: SYSTEMS[name] for name in old["systems"] if name in SYSTEMS},
        tuple(measures),
        filters_of(options),
        options["limit"] or old["settings"].get("depth"),
        bool(old["settings"]["exclude_self"]),
    )


def _measure(
    dataset: str | None, plan: Plan, options: dict[str, Any]
) -> tuple[Report, Mapping[str, Mapping[str, int]]]:
    """The report, and the judgments it is by."""
    from recollect.evaluation.trials import conduct, make_report

    name, sets = read_sets(dataset, options, asking=bool(plan.systems))
    ranking = {**search_options(options), "limit": None}  # how many are scored is the plan's affair
    rivals = _read_rivals(options["rivals"], sets)
    trials, corpora = conduct(plan, sets, partial(open_set, options, ranking), rivals=rivals, progress=progress)
    settings = load_settings(options, ranking).settings
    report = make_report(name, plan, settings, trials, corpora, split=options["split"])
    return report, {key: grades for corpus in corpora for key, grades in corpus.dataset.qrels.items()}


def _read_rivals(said: Sequence[str], sets: Sequence[Dataset]) -> list[Rival]:
    from recollect.evaluation.trials import read_rival

    questions = {key for one in sets for key in one.qrels}
    rivals = []
    for words in said:
        name, _, file = ("", "", words) if Path(words).is_file() else words.rpartition("=")
        data = read_bytes(file, hint="--run FILE, or --run NAME=FILE")
        rivals.append(read_rival(name or Path(file).stem, file, data, questions))
    return rivals


def _save(report: Report, qrels: Mapping[str, Mapping[str, int]], options: Mapping[str, Any]) -> None:
    """Runs and judgments as TREC has them; a rival's run is a file already."""
    from recollect.evaluation.datasets import write_qrels
    from recollect.evaluation.runs import write_trec

    ours = [trial for trial in report.trials if "run" not in trial.options]
    for trial in ours if options["save_run"] else ():
        file = Path(options["save_run"])
        place = file if len(ours) == 1 else file.with_name(f"{file.stem}-{trial.system}{file.suffix}")
        _write(str(place), write_trec({key: list(of.items()) for key, of in trial.run.items()}, trial.system))
    if options["save_qrels"]:
        _write(options["save_qrels"], write_qrels(qrels))


def _write(file: str, written: Iterable[str]) -> None:
    from recollect.evaluation.datasets import write_lines

    write_lines(Path(file), written)
    notice(f"wrote {file}")


_WISHES = ("count", "seed", "llm", "masked", "update", "force")


@click.command("make-set")
@click.option("-o", "--output", "folder", required=True, metavar="FOLDER", help="Where the set is to be.")
@click.option("-n", "--n", "count", default=200, show_default=True, type=click.IntRange(1), help="How many questions.")
@click.option("--llm", is_flag=True, help="Let the language model of [llm] ask half of them, in its own words.")
@click.option("--masked", is_flag=True, help="Also copy the records, without the words of their questions.")
@click.option("--seed", default=60, show_default=True, help="Another number, other questions.")
@click.option("--plan", is_flag=True, help="Say what would be made and sent; send and write nothing.")
@click.option("--update", is_flag=True, help="Keep the set that is there, with your edits, and add what is new.")
@click.option("--force", is_flag=True, help="Make the set that is there anew.")
@filter_flags
@common
@json_flag
def make_set(folder: str, plan: bool, as_json: bool, **options: Any) -> int:
    """Make questions from your own store, each asking for one known thing: a set to measure search with.

    They come from headings, links, aliases, sentences and facts, and with --llm from a language model. FOLDER is
    for you to edit; `recollect eval run FOLDER` measures on it.
    """
    from recollect.cli.terminal import print_json
    from recollect.evaluation.questions import SetWishes, plan_set

    wishes = SetWishes(**{name: options[name] for name in _WISHES}, filters=filters_of(options))
    place = Path(folder).expanduser()
    with open_memory(options, reads=True) as memory:
        made = plan_set(memory, place, wishes, bars=progress) if plan else _make(memory, place, wishes)
    if as_json:
        print_json(made.as_dict())
    else:
        _show(made, plan)
    return 0


def _make(memory: Memory, place: Path, wishes: SetWishes) -> Made:
    from recollect.evaluation import questions

    return questions.make_set(memory, place, wishes, bars=progress, announce=notice)


def _show(made: Made, plan: bool) -> None:
    from recollect.cli.terminal import print_table
    from recollect.evaluation.questions.files import COLUMNS, cells

    if made.leakage:
        print_table([COLUMNS, *map(cells, made.leakage)])
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in made.kinds.items())
    sides = f"{made.sides['test']:,} to report on, {made.sides['dev']:,} to try things on"
    echo(
        f"{'would be' if plan else plain(str(made.folder))}: {sum(made.sides.values()):,} questions ({kinds}); {sides}"
    )
    if plan:
        calls = f"{made.calls:,} calls of the language model, about {made.tokens:,} tokens to send; " * bool(made.calls)
        echo(f"{calls}nothing was sent or written")
    for warning in made.warnings:
        notice(f"note: {warning}")


HINT = "recollect eval run … --json > run.json, and likewise sweep and overlap; or the folder of a set"

HYBRID = (("run", "--compare", "keyword,vector,rrf,weighted,default", "--latency"), ("sweep",), ("overlap",))
KEYWORD = (("run", "--compare", "keyword", "--latency"),)
"""The studies that a set is put to, and without an embedder."""


@click.command()
@click.argument("sources", nargs=-1, metavar="FILE_OR_DATASET…")
@click.option(
    "--out",
    "-o",
    default="report.html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default=True,
    help="The page.",
)
@click.option("--force", is_flag=True, help="Overwrite a page that is there.")
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Each plot as PNG too.")
@common
@json_flag
def report(sources: tuple[str, ...], out: Path, force: bool, png: Path | None, as_json: bool, **options: Any) -> int:
    """Write one page with the plots.

    A FILE is what `eval run`, `sweep` or `overlap` printed with --json; a DATASET, a folder, is put to these studies
    first.
    """
    from recollect.evaluation.page import compose, render, write_pngs

    if not sources:
        raise UsageError("there is nothing to report on", hint=HINT)
    if out.exists() and not force:
        raise UsageError(f"{out} is there already", hint="another name, or --force to overwrite it")
    reports = [told for source in sources for told in _told(source, options)]
    named = compose(reports)
    page = render(reports, named)
    written = [out]
    try:
        out.write_text(page, encoding="utf-8")
        written += write_pngs(named, png) if png else []
    except OSError as error:
        raise FailedError(f"{error.filename or out} cannot be written: {error.strerror or error}") from error
    _say(written, as_json)
    return 0


def _told(source: str, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A file's report, or those of all studies of a set."""
    if not Path(source).is_dir():
        yield _read(source)
        return
    flags = [
        word for name, value in common_options(options).items() if value is not None for word in (f"--{name}", value)
    ]
    for name, *words in KEYWORD if load_settings(options).settings.embedder == "none" else HYBRID:
        notice(f"eval {name} {source}")
        yield _study(name, [source, *words, *flags, "--json"])


def _study(name: str, words: list[str]) -> Mapping[str, Any]:
    """What another command of the laboratory prints."""
    context = click.get_current_context()
    group = context.parent.command if context.parent else None
    command = group.get_command(context, name) if isinstance(group, click.Group) else None
    if command is None:
        raise UsageError(f"there is no study {name!r}", hint="recollect eval --help")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), command.make_context(name, words, parent=context.parent) as inner:
        command.invoke(inner)
    return dict(json.loads(printed.getvalue()))


def _read(name: str) -> Mapping[str, Any]:
    """One file's report; what is wrong with it is said with its name."""
    from recollect.evaluation.results import kind

    data = sys.stdin.buffer.read() if name == "-" else read_bytes(name, hint=HINT)
    try:
        found: Any = json.loads(data)
        kind(found)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}", hint=HINT) from error
    return dict(found)


def _say(written: list[Path], as_json: bool) -> None:
    from recollect.cli.terminal import print_json

    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        echo("\n".join(plain(str(path)) for path in written))
