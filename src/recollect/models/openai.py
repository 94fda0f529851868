"""Embeddings from a server that speaks OpenAI's protocol: `POST {base_url}/embeddings`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.config.settings import OpenAISettings
from recollect.errors import EmbedderError, UsageError
from recollect.models.embedders import CachedQueries, fingerprint, unit_rows
from recollect.models.endpoint import OPENAI_URL, Endpoint, well_formed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.config import Settings
    from recollect.types import Matrix

OLLAMA_URL = "http://localhost:11434/v1"

BATCH = 64
"""Texts a request: well under every server's limit, and enough to hide the round trip."""

EXAMPLES = {"openai": "openai:text-embedding-3-small", "ollama": "ollama:nomic-embed-text"}


class OpenAIEmbedder(CachedQueries):
    """Text to unit vectors by a server. The server's address and the key are not part of the fingerprint."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        dimensions: int | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self._model = name.partition(":")[2]
        self._endpoint = endpoint
        self._prefixes = (query_prefix, passage_prefix)
        self._dimension = dimensions
        super().__init__(lambda text: self._embed([query_prefix + text])[0])

    @property
    def fingerprint(self) -> str:
        """The model, the requested dimension, prefixes."""
        dimension = f"{self.dimensions}d" if self.dimensions else "native"
        return fingerprint(self.name, dimension, prefixes=self._prefixes)

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order. Without texts and before the first answer the dimension may be 0."""
        if not texts:
            return np.empty((0, self._dimension or 0), dtype=np.float32)
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        return np.concatenate([self._embed([self._prefixes[1] + text for text in batch]) for batch in batches])

    def _embed(self, texts: list[str]) -> Matrix:
        # Some servers refuse an empty input; a space has no meaning either, and is accepted.
        request: dict[str, Any] = {"model": self._model, "input": [well_formed(text) or " " for text in texts]}
        request["encoding_format"] = "float"
        if self.dimensions:
            request["dimensions"] = self.dimensions
        matrix = self._read(self._endpoint.post("/embeddings", request), len(texts))
        return unit_rows(matrix, name=self.name)

    def _read(self, answer: Any, count: int) -> NDArray[np.float64]:
        """The vectors of an answer in the order of the texts; the server may send them in any order."""
        try:
            entries = sorted(answer["data"], key=lambda entry: int(entry["index"]))
            if [int(entry["index"]) for entry in entries] != list(range(count)):
                raise self._unexpected(f"{len(entries)} vectors that are not one for each of {count} texts")
            matrix = np.array([entry["embedding"] for entry in entries], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise self._unexpected("something that is not a list of vectors") from error
        dimension = self._dimension or matrix.shape[-1]
        if not dimension or matrix.shape != (len(matrix), dimension):
            raise self._unexpected(f"vectors of dimension {matrix.shape[-1]} where {dimension} was expected")
        self._dimension = dimension
        return matrix

    def _unexpected(self, what: str) -> EmbedderError:
        return EmbedderError(
            f"{self.name}: the server answered {what}", hint="check the model's name and its dimensions"
        )


def open_openai(
    spec: str,
    *,
    settings: Settings | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> OpenAIEmbedder:
    """Open `openai:MODEL` or `ollama:MODEL`, with `[openai]` of the settings; `options` override its fields.

    Without an address, `openai` uses `OPENAI_BASE_URL` and `OPENAI_API_KEY`; `ollama` uses the server on this machine
    and no key, because the key in the environment is not for it.
    """
    service, _, model = spec.partition(":")
    if not model:
        raise UsageError(f"{spec!r} does not name a model", hint=f"for example {EXAMPLES.get(service, 'openai:MODEL')}")
    try:
        endpoint = replace(settings.openai if settings else OpenAISettings(), **options)
    except TypeError as error:
        raise UsageError(f"{spec} cannot be opened with these options: {error}") from error
    url = base_url or endpoint.base_url
    if service == "ollama":
        url = url or OLLAMA_URL
    else:
        url = url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        api_key = api_key or os.environ.get(endpoint.api_key_env) or os.environ.get("OPENAI_API_KEY")
    if url == OPENAI_URL and not api_key:
        raise UsageError(f"{spec} needs an API key", hint="set OPENAI_API_KEY, or OPENAI_BASE_URL for another server")
    return OpenAIEmbedder(
        spec,
        Endpoint(url, api_key, timeout=endpoint.timeout, retries=endpoint.retries),
        dimensions=endpoint.dimensions,
        query_prefix=endpoint.query_prefix,
        passage_prefix=endpoint.passage_prefix,
    )
