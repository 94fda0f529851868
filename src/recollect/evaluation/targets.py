"""What judgments of the user's own store name: records by their ids, or files by their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from recollect.errors import UsageError
from recollect.evaluation.datasets import Dataset, judged_documents
from recollect.evaluation.scoring import Run, by_place
from recollect.memory import Memory
from recollect.types import EVERYTHING, Filter, Record


@dataclass(frozen=True, slots=True)
class Targets:
    """`paths` is the path of every file that is judged, by each name the judgments have for it."""

    paths: Mapping[str, str]
    unknown: int

    def dataset(self, dataset: Dataset) -> Dataset:
        """The set with files under their paths in the store."""
        qrels = {
            key: {self.paths.get(name, name): grade for name, grade in grades.items()}
            for key, grades in dataset.qrels.items()
        }
        return replace(dataset, qrels=qrels)

    def run(self, run: Run, memory: Memory, qrels: Mapping[str, Mapping[str, int]]) -> Run:
        """The run with files in place of their chunks, each where its first chunk stands, if files are judged."""
        if not self.paths:
            return run
        ids = {document for ranking in run.values() for document in ranking}
        records = {record.id: record for record in memory.store.records.get(sorted(ids))}
        return {
            key: by_place(_name(document, records.get(document), qrels.get(key, {})) for document in ranking)
            for key, ranking in run.items()
        }

    def theirs(self, run: Run) -> Run:
        """A rival's run with files under their paths in the store."""
        return {key: by_place(self.paths.get(name, name) for name in ranking) for key, ranking in run.items()}


def find_targets(memory: Memory, dataset: Dataset) -> Targets:
    """Every judged document in the store. A path is whole, from here, or the last parts of one file's only."""
    judged, seen = judged_documents(dataset.qrels), within_reach(memory)
    ids = {record.id for record in memory.store.records.get(sorted(judged), seen)}
    whole = {name: str(Path(name).expanduser().absolute()) for name in judged - ids}
    found = memory.store.joins.by_path([*whole.values(), *whole], seen)
    chunks = {name: found.get(path) or found.get(name) for name, path in whole.items()}
    # The end of several paths is none of them.
    several = {name: {str(record.path) for record in records} for name, records in chunks.items() if records}
    paths = {name: next(iter(those)) for name, those in several.items() if len(those) == 1}
    if not ids and not paths:
        raise UsageError(
            f"none of the {len(judged):,} judged documents is in the store, neither as an id nor as a path",
            hint="is it the right store? `recollect list` shows ids, `recollect status` the store",
        )
    return Targets(paths, len(judged) - len(ids) - len(paths))


def within_reach(memory: Memory) -> Filter:
    """What judgments may name: all that is stored, or what is on the caller's side of a wall."""
    return replace(EVERYTHING, any_scope=False, scope=memory.scope) if memory.walled else EVERYTHING


def _name(document: str, record: Record | None, grades: Mapping[str, int]) -> str:
    if record is None or record.path is None or document in grades:
        return document
    return record.path
