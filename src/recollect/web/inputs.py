"""What can be asked, as types: the options of `Memory`, by the same names. Null means left out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recollect.fusion import METHODS, NORMALISATIONS
from recollect.memory.recall import LEAST_TOKENS, MOST_TOKENS, TOKENS
from recollect.memory.validation import MAX_TEXT
from recollect.ranking import HALF_LIVES

MOST_RESULTS = 1_000
MOST_QUERY = 100_000
MOST_NAME = 1_000
MOST_NAMES = 100

Name = Annotated[str, Field(max_length=MOST_NAME)]
Names = Annotated[list[Name], Field(max_length=MOST_NAMES)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Id = Annotated[str, Field(min_length=1, max_length=MOST_NAME, description="The id of a record.")]
When = Annotated[Name, Field(min_length=1, description="2026-03-14, 2026-03-14T15:09Z, or a span: 36h, 3d, 2w.")]


class _Body(BaseModel):
    # Strict: a word that looks like a number, or a number for a yes, is more often a mistake than meant.
    model_config = ConfigDict(extra="forbid", strict=True)

    def said(self, *without: str) -> dict[str, Any]:
        """What was given, by name, but for these."""
        left = self.model_dump(exclude=set(without), exclude_none=True)
        return {name: value for name, value in left.items() if value not in ([], {})}


class ScopeBody(_Body):
    """Whose; only the owner may name one."""

    user: Name | None = None
    agent: Name | None = None
    session: Name | None = None


class Filters(_Body):
    """What may be narrowed; several categories mean any of them, several tags all."""

    category: Names | None = None
    tags: Names | None = None
    kind: Literal["fact", "chunk"] | None = None
    path: Name | None = Field(None, description="A file or folder, whole or by its last parts; `*` for any letters.")
    since: When | None = None
    until: When | None = None
    as_of: When | None = Field(None, description="Answer as memory stood then.")
    superseded: bool | None = Field(None, description="Also what has been superseded.")
    scope: ScopeBody | None = None
    any_scope: bool | None = Field(None, description="Of every user, agent and session; the owner's alone.")


class SearchBody(Filters):
    """A question, and how to answer it; what is left out comes from the server's settings."""

    query: str = Field(max_length=MOST_QUERY, examples=["where is the spare key?"])
    limit: int | None = Field(None, ge=1, le=MOST_RESULTS)
    fetch_k: int | None = Field(None, ge=1, le=100_000, description="How deep each source is read.")
    sources: Names | None = Field(None, description="Which sources are asked.")
    fusion: Literal[tuple(METHODS)] | None = None  # type: ignore[valid-type]
    rrf_k: Weight | None = None
    normalisation: Literal[tuple(NORMALISATIONS)] | None = None  # type: ignore[valid-type]
    text_weight: Weight | None = None
    vector_weight: Weight | None = None
    decay: bool | None = None
    half_life_days: float | None = Field(None, gt=0, le=1e6, allow_inf_nan=False)
    importance_weight: Share | None = None
    prefer_newer: bool | None = None
    mmr: bool | None = None
    mmr_lambda: Share | None = None
    min_score: Share | None = None
    confidence: bool | None = None
    min_confidence: Share | None = None
    rerank: bool | None = None
    hyde: bool | Literal["replace"] | None = Field(None, description="The owner's alone: it asks a language model.")
    budget_ms: float | None = Field(None, ge=1, le=1e7, allow_inf_nan=False)
    explain: bool = Field(False, description="Also each result's factors and moves.")

    def options(self, *without: str) -> dict[str, Any]:
        """The options of `Memory.search`."""
        return self.said("query", "explain", *without)


class RecallBody(SearchBody):
    """A question whose answer is wanted as one block for a model's context."""

    tokens: int = Field(TOKENS, ge=LEAST_TOKENS, le=MOST_TOKENS)


class WhyNotBody(SearchBody):
    """A question, and the record that was missed in its answer."""

    target: str = Field(min_length=1, max_length=MOST_NAME, description="A record's id, or a file's path.")


class _Fields(_Body):
    """What may be said of a record."""

    title: Name | None = None
    category: Name | None = None
    tags: Names | None = None
    importance: Share | None = None
    decay: Literal[tuple(HALF_LIVES)] | None = None  # type: ignore[valid-type]
    happened_at: When | None = None
    expires_at: When | None = None
    source: Name | None = None


class NewRecord(_Fields):
    """A record to be stored."""

    text: str = Field(min_length=1, max_length=MAX_TEXT, examples=["The spare key is under the blue pot."])
    id: Id | None = None
    scope: ScopeBody | None = None
    supersedes: Id | None = Field(None, description="The record whose place it takes.")


class Edited(_Fields):
    """What is said anew of a fact; null clears a field, what is left out stays."""

    text: str | None = Field(None, min_length=1, max_length=MAX_TEXT)

    def changes(self) -> dict[str, Any]:
        """What was said, with the nulls that were said."""
        return self.model_dump(exclude_unset=True)


class Supersession(_Body):
    """Which record is superseded, and by what: a new text, or another record."""

    id: Id
    text: str | None = Field(None, min_length=1, max_length=MAX_TEXT)
    by: Id | None = None
    at: When | None = None
    scope: ScopeBody | None = None


class Forgetting(_Body):
    """Which records are forgotten: all of them, or none."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_NAMES)]
    scope: ScopeBody | None = None


class Undoing(_Body):
    """The record whose last change is taken back; with `seq`, only if that is still the last."""

    id: Id
    seq: int | None = Field(None, ge=1, le=2**62, description="As the answer to the change said it.")
    scope: ScopeBody | None = None


class Indexing(_Body):
    """Which folders are mirrored again; none means all that are known."""

    paths: Names = []
    dry_run: bool = False
