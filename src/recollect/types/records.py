"""Records, scopes and filters, and every change that can be made to a store, as frozen data."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from recollect.dataclass import dataclass
from recollect.ranking import fold_hash

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """The present time in UTC."""
    return datetime.now(UTC)


def micros(at: datetime | None) -> int | None:
    """A time as stores keep it: microseconds of UTC."""
    return None if at is None else (at - EPOCH) // _MICROSECOND


def new_id() -> str:
    """A new id. It begins with the time, so that records stored together are neighbours in an index by id."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


SHORT_ID = 8  # characters of a short id
_GENERATED = re.compile(r"[0-9a-f-]{24,}")  # ids that a program made: ours, and UUIDs


def short_id(record_id: str, length: int = SHORT_ID) -> str:
    """The end of an id that a program made; the whole of an id that somebody chose.

    Not the beginning: that is the time, which records stored together share.
    """
    return record_id[-length:] if _GENERATED.fullmatch(record_id) else record_id


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """The short ids of records that are shown together: longer where two would be the same."""
    short = {key: short_id(key) for key in ids}
    length = SHORT_ID
    while len(short) > len(set(short.values())):
        length += 4
        shared = Counter(short.values())
        short = {key: short_id(key, length) if shared[name] > 1 else name for key, name in short.items()}
    return short


def first_words(text: str, most: int) -> str:
    """The first words of a text on one line, in at most so many characters. A first word that is longer is cut."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    import textwrap  # few programs that import the types need it

    words = textwrap.shorten(line, most, placeholder=" …")
    return f"{line[: most - 1]}…" if words == "…" else words


MOST_LINES = 2**31 - 1  # of a file
TURN_STEP = timedelta(microseconds=2)  # between the times at which two turns are stored that follow each other

MARKDOWN = (".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdx", ".qmd", ".rmd")  # endings of file names
FRONT_MATTER = "front matter"  # the place of a chunk of properties that have no place above the first passage of a note


def passage_of(title: str, text: str) -> str:
    """The text that is embedded."""
    return f"{title}\n{text}" if title else text


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a record or of a caller. A record with no part set is global; a caller with none is the owner."""

    user: str | None = None
    agent: str | None = None
    session: str | None = None

    def admits(self, record: Scope) -> bool:
        """Whether a caller with this scope may see a record of that scope."""
        pairs = ((self.user, record.user), (self.agent, record.agent), (self.session, record.session))
        return all(theirs is None or theirs == ours for ours, theirs in pairs)

    def owns(self, record: Scope) -> bool:
        """Whether a caller with this scope may change a record of that scope.

        Global records can be read by everyone and changed only by a caller without a scope. Otherwise a caller owns the
        visible records that carry its first set part: user, then agent, then session.
        """
        first = next(iter(self.as_dict()), None)
        return self.admits(record) and (first is None or first in record.as_dict())

    def as_dict(self) -> dict[str, str]:
        """The parts that are set."""
        parts = {"user": self.user, "agent": self.agent, "session": self.session}
        return {name: value for name, value in parts.items() if value is not None}

    @property
    def key(self) -> str:
        """The scope as text, to be used as a key: equal for equal scopes only."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


GLOBAL = Scope()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who wrote a record: the kind of writer, its name, and the session in which it wrote.

    A scope says who may see a record; this says whose words it holds.
    """

    origin: str = "user"
    author: str | None = None
    author_session: str | None = None

    @property
    def distrust(self) -> int:
        """How little its words can be relied on: 0 for users and their files, 1 for agents, 2 for all others."""
        return _DISTRUST.get(self.origin, 2)

    def as_dict(self) -> dict[str, str | None]:
        """As fields of a record."""
        return {"origin": self.origin, "author": self.author, "author_session": self.author_session}

    def as_detail(self) -> dict[str, str]:
        """As fields of an event, without those that are not set; none for the user."""
        return {} if self == Provenance() else {name: value for name, value in self.as_dict().items() if value}


_DISTRUST: Mapping[str, int] = {"user": 0, "file": 0, "agent": 1}


def default_origin(kind: str) -> str:
    """The origin of a record that names none: chunks are text of files, all others are the user's."""
    return "file" if kind == "chunk" else "user"


