"""The methods of `Memory` that take in what other programs wrote, and read conversations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.memory.callers import ScopedWriter

if TYPE_CHECKING:
    from recollect.memory.conversations import ChatReport, ConversationSummary, StoredConversation
    from recollect.memory.memos import MemoReport
    from recollect.types import Progress


class Importer(ScopedWriter):
    """The methods of `Memory` for conversations and for the memories of other programs."""

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
        from recollect.memory.conversations import import_chats

        named = [paths] if isinstance(paths, str | Path) else list(paths)
        return import_chats(self, named, format_=format, tags=tags, origin=origin, reading=reading)

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

        Importing again adds only what is new and updates what was changed. Vectors are computed by `embed`.

        Args:
            paths: Exports of mem0, `memory.json` of the MCP memory server, notes of basic-memory, or folders of these.
            format: mem0, mcp-memory or basic-memory. By default the content of each file tells.
            tags: Tags of all facts.
            origin: The origin of all facts. By default `agent`, and `file` for notes.
            reading: Receives the number of files that were read and their total.

        Memories of mem0 that belong to a user, an agent or a run keep that scope if this memory has none.
        """
        self._require_owner("import memories", "import-memory")
        from recollect.memory.memos import import_memos

        named = [paths] if isinstance(paths, str | Path) else list(paths)
        return import_memos(self, named, format_=format, tags=tags, origin=origin, reading=reading)

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
