"""The memory as a retriever of LlamaIndex: the extra `llamaindex`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from recollect.integrations.retrieving import accepted, found, named
from recollect.memory import Memory
from recollect.registry import missing_package

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise missing_package(error, "the retriever for LlamaIndex", "llamaindex") from error

SHOWN = ("title", "path", "lines", "created_at")
"""What a language model and an embedder read above the text; ids and scores would only be noise to them."""


class RecollectRetriever(BaseRetriever):
    """Finds nodes in a memory, or in the store of that path, which it opens with the settings that apply here.

    `similarity_top_k` is how many; all else is an option of `Memory.search`. A node's score is the result's `score`.
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
        self.options = named(options, "similarity_top_k", similarity_top_k)
        self.memory = accepted(memory, self.options)
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(text, result) for text, result in found(self.memory, query_bundle.query_str, self.options)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """The same in a thread, with the caller's context."""
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(text: str, result: dict[str, Any]) -> NodeWithScore:
    hidden = [name for name, value in result.items() if name not in SHOWN or not value]
    node = TextNode(
        id_=result["id"],
        text=text,
        metadata=result,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
    )
    return NodeWithScore(node=node, score=result["score"])
