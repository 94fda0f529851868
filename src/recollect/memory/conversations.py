"""Conversations in the store: turns taken in from files, and whole conversations read in order.

A turn is a record of the kind `turn`, or several if it is long. Its id is made of the conversation and the message, so
that a second import finds what the first one stored. Its origin says whose words it holds: the user's, or an agent's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from recollect.errors import AmbiguousId, UnknownRecord
from recollect.ingest.chats import chat_files, read_chats
from recollect.ingest.documents import MAX_TOKENS, read_markdown
from recollect.ingest.facts import Piece, split
from recollect.ingest.lengths import bounded, tokens
from recollect.ingest.turns import ASSISTANT, FORMATS, USER, Conversation, Turn
from recollect.memory import Memory
from recollect.memory.changes import Writer
from recollect.memory.folders import Extraction, extract_from
from recollect.memory.importing import FileImport
from recollect.memory.naming import LEAST_CHARACTERS, MOST_LISTED
from recollect.memory.validation import make_filter
from recollect.ranking import well_formed
from recollect.redaction import redact
from recollect.types import Provenance, Record, Scope, now
from recollect.types.records import TURN_STEP, Change, Forget, Put

GROUP = 200  # changes in one transaction
BATCH = 500  # turns that are compared with the store at once
PAGE = 1000  # turns that are read at once
NAMED = 1000  # conversations, the newest, whose ids may be shortened
LISTED = 5  # conversations that the error about an ambiguous id lists
PARTS = 8  # of a turn that are looked up at once where it is not known how many it has
EXCHANGES = 20  # of a conversation that are sent to a language model at once, the last ones
WRITER = Provenance("import", "import-chat")  # of changes that forget turns; what the user forgets does not come back
ORIGIN_OF = {USER: "user", ASSISTANT: "agent"}  # of speakers; the words of all others have the origin `import`
STEP = TURN_STEP / 2  # between the times at which the parts of a turn are stored; between two turns it is twice as long


@dataclass(slots=True)
class ChatReport:
    """What an import did, in turns.

    `forgotten` are turns that the user has forgotten, which are not stored again; `replaced` are turns that another
    branch of the conversation has taken the place of: they are forgotten. `skipped` has reasons and counts by file.
    """

    conversations: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    forgotten: int = 0
    replaced: int = 0
    files: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, dict[str, int]] = field(default_factory=dict)
    embedded: int = 0


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn: who spoke, when, the whole text, and the ids of its records."""

    speaker: str
    time: datetime
    text: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation in the store, its turns in order."""

    id: str
    title: str
    source: str
    turns: tuple[StoredTurn, ...]

    def as_dict(self) -> dict[str, Any]:
        """The conversation as JSON."""
        turns = [{**asdict(turn), "time": turn.time.isoformat()} for turn in self.turns]
        return {"id": self.id, "title": self.title, "source": self.source, "turns": turns}


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list, with the time of its newest turn."""

    id: str
    title: str
    source: str
    last: datetime

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {**asdict(self), "last": self.last.isoformat()}


def read_conversation(memory: Writer, key: str) -> StoredConversation:
    """A conversation by its id, by the first characters of its id, or by the name of a turn."""
    records, named = _turns(memory, key), ""
    if not records and len(key) >= LEAST_CHARACTERS:
        names = [one.id for one in newest_conversations(memory, NAMED) if one.id.startswith(key)]
        if len(names) > 1:
            raise AmbiguousId(key, names[:LISTED])
        records = _turns(memory, names[0]) if names else []
    if not records:
        with contextlib.suppress(UnknownRecord):
            turn = memory.require(key)
            named = turn.id
            records = _turns(memory, turn.author_session) if turn.kind == "turn" and turn.author_session else []
    if not records:
        error = UnknownRecord(key)
        error.explain(f"there is no conversation {key!r}", "`recollect conversation` lists the newest ones")
        raise error
    copies: dict[tuple[str | None, Scope], list[Record]] = {}  # one scope may see those of several
    for record in records:
        copies.setdefault((record.source, record.scope), []).append(record)
    records = max(
        copies.values(),
        key=lambda copy: (any(turn.id == named for turn in copy), copy[0].scope == memory.scope, len(copy)),
    )
    ordered = sorted(records, key=lambda record: (record.time, record.created_at))
    first = ordered[0]
    return StoredConversation(str(first.author_session), _title(first), first.source or "", tuple(_joined(ordered)))


def _title(turn: Record) -> str:
    """The title of a turn's conversation. Turns of early imports have it only in their own titles."""
    return turn.place or turn.title.split(" › ")[0]


