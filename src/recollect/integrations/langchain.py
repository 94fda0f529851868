"""A memory as a retriever of LangChain; install the extra `langchain`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.integrations import open_memory, search, with_limit
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
    """A retriever that searches a memory, or the store at a path, which is opened with the current settings.

    `k` is the number of documents. Other arguments are options of `Memory.search`; they can also be given in one call:
    `invoke("…", k=3, user="ada")`. `tags` and `metadata` are LangChain's own, for callbacks; to filter by the tags of
    records, use `options={"tags": …}`.
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
        merged = with_limit({**(options or {}), **more}, "k", k)
        fields = {"memory": open_memory(memory, merged), "k": merged.pop("limit", None), "options": merged}
        super().__init__(**fields, name=name, tags=tags, metadata=metadata)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **options: Any
    ) -> list[Document]:
        del run_manager
        options.pop("verbose", None)  # passed on by `invoke`, which has read it
        merged = {**self.options, "limit": self.k, **with_limit(options, "k", k)}
        return [
            Document(id=result["id"], page_content=text, metadata=result)
            for text, result in search(self.memory, query, merged)
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        """Run in a thread, with the caller's context."""
        get = self._get_relevant_documents
        return await run_in_executor(None, get, query, run_manager=run_manager.get_sync(), **options)
