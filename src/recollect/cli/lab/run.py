"""`recollect eval run` and `recollect eval gate`: measure, and notice when it became worse."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.flags import asking, ranking_options, seeing_options
from recollect.cli.lab import tables
from recollect.cli.lab.data import on_data, on_questions, open_set, read_bytes, read_sets
from recollect.cli.options import common, json_flag, load_settings, notice, progress

if TYPE_CHECKING:
    from recollect.evaluation.datasets import Dataset
    from recollect.evaluation.reports import Report
    from recollect.evaluation.trials import Plan, Rival

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
@asking
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
        seeing_options(options),
        options["limit"],
        options["exclude_self"],
        options["latency"] or 0,
        options["against"],
    )
    report, qrels = _measure(dataset, plan, options)
    found = report.as_dict()
    tables.show_report(found, as_json=as_json)
    if options["save"]:
        _write(options["save"], [json.dumps(found, ensure_ascii=False, indent=1)])
    _save(report, qrels, options)
    return 0


@click.command()
@click.argument("new", required=False, metavar="[REPORT_OR_DATASET]")
@click.option("--baseline", required=True, metavar="FILE", help="The report to hold against: eval run … --save FILE.")
@on_questions
@_rivals
@asking
@common
@json_flag
def gate(new: str | None, baseline: str, as_json: bool, **options: Any) -> int:
    """Exit 1 when a measure fell by more than the noise since the baseline.

    REPORT_OR_DATASET is a newer report, or a set on which the baseline's systems are measured again.
    """
    from recollect.evaluation.gate import gate as check
    from recollect.evaluation.reports import read_report

    old = read_report(Path(baseline))
    if new is not None and Path(new).is_file():
        checks = check(old, read_report(Path(new)))
    else:
        split = options["split"] or old["data"].get("split") or ""
        report, _ = _measure(new, _same_plan(old, options), {**options, "split": split})
        checks = check(old, report.as_dict())
    return tables.show_checks(checks, as_json=as_json)


def _same_plan(old: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    """What the baseline was made with, as far as it is ours."""
    from recollect.evaluation.trials import SYSTEMS, Plan

    measures = dict.fromkeys(measure for system in old["systems"].values() for measure in system["per_query"])
    return Plan(
        {name: SYSTEMS[name] for name in old["systems"] if name in SYSTEMS},
        tuple(measures),
        seeing_options(options),
        options["limit"] or old["settings"].get("depth"),
        bool(old["settings"]["exclude_self"]),
    )


def _measure(
    dataset: str | None, plan: Plan, options: dict[str, Any]
) -> tuple[Report, Mapping[str, Mapping[str, int]]]:
    """The report, and the judgments it is by."""
    from recollect.evaluation.reports import make_report
    from recollect.evaluation.trials import conduct

    name, sets = read_sets(dataset, options, asking=bool(plan.systems))
    ranking = {**ranking_options(options), "limit": None}  # how many are scored is the plan's affair
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
    from recollect.evaluation.judgments import write_qrels
    from recollect.evaluation.runs import write_trec

    ours = [trial for trial in report.trials if "run" not in trial.options]
    for trial in ours if options["save_run"] else ():
        file = Path(options["save_run"])
        place = file if len(ours) == 1 else file.with_name(f"{file.stem}-{trial.system}{file.suffix}")
        _write(str(place), write_trec({key: list(of.items()) for key, of in trial.run.items()}, trial.system))
    if options["save_qrels"]:
        _write(options["save_qrels"], write_qrels(qrels))


def _write(file: str, written: Iterable[str]) -> None:
    from recollect.evaluation.judgments import write_lines

    write_lines(Path(file), written)
    notice(f"wrote {file}")
