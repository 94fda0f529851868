"""Studies of a memory that others use too: questions come with the request, and `work` limits the time of a study.

A server stores the reports in a folder.
"""

import json
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from recollect.disk import write_private
from recollect.errors import FailedError, UsageError, file_errors
from recollect.evaluation import plots, results
from recollect.evaluation.datasets import Dataset, fingerprint, judged_documents
from recollect.evaluation.overlap import overlap_report
from recollect.evaluation.recording import JudgedSets, record_sets, within_reach
from recollect.evaluation.report import FigureTable, compose
from recollect.evaluation.results import KINDS, label, part
from recollect.evaluation.scoring import MEASURES, parse_measures
from recollect.evaluation.trials import SYSTEMS, TrialPlan, make_report, run_trials
from recollect.evaluation.tuning import DEPTHS, curves_of, sweep_report
from recollect.memory import Memory
from recollect.types import Work

NAME = "own questions"
KEY_LENGTH = 100  # characters of a question that are its id, so that a report can be read

SECONDS = 300.0  # the default time limit of a study: its caller waits for the answer
_NAMED = 3  # unknown ids that an error names


class StudyWork(Work):
    """The limits of one study."""

    def late(self) -> UsageError:
        """Return the error for a study that takes too long."""
        hint = "send fewer questions; `recollect eval` on the command line has no time limit"
        return UsageError(f"the study takes longer than {self.seconds:g} s", hint=hint)


def make_dataset(questions: Sequence[tuple[str, Mapping[str, int]]], name: str = NAME) -> Dataset:
    """Make a set of texts and judgments. A question's id is the beginning of its text, numbered where it repeats."""
    queries: dict[str, str] = {}
    for place, (text, _) in enumerate(questions, 1):
        if not text.strip():
            raise UsageError(f"question {place} has no text", hint='{"text": "…", "relevant": ["…"]}')
        head = label(text, KEY_LENGTH)
        names = (head if number == 1 else f"{head} ({number})" for number in range(1, place + 1))
        queries[next(name for name in names if name not in queries)] = text
    qrels = {key: dict(grades) for key, (_, grades) in zip(queries, questions, strict=True)}
    return Dataset(name, (), queries, qrels, "", judged=fingerprint(queries, qrels))


def check_known(memory: Memory, dataset: Dataset) -> None:
    """Refuse judgments of records that do not exist or that the caller cannot read."""
    judged = judged_documents(dataset.qrels)
    unknown = judged - {record.id for record in memory.store.records.get(sorted(judged), within_reach(memory))}
    if unknown:
        named = ", ".join(repr(one[:KEY_LENGTH]) for one in sorted(unknown)[:_NAMED])
        more = f" and {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else ""
        raise UsageError(f"there is no record {named}{more}", hint="`relevant` names records by their ids")


def run(
    memory: Memory,
    work: Work | None,
    dataset: Dataset,
    compare: Sequence[str] = ("default",),
    measures: Sequence[str] = MEASURES,
) -> dict[str, Any]:
    """Return what `recollect eval run --json` prints for these questions."""
    check_known(memory, dataset)
    plan = TrialPlan({name: SYSTEMS[name] for name in compare}, parse_measures(measures), work=work)
    trials, corpora = run_trials(plan, [dataset], lambda _: nullcontext(memory))
    return make_report(dataset.name, plan, memory.settings, trials, corpora)


def sweep(
    memory: Memory, work: Work | None, dataset: Dataset, measures: Sequence[str] = MEASURES[:1]
) -> dict[str, Any]:
    """Return what `recollect eval sweep --json` prints for these questions."""
    (measure,) = parse_measures(measures)
    with _recorded(memory, work, dataset, depth=max(DEPTHS), measure=measure) as judged:
        return sweep_report(judged, curves_of(memory.settings.search), DEPTHS)


def overlap(memory: Memory, work: Work | None, dataset: Dataset) -> dict[str, Any]:
    """Return what `recollect eval overlap --json` prints for these questions."""
    pipeline, query = memory.prepare("")
    if len(pipeline.sources) < 2:  # noqa: PLR2004
        hint = "set an embedder, or configure an external source: docs/sources.md"
        raise UsageError("overlap compares two sources, and there are fewer", hint=hint)
    with _recorded(memory, work, dataset, depth=query.fetch_k) as judged:
        return overlap_report(judged, query.fetch_k)


def _recorded(
    memory: Memory, work: Work | None, dataset: Dataset, **options: Any
) -> AbstractContextManager[JudgedSets]:
    check_known(memory, dataset)
    return record_sets(dataset.name, [dataset], lambda _: nullcontext(memory), work=work, **options)


