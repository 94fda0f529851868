"""Check a migration before it takes effect: the user's questions are asked of a copy of the store, before and after.

The copy is a temporary SQLite file. The store itself is only read, and searches in it are not affected.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from recollect import moving
from recollect.config import Settings
from recollect.config.sources import RETRIEVERS
from recollect.errors import UsageError
from recollect.evaluation import questions
from recollect.evaluation.datasets import Dataset, fingerprint, judged_documents, read_dataset
from recollect.evaluation.recording import LIMIT, record_set
from recollect.evaluation.scoring import check_fall, estimate, evaluate, parse_measures
from recollect.evaluation.tuning import FEWEST
from recollect.memory import Memory
from recollect.memory.embeddings import unconfigured_model
from recollect.memory.migration import Migration
from recollect.models.embedders import is_self_contained
from recollect.types import Steps

MEASURES = ("nDCG@10", "R@5")
COUNT, SEED = 200, 60  # those of `eval make-set`: it writes the same questions to a folder
OWN_SET = "`recollect eval make-set -o SET` makes one from your store; or leave SET out"
MADE = "made from the store"
DILUTED = "these questions share words with their answers, so keywords find most of them: models differ more than shown"

Values = Mapping[str, Mapping[str, float]]  # measure → question → value


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Both sides on the same questions: each measure's means, their difference, and whether it fell significantly."""

    name: str
    questions: int
    measures: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...] = ()

    @property
    def fell(self) -> list[str]:
        """The measures that are significantly lower after the migration."""
        return [measure for measure, figures in self.measures.items() if figures["fell"]]

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "worse": bool(self.fell)}


def questions_for(memory: Memory, folder: Path | None, steps: Steps = lambda _: None) -> Dataset:
    """The questions of a set for this store; without a folder, questions that are made of its records."""
    parse_measures(MEASURES)  # a missing package is reported before anything is computed
    if folder is None:
        return _questions_from_store(memory, steps)
    if (folder / "corpus.jsonl").is_file():
        raise UsageError(f"{folder} has a corpus of its own, so it says nothing about your store", hint=OWN_SET)
    if not (folder / "queries.jsonl").is_file():
        lacks = "holds no queries.jsonl" if folder.is_dir() else "is no folder"
        raise UsageError(f"{folder} {lacks}", hint=OWN_SET)
    (dataset,) = read_dataset(folder)
    return dataset


def too_few(dataset: Dataset) -> str:
    """Why these questions cannot decide; empty if they can."""
    count = len(dataset.queries)
    return "" if count >= FEWEST else f"{count:,} questions are too few to tell (at least {FEWEST})"


def try_out(
    memory: Memory, migration: Migration, dataset: Dataset, *, named: str = "", steps: Steps = lambda _: None
) -> SideBySide:
    """Make a prepared migration on a copy of the store, and compare the default search there before and after it.

    `named` is the model that the user's settings name, where a flag names the new one.
    """
    old_embedder, warning = _old_embedder(memory, migration, named)
    dataset = _by_file(memory, dataset) if migration.kind == "chunks" else dataset
    with tempfile.TemporaryDirectory(prefix="recollect-") as folder:
        place = str(Path(folder) / "copy.db")
        moving.copy(memory.store, place, steps=steps)
        with _opened(memory, place, old_embedder) as copy:
            old, warnings = _measured(copy, dataset, steps("asking the old one"))
        with _opened(memory, place, memory.embeddings.name) as copy:
            migration.switch(copy, steps("migrating the copy"))
            new, more = _measured(copy, dataset, steps("asking the new one"))
    measures = {measure: _compared(old[measure], values) for measure, values in new.items()}
    hybrid = "keyword" in (memory.settings.search.sources or RETRIEVERS)
    diluted = DILUTED if dataset.name == MADE and migration.kind == "embedder" and hybrid else ""
    notes = tuple(dict.fromkeys(filter(None, (diluted, warning, *warnings, *more))))
    return SideBySide(dataset.name, len(dataset.queries), measures, notes)


def _questions_from_store(memory: Memory, steps: Steps) -> Dataset:
    try:
        records = questions.VisibleRecords(memory, {}, steps("reading"))
    except UsageError:  # there is no record
        return Dataset(MADE, (), {}, {}, "")
    candidates = questions.QuestionMaker(records.vocabulary)(records.listed, records.aliases)
    chosen = questions.choose(candidates, COUNT, SEED)
    texts, qrels = {one.id: one.text for one in chosen}, {one.id: {one.target: 1} for one in chosen}
    return Dataset(MADE, (), texts, qrels, "", fingerprint(texts, qrels))


def _old_embedder(memory: Memory, migration: Migration, named: str) -> tuple[str, str]:
    """The model of the old side, and a warning if the store names one that only the settings may name."""
    name = memory.embeddings.name if migration.kind != "embedder" else migration.old
    if name in ("none", named, memory.embeddings.name) or is_self_contained(name):
        return name, ""
    return "none", f"{unconfigured_model(name)}: the old side is keyword search alone"


def _by_file(memory: Memory, dataset: Dataset) -> Dataset:
    """The same judgments with files in place of their chunks, whose ids change when a file is cut again."""
    judged = memory.store.records.get(sorted(judged_documents(dataset.qrels)))
    paths = {record.id: record.path for record in judged if record.kind == "chunk" and record.path}
    qrels: dict[str, dict[str, int]] = {}
    for key, grades in dataset.qrels.items():
        for name, grade in grades.items():
            target, of = paths.get(name, name), qrels.setdefault(key, {})
            of[target] = max(grade, of.get(target, grade))
    return replace(dataset, qrels=qrels)


def _opened(memory: Memory, place: str, embedder: str) -> Memory:
    """The copy with the user's settings. External sources are left out: they do not change, and cost time or money."""
    search = memory.settings.search
    sources = search.sources and tuple(name for name in search.sources if name in RETRIEVERS)
    changed: dict[str, Any] = {"store": place, "embedder": embedder, "language": None, "sources": ()}
    settings: Settings = replace(memory.settings, **changed, search=replace(search, sources=sources or None))
    return Memory.open(settings=settings, announce=lambda _: None, fetch=False)


def _measured(memory: Memory, dataset: Dataset, progress: Any) -> tuple[Values, list[str]]:
    part = record_set(memory, dataset, depth=memory.settings.search.fetch_k, progress=progress)
    run = part.run({}, limit=LIMIT)
    return evaluate(part.dataset.qrels, run, MEASURES), part.recording.warnings


def _compared(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, Any]:
    means = {name: asdict(estimate(list(values.values()))) for name, values in (("old", old), ("new", new))}
    return {**means, **check_fall(new, old)}
