"""Evaluation over HTTP: stored reports with plots, and studies of questions that a caller sends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field, with_config
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from recollect.errors import Forbidden
from recollect.evaluation import studies
from recollect.evaluation.datasets import Dataset
from recollect.evaluation.library import ReportLibrary
from recollect.evaluation.scoring import MEASURES, parse_measures
from recollect.evaluation.trials import SYSTEMS, TrialPlan
from recollect.memory import Memory, default_store
from recollect.types import Work
from recollect.web.access import Asker
from recollect.web.inputs import MOST_NAME, Id, Owns, Reads
from recollect.web.responses import Json, documented
from recollect.web.workers import Lanes

router = APIRouter(tags=["laboratory"])

MOST_QUESTIONS = 500
MOST_LETTERS = 10_000
MOST_RELEVANT = 100
MOST_MEASURES = 10
HIGHEST_GRADE = 100
"""The size limits of one study."""

Grade = Annotated[int, Field(ge=0, le=HIGHEST_GRADE)]
Graded = Annotated[dict[Id, Grade], Field(min_length=1, max_length=MOST_RELEVANT)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=MOST_RELEVANT)]
Measure = Annotated[
    str,
    Field(
        max_length=40,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*(\(rel=[0-9]{1,3}\))?(@[0-9]{1,5}(\.[0-9]{1,3})?)?$",
        examples=["nDCG@10", "R@20"],
    ),
]

_open = with_config(ConfigDict(extra="allow"))


class Question(BaseModel):
    """A question and the records that answer it: their ids, or a grade for each (0 is not relevant)."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=MOST_LETTERS, examples=["where is the spare key?"])
    relevant: Graded | Ids

    def judged(self) -> tuple[str, dict[str, int]]:
        """Its text, and the grade of every judged record."""
        found = self.relevant
        return self.text, found if isinstance(found, dict) else dict.fromkeys(found, 1)


class Study(BaseModel):
    """Judged questions for the caller's memory; with `save`, the owner stores the report under that name."""

    model_config = ConfigDict(extra="forbid")

    questions: Annotated[list[Question], Field(min_length=1, max_length=MOST_QUESTIONS)]
    save: str | None = Field(None, min_length=1, max_length=MOST_NAME, description="A name without folders.")


class RunStudy(Study):
    """The systems to compare (by default `default` only) and the measures."""

    compare: Annotated[list[Literal[tuple(SYSTEMS)]], Field(min_length=1, max_length=20)] | None = None  # type: ignore[valid-type]
    measures: Annotated[list[Measure], Field(min_length=1, max_length=MOST_MEASURES)] | None = None


class SweepStudy(Study):
    """A sweep, by one measure."""

    measures: Annotated[list[Measure], Field(min_length=1, max_length=1)] | None = None


class KeptReport(TypedDict):
    """A stored report."""

    name: str
    kind: Literal["run", "sweep", "overlap"]
    data: str
    at: str


class Reports(TypedDict):
    """All reports, newest first."""

    reports: list[KeptReport]


