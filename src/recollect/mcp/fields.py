"""What the tools answer, as types: the shape of `recollect.memory.shapes`, from which clients get their schemas.

Fields may be added to that shape; what is not named here is passed on all the same.
"""

from __future__ import annotations

from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

_open = with_config(ConfigDict(extra="allow"))


@_open
class StoredRecord(TypedDict):
    """One record; what is not set is left out."""

    id: str
    kind: str
    text: str
    title: str
    scope: dict[str, str]
    category: str | None
    tags: list[str]
    created_at: str
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
    text_chars: NotRequired[int]
    next_offset: NotRequired[int]


@_open
class SourceShare(TypedDict):
    """A result's place in one source's list."""

    rank: int
    score: float | None
    contribution: float


@_open
class FoundRecord(StoredRecord):
    """A record of an answer, with what put it where it is."""

    snippet: str
    rank: int
    score: float
    fused: float
    similarity: float | None
    confidence: NotRequired[float]
    sources: dict[str, SourceShare]
    in_keyword: bool
    in_semantic: bool
    freshness: NotRequired[str]


@_open
class SourceReport(TypedDict):
    """How one source did."""

    name: str
    status: str
    hits: int
    took_ms: float
    reason: NotRequired[str]
    trust: NotRequired[float]


@_open
class AnswerTrace(TypedDict):
    """What ran, how long it took, what was dropped and why."""

    took_ms: float
    grade: str
    mode: str
    sources: list[SourceReport]
    filtered: dict[str, int]
    lag: dict[str, int]
    stages: list[dict[str, Any]]
    warnings: list[str]
    abstained: NotRequired[str]


@_open
class SearchAnswer(TypedDict):
    """The answer to a search, best first."""

    query: str
    fusion: dict[str, Any]
    results: list[FoundRecord]
    trace: AnswerTrace


@_open
class Cited(TypedDict):
    """What a number in a recall block stands for."""

    number: int
    id: str
    title: str
    path: NotRequired[str]
    lines: NotRequired[list[int]]
    freshness: NotRequired[str]


@_open
class RecallBlock(TypedDict):
    """A block of text for the context, and what its numbers stand for."""

    query: str
    text: str
    tokens: int
    citations: list[Cited]
    left_out: int
    warnings: list[str]


@_open
class Forgotten(TypedDict):
    """What is not found any more."""

    forgotten: list[str]


@_open
class MemoryStatus(TypedDict):
    """What the store holds, how current it is, and what this server may do."""

    records: dict[str, int]
    vectors: dict[str, Any]
    scope: dict[str, str]
    read_only: bool