@dataclass(frozen=True, slots=True)
class Record:
    """A record: a `fact`, a `chunk` of a file, a `turn` of a conversation; `outside` are documents of other systems."""

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
    origin: str = "user"
    author: str | None = None
    author_session: str | None = None
    place: str | None = None
    """Where in its file a chunk of a document is: `page 12`, `slides 3–4`. Its `lines` are those of the text read.

    Of a turn, it is the title of its conversation.
    """
    _text_hash: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def time(self) -> datetime:
        """When it happened, if that is known; otherwise when it was stored."""
        return self.happened_at or self.created_at

    @property
    def provenance(self) -> Provenance:
        """Who wrote it."""
        return Provenance(self.origin, self.author, self.author_session)

    @property
    def passage(self) -> str:
        """The text that is embedded: the title, and the text below it."""
        return passage_of(self.title, self.text)

    @property
    def is_markdown(self) -> bool:
        """Whether the text may have Markdown in it: that of a fact, of a document, or of a Markdown file."""
        return not self.path or bool(self.place) or self.path.lower().endswith(MARKDOWN)

    @property
    def text_hash(self) -> bytes:
        """Sixteen bytes that are equal for records with the same text but for case and white space; computed once."""
        if not self._text_hash:
            object.__setattr__(self, "_text_hash", fold_hash(self.text))
        return self._text_hash


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records a query may return. Every source applies it before ranking.

    `since` and `until` are about the time that a record tells of; `written_since` and `written_until` about when it was
    stored or its text was changed. A record contains all `phrases`, one wording of each group of `required`, and
    nothing of `without`. Words in these two are compared by their index terms: `querylang` has the rules.
    """

    scope: Scope = GLOBAL
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    author_sessions: tuple[str, ...] = ()
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    superseded: bool = False
    any_scope: bool = False
    written_since: datetime | None = None
    written_until: datetime | None = None
    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    required: tuple[tuple[str, ...], ...] = ()
    now: datetime = field(default_factory=now)

    @property
    def moment(self) -> datetime:
        """The time at which records must be in effect: `as_of`, or now."""
        return self.as_of or self.now


EVERYTHING = Filter(any_scope=True, superseded=True, now=datetime.min.replace(tzinfo=UTC))
"""Passes every stored record: at the beginning of time nothing had expired."""


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a record's history, to which entries are only appended."""

    seq: int
    id: str
    action: str
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file when it was indexed.

    The digest of a document names its reader after the hash, and then why it could not be read, if it could not.
    """

    path: str
    root: str
    mtime_ns: int
    size: int
    digest: str

    @staticmethod
    def digest_of(content: bytes) -> str:
        """The hash of a content."""
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    @property
    def content_digest(self) -> str:
        """The hash alone."""
        return self.digest.partition(" ")[0]

    @property
    def reader(self) -> str:
        """The reader of a document and its version; empty for a file that is text."""
        return self.digest.partition(" ")[2].partition(" ")[0]

    @property
    def problem(self) -> str:
        """Why a document could not be read; empty if it could."""
        return self.digest.partition(" ")[2].partition(" ")[2]


@dataclass(frozen=True, slots=True)
class Put:
    """Store a record, or update the one with its id; with `merge`, also a current fact of the same scope and text.

    A record of a writer who is trusted more is not overwritten, except with `any_writer`: an undo restores, and `edit`
    has compared the writers. The history of an updated record names the `writer`, if it is not the user.
    """

    record: Record
    merge: bool = False
    any_writer: bool = False
    writer: Provenance = Provenance()


@dataclass(frozen=True, slots=True)
class Supersede:
    """From `at` on, the record `by` replaces the record `id`; `made` says that `by` was stored only for this."""

    id: str
    by: str
    at: datetime | None = None
    made: bool = False
    writer: Provenance = Provenance()


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove a record from all answers; with `purge`, also erase its content and that of its history."""

    id: str
    purge: bool = False
    writer: Provenance = Provenance()


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore a record that was forgotten or superseded; with `owner`, only if that scope owns it."""

    id: str
    owner: Scope | None = None


@dataclass(frozen=True, slots=True)
class ExpectUnchanged:
    """Fail, with the whole group of changes, if the record's history has an entry after `seq`."""

    id: str
    seq: int


@dataclass(frozen=True, slots=True)
class MarkUndo:
    """Note that the last change to a record undid the entry `seq` of its history: the next undo goes further back."""

    id: str
    seq: int
    writer: Provenance = Provenance()


@dataclass(frozen=True, slots=True)
class SetFileState:
    """Store the state of a file, or with None that the file is gone."""

    path: str
    state: FileState | None


@dataclass(frozen=True, slots=True)
class SetFolderOptions:
    """Store the options with which a folder is indexed: scope, tags and patterns; with None, that it is not indexed."""

    root: str
    options: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class MarkIngested:
    """Note that facts were extracted from the piece of a file with this digest."""

    digest: str


@dataclass(frozen=True, slots=True)
class SaveVectors:
    """Store vectors of one space by the hashes of their passages, each if a record has its passage by then.

    Fail, with the whole group of changes and those before it, if another space is the active one by then.
    """

    space: int
    vectors: Sequence[tuple[bytes, bytes]]


Change: TypeAlias = (  # a change to a store
    Put | Supersede | Forget | Restore | ExpectUnchanged | MarkUndo | SetFileState | SetFolderOptions | MarkIngested
    | SaveVectors
)  # fmt: skip