class Figures(TypedDict):
    """A table; the columns named in `words` hold text, the others numbers."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    words: list[int]


class ReportSection(TypedDict):
    """One finding: text, a plot (`shows` describes it), tables, and its data."""

    key: str
    title: str
    lead: str
    more: list[str]
    svg: str
    shows: str
    source: str
    tables: list[Figures]


class DrawnReport(TypedDict):
    """The content of a report."""

    name: str
    sections: list[ReportSection]


@_open
class RunReport(TypedDict):
    """What `recollect eval run --json` prints."""

    format: int
    version: str
    at: str
    data: dict[str, Any]
    settings: dict[str, Any]
    systems: dict[str, dict[str, Any]]
    comparisons: list[dict[str, Any]]
    warnings: list[str]


@_open
class SweepReport(TypedDict):
    """What `recollect eval sweep --json` prints."""

    data: dict[str, Any]
    measure: str
    rows: list[dict[str, Any]]
    knee: dict[str, Any]
    knees: list[dict[str, Any]]
    churn: list[dict[str, Any]]
    prefix: dict[str, Any]


@_open
class OverlapReport(TypedDict):
    """What `recollect eval overlap --json` prints."""

    data: dict[str, Any]
    depth: int
    pairs: list[dict[str, Any]]
    corpora: list[dict[str, Any]]


@router.get("/v1/eval/reports", **documented(Reports))
def reports(asker: Owns, request: Request) -> Json:  # noqa: ARG001  (asking is the check)
    """The stored reports, newest first."""
    return Json({"reports": [kept.as_dict() for kept in _shelf(request).all()]})


@router.get("/v1/eval/reports/{name}", **documented(DrawnReport))
def report(name: Annotated[str, InPath(min_length=1, max_length=MOST_NAME)], asker: Owns, request: Request) -> Json:  # noqa: ARG001
    """One report: its findings as text, plots and tables."""
    sections = _shelf(request).sections(name)
    if sections is None:
        raise HTTPException(404, "there is no such report")
    return Json({"name": name, "sections": sections})


@router.post("/v1/eval/run", **documented(RunReport))
async def run(body: RunStudy, asker: Reads, request: Request) -> Json:
    """Compare systems on judged questions, with confidence intervals of their differences."""
    return await _studied(body, asker, request, _run, body.compare or ["default"], body.measures or MEASURES)


@router.post("/v1/eval/sweep", **documented(SweepReport))
async def sweep(body: SweepStudy, asker: Reads, request: Request) -> Json:
    """Measure depths and fusion methods on judged questions, and find the depth that suffices."""
    return await _studied(body, asker, request, _sweep, body.measures or MEASURES[:1])


@router.post("/v1/eval/overlap", **documented(OverlapReport))
async def overlap(body: Study, asker: Reads, request: Request) -> Json:
    """Count the relevant records that each source finds, and advise whether to fuse them."""
    return await _studied(body, asker, request, _overlap)


def _run(memory: Memory, work: Work, questions: Dataset, compare: list[str], measures: list[str]) -> dict[str, Any]:
    plan = TrialPlan({name: SYSTEMS[name] for name in compare}, parse_measures(measures))
    return studies.run(memory, questions, plan, work=work)


def _sweep(memory: Memory, work: Work, questions: Dataset, measures: list[str]) -> dict[str, Any]:
    (measure,) = parse_measures(measures)
    return studies.sweep(memory, questions, measure, work=work)


def _overlap(memory: Memory, work: Work, questions: Dataset) -> dict[str, Any]:
    return studies.overlap(memory, questions, work=work)


async def _studied(
    body: Study, asker: Asker, request: Request, study: Callable[..., dict[str, Any]], *arguments: Any
) -> Json:
    """The report of a study, stored on request; errors are found before it begins."""
    shelf = _shelf(request)
    if body.save is not None:
        _check_keeper(asker, request)
        await to_thread.run_sync(shelf.check_free, body.save)
    if asker.memory.settings.search.hyde and not asker.caller.owner:
        raise Forbidden("here every question is told to a language model", hint="only the owner may study that")
    questions = studies.make_dataset([question.judged() for question in body.questions], body.save or studies.NAME)
    lanes: Lanes = request.app.state.lanes
    report = await lanes.study(request, asker, study, questions, *arguments)
    if body.save is not None:
        await to_thread.run_sync(shelf.put, body.save, report)
    return Json(report)


def _check_keeper(asker: Asker, request: Request) -> None:
    if not asker.caller.owner:
        raise Forbidden("only the owner keeps reports", hint="leave out `save`")
    if not request.app.state.access.may_write(asker.caller):
        raise Forbidden("this caller may only read", hint="leave out `save`")


def _shelf(request: Request) -> ReportLibrary:
    folder: Path | None = request.app.state.lab
    return ReportLibrary(folder or default_store().parent / "lab")
