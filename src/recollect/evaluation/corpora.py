"""Stores that judged sets are measured on: one per corpus, cached by fingerprint, or the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation.datasets import Dataset, judged_documents
from recollect.evaluation.scoring import Run, by_place
from recollect.memory import Memory
from recollect.types import EVERYTHING, Filter, Progress, Record

Bars: TypeAlias = Callable[[str], Progress | None]
"""Makes a progress bar with a label."""

BATCH = 1000
"""Documents stored per transaction."""


def cache_folder() -> Path:
    """Return the folder that caches the stores of judged sets."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("recollect")) / "eval"


def place_of(dataset: Dataset, settings: Settings) -> str:
    """Name the store's file. Each embedding model and each language has a file of its own."""
    parts = [settings.embedder] if settings.embedder not in ("none", Settings().embedder) else []
    parts += [settings.language] if settings.language not in (None, "english") else []
    return "-".join(re.sub(r"[^\w.]+", "-", part) for part in (dataset.name, dataset.fingerprint, *parts)) + ".db"


def open_corpus(
    dataset: Dataset,
    *,
    settings: Settings | None = None,
    folder: Path | None = None,
    progress: Bars = lambda _: None,
    **opening: Any,
) -> Memory:
    """Open the set's own store; documents and vectors that are missing are added first.

    `opening` holds further arguments of `Memory.open`. External sources are left out, since they do not hold the set.
    """
    settings = replace(settings or Settings(), sources=())
    place = (folder or cache_folder()) / place_of(dataset, settings)
    with Memory.open(place, embedder="none", settings=Settings(language=settings.language)) as plain:
        if plain.status()["records"]["total"] < len(dataset.corpus):
            _store(plain, dataset.corpus, progress(f"storing {dataset.name}"))
    memory = Memory.open(place, settings=settings, **opening)
    if settings.embedder != "none":
        _embed(memory, progress(f"embedding {dataset.name}"))
    return memory


def _store(memory: Memory, corpus: Sequence[dict[str, Any]], progress: Progress | None) -> None:
    for start in range(0, len(corpus), BATCH):
        memory.add_many(_records(corpus[start : start + BATCH]))
        if progress:
            progress(min(start + BATCH, len(corpus)), len(corpus))


def _embed(memory: Memory, progress: Progress | None) -> None:
    try:
        memory.embed(progress=progress)
    except BaseException:
        memory.close()
        raise


def _records(corpus: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Turn documents into records. A record needs a text: without one it is the title, or a dash."""
    for row in corpus:
        title = row.get("title") or ""
        yield {"id": row["_id"], "text": row.get("text") or title or "-", "title": title}


@dataclass(frozen=True, slots=True)
class Targets:
    """The judged documents found in the user's own store: `paths` maps each judged file name to its path there."""

    paths: Mapping[str, str]
    unknown: int

    def dataset(self, dataset: Dataset) -> Dataset:
        """Name judged files by their paths in the store."""
        qrels = {
            key: {self.paths.get(name, name): grade for name, grade in grades.items()}
            for key, grades in dataset.qrels.items()
        }
        return replace(dataset, qrels=qrels)

    def run(self, run: Run, memory: Memory, qrels: Mapping[str, Mapping[str, int]]) -> Run:
        """Where files are judged, replace chunks by their files, each at the rank of its first chunk."""
        if not self.paths:
            return run
        ids = {document for ranking in run.values() for document in ranking}
        records = {record.id: record for record in memory.store.records.get(sorted(ids))}
        return {
            key: by_place(_name(document, records.get(document), qrels.get(key, {})) for document in ranking)
            for key, ranking in run.items()
        }

    def external(self, run: Run) -> Run:
        """Name the files of an external run by their paths in the store."""
        return {key: by_place(self.paths.get(name, name) for name in ranking) for key, ranking in run.items()}


def find_targets(memory: Memory, dataset: Dataset) -> Targets:
    """Look up every judged document. A path may be absolute, relative, or the unambiguous end of one file's path."""
    judged, reach = judged_documents(dataset.qrels), within_reach(memory)
    ids = {record.id for record in memory.store.records.get(sorted(judged), reach)}
    whole = {name: str(Path(name).expanduser().absolute()) for name in judged - ids}
    by_path = memory.store.joins.by_path([*whole.values(), *whole], reach)
    chunks = {name: by_path.get(path) or by_path.get(name) for name, path in whole.items()}
    files = {name: {str(record.path) for record in records} for name, records in chunks.items() if records}
    paths = {name: next(iter(matches)) for name, matches in files.items() if len(matches) == 1}
    if not ids and not paths:
        raise UsageError(
            f"none of the {len(judged):,} judged documents is in the store, neither as an id nor as a path",
            hint="check the store: `recollect list` shows ids, `recollect status` its path",
        )
    return Targets(paths, len(judged) - len(ids) - len(paths))


def within_reach(memory: Memory) -> Filter:
    """Return a filter for the records that judgments may name: all, or those that a scoped caller can read."""
    return replace(EVERYTHING, any_scope=False, scope=memory.caller) if memory.caller is not None else EVERYTHING


def _name(document: str, record: Record | None, grades: Mapping[str, int]) -> str:
    if record is None or record.path is None or document in grades:
        return document
    return record.path
