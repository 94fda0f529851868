"""Servers that speak OpenAI's protocol: embeddings (`POST {base_url}/embeddings`) and chat (`/chat/completions`)."""

from __future__ import annotations

import os
import random
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recollect.config.settings import LlmSettings, OpenAISettings
from recollect.dataclass import dataclass
from recollect.errors import EmbedderError, FailedError, LlmError, UsageError
from recollect.models.embedders import CachedQueries, fingerprint, unit_rows
from recollect.network.addresses import host_of, is_local
from recollect.ranking import well_formed
from recollect.redaction import redact_json
from recollect.types import Matrix, Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.config import Settings
    from recollect.network.client import Client, Response

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://localhost:11434/v1"

OPENAI_MODEL = "gpt-4o-mini"  # the default language model at OpenAI; another server has no default
PURPOSES = {EmbedderError: "embeddings", LlmError: "language model"}  # of calls, by the error that a failed one raises
EXAMPLES = {"openai": "openai:text-embedding-3-small", "ollama": "ollama:nomic-embed-text"}

BATCH = 64  # texts a request: well under every server's limit, and enough to hide the round trip
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which a request is tried again
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 30.0  # no wait is longer, whatever the server asks for, because a user waits for the answer
EXCERPT = 200  # characters of a server's answer that an error message quotes
NOT_OPENAI = "check that base_url is that of an OpenAI-compatible API, usually ending in /v1"

HINTS = {
    401: "check the API key",
    403: "check the API key",
    404: "check base_url and the model's name",
    **dict.fromkeys(TRANSIENT, "the server may need time; try again later"),
}


class Endpoint:
    """A base address and its API key. The key is sent in one header, to this host only, and is never shown.

    Secrets in texts are replaced before they are sent to another machine; `redacted` counts them.
    """

    def __init__(
        self, base_url: str, api_key: str | None, options: OpenAISettings | LlmSettings, failure: type[FailedError]
    ) -> None:
        parts = urlsplit(base_url if host_of(base_url) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"the base URL {base_url!r} is not an http or https address", hint="http://HOST:PORT/v1")
        if options.timeout <= 0 or options.retries < 0:
            raise UsageError("timeout must be above 0 and retries at least 0")
        self.host = host_of(base_url)
        self.local = is_local(parts.hostname)
        self.redacted = 0
        self._base_url = base_url.rstrip("/")
        self._key = api_key
        self._timeout = options.timeout
        self._tries = options.retries + 1
        self._failure = failure

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of the answer. Raises the endpoint's `failure` for an error status or no answer."""
        from recollect.network.client import CallFailed

        if not self.local:
            body, count = redact_json(body)
            self.redacted += count
        for attempt in range(1, self._tries + 1):
            is_last = attempt == self._tries
            try:
                response = self._client.post(self._base_url + path, json=body)
            except CallFailed as error:
                if error.kind == "size":
                    hint = "check that base_url is the address of a model"
                    raise self._failure(f"{self.host} answered with {error.text}", hint=hint) from error
                if is_last or not error.transient:
                    tries = f"after {self._tries} tries" if self._tries > 1 else "at the only try"
                    raise self._failure(
                        f"{self.host} did not answer {tries}: {error}",
                        hint="check that the server runs and that base_url is right",
                    ) from error
                retry_after = None
            else:
                if is_last or response.status_code not in TRANSIENT:
                    return self._read(response)
                retry_after = response.headers.get("retry-after")
            time.sleep(_wait(attempt, retry_after))
        return None

    @cached_property
    def _client(self) -> Client:
        """Made at first use. It follows no redirect: key and text are only for this host."""
        from recollect.network.client import Client

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        client = Client(PURPOSES[self._failure], headers=headers, timeout=self._timeout)
        weakref.finalize(self, client.close)  # open connections are closed with the endpoint
        return client

    def _read(self, response: Response) -> Any:
        status = f"{self.host} answered {response.status_code}"
        if response.is_redirect:
            target = urlsplit(response.headers.get("location", "")).hostname or "another path"
            raise self._failure(
                f"{status}, a redirect to {target}, which is not followed",
                hint="set base_url to that address if it is the right one",
            )
        # A server may repeat the key in its message.
        text = response.text.replace(self._key, "[key]") if self._key else response.text
        excerpt = text[:EXCERPT].strip() or "nothing"
        if not response.is_success:
            hint = HINTS.get(response.status_code, "the server's own message says why")
            raise self._failure(f"{status}: {excerpt}", hint=hint)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise self._failure(f"{status} with a body that is not JSON: {excerpt}", hint=NOT_OPENAI) from error


