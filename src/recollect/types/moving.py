"""What a store holds, piece by piece, as it is moved to another: the seam between stores and `recollect.moving`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from recollect.types.protocols import Progress


class Part(NamedTuple):
    """One piece of a store: which sort it is, and its values in the order of `FIELDS`.

    Times are microseconds of UTC, tags a tuple, the detail of an event a mapping, vectors the bytes of little-endian
    float32, passages the hash that vectors are kept under.
    """

    sort: str
    values: tuple[Any, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What no two parts of a sort share."""
        return self.values[: KEYS[self.sort]]


FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "meta": ("name", "value"),
        "space": ("fingerprint", "embedder", "dimension"),
        "record": (
            "id", "kind", "text", "title", "category", "tags", "user", "agent", "session", "importance", "decay",
            "created_at", "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "forgotten_at",
            "purged", "source", "path", "first_line", "last_line",
        ),
        "history": ("seq", "id", "action", "at", "detail"),
        "vector": ("space", "passage", "vector"),
        "file": ("path", "root", "mtime_ns", "size", "digest"),
        "root": ("root", "told"),
        "ingested": ("digest", "at"),
        "join": ("source", "id", "scope", "path"),
        "note": ("key", "value", "at"),
    }
)  # fmt: skip
"""Sort → its fields. Sorts are moved in this order: what others refer to comes before them."""

KEYS: Mapping[str, int] = MappingProxyType(
    {
        "meta": 1,
        "space": 1,
        "record": 1,
        "history": 1,
        "vector": 2,
        "file": 1,
        "root": 1,
        "ingested": 1,
        "join": 3,
        "note": 1,
    }
)
"""How many of the first fields are the key; parts of a sort are in its order."""

MOVED_META = ("language", "space")
"""Of the store's own notes, those that are not derived: the language of its words, and the space that answers."""


class Snapshot(Protocol):
    """A store as it is at one moment, however long the reading takes."""

    def counts(self) -> Mapping[str, int]:
        """How many parts there are of each sort."""

    def parts(self) -> Iterator[Part]:
        """All parts: the sorts in their order, those of a sort by rising key."""


class Moving(Protocol):
    """All that a store holds, in and out, forgotten and superseded records included."""

    @property
    def identity(self) -> str:
        """The same for two openings of one store, and for no others."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """What it holds now."""

    def held(self, parts: Sequence[Part]) -> list[Part | None]:
        """What it has under the keys of these parts of one sort. An event is also known by what happened when."""

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts of one sort, all or none; what has their keys already stays. `renumber` gives events new numbers.

        The language is taken while there is no record, the space that answers while there is none.
        """

    def settle(self, progress: Progress | None = None) -> None:
        """Make what is derived, so that the next search need not."""
