"""Migrations: another model, language or chunker. The old one answers until one switch at the end.

What takes long is prepared beside it and stored in batches, so an interrupted migration goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from recollect.errors import UsageError
from recollect.ingest import documents
from recollect.ingest.recutting import outdated, recut
from recollect.memory.memory import Memory
from recollect.stores.rows import analyzer_of
from recollect.types import Change, Progress, Put, VectorSpace


@dataclass(frozen=True, slots=True)
class NewModel:
    """The configured embedder instead of the one whose vectors answer."""

    old: str
    new: str
    kind: ClassVar[str] = "embedder"

    def work(self, memory: Memory) -> str:
        """What is to be done, in words. Opens no model."""
        own = next((space for space in _stored(memory) if space.embedder == self.new), None)
        total = memory.store.status()["records"]["total"]
        missing = memory.store.spaces.open(own).coverage()[1] if own else total
        return f"compute the vectors of {missing:,} of {total:,} records"

    def prepare(self, memory: Memory, progress: Progress | None) -> int:
        """Compute and store what the switch needs; return how many vectors were computed. Answers stay the same."""
        return memory.embeddings.fill(progress, activate=False)

    def switch(self, memory: Memory, progress: Progress | None) -> None:
        """Let the new one answer. What was added since `prepare` is computed first."""
        memory.store.keywords.catch_up()
        memory.embeddings.fill(progress)


@dataclass(frozen=True, slots=True)
class NewLanguage:
    """Another language of the keyword index."""

    old: str
    new: str
    kind: ClassVar[str] = "language"

    def work(self, memory: Memory) -> str:
        """What is to be done, in words. Opens no model."""
        return f"analyse {memory.store.status()['records']['total']:,} records again"

    def prepare(self, memory: Memory, progress: Progress | None) -> int:  # noqa: ARG002
        """Nothing: the index is derived, and rebuilt after the switch."""
        return 0

    def switch(self, memory: Memory, progress: Progress | None) -> None:  # noqa: ARG002
        """Let the new language count, and rebuild the keyword index."""
        memory.change_language(self.new)


@dataclass(frozen=True, slots=True)
class NewChunks:
    """Files that older rules cut are cut by the present ones: all files of a folder in one transaction."""

    old: str
    new: str
    kind: ClassVar[str] = "chunks"

    def work(self, memory: Memory) -> str:
        """What is to be done, in words. Opens no model."""
        folders = outdated(memory.store.files)
        return f"cut {sum(folders.values()):,} files of {len(folders):,} folders again"

    def prepare(self, memory: Memory, progress: Progress | None) -> int:
        """Compute and store what the switch needs; return how many vectors were computed. Answers stay the same."""
        store = memory.store
        folders = outdated(store.files) if memory.embeddings.configured else ()
        return sum(_embed_ahead(memory, recut(store, root), progress) for root in folders)

    def switch(self, memory: Memory, progress: Progress | None) -> None:
        """Let the new one answer. What was added since `prepare` is computed first."""
        for root in outdated(memory.store.files):
            changes = recut(memory.store, root)
            _embed_ahead(memory, changes, progress)
            memory.store.records.apply([changes])


Migration: TypeAlias = NewModel | NewLanguage | NewChunks
"""A change of a store that is prepared first, which may take long and be interrupted, and then takes effect at once."""


def _embed_ahead(memory: Memory, changes: Sequence[Change], progress: Progress | None) -> int:
    """Compute the vectors of new chunks before these are stored, so that search never lacks them; return how many."""
    if not memory.embeddings.configured:
        return 0
    passages = [change.record.passage for change in changes if isinstance(change, Put)]
    return memory.embeddings.ensure(passages, progress, ahead=True)


def to_model(memory: Memory, *, opens: bool = True) -> NewModel | None:
    """The migration to the configured model; None if its vectors answer already.

    Without `opens` models are compared by name: whether the files of a model have changed is not noticed.
    """
    active, name = memory.store.spaces.active, memory.embeddings.name
    same = memory.embeddings.is_active() if opens else active is not None and active.embedder == name
    return None if same else NewModel(active.embedder if active else "none", name)


def to_language(memory: Memory, language: str) -> NewLanguage | None:
    """The migration to a language; None if the store has it already."""
    current = memory.store.keywords.analyzer.language
    analyzer_of(language)  # an unknown one is an error
    return None if language == current else NewLanguage(current, language)


def to_chunks(memory: Memory) -> NewChunks | None:
    """The migration to the present rules for chunks; None if no folder was cut by older ones."""
    new = str(documents.RULES)
    return NewChunks(f"before {new}", new) if outdated(memory.store.files) else None


def waiting(memory: Memory) -> list[Migration]:
    """What the settings and this release ask for and the store does not have. Opens no model: names are compared."""
    language, has_vectors = memory.settings.language, memory.store.spaces.active is not None
    model = to_model(memory, opens=False) if memory.embeddings.configured and has_vectors else None
    migrations = (model, to_language(memory, language) if language else None, to_chunks(memory))
    return [migration for migration in migrations if migration is not None]


@runtime_checkable
class ClearableSpaces(Protocol):
    """Vector spaces that can be listed and emptied."""

    def stored(self) -> list[VectorSpace]:
        """All spaces, also those without vectors."""

    def count(self, space: VectorSpace) -> int:
        """How many vectors a space has."""

    def clear(self, space: VectorSpace) -> None:
        """Delete all vectors of a space that is not the active one."""


def _stored(memory: Memory) -> list[VectorSpace]:
    spaces = memory.store.spaces
    return spaces.stored() if isinstance(spaces, ClearableSpaces) else []


def unused(memory: Memory) -> dict[VectorSpace, int]:
    """The spaces that do not answer, each with the number of its vectors."""
    spaces = memory.store.spaces
    if not isinstance(spaces, ClearableSpaces):
        return {}
    active = spaces.active
    others = [space for space in spaces.stored() if active is None or space.fingerprint != active.fingerprint]
    return {space: count for space in others if (count := spaces.count(space))}


def abandon(memory: Memory, embedder: str | None = None) -> dict[VectorSpace, int]:
    """Delete the vectors that do not answer, or only those of one model; return how many of each space."""
    spaces = memory.store.spaces
    if not isinstance(spaces, ClearableSpaces):
        raise UsageError("this kind of store cannot delete the vectors of a model", hint="copy it: `recollect copy`")
    deleted = {space: count for space, count in unused(memory).items() if embedder in (None, space.embedder)}
    for space in deleted:
        spaces.clear(space)
    memory.store.keywords.catch_up()  # so that the next search need not
    return deleted
