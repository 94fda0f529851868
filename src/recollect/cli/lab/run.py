"""`recollect eval run`, `gate`, `report` and `make-set`: measure, compare with a baseline, write a page, make a set."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from recollect.cli import flags, lab
from recollect.cli.flags import command, filters_of, load_settings, read_input
from recollect.cli.terminal import echo, emit, notice, plain, print_table, progress
from recollect.disk import at_home
from recollect.errors import FailedError, UsageError
from recollect.evaluation import sets, trials
from recollect.evaluation.datasets import json_object, write_lines, write_qrels
from recollect.evaluation.report import compose, render, write_pngs
from recollect.evaluation.results import kind
from recollect.evaluation.runs import write_trec
from recollect.evaluation.scoring import MEASURES, parse_measures
from recollect.evaluation.trials import SYSTEMS, MeasuredCorpus, Trial, TrialPlan
from recollect.options import SEARCH

TIMED = "100"  # the default number of timed searches
SIGNIFICANT = 0.05
REPORT_HINT = "recollect eval run … --json > run.json, and likewise sweep and overlap; or the folder of a set"

# The studies that `report` runs on a set, with and without an embedder.
HYBRID = (("run", "--compare", "keyword,vector,rrf,weighted,default", "--latency"), ("sweep",), ("overlap",))
KEYWORD = (("run", "--compare", "keyword", "--latency"),)

_external = click.option(
    "--run", "external", multiple=True, metavar="[NAME=]FILE", help="Also score this run; repeatable."
)


@command()
@lab.dataset_options
@lab.as_files_option
@_external
@click.option("--measures", "-m", multiple=True, metavar="NAMES", help="nDCG@10 R@5 AP P@1 … (nDCG@10 R@20 RR@10).")
@click.option("--compare", default="default", metavar="NAMES", help="keyword, vector, rrf, weighted, default; none.")
@click.option("--against", metavar="NAME", help="The system that the others are compared with.")
@click.option("--exclude-self", is_flag=True, help="Drop the document that has the question's own id.")
@click.option(
    "--latency", metavar="[N]", is_flag=False, flag_value=TIMED, type=click.IntRange(min=1),
    help=f"Time N real searches of each system ({TIMED}).",
)  # fmt: skip
@click.option("--save", metavar="FILE", help="Write the report as JSON.")
@click.option("--save-run", metavar="FILE", help="Write the rankings as a TREC run, one file for each system.")
@click.option("--save-qrels", metavar="FILE", help="Write the judgments as TREC qrels.")
@flags.option_flags("search", SEARCH)
def run(dataset: str | None, as_json: bool, **options: Any) -> int:
    """Measure search on judged questions.

    DATASET is a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels.tsv or qrels/test.tsv; subfolders are
    corpora of their own), or one without corpus.jsonl, whose questions are to your own store. Without DATASET give
    --queries and --qrels.
    """
    systems, measures = trials.named_systems(options["compare"]), parse_measures(options["measures"] or MEASURES)
    others = {name: options[name] for name in ("limit", "exclude_self", "against")}
    plan = TrialPlan(systems, measures, filters_of(options), latency=options["latency"] or 0, **others)
    report, results, corpora = _measure(dataset, plan, options)
    emit(as_json, report, partial(_print_report, report))
    _save(report, results, corpora, options)
    return 0


@command()
@click.argument("new", required=False, metavar="[REPORT_OR_DATASET]")
@click.option("--baseline", required=True, metavar="FILE", help="The report to compare with: eval run … --save FILE.")
@lab.question_options
@_external
@flags.option_flags("search", SEARCH)
def gate(new: str | None, baseline: str, as_json: bool, **options: Any) -> int:
    """Exit 1 when a measure fell significantly since the baseline.

    REPORT_OR_DATASET is a newer report, or a set on which the baseline's systems are measured again.
    """
    old = trials.read_report(Path(baseline))
    if new is not None and Path(new).is_file():
        report = trials.read_report(Path(new))
    else:
        measures = dict.fromkeys(measure for system in old["systems"].values() for measure in system["per_query"])
        systems = {name: SYSTEMS[name] for name in old["systems"] if name in SYSTEMS}
        limit, exclude_self = options["limit"] or old["settings"].get("depth"), bool(old["settings"]["exclude_self"])
        plan = TrialPlan(systems, tuple(measures), filters_of(options), limit, exclude_self)
        split = options["split"] or old["data"].get("split") or ""
        as_files = bool(old["data"].get("as_files"))
        report, _, _ = _measure(new, plan, {**options, "split": split, "as_files": as_files})
    checks = trials.gate(old, report)
    fell = sum(check["fell"] for check in checks)
    emit(as_json, {"passed": not fell, "checks": checks}, partial(_print_checks, checks, fell))
    return 1 if fell else 0


def _measure(
    dataset: str | None, plan: TrialPlan, options: dict[str, Any]
) -> tuple[dict[str, Any], list[Trial], list[MeasuredCorpus]]:
    name, datasets = lab.read_sets(dataset, options, asking=bool(plan.systems))
    ranking = {**flags.search_options(options), "limit": None}  # the plan says how many results are scored
    questions, external = {key for one in datasets for key in one.qrels}, []
    for word in options["external"]:
        title, _, file = ("", "", word) if Path(word).is_file() else word.rpartition("=")
        data = read_input(file, "--run FILE, or --run NAME=FILE")
        external.append(trials.read_external(title or Path(file).stem, file, data, questions))
    opener = partial(lab.open_set, options, ranking)
    results, corpora = trials.run_trials(plan, datasets, opener, external=external, progress=progress)
    settings = load_settings(options, ranking).settings
    return trials.make_report(name, plan, settings, results, corpora, split=options["split"]), results, corpora


def _save(
    report: Mapping[str, Any], results: Sequence[Trial], corpora: Sequence[MeasuredCorpus], options: Mapping[str, Any]
) -> None:
    """Write the report, our runs and the judgments, the last two in TREC's form."""
    files: dict[Path, Iterable[str]] = {}
    if options["save"]:
        files[Path(options["save"])] = [json.dumps(report, ensure_ascii=False, indent=1)]
    ours = [trial for trial in results if "run" not in trial.options]
    for trial in ours if options["save_run"] else ():
        file = Path(options["save_run"])
        path = file if len(ours) == 1 else file.with_name(f"{file.stem}-{trial.system}{file.suffix}")
        files[path] = write_trec({key: list(of.items()) for key, of in trial.run.items()}, trial.system)
    if options["save_qrels"]:
        qrels = {key: grades for corpus in corpora for key, grades in corpus.dataset.qrels.items()}
        files[Path(options["save_qrels"])] = write_qrels(qrels)
    for path, lines in files.items():
        write_lines(path, lines)
        notice(f"wrote {path}")


