"""Embeddings from a server that speaks OpenAI's protocol: `POST {base_url}/embeddings`."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from recollect.config.settings import LlmSettings, OpenAISettings
from recollect.errors import EmbedderError, FailedError, LlmError, UsageError
from recollect.models.embedders import CachedQueries, fingerprint, unit_rows, well_formed

if TYPE_CHECKING:
    import httpx2
    import numpy as np
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
        import numpy as np

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
        import numpy as np

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


OPENAI_URL = "https://api.openai.com/v1"

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a request is tried again."""

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 30.0
"""No wait is longer, whatever the server asks for, because a user waits for the answer."""

EXCERPT = 200
"""Characters of a server's answer that an error message quotes."""

NOT_OPENAI = "check that base_url is that of an OpenAI-compatible API, usually ending in /v1"

HINTS = {
    401: "check the API key",
    403: "check the API key",
    404: "check base_url and the model's name",
    **dict.fromkeys(TRANSIENT, "the server may need time; try again later"),
}


class Endpoint:
    """A base address and its API key. The key is sent in one header, to this host only, and is never shown."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout: float,
        retries: int,
        failure: type[FailedError] = EmbedderError,
    ) -> None:
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            raise UsageError(f"the base URL {base_url!r} is not an http or https address", hint="http://HOST:PORT/v1")
        if timeout <= 0 or retries < 0:
            raise UsageError("timeout must be above 0 and retries at least 0")
        self._base_url = base_url.rstrip("/")
        self._key = api_key
        self._timeout = timeout
        self._tries = retries + 1
        self._failure = failure
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None

    @property
    def host(self) -> str:
        """Host and port, without a password that an address may contain."""
        parts = urlsplit(self._base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of the answer. Raises the endpoint's `failure` for an error status or no answer."""
        import httpx2

        for attempt in range(1, self._tries + 1):
            last = attempt == self._tries
            try:
                response = self._http().post(self._base_url + path, json=body)
            except httpx2.TransportError as error:
                if last:
                    raise self._unreachable(error) from error
                time.sleep(_wait(attempt))
                continue
            except httpx2.HTTPError as error:
                raise self._unreachable(error) from error
            if response.status_code not in TRANSIENT or last:
                return self._read(response)
            time.sleep(_wait(attempt, response.headers.get("retry-after")))
        return None

    def _http(self) -> httpx2.Client:
        """The client, made at first use. It follows no redirect: key and text are only for this host."""
        import httpx2

        with self._lock:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                self._client = httpx2.Client(headers=headers, timeout=self._timeout, follow_redirects=False)
                weakref.finalize(self, self._client.close)  # open connections are closed with the endpoint
            return self._client

    def _read(self, response: httpx2.Response) -> Any:
        status = f"{self.host} answered {response.status_code}"
        if response.is_redirect:
            target = urlsplit(response.headers.get("location", "")).hostname or "another path"
            raise self._failure(
                f"{status}, a redirect to {target}, which is not followed",
                hint="set base_url to that address if it is the right one",
            )
        if not response.is_success:
            hint = HINTS.get(response.status_code, "the server's own message says why")
            raise self._failure(f"{status}: {self._excerpt(response)}", hint=hint)
        try:
            return response.json()
        except ValueError as error:
            raise self._failure(
                f"{status} with a body that is not JSON: {self._excerpt(response)}", hint=NOT_OPENAI
            ) from error

    def _excerpt(self, response: httpx2.Response) -> str:
        """The start of the body. A server may repeat the key in its message; it is removed."""
        text = response.text.replace(self._key, "[key]") if self._key else response.text
        return text[:EXCERPT].strip() or "nothing"

    def _unreachable(self, error: Exception) -> FailedError:
        tries = f"after {self._tries} tries" if self._tries > 1 else "at the only try"
        return self._failure(
            f"{self.host} did not answer {tries}: {type(error).__name__}: {error}",
            hint="check that the server runs and that base_url is right",
        )


def _wait(attempt: int, retry_after: str | None = None) -> float:
    """Seconds before the next try: what the server asks for, else doubling, at random so that clients spread out."""
    requested = _seconds(retry_after) if retry_after else None
    if requested is not None:
        return min(max(requested, 0.0), LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0)  # noqa: S311


def _seconds(retry_after: str) -> float | None:
    """A Retry-After header, which is a number of seconds or a date; None if it is neither."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return None


OPENAI_MODEL = "gpt-4o-mini"
"""The default at OpenAI; another server has no default."""

Message: TypeAlias = Mapping[str, str]
"""`{"role": "system" | "user" | "assistant", "content": "…"}`"""


@dataclass(frozen=True, slots=True)
class Llm:
    """One model at one endpoint, with the defaults of a request."""

    endpoint: Endpoint
    model: str
    max_tokens: int
    temperature: float

    def chat(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        complete: bool = False,
    ) -> str:
        """The text that the model answers. With `complete`, an answer that was cut off or withheld is an error."""
        model = model or self.model
        limit = self.max_tokens if max_tokens is None else max_tokens
        request = {
            "model": model,
            "messages": [{name: well_formed(value) for name, value in message.items()} for message in messages],
            "max_tokens": limit,
            "temperature": self.temperature if temperature is None else temperature,
        }
        source = f"{model} at {self.endpoint.host}"
        text, reason = _first_choice(self.endpoint.post("/chat/completions", request), source)
        if reason == "length" and (complete or not text.strip()):
            before = "its answer was complete" if text.strip() else "its answer began"
            raise LlmError(
                f"{source} reached the token limit (max_tokens = {limit}) before {before}",
                hint="raise `max_tokens` under [llm]",
            )
        if complete and reason == "content_filter":
            raise LlmError(f"{source} withheld part of its answer (content_filter)", hint="use another model")
        return text


def open_llm(settings: LlmSettings | None = None, *, api_key: str | None = None, **options: Any) -> Llm:
    """A language model, ready for requests; nothing is sent yet. `options` override fields of the settings.

    The default address is `OPENAI_BASE_URL`, else OpenAI's own, which needs a key. The key is `api_key`, else that of
    the environment variable that the settings name.
    """
    if settings is not None:
        api_key = api_key or os.environ.get(settings.api_key_env)
    endpoint = replace(settings or LlmSettings(), **options)
    url = (endpoint.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
    if url == OPENAI_URL and not api_key:
        raise UsageError(
            "no language model is set up: there is no API key and no endpoint",
            hint="set OPENAI_API_KEY; or, for another server, `base_url` and `model` under [llm] in config.toml "
            "(RECOLLECT_LLM_BASE_URL=http://localhost:11434/v1 RECOLLECT_LLM_MODEL=NAME)",
        )
    if url != OPENAI_URL and not endpoint.model:
        raise UsageError(
            f"no model is named for the language model endpoint {url}",
            hint="set `model` under [llm] in config.toml, or RECOLLECT_LLM_MODEL",
        )
    return Llm(
        Endpoint(url, api_key, timeout=endpoint.timeout, retries=endpoint.retries, failure=LlmError),
        endpoint.model or OPENAI_MODEL,
        endpoint.max_tokens,
        endpoint.temperature,
    )


def _first_choice(answer: Any, source: str) -> tuple[str, Any]:
    """The text of the first choice, and why the model stopped there."""
    try:
        choice = answer["choices"][0]
        text, reason = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise LlmError(f"{source} answered something that is not a chat completion", hint=NOT_OPENAI) from None
    if not isinstance(text, str):
        raise LlmError(f"{source} answered without text", hint="check that the model is one for chat")
    return text, reason
