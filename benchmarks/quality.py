"""Search quality on the development sets: `make eval`, or `python -m benchmarks.quality [SET…] [--write]`.

Reads RECOLLECT_DATA (default ../shared/data). What is reported is held out: the official test questions of scifact and
nfcorpus, and of the sets without a split the questions whose id hashes to an odd number; the even ones, scifact's train
and nfcorpus's dev questions are for tuning (`--part tuning`, `python -m benchmarks.ways`). Stores are kept in the
user's cache by the corpus's fingerprint, so that a second run embeds nothing. `--write` puts the tables into the docs;
`--check` fails if a figure differs from theirs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from recollect.config import Settings
from recollect.evaluation.datasets import Dataset, read_dataset
from recollect.evaluation.recording import open_corpus, record
from recollect.evaluation.scoring import Comparison, Estimate, compare, estimate, evaluate
from recollect.evaluation.trials import SYSTEMS

SETS = (
    "scifact", "nfcorpus", "cranfield", "locomo", "longmemeval", "openclaw_docs", "cosqa_dev", "vespa_rag_blueprint",
    "madial_en", "xquad", "factconsolidation_6k", "factconsolidation_32k",
)  # fmt: skip
TUNING_SPLITS = {"scifact": "train", "nfcorpus": "dev"}
APART = ("xquad",)
"""Sets whose corpora are shown one by one: what is true of English is not of Hindi."""

SHOWN = {
    "keyword": "keyword",
    "vector": "vector",
    "weighted": "weighted .7/.3",
    "rrf": "RRF k=60",
    "default": "default",
}
MEASURES = ("nDCG@10", "R@5", "P@1")
DEPTHS = (5, 10, 20, 50, 100, 200)
SWEPT = {"rrf": SYSTEMS["rrf"], "weighted": SYSTEMS["weighted"], "default": {}}
SWEPT_QUESTIONS = 100
"""Questions of each corpus in the sweep over fetch_k, which ranks each of them eighteen times."""

DOCS = Path(__file__).parent.parent / "docs"
BEFORE = Path(__file__).parent / "results" / "quality-before.json"
"""The figures of the default with arctic-embed-s, before decision 057."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--part", choices=("held-out", "tuning"), default="held-out")
    parser.add_argument("--embedder", default=Settings().embedder)
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--json", type=Path, help="also write all values there")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a figure differs from docs/benchmarks.md")
    arguments = parser.parse_args()
    start = time.monotonic()
    jobs = [(name, arguments.part, arguments.embedder, not arguments.no_sweep) for name in arguments.sets]
    with ProcessPoolExecutor(2) as pool:
        rows = [row for found in pool.map(measure_set, *zip(*jobs, strict=True)) for row in found]
    took = time.monotonic() - start
    print(report(rows), f"\ntook {took / 60:.1f} minutes", sep="\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows), encoding="utf-8")
    if arguments.check and (different := differences(rows)):
        sys.exit("\n".join(["not as in docs/benchmarks.md:", *different]))
    if arguments.write:
        write_docs(rows, took)


def data_folder() -> Path:
    folder = Path(os.environ.get("RECOLLECT_DATA", "../shared/data"))
    if not folder.is_dir():
        sys.exit(f"no development sets at {folder}; set RECOLLECT_DATA")
    return folder


def questions(name: str, part: str) -> list[Dataset]:
    """The corpora of a set with the questions of one part."""
    tuning = part == "tuning"
    if name in TUNING_SPLITS:
        return read_dataset(data_folder() / name, split=TUNING_SPLITS[name] if tuning else "")
    return [_half(one, 0 if tuning else 1) for one in read_dataset(data_folder() / name)]


def _half(dataset: Dataset, side: int) -> Dataset:
    keys = [
        key
        for key in dataset.queries
        if hashlib.blake2b(key.removeprefix(dataset.prefix).encode(), digest_size=4).digest()[0] % 2 == side
    ]
    return replace(
        dataset,
        queries={key: dataset.queries[key] for key in keys},
        qrels={key: dataset.qrels[key] for key in keys},
    )


def measure_set(name: str, part: str, embedder: str, sweep: bool) -> list[dict[str, Any]]:
    """One row a set, or a corpus where the set is taken apart: values of every question under every system."""
    rows: dict[str, dict[str, Any]] = {}
    for dataset in questions(name, part):
        label = f"{name} {dataset.name}" if name in APART else name
        row = rows.setdefault(label, {"set": label, "documents": 0, "values": {}, "sweep": {}})
        row["documents"] += len(dataset.corpus)
        with open_corpus(dataset, settings=Settings(embedder=embedder)) as memory:
            heard = record(memory, dataset.queries)
            for system in SHOWN:
                _add(
                    row["values"].setdefault(system, {}), evaluate(dataset.qrels, heard.run(SYSTEMS[system]), MEASURES)
                )
            if name.startswith("factconsolidation"):
                plain = heard.run({"prefer_newer": False})
                _add(row["values"].setdefault("without newer", {}), evaluate(dataset.qrels, plain, MEASURES))
            if sweep:
                _sweep(
                    row["sweep"], replace(heard, texts=dict(list(dataset.queries.items())[:SWEPT_QUESTIONS])), dataset
                )
        print(f"  {label} {dataset.name}: {len(dataset.queries)} questions", file=sys.stderr)
    return list(rows.values())


def _add(into: dict[str, dict[str, float]], found: Mapping[str, Mapping[str, float]]) -> None:
    for measure, values in found.items():
        into.setdefault(measure, {}).update(values)


def _sweep(into: dict[str, dict[str, float]], heard: Any, dataset: Dataset) -> None:
    qrels = {key: dataset.qrels[key] for key in heard.texts}
    for system, options in SWEPT.items():
        for depth in DEPTHS:
            run = heard.run({**options, "fetch_k": depth}, limit=10)
            into.setdefault(f"{system} {depth}", {}).update(evaluate(qrels, run, MEASURES[:1])[MEASURES[0]])


def report(rows: list[dict[str, Any]]) -> str:
    parts = [table(quality_rows(rows, measure)) for measure in ("nDCG@10", "R@5")]
    return "\n\n".join([*parts, table(gains_rows(rows)), table(newer_rows(rows)), table(sweep_rows(rows))])


def quality_rows(rows: Iterable[Mapping[str, Any]], measure: str) -> list[tuple[str, ...]]:
    """Mean and interval of every system on every set, and the mean over sets; last, what the default had before."""
    before = json.loads(BEFORE.read_text(encoding="utf-8"))
    shown = [("set", "documents", "questions", *(f"{title} {measure}" for title in SHOWN.values()), "default before")]
    sums: dict[str, list[float]] = {system: [] for system in SHOWN}
    for row in rows:
        found = {system: estimate(list(row["values"][system][measure].values())) for system in SHOWN}
        best = max(found[system].mean for system in SHOWN)
        cells = (cell(found[system], bold=found[system].mean == best) for system in SHOWN)
        earlier = f"{before[row['set']][measure]:.3f}"
        shown.append((row["set"], f"{row['documents']:,}", f"{found['default'].n:,}", *cells, earlier))
        for system, one in found.items():
            sums[system].append(one.mean)
    means = (f"{mean(values):.3f}" for values in sums.values())
    shown.append(("mean of the rows", "", "", *means, f"{mean(one[measure] for one in before.values()):.3f}"))
    return shown


def gains_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The default against its own best source and against the two plain methods, question by question."""
    shown = [("set", "best source", "default against it", "won / lost / tied", "against RRF", "against .7/.3")]
    for row in rows:
        values = {system: row["values"][system]["nDCG@10"] for system in SHOWN}
        best = max(("keyword", "vector"), key=lambda system: mean(values[system].values()))
        found = [compare(values["default"], values[other]) for other in (best, "rrf", "weighted")]
        counts = f"{found[0].wins} / {found[0].losses} / {found[0].ties}"
        shown.append((row["set"], best, gain(found[0]), counts, gain(found[1]), gain(found[2])))
    return shown


def newer_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """What preferring the newer of two statements does where newer facts contradict older ones."""
    shown = [("set", "questions", "P@1 with", "P@1 without", "difference")]
    for row in rows:
        if "without newer" in row["values"]:
            after, before = (row["values"][system]["P@1"] for system in ("default", "without newer"))
            means = (cell(estimate(list(values.values()))) for values in (after, before))
            shown.append((row["set"], str(len(after)), *means, gain(compare(after, before))))
    return shown


def sweep_rows(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """RRF, the blend of .7 and .3 and the default over fetch_k: means over sets, and how RRF fares against .7/.3."""
    swept = [row["sweep"] for row in rows if row["sweep"]]
    shown = [("fetch_k", "RRF", "weighted .7/.3", "default", "RRF − .7/.3", "sets where RRF is ahead")]
    for depth in DEPTHS if swept else ():
        means = {
            system: [mean(one[f"{system} {depth}"].values()) for one in swept]
            for system in ("rrf", "weighted", "default")
        }
        pooled = [_pooled(swept, f"{system} {depth}") for system in ("rrf", "weighted")]
        ahead = sum(a > b for a, b in zip(means["rrf"], means["weighted"], strict=True))
        figures = (f"{mean(means[system]):.3f}" for system in ("rrf", "weighted", "default"))
        shown.append((str(depth), *figures, gain(compare(*pooled)), f"{ahead} of {len(swept)}"))
    return shown


def _pooled(swept: list[Mapping[str, Any]], name: str) -> dict[str, float]:
    """All questions of all sets, under names that differ."""
    return {f"{number} {key}": value for number, one in enumerate(swept) for key, value in one[name].items()}


def cell(one: Estimate, *, bold: bool = False) -> str:
    mark = "**" if bold else ""
    return f"{mark}{one.mean:.3f}{mark} [{one.low:.3f}, {one.high:.3f}]"


def gain(one: Comparison) -> str:
    star = "" if one.significant else " (n.s.)"
    return f"{one.difference.mean:+.3f} [{one.difference.low:+.3f}, {one.difference.high:+.3f}]{star}"


def table(rows: list[tuple[str, ...]]) -> str:
    head, *rest = rows
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rest)])


def write_docs(rows: list[dict[str, Any]], took: float) -> None:
    count = sum(len(row["values"]["default"]["nDCG@10"]) for row in rows)
    said = (
        f"{count:,} held-out questions, 95 % bootstrap intervals; {took / 60:.0f} minutes with stores that were there."
    )
    write(
        "benchmarks.md",
        "quality",
        f"{said}\n\n{table(quality_rows(rows, 'nDCG@10'))}\n\n{table(quality_rows(rows, 'R@5'))}",
    )
    write("benchmarks.md", "gains", table(gains_rows(rows)))
    write("benchmarks.md", "newer", table(newer_rows(rows)))
    if any(row["sweep"] for row in rows):
        write("rrf-or-weighted.md", "sweep", table(sweep_rows(rows)))
        draw(rows)


def differences(rows: list[dict[str, Any]]) -> list[str]:
    """The figures, to the third digit, that are not those of the page."""
    lines = (DOCS / "benchmarks.md").read_text(encoding="utf-8").split("<!-- quality:begin -->")[1].splitlines()
    different = []
    for measure in ("nDCG@10", "R@5"):
        head, *measured, _ = quality_rows(rows, measure)
        start = lines.index("| " + " | ".join(head) + " |")
        page = {line.split(" | ")[0][2:]: line for line in lines[start : lines.index("", start)] if line[:2] == "| "}
        for row in measured:
            figures = [[cell.strip("* |").split("*")[0].split(" ")[0] for cell in cells[3:]]
                       for cells in (row, page[row[0]].split(" | "))]  # fmt: skip
            if figures[0] != figures[1]:
                different.append(f"{row[0]} {measure}: {' '.join(figures[0])}, on the page {' '.join(figures[1])}")
    return different


def draw(rows: list[dict[str, Any]]) -> None:
    """The curves over fetch_k, averaged over sets, with intervals over all their questions."""
    from recollect.evaluation.plots import sweep_plot

    swept = [row["sweep"] for row in rows if row["sweep"]]
    found = []
    for system in SWEPT:
        for depth in DEPTHS:
            one = estimate([value for sweep in swept for value in sweep[f"{system} {depth}"].values()])
            name = "blend" if system == "default" else system
            options = {"fusion": name, "fetch_k": depth} | ({"rrf_k": 60} if system == "rrf" else {})
            found.append({"options": options, "mean": one.mean, "low": one.low, "high": one.high})
    questions_ = sum(len(sweep["rrf 20"]) for sweep in swept)
    keys = sorted(key for sweep in swept for key in sweep["rrf 20"])
    mark = hashlib.blake2b("\n".join(keys).encode(), digest_size=8).hexdigest()
    data = {"name": f"{len(swept)} sets, held-out questions", "fingerprint": mark, "questions": questions_}
    sweep_plot({"data": data, "measure": "nDCG@10", "rows": found}, DOCS / "rrf-or-weighted.svg")


def write(page: str, name: str, content: str) -> None:
    """Put a table between its marks on a page of the docs."""
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{content}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