def extract_facts(memory: Memory, key: str) -> Extraction:
    """Let the language model extract facts from the last exchanges of a conversation, each a question and its answer.

    Exchanges that were read before are not sent again. Secrets are replaced before anything is sent.
    """
    whole = read_conversation(memory, key)
    report = Extraction(whole.id, "run")
    ingest = memory.settings.ingest
    for exchange in _exchanges(whole.turns)[-EXCHANGES:]:
        text, count = redact("\n\n".join(f"{turn.speaker}: {turn.text}" for turn in exchange))
        report.redacted += count
        pieces = split(text, path=whole.id, name=whole.title, size=ingest.chunk_size, overlap=ingest.overlap)
        report.pieces += [Piece(one.path, one.name, one.text, one.lines, spoken=True) for one in pieces]
    return extract_from(memory, report)


def _exchanges(turns: Sequence[StoredTurn]) -> list[list[StoredTurn]]:
    """The turns, each of the user's with the answers to it."""
    exchanges: list[list[StoredTurn]] = []
    for turn in turns:
        if turn.speaker == USER or not exchanges:
            exchanges.append([])
        exchanges[-1].append(turn)
    return exchanges


def newest_conversations(memory: Writer, limit: int) -> list[ConversationSummary]:
    """The conversations of the newest turns."""
    where = make_filter({"kind": "turn"}, memory.scope, memory.caller)
    newest: dict[str, Record] = {}
    offset = 0
    while len(newest) < limit and (page := memory.store.records.list(where, limit=PAGE, offset=offset)):
        for record in page:
            if record.author_session is not None and len(newest) < limit:
                newest.setdefault(record.author_session, record)
        offset += PAGE
    return [
        ConversationSummary(key, _title(record), record.source or "", record.time) for key, record in newest.items()
    ]


def _turns(memory: Writer, key: str) -> list[Record]:
    where = make_filter({"kind": "turn", "author_session": [key]}, memory.scope, memory.caller)
    return memory.store.records.list(where, limit=MOST_LISTED)


def _joined(records: Sequence[Record]) -> Iterator[StoredTurn]:
    """The turns of records in order. The parts of a long one carry its lines, by which they are joined again."""
    turn: list[Record] = []
    for record in records:
        if turn and not _continues(turn[-1], record):
            yield _stored_turn(turn)
            turn = []
        turn.append(record)
    if turn:
        yield _stored_turn(turn)


def _continues(before: Record, record: Record) -> bool:
    same = (before.author, before.happened_at) == (record.author, record.happened_at)
    return bool(same and before.lines and record.lines and record.created_at - before.created_at == STEP)


def _stored_turn(records: Sequence[Record]) -> StoredTurn:
    first = records[0]
    text, last = first.text, first.lines[1] if first.lines else 1
    for record in records[1:]:
        start, end = record.lines or (last + 1, last + 1)
        text += "\n" * (start - last) + record.text
        last = end
    return StoredTurn(first.author or "", first.time, text, tuple(record.id for record in records))


@dataclass(slots=True)
class _Begun:
    """A conversation of which a file may hold more: the id of its first turn, and the last time that a turn had."""

    first: str
    time: datetime | None = None

    def dated(self, turns: Iterable[Turn]) -> Iterator[Turn]:
        """The turns; one without a time has that of the turn before it."""
        for turn in turns:
            self.time = turn.time or self.time
            yield replace(turn, time=self.time)


