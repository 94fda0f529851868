"""Every setting there is, with its default, its meaning and what it may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from recollect.analysis import LANGUAGES
from recollect.config.places import misspelt
from recollect.config.sources import SourceSettings
from recollect.fusion import DEFAULT_K, METHODS, NORMALISATIONS
from recollect.types import Ranking, Scope


def setting(default: object, about: str) -> Any:
    """A setting with its one line of documentation."""
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`[search]`: how a query is answered."""

    limit: int = setting(10, "how many results")
    fetch_k: int = setting(100, "how deep each source is read")
    sources: tuple[str, ...] | None = setting(None, "which sources are asked; by default all there are")
    budget_ms: float | None = setting(None, "answer with what has come by then")
    fusion: str = setting("blend", f"one of {', '.join(METHODS)}")
    rrf_k: float = setting(float(DEFAULT_K), "RRF's constant; ranks count from 1")
    normalisation: str = setting("none", f"of scores, for weighted and combmnz: {', '.join(NORMALISATIONS)}")
    text_weight: float = setting(1.0, "weight of the keyword source")
    vector_weight: float = setting(1.0, "weight of the vector source")
    decay: bool = setting(True, "let records of a decaying class count less with age")
    half_life_days: float | None = setting(None, "let records without a class decay too")
    importance_weight: float = setting(0.1, "how far importance moves a score")
    prefer_newer: bool = setting(True, "of two facts that say nearly the same, put the newer first")
    mmr: bool = setting(False, "reorder for diversity")
    mmr_lambda: float = setting(0.7, "1 is all relevance, 0 is all diversity")
    min_score: float = setting(0.0, "leave out results that score less")
    confidence: bool = setting(False, "say of each result how far it stands out from what unrelated questions find")
    min_confidence: float = setting(0.0, "leave out results of less confidence, and abstain where none is left")
    rerank: bool = setting(False, "let a model read the first results again, with the question beside each")
    rerank_model: str = setting("minilm-l12-reranker", "the model that does")
    rerank_head: int = setting(20, "how many it reads")
    hyde: bool | str = setting(False, 'also search with a hypothetical answer; "replace" searches with it alone')
    hyde_model: str | None = setting(None, "the model that writes it; by default that of [llm]")
    hyde_timeout: float = setting(10.0, "seconds it may take")
    hyde_weight: float = setting(1.0, "weight of its list")

    def ranking(self, outside: Mapping[str, float] | None = None) -> Ranking:
        """These settings as a query carries them, with the weights of outside sources."""
        return Ranking(
            fusion=self.fusion,
            rrf_k=self.rrf_k,
            normalisation=self.normalisation,
            weights={"keyword": self.text_weight, "vector": self.vector_weight, "hyde": self.hyde_weight}
            | dict(outside or {}),
            decay=self.decay,
            half_life_days=self.half_life_days,
            importance_weight=self.importance_weight,
            prefer_newer=self.prefer_newer,
            mmr=self.mmr_lambda if self.mmr else None,
            min_score=self.min_score,
            min_confidence=self.min_confidence,
            confidence=self.confidence or self.min_confidence > 0,
        )


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """`[scope]`: who asks, and whose new records are."""

    user: str | None = setting(None, "the user")
    agent: str | None = setting(None, "the agent")
    session: str | None = setting(None, "the session")

    def scope(self) -> Scope:
        """The scope these settings name."""
        return Scope(self.user, self.agent, self.session)


