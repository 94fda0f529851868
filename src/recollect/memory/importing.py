"""The methods of `Memory` for related notes, conversations and imports, and what imports have in common.

What a method runs is imported when it is called: a search needs none of it.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from recollect.errors import UsageError
from recollect.memory.callers import ScopedWriter
from recollect.memory.validation import clean_names, merge_scope
from recollect.options import ORIGINS, SIMILAR
from recollect.types import Progress, Record, Scope, Work

if TYPE_CHECKING:
    from recollect.memory.changes import Writer
    from recollect.memory.conversations import ChatReport, ConversationSummary, StoredConversation
    from recollect.memory.memos import MemoReport
    from recollect.memory.related import Related

ImportReport = TypeVar("ImportReport")


class FileImport(ABC, Generic[ImportReport]):
    """Stores what files of another program hold. A second import finds what the first one stored by its id."""

    formats: ClassVar[Collection[str]]
    compared: ClassVar[Collection[str]]  # fields in which a memory must equal its stored record to be unchanged
    find_files: ClassVar[staticmethod[[Sequence[str | Path]], list[Path]]]
    report: ImportReport

    def __init__(self, memory: Writer, format_: str | None, tags: Sequence[str], origin: str | None) -> None:
        for what, name, names in (("format", format_, self.formats), ("origin", origin, ORIGINS)):
            if name is not None and name not in names:
                raise UsageError(f"unknown {what} {name!r}", hint=f"there are {', '.join(names)}")
        self._store, self._scope, self._format, self._origin = memory.store, memory.scope, format_, origin
        self._tags = clean_names("tags", tags)

    def read(self, paths: str | Path | Sequence[str | Path], reading: Progress | None) -> ImportReport:
        """Store what the files at these paths hold, and report it."""
        files = self.find_files([paths] if isinstance(paths, str | Path) else paths)
        for number, path in enumerate(files, 1):
            self._read_file(path)
            if reading:
                reading(number, len(files))
        return self.report

    @abstractmethod
    def _read_file(self, path: Path) -> None: ...

    @cached_property
    def _key(self) -> bytes:
        return self._store.files.chunk_key()

    def _id(self, scope: Scope, *names: str) -> str:
        """The id of a record: a hash with the store's secret key, so that other scopes cannot guess it."""
        owner = [part for pair in sorted(scope.as_dict().items()) for part in pair]
        name = "\0".join((*names, *owner)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(name, digest_size=12, key=self._key).hexdigest()

    def _taken(self, ids: Sequence[str]) -> set[str]:
        """The ids under which a record is or was stored. One that is not stored now has been forgotten."""
        return self._store.joins.taken(ids, (), ())[0]

    def _is_same(self, one: Record, other: Record) -> bool:
        return all(getattr(one, name) == getattr(other, name) for name in self.compared)

    def _count(self, counter: str) -> None:
        setattr(self.report, counter, getattr(self.report, counter) + 1)


class Importer(ScopedWriter):
    """The methods of `Memory` for related notes, conversations, and the memories of other programs."""

    def related(
        self,
        target: str,
        *,
        limit: int = SIMILAR,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        work: Work | None = None,
    ) -> Related:
        """Return the notes that a record or a file links to, those that link to it, and at most `limit` similar ones.

        `target` is the id of a record, or the path of an indexed file or the end of that. A chunk stands for its file.
        Links are `[[wikilinks]]` and Markdown links to indexed files. Similar notes have near vectors; there may be
        none, and a record without a vector has none. Only notes that the scope may see are listed; for the owner
        without a scope, this is the scope of the record.

        Raises:
            UnknownRecord: There is no such record or file.
            UsageError: Several files have such a path.
        """
        from recollect.memory.related import related

        named = self.scoped(merge_scope(self.scope, scope, {"user": user, "agent": agent, "session": session}))
        return related(named, target, limit, work or Work())

    def import_chat(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        format: str | None = None,  # noqa: A002  (the name of the flag)
        tags: Sequence[str] = (),
        origin: str | None = None,
        reading: Progress | None = None,
    ) -> ChatReport:
        """Store the turns of exported conversations and transcripts, for the scope of this memory.

        Importing again adds only new turns, updates edited ones, and leaves out those that were forgotten. Vectors are
        computed by `embed`.

        Args:
            paths: Files, archives as ChatGPT and Claude export them, or folders of them.
            format: The format of all files: chatgpt, claude, claude-code, codex, gemini, openclaw or plain. By default
                the content of each file tells.
            tags: Tags of all turns.
            origin: The origin of all turns. By default `user` for what the user said, `agent` for an assistant, and
                `import` for others, whose words a model does not read unless it is told to.
            reading: Receives the number of files that were read and their total.
        """
        self._require_owner("import conversations", "import-chat")
        from recollect.memory.conversations import ChatImport

        return ChatImport(self, format, tags, origin).read(paths, reading)

    def import_memory(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        format: str | None = None,  # noqa: A002  (the name of the flag)
        tags: Sequence[str] = (),
        origin: str | None = None,
        reading: Progress | None = None,
    ) -> MemoReport:
        """Store the memories of another program as facts, for the scope of this memory.

        Importing again adds only what is new and updates what was changed there; fields that were edited here stay.
        Vectors are computed by `embed`.

        Args:
            paths: Exports of mem0, `memory.json` of the MCP memory server, notes of basic-memory, or folders of these.
            format: mem0, mcp-memory or basic-memory. By default the content of each file tells.
            tags: Tags of all facts.
            origin: The origin of all facts. By default `agent`, and `file` for notes.
            reading: Receives the number of files that were read and their total.

        Memories of mem0 that belong to a user, an agent or a run keep that scope if this memory has none.
        """
        self._require_owner("import memories", "import-memory")
        from recollect.memory.memos import MemoImport

        return MemoImport(self, format, tags, origin).read(paths, reading)

    def conversation(self, key: str) -> StoredConversation:
        """Return a whole conversation, by its id or by that of a turn, with its turns in order.

        Raises `UnknownRecord` if no visible turn belongs to it.
        """
        from recollect.memory.conversations import read_conversation

        return read_conversation(self, key)

    def conversations(self, *, limit: int = 20) -> list[ConversationSummary]:
        """Return the conversations that were spoken in last, the newest first."""
        from recollect.memory.conversations import newest_conversations

        return newest_conversations(self, limit)
