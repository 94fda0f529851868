"""A memory as a retriever of LlamaIndex; install the extra `llamaindex`."""

import asyncio
from pathlib import Path
from typing import Any

from recollect.integrations import open_memory, search, with_limit
from recollect.memory import Memory
from recollect.registry import missing_package

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise missing_package(error, "the retriever for LlamaIndex", "llamaindex") from error

READ_METADATA = ("title", "path", "lines", "created_at")
"""Metadata that language models and embedders read above the text; ids and scores would only be noise."""


class RecollectRetriever(BaseRetriever):
    """A retriever that searches a memory, or the store at a path, which is opened with the current settings.

    `similarity_top_k` is the number of nodes; other arguments are options of `Memory.search`. A node's score is the
    `score` of the result.
    """

    def __init__(
        self,
        memory: Memory | str | Path,
        *,
        similarity_top_k: int | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        self.options = with_limit(options, "similarity_top_k", similarity_top_k)
        self.memory = open_memory(memory, self.options)
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        nodes = []
        for text, result in search(self.memory, query_bundle.query_str, self.options):
            names = [name for name, value in result.items() if name not in READ_METADATA or not value]
            hidden = {"excluded_llm_metadata_keys": names, "excluded_embed_metadata_keys": names}
            node = TextNode(id_=result["id"], text=text, metadata=result, **hidden)
            nodes.append(NodeWithScore(node=node, score=result["score"]))
        return nodes

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Run in a thread, with the caller's context."""
        return await asyncio.to_thread(self._retrieve, query_bundle)