def _print_report(report: Mapping[str, Any]) -> None:
    lab.print_findings(report, "systems", "latency")
    data, model = report["data"], report["settings"]["embedder"] or "runs alone"
    split = f" ({data['split']})" if data["split"] else ""
    corpora = f" in {len(data['corpora'])} corpora" if len(data["corpora"]) > 1 else ""
    form = " as files" if data["as_files"] else ""
    documents = f"{data['documents']:,} documents{form}{corpora} · " if data["documents"] else ""
    questions = f"{data['questions']:,} questions · {data['fingerprint']}"
    notice(f"{data['name']}{split} · {documents}{questions} · {model} · means with 95 % intervals")
    for warning in report["warnings"]:
        notice(f"note: {warning}")


def _print_checks(checks: Sequence[Mapping[str, Any]], fell: int) -> None:
    rows = [("system", "measure", "before", "after", "difference", "p", "")]
    for check in checks:
        before, after, p = (f"{check[name]:.4f}" for name in ("before", "after", "p"))
        difference = lab.interval(check["difference"], signed=True)
        rows.append((check["system"], check["measure"], before, after, difference, p, _verdict(check)))
    print_table(rows)
    outcome = f"{fell} of {len(checks)} fell" if fell else "nothing fell significantly"
    notice(f"{checks[0]['difference']['n']:,} questions · {outcome}")


def _verdict(check: Mapping[str, Any]) -> str:
    changed = check["wins"] + check["losses"]
    if check["p"] < SIGNIFICANT:
        return "FELL" if check["fell"] else "rose"
    if not changed:
        return "unchanged"
    if check["noticeable"] is None:
        return f"only {changed} questions changed, too few to tell"
    return f"not significant; a fall of more than {check['noticeable']:.3f} would be"


