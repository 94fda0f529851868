"""All that a store holds as parts of a few kinds, for copies, exports and backups."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]  # called with (done, total) as long work goes on
Steps: TypeAlias = Callable[[str], Progress | None]  # shows the progress of each step of long work, by the step's name


class Part(NamedTuple):
    """One piece of a store: its kind, and its values in the order of `FIELDS`.

    Times are microseconds of UTC, tags a tuple, the detail of an event a mapping, vectors the bytes of little-endian
    float32, passages the hash that vectors are kept under.
    """

    kind: str
    values: tuple[Any, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What no two parts of a kind share."""
        return self.values[: KEYS[self.kind]]

    def field(self, name: str) -> Any:
        """The value of the field with this name in `FIELDS`."""
        return self.values[FIELDS[self.kind].index(name)]


FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "meta": ("name", "value"),
        "space": ("fingerprint", "embedder", "dimension"),
        "record": (
            "id", "kind", "text", "title", "category", "tags", "user", "agent", "session", "importance", "decay",
            "created_at", "happened_at", "expires_at", "edited_at", "superseded_by", "superseded_at", "forgotten_at",
            "purged", "source", "path", "first_line", "last_line", "place", "origin", "author",
            "author_session",
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
"""Kind → its fields. Kinds are copied in this order: what others refer to comes before them."""

KEYS: Mapping[str, int] = MappingProxyType({**dict.fromkeys(FIELDS, 1), "vector": 2, "join": 3})
"""How many of the first fields are the key; parts of a kind are ordered by it."""

HEADS: Mapping[str, int] = MappingProxyType(
    {**{kind: len(fields) for kind, fields in FIELDS.items()}, "history": 4, "vector": 2}
)
"""How many of the first fields tell whether two stores have the same part: all, but not the large ones of an event or
a vector."""

MOVED_META = ("language", "space")
"""The store's own values that are copied: its language, and its active vector space. All others are derived."""


class Snapshot(Protocol):
    """A store as it is at one moment, however long reading takes."""

    def counts(self) -> Mapping[str, int]:
        """How many parts there are of each kind."""

    def parts(self) -> Iterator[Part]:
        """All parts: the kinds in their order, those of a kind by rising key."""


class StoreSnapshot(Snapshot, Protocol):
    """A snapshot of an open store, of which single parts can be read."""

    def heads(self, kind: str) -> Generator[tuple[Any, ...], None, None]:
        """The first values of each part of a kind, as many as `HEADS` says, by rising key."""

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        """The parts with the keys of these parts, as `Contents.find` finds them by the fields of `HEADS` alone."""


class Contents(Protocol):
    """Reads and writes all that a store holds, forgotten and superseded records included."""

    @property
    def identity(self) -> str:
        """A text that is equal for two openings of one store, and different for other stores."""

    @property
    def name(self) -> str:
        """A name that the store keeps when its machine or server is restarted; another store has another one."""

    def snapshot(self) -> AbstractContextManager[StoreSnapshot]:
        """The store as it is now."""

    def find(self, parts: Sequence[Part]) -> list[Part | None]:
        """The parts with the keys of these parts of one kind, None where there is none.

        An event is also found under another number, by its record, action and time.
        """

    def load(self, parts: Sequence[Part], *, renumber: bool = False) -> None:
        """Add parts of one kind, all or none; parts whose keys exist stay as they are.

        `renumber` gives events new numbers. The language is taken while there is no record, the active space while
        there is none.
        """

    def follow(self, records: Sequence[Part], events: Sequence[Part], *, newest: int) -> None:
        """Store records in place of those with the same ids, new ones too, and add new events of theirs; all or none.

        Vectors of texts that no record has any more are deleted, and a purge empties the details of earlier events. If
        the store has an event with a higher number than `newest`, somebody else has changed it: Overtaken is raised.
        """

    def replace(self, parts: Sequence[Part], gone: Sequence[Part] = ()) -> None:
        """Store parts of a kind without history in place of those with the same keys, and delete others; all or none.

        The active vector space and the language are set.
        """

    def finish(self, progress: Progress | None = None) -> None:
        """Build the indexes after loading, so that the next search need not."""
