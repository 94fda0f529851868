"""A language model on any server that speaks OpenAI's protocol: `POST {base_url}/chat/completions`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recollect.config.settings import LlmSettings
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