class ChatImport(FileImport[ChatReport]):
    """Compares turns with the store, and stores what is new."""

    formats = FORMATS
    compared = (
        "text", "title", "tags", "happened_at", "source", "lines", "origin", "author", "author_session", "place",
    )  # fmt: skip
    find_files = staticmethod(chat_files)

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._clock = now()
        self._seen: set[tuple[str, str]] = set()
        self._begun: dict[tuple[str, str], _Begun] = {}
        self.report = ChatReport()

    def _read_file(self, path: Path) -> None:
        for file, conversations in read_chats(path, self._format):
            self._begun.clear()
            for conversation in conversations:
                self._conversation(conversation)
            if file.format:
                self.report.files[file.name] = file.format
            if file.skipped:
                self.report.skipped[file.name] = dict(file.skipped)

    def _conversation(self, conversation: Conversation) -> None:
        if not conversation.turns:
            return
        key = (conversation.source, conversation.id)
        if key not in self._seen:
            self._seen.add(key)
            self.report.conversations += 1
        turns = self._begun.setdefault(key, _Begun(conversation.turns[0].id)).dated(conversation.turns)
        while batch := list(islice(turns, BATCH)):
            self._batch(conversation, batch)
        replaced = self._stored_parts(conversation, conversation.replaced)
        self.report.replaced += len(replaced)
        self._apply([Forget(part.id, writer=WRITER) for parts in replaced.values() for part in parts])

    def _batch(self, conversation: Conversation, turns: Sequence[Turn]) -> None:
        records = [self._records(conversation, turn) for turn in turns]
        ids = [part.id for parts in records for part in parts]
        taken = self._taken(ids)
        stored = {record.id: record for record in self._store.records.get(ids)}
        forgotten = {key for key in taken - stored.keys() if self._is_forgotten_by_user(key)}
        changes: list[Change] = []
        for turn, parts in zip(turns, records, strict=True):
            before = taken.intersection(part.id for part in parts)
            if before and before <= forgotten:
                self.report.forgotten += 1
            else:
                others = {number: part for number, part in enumerate(parts) if part.id not in forgotten}
                changes += self._compare(conversation, turn, others, stored)
        self._apply(changes)

    def _is_forgotten_by_user(self, key: str) -> bool:
        """Whether the user has forgotten a record, rather than an import in which another turn had replaced it."""
        removals = [event for event in self._store.records.history(key) if event.action in ("forget", "purge")]
        return bool(removals) and removals[-1].detail != WRITER.as_detail()

    def _compare(
        self, conversation: Conversation, turn: Turn, parts: Mapping[int, Record], stored: Mapping[str, Record]
    ) -> list[Change]:
        """The changes that store the parts of one turn, which are given by their numbers, and count it."""
        old = [(number, stored[part.id]) for number, part in parts.items() if part.id in stored]
        changed = {
            number: part
            for number, part in parts.items()
            if part.id not in stored or not self._is_same(part, stored[part.id])
        }
        changes: list[Change] = []
        if old and changed:
            number, record = old[0]
            begin = record.created_at - number * STEP
            changed = {number: replace(part, created_at=begin + number * STEP) for number, part in changed.items()}
            surplus = self._stored_parts(conversation, [turn.id], max(parts) + 1)
            changes = [Forget(part.id, purge=True, writer=WRITER) for part in surplus.get(turn.id, ())]
        self._count("added" if not old else "updated" if changed else "unchanged")
        return [*map(Put, changed.values()), *changes]

    def _stored_parts(
        self, conversation: Conversation, messages: Sequence[str], first: int = 0
    ) -> dict[str, list[Record]]:
        """The stored parts of messages from a number on; messages without any are left out."""
        stored: dict[str, list[Record]] = {}
        while messages:
            parts = range(first, first + PARTS)
            ids = {self._part_id(conversation, message, part): message for message in messages for part in parts}
            taken = self._taken(list(ids))
            for record in self._store.records.get(list(taken)) if taken else ():
                stored.setdefault(ids[record.id], []).append(record)
            messages, first = list({ids[key] for key in taken}), first + PARTS
        return stored

    def _records(self, conversation: Conversation, turn: Turn) -> list[Record]:
        """The records of a turn: one, or several as a file of its length would have chunks."""
        text, title = well_formed(turn.text), bounded(well_formed(conversation.title)) or "conversation"
        own: dict[str, Any] = {
            "kind": "turn", "scope": self._scope, "tags": self._tags, "happened_at": turn.time,
            "author": well_formed(turn.speaker), "author_session": well_formed(conversation.id),
            "source": conversation.source, "origin": self._origin or ORIGIN_OF.get(turn.speaker, "import"),
            "place": title,
        }  # fmt: skip
        # The title is a title of the first turn only: with it in each, what is like it would find all of them.
        name = (title,) if turn.id == self._begun[conversation.source, conversation.id].first else ()
        parts: list[tuple[str, str, tuple[int, int] | None]] = [("".join(name), text, None)]
        if tokens(text) > MAX_TOKENS:
            # A heading of our own, so that every heading of the text stays in it. It and a blank line are two lines.
            chunks = read_markdown(f"# turn\n\n{text}", "").chunks
            parts = [
                (" › ".join((*name, *chunk.headings)), chunk.text, (max(1, chunk.lines[0] - 2), chunk.lines[1] - 2))
                for chunk in chunks
            ]
        # Each is stored later than the last: turns without a time of their own stay in order.
        begin = self._clock + 2 * STEP
        self._clock += (1 + len(parts)) * STEP
        return [
            Record(
                self._part_id(conversation, turn.id, at), body, title=head, lines=lines, created_at=begin + at * STEP,
                **own,
            )
            for at, (head, body, lines) in enumerate(parts)
        ]  # fmt: skip

    def _part_id(self, conversation: Conversation, message: str, part: int) -> str:
        return self._id(self._scope, "turn", conversation.source, conversation.id, message, str(part))

    def _apply(self, changes: Sequence[Change]) -> None:
        if changes:
            groups = [changes[start : start + GROUP] for start in range(0, len(changes), GROUP)]
            self._store.records.apply(groups)