def _wait(attempt: int, retry_after: str | None) -> float:
    """Seconds before the next try: what the server asks for, else doubling, at random so that clients spread out.

    A Retry-After header is a number of seconds or a date.
    """
    if retry_after:
        with suppress(TypeError, ValueError):
            is_number = retry_after.strip().isdecimal()
            until = None if is_number else parsedate_to_datetime(retry_after) - datetime.now(UTC)
            return min(max(until.total_seconds() if until else float(retry_after), 0.0), LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0)  # noqa: S311


class OpenAIEmbedder(CachedQueries):
    """Text to unit vectors by a server. The server's address and the key are not part of the fingerprint."""

    def __init__(self, name: str, endpoint: Endpoint, options: OpenAISettings) -> None:
        self.name = name
        self._endpoint = endpoint
        self._options = options
        self._dimension = options.dimensions
        super().__init__()

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self._embed([text], self._options.query_prefix)[0]
        return vector

    @property
    def remote(self) -> bool:
        """Whether texts are sent to another machine."""
        return not self._endpoint.local

    @property
    def redacted(self) -> int:
        """How many secrets in texts were replaced before these were sent."""
        return self._endpoint.redacted

    @property
    def fingerprint(self) -> str:
        """The model, the requested dimension, prefixes."""
        options = self._options
        dimension = f"{options.dimensions}d" if options.dimensions else "native"
        return fingerprint(self.name, dimension, prefixes=(options.query_prefix, options.passage_prefix))

    def passages(self, texts: Sequence[str]) -> Matrix:
        """Without texts and before the first answer the dimension may be 0."""
        import numpy as np

        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        matrices = [self._embed(batch, self._options.passage_prefix) for batch in batches]
        return np.concatenate(matrices) if matrices else np.empty((0, self._dimension or 0), dtype=np.float32)

    def _embed(self, texts: Sequence[str], prefix: str) -> Matrix:
        # Some servers refuse an empty input; a space has no meaning either, and is accepted.
        inputs = [well_formed(prefix + text) or " " for text in texts]
        request: dict[str, Any] = {"model": self.name.partition(":")[2], "input": inputs, "encoding_format": "float"}
        if self._options.dimensions:
            request["dimensions"] = self._options.dimensions
        matrix = self._read(self._endpoint.post("/embeddings", request), len(texts))
        return unit_rows(matrix, matrix.shape[1], name=self.name)

    def _read(self, answer: Any, count: int) -> NDArray[np.float64]:
        """The vectors of an answer in the order of the texts; the server may send them in any order."""
        import numpy as np

        try:
            entries = sorted(answer["data"], key=lambda entry: int(entry["index"]))
            if [int(entry["index"]) for entry in entries] != list(range(count)):
                raise self._unexpected(f"{len(entries)} vectors that are not one for each of {count} texts")
            matrix = np.array([entry["embedding"] for entry in entries], dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._unexpected("something that is not a list of vectors") from error
        dimension = self._dimension or matrix.shape[-1]
        if not dimension or matrix.shape != (len(matrix), dimension):
            raise self._unexpected(f"vectors of dimension {matrix.shape[-1]} where {dimension} was expected")
        self._dimension = dimension
        return matrix

    def _unexpected(self, what: str) -> EmbedderError:
        hint = "check the model's name and its dimensions"
        return EmbedderError(f"{self.name}: the server answered {what}", hint=hint)


def embedder_url(service: str, settings: OpenAISettings) -> str:
    """The address of an embedding service: that of the settings, else the service's own."""
    if settings.base_url or service == "ollama":
        return settings.base_url or OLLAMA_URL
    return os.environ.get("OPENAI_BASE_URL") or OPENAI_URL


def open_openai(spec: str, *, settings: Settings | None = None) -> OpenAIEmbedder:
    """Open `openai:MODEL` or `ollama:MODEL`, with `[openai]` of the settings.

    Without settings, `openai` uses `OPENAI_BASE_URL` and `OPENAI_API_KEY`; `ollama` uses the server on this machine
    and no key, because the key in the environment is not for it.
    """
    service, _, model = spec.partition(":")
    if not model:
        raise UsageError(f"{spec!r} does not name a model", hint=f"for example {EXAMPLES[service]}")
    chosen, api_key = settings.openai if settings else OpenAISettings(), None
    url = embedder_url(service, chosen)
    if service != "ollama":
        api_key = os.environ.get(chosen.api_key_env)
    if url == OPENAI_URL and not api_key:
        hint = f"set {chosen.api_key_env}, or OPENAI_BASE_URL for another server"
        raise UsageError(f"{spec} needs an API key", hint=hint)
    return OpenAIEmbedder(spec, Endpoint(url, api_key, chosen, EmbedderError), chosen)


@dataclass(frozen=True, slots=True)
class Llm:
    """One language model at one endpoint, with the defaults of a request."""

    endpoint: Endpoint
    model: str
    max_tokens: int
    temperature: float

    def chat(self, messages: Sequence[Mapping[str, str]], *, complete: bool = False) -> str:
        """The text that the model answers. With `complete`, an answer that was cut off or withheld is an error."""
        request = {
            "model": self.model,
            "messages": [{name: well_formed(value) for name, value in message.items()} for message in messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        source = f"{self.model} at {self.endpoint.host}"
        answer = self.endpoint.post("/chat/completions", request)
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"], choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise LlmError(f"{source} answered something that is not a chat completion", hint=NOT_OPENAI) from None
        if not isinstance(text, str):
            raise LlmError(f"{source} answered without text", hint="check that the model is one for chat")
        if reason == "length" and (complete or not text.strip()):
            before = "its answer was complete" if text.strip() else "its answer began"
            raise LlmError(
                f"{source} reached the token limit (max_tokens = {self.max_tokens}) before {before}",
                hint="raise `max_tokens` under [llm]",
            )
        if complete and reason == "content_filter":
            raise LlmError(f"{source} withheld part of its answer (content_filter)", hint="use another model")
        return text


def llm_url(settings: LlmSettings) -> str:
    """The address of the language model: that of the settings, else `OPENAI_BASE_URL`, else OpenAI's own."""
    return (settings.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")


def is_remote(settings: LlmSettings) -> bool:
    """Whether the language model is on another machine."""
    return not is_local(host_of(llm_url(settings)))


def open_llm(settings: LlmSettings, **options: Any) -> Llm:
    """A language model, ready for requests; nothing is sent yet. `options` override fields of the settings.

    The default address is `OPENAI_BASE_URL`, else OpenAI's own, which needs a key.
    """
    chosen = replace(settings, **options)
    url, api_key = llm_url(chosen), os.environ.get(settings.api_key_env)
    if url == OPENAI_URL and not api_key:
        raise UsageError(
            "no language model is set up: there is no API key and no endpoint",
            hint="set OPENAI_API_KEY; or, for another server, `base_url` and `model` under [llm] in config.toml "
            "(RECOLLECT_LLM_BASE_URL=http://localhost:11434/v1 RECOLLECT_LLM_MODEL=NAME)",
        )
    if url != OPENAI_URL and not chosen.model:
        raise UsageError(
            f"no model is named for the language model endpoint {url}",
            hint="set `model` under [llm] in config.toml, or RECOLLECT_LLM_MODEL",
        )
    endpoint = Endpoint(url, api_key, chosen, LlmError)
    return Llm(endpoint, chosen.model or OPENAI_MODEL, chosen.max_tokens, chosen.temperature)
