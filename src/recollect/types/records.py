"""What is stored, what may be seen of it, and what can be done to it, as frozen data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from recollect.ranking import fold_hash


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose a record is, or who is asking. A part that is None is unset; none set is global."""

    user: str | None = None
    agent: str | None = None
    session: str | None = None

    def admits(self, record: Scope) -> bool:
        """Whether one who asks with this scope may see a record of that scope."""
        pairs = ((self.user, record.user), (self.agent, record.agent), (self.session, record.session))
        return all(theirs is None or theirs == ours for ours, theirs in pairs)

    def owns(self, record: Scope) -> bool:
        """Whether a record of that scope is this one's to change: seen, and not shared with others.

        What is nobody's is everybody's: one who is somebody reads it and leaves it as it is. Who has a user, owns what
        is of that user; who has none but an agent, what is of that agent; and so on.
        """
        first = next(iter(self.as_dict()), None)
        return self.admits(record) and (first is None or first in record.as_dict())

    def as_dict(self) -> dict[str, str]:
        """Only the parts that are set."""
        parts = {"user": self.user, "agent": self.agent, "session": self.session}
        return {name: value for name, value in parts.items() if value is not None}

    @property
    def key(self) -> str:
        """The scope as one text, for what is kept by scope: the same for equal scopes, and for no others."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


GLOBAL = Scope()


@dataclass(frozen=True, slots=True)
class Record:
    """One stored thing: a `fact`, or a `chunk` of a file."""

    id: str
    text: str
    kind: str = "fact"
    title: str = ""
    category: str | None = None
    tags: tuple[str, ...] = ()
    scope: Scope = GLOBAL
    importance: float = 0.5
    decay: str | None = None
    created_at: datetime = field(default_factory=now)
    happened_at: datetime | None = None
    expires_at: datetime | None = None
    edited_at: datetime | None = None
    superseded_by: str | None = None
    superseded_at: datetime | None = None
    source: str | None = None
    path: str | None = None
    lines: tuple[int, int] | None = None
    _text_hash: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def time(self) -> datetime:
        """When it is from: when it happened where that is known, else when it was stored."""
        return self.happened_at or self.created_at

    @property
    def passage(self) -> str:
        """What is embedded: the text under its title."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def text_hash(self) -> bytes:
        """Sixteen bytes that are equal for records with the same text but for case and white space; computed once."""
        if not self._text_hash:
            object.__setattr__(self, "_text_hash", fold_hash(self.text))
        return self._text_hash


@dataclass(frozen=True, slots=True)
class Filter:
    """What a query may see. Applied inside every source, before its ranking."""

    scope: Scope = GLOBAL
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    superseded: bool = False
    any_scope: bool = False
    now: datetime = field(default_factory=now)

    @property
    def moment(self) -> datetime:
        """The time as of which it is asked."""
        return self.as_of or self.now


EVERYTHING = Filter(any_scope=True, superseded=True, now=datetime.min.replace(tzinfo=UTC))
"""Lets all through that is stored: at the beginning of time nothing had expired."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a record's append-only history."""

    seq: int
    id: str
    action: str
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileState:
    """What was true of a file when it was indexed."""

    path: str
    root: str
    mtime_ns: int
    size: int
    digest: str

    @staticmethod
    def digest_of(content: bytes) -> str:
        """What tells two contents apart."""
        return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Put:
    """Store a record, or update the one with its id; with `merge`, also the live fact of the same scope and text."""

    record: Record
    merge: bool = False


@dataclass(frozen=True, slots=True)
class Supersede:
    """From `at` on, `by` stands in the place of `id`; `made` says that it was stored for nothing else."""

    id: str
    by: str
    at: datetime | None = None
    made: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """Take a record out of every answer; with `purge`, wipe its content and its history's too."""

    id: str
    purge: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """Put back a record that was forgotten, or that was superseded; with `owner`, only what that scope owns."""

    id: str
    owner: Scope | None = None


@dataclass(frozen=True, slots=True)
class Still:
    """Change nothing if anything has happened to a record since this line of its history."""

    id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Undid:
    """Note that what was just done to a record took back that line of its history: the next undo goes further back."""

    id: str
    seq: int


@dataclass(frozen=True, slots=True)
class SawFile:
    """Note a file's state (or, with None, that the file is gone)."""

    path: str
    state: FileState | None


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Note how a folder was told to be mirrored: for which scope, with which tags and patterns."""

    root: str
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ingested:
    """Note that a piece of a file, known by its digest, has been read for facts."""

    digest: str


Change: TypeAlias = Put | Supersede | Forget | Restore | Still | Undid | SawFile | Mirrors | Ingested
"""Everything that can be done to a store, as data."""