@command()
@click.argument("sources", nargs=-1, metavar="FILE_OR_DATASET…")
@click.option(
    "--out", "-o", default="report.html", type=click.Path(path_type=Path), metavar="FILE", show_default=True,
    help="The page.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing page.")
@click.option("--png", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Each plot as PNG too.")
def report(sources: tuple[str, ...], out: Path, force: bool, png: Path | None, as_json: bool, **options: Any) -> int:
    """Write an HTML page with the plots.

    A FILE is what `eval run`, `sweep` or `overlap` printed with --json. For a DATASET (a folder) these studies are run
    first.
    """
    if not sources:
        raise UsageError("there is nothing to report on", hint=REPORT_HINT)
    if out.exists() and not force:
        raise UsageError(f"{out} exists already", hint="choose another name, or --force to overwrite it")
    reports = [one for source in sources for one in _reports(source, options)]
    sections = compose(reports)
    page = render(reports, sections)
    try:
        out.write_text(page, encoding="utf-8")
        paths = [out, *(write_pngs(sections, png) if png else [])]
    except OSError as error:
        raise FailedError(f"{error.filename or out} cannot be written: {error.strerror or error}") from error
    emit(as_json, {"written": [str(path) for path in paths]}, "\n".join(plain(str(path)) for path in paths))
    return 0


def _reports(source: str, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Read a file, or run all studies on a set."""
    if not Path(source).is_dir():
        report = json_object(read_input(source, REPORT_HINT), source, REPORT_HINT)
        kind(report, source)
        yield report
        return
    extra = [word for name, value in flags.common_options(options).items() if value for word in (f"--{name}", value)]
    root = click.get_current_context().find_root()
    for name, *words in KEYWORD if load_settings(options).settings.embedder == "none" else HYBRID:
        notice(f"eval {name} {source}")
        study = lab.eval_.make_context("eval", [name, source, *words, *extra, "--json"], parent=root)
        with contextlib.redirect_stdout(io.StringIO()) as output, study:
            lab.eval_.invoke(study)
        yield dict(json.loads(output.getvalue()))


@command("make-set")
@click.option("-o", "--output", "folder", required=True, metavar="FOLDER", help="The folder of the set.")
@click.option("-n", "--n", "count", default=200, show_default=True, type=click.IntRange(1), help="How many questions.")
@click.option("--llm", is_flag=True, help="Let the language model of [llm] write half of them, in its own words.")
@click.option("--masked", is_flag=True, help="Also copy the records, without the words of their questions.")
@click.option("--seed", default=60, show_default=True, help="Another seed chooses other questions.")
@click.option("--plan", is_flag=True, help="Print what would be made and sent; send and write nothing.")
@click.option("--update", is_flag=True, help="Keep the existing set with your edits, and add new questions.")
@click.option("--force", is_flag=True, help="Replace the existing set.")
@flags.option_flags("filter")
def make_set(folder: str, plan: bool, as_json: bool, **options: Any) -> int:
    """Make a set of questions from your own store, each with one known answer, to measure search with.

    They come from headings, links, aliases, sentences and facts, and with --llm from a language model. You may edit
    the files in FOLDER; `recollect eval run FOLDER` measures on it.
    """
    names = ("count", "seed", "llm", "masked", "update", "force")
    set_options = sets.SetOptions(**{name: options[name] for name in names}, filters=filters_of(options))
    path = at_home(folder)
    with flags.open_memory(options, reads=True) as memory:
        report = sets.make_set(memory, path, set_options, plan=plan, steps=progress, announce=notice)
    emit(as_json, report, partial(_print_set, report, plan))
    return 0


def _print_set(report: Mapping[str, Any], plan: bool) -> None:
    if report["leakage"]:
        print_table(sets.leak_cells(report["leakage"]))
        for name, meaning in sets.LEGEND.items():
            notice(f"{name}: {meaning}")
    sides, kinds = report["sides"], ", ".join(f"{count:,} {kind}" for kind, count in report["kinds"].items())
    uses = f"{sides['test']:,} to report on, {sides['dev']:,} to try settings on"
    echo(f"{'would be' if plan else plain(report['folder'])}: {sum(sides.values()):,} questions ({kinds}); {uses}")
    if plan:
        calls = f"{report['calls']:,} calls of the language model, about {report['tokens']:,} tokens to send; "
        echo(f"{calls if report['calls'] else ''}nothing was sent or written")
    for warning in report["warnings"]:
        notice(f"note: {warning}")
