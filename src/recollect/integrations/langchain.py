"""The memory as a retriever of LangChain: the extra `langchain`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.integrations.retrieving import accepted, found, named
from recollect.memory import Memory
from recollect.registry import missing_package

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
except ImportError as error:
    raise missing_package(error, "the retriever for LangChain", "langchain") from error


class RecollectRetriever(BaseRetriever):
    """Finds documents in a memory, or in the store of that path, which it opens with the settings that apply here.

    `k` is how many; all else is an option of `Memory.search`, here or in one call: `invoke("…", k=3, user="ada")`.
    LangChain has `tags` and `metadata` of its own, for callbacks; the records' tags are meant by `options={"tags": …}`.
    """

    memory: Memory
    k: int | None
    options: dict[str, Any]

    def __init__(
        self,
        memory: Memory | str | Path,
        *,
        k: int | None = None,
        options: Mapping[str, Any] | None = None,
        name: str | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        said = named({**(options or {}), **more}, "k", k)
        ours = {"memory": accepted(memory, said), "k": said.pop("limit", None), "options": said}
        super().__init__(**ours, name=name, tags=tags, metadata=metadata)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **options: Any
    ) -> list[Document]:
        del run_manager
        options.pop("verbose", None)  # `invoke` has read it, and passes it on
        asked = {**self.options, "limit": self.k, **named(options, "k", k)}
        return [
            Document(id=result["id"], page_content=text, metadata=result)
            for text, result in found(self.memory, query, asked)
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        """The same in a thread, with the caller's context."""
        ask = self._get_relevant_documents
        return await run_in_executor(None, ask, query, run_manager=run_manager.get_sync(), **options)
