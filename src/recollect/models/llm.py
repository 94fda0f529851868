"""A language model on any server that speaks OpenAI's protocol: `POST {base_url}/chat/completions`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.errors import LlmError, UsageError
from recollect.models.endpoint import NOT_OPENAI, OPENAI_URL, Endpoint, well_formed

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


def open_llm(
    *,
    base_url: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    timeout: float = 60.0,
    retries: int = 3,
    max_tokens: int = 1024,
    temperature: float = 0.0,
) -> Llm:
    """A language model, ready for requests; nothing is sent yet.

    The default address is `OPENAI_BASE_URL`, else OpenAI's own, which needs a key.
    """
    url = (base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
    if url == OPENAI_URL and not api_key:
        raise UsageError(
            "no language model is set up: there is no API key and no endpoint",
            hint="set OPENAI_API_KEY; or, for another server, `base_url` and `model` under [llm] in config.toml "
            "(RECOLLECT_LLM_BASE_URL=http://localhost:11434/v1 RECOLLECT_LLM_MODEL=NAME)",
        )
    if url != OPENAI_URL and not model:
        raise UsageError(
            f"no model is named for the language model endpoint {url}",
            hint="set `model` under [llm] in config.toml, or RECOLLECT_LLM_MODEL",
        )
    endpoint = Endpoint(url, api_key, timeout=timeout, retries=retries, failure=LlmError)
    return Llm(endpoint, model or OPENAI_MODEL, max_tokens, temperature)


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
