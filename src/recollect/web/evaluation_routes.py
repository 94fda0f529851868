"""Evaluation over HTTP: stored reports with plots, and studies of questions that a caller sends."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException

from recollect.errors import Forbidden
from recollect.evaluation import studies
from recollect.evaluation.studies import DrawnSection, ReportLibrary, StoredReport
from recollect.evaluation.trials import SYSTEMS
from recollect.memory import default_store
from recollect.memory.payloads import MOST_NAME
from recollect.web.access import CallerMemory
from recollect.web.inputs import Id, Owns, Reads
from recollect.web.responses import Json, documented, model

router = APIRouter(tags=["laboratory"])

MOST_QUESTIONS = 500  # of one study; the limits below are of one question
MOST_LETTERS = 10_000
MOST_RELEVANT = 100
MOST_MEASURES = 10
HIGHEST_GRADE = 100

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


class Question(BaseModel, extra="forbid"):
    """A question and the records that answer it: their ids, or a grade for each (0 is not relevant)."""

    text: str = Field(min_length=1, max_length=MOST_LETTERS, examples=["where is the spare key?"])
    relevant: Graded | Ids


class Study(BaseModel, extra="forbid"):
    """Judged questions for the caller's memory; with `save`, the owner stores the report under that name."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=MOST_QUESTIONS)]
    save: str | None = Field(None, min_length=1, max_length=MOST_NAME, description="A name without folders.")


class RunStudy(Study):
    """The systems to compare (by default `default` only) and the measures."""

    compare: Annotated[list[Literal[tuple(SYSTEMS)]], Field(min_length=1, max_length=20)] | None = None  # type: ignore[valid-type]
    measures: Annotated[list[Measure], Field(min_length=1, max_length=MOST_MEASURES)] | None = None


class SweepStudy(Study):
    """A sweep, by one measure."""

    measures: Annotated[list[Measure], Field(min_length=1, max_length=1)] | None = None


def _printed(study: str, **fields: Any) -> type[BaseModel]:
    types: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    about = f"What `recollect eval {study} --json` prints."
    return create_model(f"{study.title()}Report", __doc__=about, __config__=ConfigDict(extra="allow"), **types)


_Object, _Objects = dict[str, Any], list[dict[str, Any]]
RunReport = _printed(
    "run", format=int, version=str, at=str, data=_Object, settings=_Object, systems=_Object,
    comparisons=_Objects, warnings=list[str],
)  # fmt: skip
SweepReport = _printed(
    "sweep", data=_Object, measure=str, rows=_Objects, knee=_Object, knees=_Objects, churn=_Objects, prefix=_Object
)
OverlapReport = _printed("overlap", data=_Object, depth=int, pairs=_Objects, corpora=_Objects)


@router.get("/v1/eval/reports", **documented(model("Reports", reports=list[StoredReport])))
def reports(asker: Owns, request: Request) -> Json:  # noqa: ARG001  (the parameter checks the caller)
    """The stored reports, newest first."""
    return Json({"reports": [asdict(stored) for stored in _shelf(request).all()]})


@router.get("/v1/eval/reports/{name}", **documented(model("DrawnReport", name=str, sections=list[DrawnSection])))
def report(name: Annotated[str, InPath(min_length=1, max_length=MOST_NAME)], asker: Owns, request: Request) -> Json:  # noqa: ARG001
    """One report: its findings as text, plots and tables."""
    sections = _shelf(request).sections(name)
    if sections is None:
        raise HTTPException(404, "there is no such report")
    return Json({"name": name, "sections": [asdict(section) for section in sections]})


@router.post("/v1/eval/run", **documented(RunReport))
async def run(body: RunStudy, asker: Reads, request: Request) -> Json:
    """Compare systems on judged questions, with confidence intervals of their differences."""
    return await _studied(body, asker, request, studies.run)


@router.post("/v1/eval/sweep", **documented(SweepReport))
async def sweep(body: SweepStudy, asker: Reads, request: Request) -> Json:
    """Measure depths and fusion methods on judged questions, and find the depth that suffices."""
    return await _studied(body, asker, request, studies.sweep)


@router.post("/v1/eval/overlap", **documented(OverlapReport))
async def overlap(body: Study, asker: Reads, request: Request) -> Json:
    """Count the relevant records that each source finds, and advise whether to fuse them."""
    return await _studied(body, asker, request, studies.overlap)


async def _studied(body: Study, asker: CallerMemory, request: Request, study: Callable[..., dict[str, Any]]) -> Json:
    """The report of a study, stored on request; errors are found before it begins."""
    shelf = _shelf(request)
    if body.save is not None:
        if not asker.caller.owner:
            raise Forbidden("only the owner may store reports", hint="leave out `save`")
        if not request.app.state.access.may_write(asker.caller):
            raise Forbidden("this caller may only read", hint="leave out `save`")
        await to_thread.run_sync(shelf.check_free, body.save)
    if asker.memory.settings.search.hyde and not asker.caller.owner:
        raise Forbidden("the settings send every question to a language model", hint="only the owner may do that")
    relevant = [(question.text, question.relevant) for question in body.questions]
    judged = [(text, dict.fromkeys(ids, 1) if isinstance(ids, list) else ids) for text, ids in relevant]
    arguments = body.model_dump(exclude={"questions", "save"}, exclude_none=True)
    dataset = studies.make_dataset(judged, body.save or studies.NAME)
    report = await request.app.state.lanes.study(request, asker, partial(study, **arguments), dataset)
    if body.save is not None:
        await to_thread.run_sync(shelf.put, body.save, report)
    return Json(report)


def _shelf(request: Request) -> ReportLibrary:
    return ReportLibrary(request.app.state.lab or default_store().parent / "lab")