@dataclass(frozen=True, slots=True)
class OpenAISettings:
    """`[openai]`: an OpenAI-compatible endpoint for `embedder = "openai:MODEL"` and its like."""

    base_url: str | None = setting(None, "where it answers, for example http://localhost:11434/v1")
    api_key_env: str = setting("OPENAI_API_KEY", "the environment variable that holds the key")
    dimensions: int | None = setting(None, "ask for vectors of this length")
    query_prefix: str = setting("", "put before every query")
    passage_prefix: str = setting("", "put before every passage")
    timeout: float = setting(30.0, "seconds for one call")
    retries: int = setting(3, "how often a failed call is tried again")


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """`[llm]`: an OpenAI-compatible endpoint for what needs a language model, such as `ingest-files`."""

    base_url: str | None = setting(None, "where it answers; by default OPENAI_BASE_URL, else OpenAI")
    model: str | None = setting(None, "the model's name; at OpenAI gpt-4o-mini where none is set")
    api_key_env: str = setting("OPENAI_API_KEY", "the environment variable that holds the key")
    timeout: float = setting(60.0, "seconds for one call")
    retries: int = setting(3, "how often a failed call is tried again")
    max_tokens: int = setting(1024, "the longest answer asked for")
    temperature: float = setting(0.0, "0 is the most repeatable")


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """`[ingest]`: which files `ingest-files` makes facts of, and how."""

    paths: tuple[str, ...] = setting(("skills/**/*.md", "TOOLS.md", "AGENTS.md"), "globs inside the workspace")
    chunk_size: int = setting(800, "characters sent at once")
    overlap: int = setting(100, "characters that a chunk shares with the one before")
    similarity: float = setting(0.93, "a new fact this near to a known one (cosine) is its duplicate")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    store: str | None = setting(
        None, "a file (by default in the user's data folder), or a URL such as postgresql://user@host/database"
    )
    embedder: str = setting("arctic-embed-s", "the model that embeds; `none` is keyword search only")
    language: str | None = setting(
        None, "of the stemmer, for a new store; `recollect language` changes that of a store; english where none is set"
    )
    search: SearchSettings = field(default_factory=SearchSettings)
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    sources: tuple[SourceSettings, ...] = setting((), "outside search systems, each a table [[sources]]")


def _one_of(names: Mapping[str, object] | tuple[str, ...]) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value is None or value in names), f"one of {', '.join(names)}"


def _from(low: float, high: float = math.inf) -> tuple[Callable[[Any], bool], str]:
    words = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
    return (lambda value: value is None or (low <= value <= high and value != math.inf)), words


def _above_zero() -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value is None or 0 < value < math.inf), "more than 0"


def _named() -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value is None or bool(value.strip())), "a name that is not empty"


CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "store": (lambda value: value is None or not misspelt(value), "a file, or a URL with its ://"),
        "language": _one_of(LANGUAGES),
        "scope.user": _named(),
        "scope.agent": _named(),
        "scope.session": _named(),
        "search.limit": _from(1, 10_000),
        "search.fetch_k": _from(1, 100_000),
        "search.fusion": _one_of(METHODS),
        "search.rrf_k": _from(0),
        "search.normalisation": _one_of(NORMALISATIONS),
        "search.text_weight": _from(0),
        "search.vector_weight": _from(0),
        "search.half_life_days": _above_zero(),
        "search.importance_weight": _from(0, 1),
        "search.mmr_lambda": _from(0, 1),
        "search.min_score": _from(0, 1),
        "search.min_confidence": _from(0, 1),
        "search.budget_ms": _above_zero(),
        "search.rerank_model": _named(),
        "search.rerank_head": _from(2, 1000),
        "search.hyde": (lambda value: value in (True, False, "replace"), 'true, false or "replace"'),
        "search.hyde_timeout": _above_zero(),
        "search.hyde_weight": _from(0),
        "openai.dimensions": _from(1),
        "openai.timeout": _above_zero(),
        "openai.retries": _from(0, 20),
        "llm.base_url": _named(),
        "llm.model": _named(),
        "llm.timeout": _above_zero(),
        "llm.retries": _from(0, 20),
        "llm.max_tokens": _from(1, 1_000_000),
        "llm.temperature": _from(0, 2),
        "ingest.chunk_size": _from(100, 100_000),
        "ingest.overlap": _from(0, 50_000),
        "ingest.similarity": _from(0, 1),
    }
)
"""Setting → what its value must pass, and that in words."""
