"""The settings: every table of the settings file, with defaults, help and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.analysis import LANGUAGES
from recollect.config.places import misspelt
from recollect.config.sources import SourceSettings
from recollect.options import POSITIVE, SCOPE, SHARE, Bounds, SearchOptions, option
from recollect.types import Scope

RETRIES = Bounds(0, 20)


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """`[scope]`: which records can be read, and to whom new records belong."""

    user: str | None = option(None, SCOPE[0].help, filled=True)
    agent: str | None = option(None, SCOPE[1].help, filled=True)
    session: str | None = option(None, SCOPE[2].help, filled=True)

    def scope(self) -> Scope:
        """These settings as a scope."""
        return Scope(self.user, self.agent, self.session)


@dataclass(frozen=True, slots=True)
class OpenAISettings:
    """`[openai]`: an OpenAI-compatible endpoint for `embedder = "openai:MODEL"` and its like."""

    base_url: str | None = option(None, "Its address, for example http://localhost:11434/v1.")
    api_key_env: str = option("OPENAI_API_KEY", "The environment variable that holds the key.")
    dimensions: int | None = option(None, "Length of the vectors to ask for.", bounds=Bounds(1))
    query_prefix: str = option("", "Text put before every query.")
    passage_prefix: str = option("", "Text put before every passage.")
    timeout: float = option(30.0, "Seconds allowed for one call.", bounds=POSITIVE)
    retries: int = option(3, "Number of times that a failed call is tried again.", bounds=RETRIES)


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """`[llm]`: an OpenAI-compatible endpoint for commands that need a language model, such as `ingest-files`."""

    base_url: str | None = option(None, "Its address; by default OPENAI_BASE_URL, else OpenAI.", filled=True)
    model: str | None = option(None, "Name of the model; at OpenAI the default is gpt-4o-mini.", filled=True)
    api_key_env: str = option("OPENAI_API_KEY", "The environment variable that holds the key.")
    timeout: float = option(60.0, "Seconds allowed for one call.", bounds=POSITIVE)
    retries: int = option(3, "Number of times that a failed call is tried again.", bounds=RETRIES)
    max_tokens: int = option(1024, "Maximum number of tokens of an answer.", bounds=Bounds(1, 1_000_000))
    temperature: float = option(0.0, "Randomness of the answers; 0 is the most repeatable.", bounds=Bounds(0, 2))


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """`[ingest]`: from which files `ingest-files` extracts facts, and how."""

    paths: tuple[str, ...] = option(("skills/**/*.md", "TOOLS.md", "AGENTS.md"), "Globs inside the workspace.")
    chunk_size: int = option(800, "Characters sent at once.", bounds=Bounds(100, 100_000))
    overlap: int = option(100, "Characters that a chunk shares with the one before it.", bounds=Bounds(0, 50_000))
    similarity: float = option(0.93, "Cosine from which a new fact is a duplicate of a known one.", bounds=SHARE)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    store: str | None = option(
        None,
        "A file (by default in the user's data folder), or a URL such as postgresql://user@host/database.",
        check=(lambda place: not misspelt(place), "a file, or a URL with its ://"),
    )
    embedder: str = option("arctic-embed-s", "The embedding model; `none` is keyword search only.")
    language: str | None = option(
        None,
        "Language of a new store (of the stemmer), by default english; `recollect language` changes that of a store.",
        choices=LANGUAGES,
    )
    search: SearchOptions = field(default_factory=SearchOptions)
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    sources: tuple[SourceSettings, ...] = option((), "External sources, each a table [[sources]].")