MOST_BYTES = 64 * 1024 * 1024  # larger files are not read; a run on a hundred thousand questions has a tenth of this
LONGEST_NAME = 80
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""Device names on Windows, whatever follows a dot."""

_drawing_lock = threading.Lock()  # held while drawing: matplotlib's settings belong to the whole process


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A report in the folder; `kind` is the study, `data` the name of its set."""

    name: str
    kind: Literal["run", "sweep", "overlap"]
    data: str
    at: str


@dataclass(frozen=True, slots=True)
class DrawnSection:
    """One finding: text, a plot (`shows` describes it), tables, and its data."""

    key: str
    title: str
    lead: str
    more: list[str]
    svg: str
    shows: str
    source: str
    tables: Sequence[FigureTable]


@dataclass(frozen=True, slots=True)
class ReportLibrary:
    """The folder. Files that are no reports are ignored."""

    folder: Path

    def all(self) -> list[StoredReport]:
        """Return every report, newest first."""
        return [report for _, _, report in sorted(self._reports(), key=lambda row: (-row[1][0], row[2].name))]

    def sections(self, name: str) -> list[DrawnSection] | None:
        """Return the sections of a report with their plots; None if there is no such report.

        Without matplotlib the plots are empty, and each section says how to install it.
        """
        for path, mark, report in self._reports():
            if report.name == name:
                with _drawing_lock:
                    return _drawn(path, mark)
        return None

    def check_free(self, name: str) -> None:
        """Refuse a name that is taken, or that is not a valid file name on every system."""
        kinds = [unicodedata.category(letter)[0] for letter in name]
        letters = all(kind in "LMN" or letter in " ._-" for kind, letter in zip(kinds, name, strict=True))
        short = 0 < len(name) <= LONGEST_NAME and len(name.encode()) <= 2 * LONGEST_NAME
        device = name.partition(".")[0].strip().upper() in _RESERVED
        if not (letters and short and kinds[0] in "LN") or device or name[-1] in " .":
            hint = f"use at most {LONGEST_NAME} letters, digits, spaces, `-`, `_` and `.`, a letter or digit first"
            raise UsageError(f"{label(name)!r} cannot be the name of a report", hint=hint)
        if (self.folder / f"{name}.json").exists():
            raise UsageError(f"there is a report {name!r} already", hint="choose another name, or remove that file")

    def put(self, name: str, report: Mapping[str, Any]) -> None:
        """Write a report, completely or not at all."""
        self.check_free(name)
        hint = "check that the server may write there, or name another folder: `recollect serve --lab DIR`"
        with file_errors(self.folder, hint=hint):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_private(self.folder / f"{name}.json", json.dumps(report, ensure_ascii=False, indent=1))

    def _reports(self) -> Iterator[tuple[Path, tuple[int, int], StoredReport]]:
        """Yield each report with its path and a mark that changes with the file.

        Names come from the folder's listing, never from a caller, and links may not lead out of it.
        """
        with file_errors(self.folder, "read"):
            folder, links = self.folder.resolve(), sorted(self.folder.glob("*.json"))
        for link in (link for link in links if link.stem.isprintable() and not link.name.startswith(".")):
            with suppress(OSError, RuntimeError):  # a link to itself raises one or the other
                path, status = link.resolve(), link.stat()
                mark, at = (status.st_mtime_ns, status.st_size), datetime.fromtimestamp(status.st_mtime, UTC)
                readable = path.parent == folder and path.is_file() and status.st_size <= MOST_BYTES
                if readable and (head := _head(path, mark)):
                    yield path, mark, StoredReport(link.stem, *head, at.isoformat())


@lru_cache(maxsize=1024)
def _head(path: Path, mark: tuple[int, int]) -> tuple[Any, str] | None:  # noqa: ARG001  (part of the cache key)
    try:
        report = json.loads(path.read_bytes())
        return KINDS[results.kind(report)][0], label(part(report, "data").get("name") or "")
    except (ValueError, RecursionError, UsageError):
        return None


@lru_cache(maxsize=8)
def _drawn(path: Path, mark: tuple[int, int]) -> list[DrawnSection]:  # noqa: ARG001
    try:
        parts = compose([json.loads(path.read_bytes())])
    except (OSError, ValueError, RecursionError) as error:
        raise FailedError(f"the report changed while it was read: {error}", hint="try again") from error
    svgs, notes = dict.fromkeys(parts, ""), []
    try:
        with plots.drawing():
            svgs = {key: plots.inline(one.draw(), f"plot-{key}", one.title, one.shows) for key, one in parts.items()}
    except UsageError as error:
        notes = [f"Not drawn: {error.message} ({error.hint})."]
    return [
        DrawnSection(
            key, one.title, one.lead, [*one.more, *one.legend, *notes], svgs[key], one.shows, one.source, one.tables
        )
        for key, one in parts.items()
    ]
