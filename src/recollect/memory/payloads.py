"""The JSON of records, answers and histories as types: HTTP publishes its schemas from these.

`recollect.memory.shapes` builds the JSON, and a test compares the two. A dataclass stands for its own fields, of which
those with a default may be missing. Fields may be added, never renamed or removed; clients must accept fields that are
not listed here. Only the servers import this module: pydantic is slow to load.
"""

from typing import Annotated, Any, NotRequired, TypeVar

from pydantic import Field
from typing_extensions import TypedDict, is_typeddict

from recollect.memory.explain import Placement
from recollect.memory.recall import Citation
from recollect.types.search import Contribution, SourceTrace

_Shape = TypeVar("_Shape", bound=type)

MOST_NAME = 1_000
MOST_NAMES = 100
MOST_NUMBER = 1e9  # that an option takes from agents and over HTTP, where its own bounds are wider

Name = Annotated[str, Field(max_length=MOST_NAME)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]


class StoredRecord(TypedDict):
    """One record; what is not set is left out."""

    id: str
    short_id: str
    kind: str
    text: str
    title: str
    scope: dict[str, str]
    category: str | None
    tags: list[str]
    created_at: str
    origin: str
    importance: NotRequired[float]
    decay: NotRequired[str]
    happened_at: NotRequired[str]
    expires_at: NotRequired[str]
    edited_at: NotRequired[str]
    superseded_by: NotRequired[str]
    superseded_at: NotRequired[str]
    source: NotRequired[str]
    path: NotRequired[str]
    lines: NotRequired[list[int]]
    author: NotRequired[str]
    author_session: NotRequired[str]
    place: NotRequired[str]
    text_chars: NotRequired[int]
    next_offset: NotRequired[int]


class SimilarFact(TypedDict):
    """An earlier fact that a new one nearly repeats or contradicts; `replaceable` if the new one may supersede it."""

    id: str
    short_id: str
    text: str
    replaceable: bool


class FurtherPassage(TypedDict):
    """A further passage of a file: the record that holds it, and its own score."""

    id: str
    short_id: str
    title: str
    lines: NotRequired[list[int]]
    place: NotRequired[str]
    snippet: str
    score: float


class FileResult(StoredRecord):
    """One result: a record, or a file as its best passage, and why it is ranked where it is."""

    snippet: str
    rank: int
    moved: NotRequired[str]
    score: float
    fused: float
    similarity: float | None
    confidence: NotRequired[float]
    sources: dict[str, Contribution]
    in_keyword: bool
    in_semantic: bool
    freshness: NotRequired[str]
    passages: NotRequired[list[FurtherPassage]]


class AnswerTrace(TypedDict):
    """What ran, how long it took, what was dropped and why."""

    took_ms: float
    grade: str
    mode: str
    sources: list[SourceTrace]
    filtered: dict[str, int]
    lag: dict[str, int]
    stages: list[dict[str, Any]]
    warnings: list[str]
    abstained: NotRequired[str]
    also_searched: NotRequired[list[str]]
    favours: NotRequired[str]


class ClosestRecord(TypedDict):
    """The likeliest record of those that were all left out as unlikely; its name is its title or its first words."""

    id: str
    short_id: str
    name: str
    snippet: str
    confidence: float | None


class SearchAnswer(TypedDict):
    """The answer to a search, best result first. Results after the first `likely` ones are probably unrelated."""

    query: str
    fusion: dict[str, Any]
    results: list[FileResult]
    likely: int
    closest: NotRequired[ClosestRecord]
    matched: NotRequired[list[str]]
    trace: AnswerTrace


class RecallBlock(TypedDict):
    """A block of text for a model's context, and the records that its numbers refer to."""

    query: str
    text: str
    tokens: int
    citations: list[Citation]
    left_out: int
    warnings: list[str]
    closest: NotRequired[ClosestRecord]


class VerdictAnswer(TypedDict):
    """Why a record is missing; `stage` is `found` if it is in the answer."""

    query: str
    target: str
    stage: str
    reason: str
    rank: int | None
    sources: dict[str, Placement]
    change: dict[str, Any]
    advice: str
    record: StoredRecord | None


class RelatedRecord(TypedDict):
    """A record of a related note, and why it is related: by the link on a `line`, or by its `similarity`.

    `relations` are the types of links that have one; `targets` are the names by which the note links to this one.
    """

    id: str
    short_id: str
    title: str
    path: NotRequired[str]
    lines: NotRequired[list[int]]
    why: str
    line: NotRequired[int]
    similarity: NotRequired[float]
    relations: NotRequired[list[str]]
    targets: NotRequired[list[str]]


class UnresolvedLink(TypedDict):
    """A link that leads to no indexed file."""

    link: str
    line: int


class RelatedAnswer(TypedDict):
    """The notes that a record links to, those that link to it, and similar ones."""

    id: str
    short_id: str
    title: str
    path: NotRequired[str]
    links: list[RelatedRecord]
    backlinks: list[RelatedRecord]
    similar: list[RelatedRecord]
    unresolved: list[UnresolvedLink]


class SourceHealth(TypedDict):
    """Whether a source has been answering."""

    name: str
    kind: str
    state: str
    failures: int
    reason: NotRequired[str]
    until: NotRequired[str]


def extensible(shape: _Shape) -> _Shape:
    """Let pydantic accept fields that a shape does not list, as `pydantic.with_config` would."""
    shape.__pydantic_config__ = {"extra": "allow"}  # type: ignore[attr-defined]
    return shape


for _value in list(globals().values()):
    if is_typeddict(_value) and _value is not TypedDict:
        extensible(_value)
