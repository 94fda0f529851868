"""A conversation with a model: `POST {base_url}/chat/completions`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from recollect.errors import LlmError, UsageError
from recollect.models.endpoint import OPENAI_URL, Endpoint, well_formed

OPENAI_MODEL = "gpt-4o-mini"
"""Asked at OpenAI where no model is named; another server's models are not ours to guess."""

Message: TypeAlias = Mapping[str, str]
"""`{"role": "system" | "user" | "assistant", "content": "…"}`"""


@dataclass(frozen=True, slots=True)
class Llm:
    """One model at one endpoint."""

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
        """The model's answer as text; what is left out is as it was opened with.

        With `complete`, an answer that was cut off or withheld is an error.
        """
        asked = model or self.model
        request = {
            "model": asked,
            "messages": [{name: well_formed(value) for name, value in message.items()} for message in messages],
            "max_tokens": self.max_tokens if max_tokens is None else max_tokens,
            "temperature": self.temperature if temperature is None else temperature,
        }
        who = f"{asked} at {self.endpoint.host}"
        text, ended = _choice(self.endpoint.post("/chat/completions", request), who)
        if ended == "length" and (complete or not text.strip()):
            said = "its answer was complete" if text.strip() else "it said anything"
            limit = f"max_tokens = {request['max_tokens']}"
            raise LlmError(f"{who} used up its tokens ({limit}) before {said}", hint="raise `max_tokens` under [llm]")
        if complete and ended == "content_filter":
            raise LlmError(f"{who} withheld part of its answer (content_filter)", hint="ask another model")
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
    """The model that is named, ready to be asked; nothing is sent yet.

    Where no address is given it is `OPENAI_BASE_URL`'s, else OpenAI's own, which needs a key.
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


def _choice(answer: Any, who: str) -> tuple[str, Any]:
    """The text of the first choice, and why the model ended there."""
    try:
        choice = answer["choices"][0]
        text, ended = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise LlmError(
            f"{who} answered something that is not a chat completion",
            hint="check that base_url is that of an OpenAI-compatible API, usually ending in /v1",
        ) from None
    if not isinstance(text, str):
        raise LlmError(f"{who} answered without text", hint="check that the model is one for chat")
    return text, ended
