"""Embeddings from any server that speaks OpenAI's protocol: `POST {base_url}/embeddings`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.errors import EmbedderError, UsageError
from recollect.models.embedders import QUERIES_KEPT, fingerprint, frozen, unit_rows
from recollect.models.endpoint import OPENAI_URL, Endpoint, well_formed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recollect.types import Matrix, Vector

OLLAMA_URL = "http://localhost:11434/v1"

BATCH = 64
"""Texts a request: well under every server's limit, and enough to hide the round trip."""


class OpenAICompatible:
    """Text to unit vectors by a server. Where the server is and who asks is no part of what the vectors are."""

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
        self._seen_dimension = dimensions
        self._query = lru_cache(maxsize=QUERIES_KEPT)(self._embed_query)

    @property
    def fingerprint(self) -> str:
        """The model, the dimension asked for, length, prefixes."""
        asked = f"{self.dimensions}d" if self.dimensions else "native"
        return fingerprint(self.name, asked, prefixes=self._prefixes)

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order. Before the first answer the dimension may not be known; it is 0 then."""
        if not texts:
            return np.empty((0, self._seen_dimension or 0), dtype=np.float32)
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        return np.concatenate([self._embed([self._prefixes[1] + text for text in batch]) for batch in batches])

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        return self._query("", text)

    def query_of(self, asker: str, text: str) -> Vector:
        """The same, kept apart for each who asks: how fast it comes does not tell what others have asked."""
        return self._query(asker, text)

    def _embed_query(self, _asker: str, text: str) -> Vector:
        return frozen(self._embed([self._prefixes[0] + text])[0])

    def _embed(self, texts: list[str]) -> Matrix:
        # An empty input is refused by some servers; a space is not, and means as little.
        request: dict[str, Any] = {"model": self._model, "input": [well_formed(text) or " " for text in texts]}
        request["encoding_format"] = "float"
        if self.dimensions:
            request["dimensions"] = self.dimensions
        matrix = self._read(self._endpoint.post("/embeddings", request), len(texts))
        return unit_rows(matrix, name=self.name)

    def _read(self, answer: Any, count: int) -> NDArray[np.float64]:
        """The vectors of an answer in the order of the texts, whatever order they came in."""
        try:
            entries = sorted(answer["data"], key=lambda entry: int(entry["index"]))
            if [int(entry["index"]) for entry in entries] != list(range(count)):
                raise self._refusal(f"{len(entries)} vectors that are not one for each of {count} texts")
            matrix = np.array([entry["embedding"] for entry in entries], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise self._refusal("something that is not a list of vectors") from error
        return self._checked(matrix)

    def _checked(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        expected = self._seen_dimension or matrix.shape[-1]
        if not expected or matrix.shape != (len(matrix), expected):
            raise self._refusal(f"vectors of dimension {matrix.shape[-1]} where {expected} was expected")
        self._seen_dimension = expected
        return matrix

    def _refusal(self, what: str) -> EmbedderError:
        return EmbedderError(
            f"{self.name}: the server answered {what}", hint="check the model's name and its dimensions"
        )


def from_spec(
    spec: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    dimensions: int | None = None,
    query_prefix: str = "",
    passage_prefix: str = "",
    timeout: float = 60.0,
    retries: int = 4,
) -> OpenAICompatible:
    """`openai:MODEL` or `ollama:MODEL`.

    Where nothing is said, the first asks at `OPENAI_BASE_URL` with `OPENAI_API_KEY`, the second on this machine and
    without a key: the one in the environment is not meant for it.
    """
    service, _, model = spec.partition(":")
    if not model:
        raise UsageError(f"{spec!r} does not name a model", hint=f"for example {EXAMPLES.get(service, 'openai:MODEL')}")
    if service == "ollama":
        url = base_url or OLLAMA_URL
    else:
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        api_key = api_key or os.environ.get("OPENAI_API_KEY")
    if url == OPENAI_URL and not api_key:
        raise UsageError(f"{spec} needs an API key", hint="set OPENAI_API_KEY, or OPENAI_BASE_URL for another server")
    endpoint = Endpoint(url, api_key, timeout=timeout, retries=retries)
    prefixes = {"query_prefix": query_prefix, "passage_prefix": passage_prefix}
    return OpenAICompatible(spec, endpoint, dimensions=dimensions, **prefixes)


EXAMPLES = {"openai": "openai:text-embedding-3-small", "ollama": "ollama:nomic-embed-text"}
