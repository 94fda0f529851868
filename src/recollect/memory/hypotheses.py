"""Hypothetical answers for HyDE: written by the language model, kept by question and model.

For callers who are bound to a scope they are kept by that scope, too: how fast an answer comes must not tell what
somebody else has asked.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from recollect.config import Settings
from recollect.errors import LlmError
from recollect.llm import open_llm
from recollect.types import Notes, Scope

PROMPT = (
    "Write one short passage, two or three plain sentences, such as a note or a document would hold that answers the "
    "question. If you do not know the answer, invent a plausible one. No preamble, no quotation marks."
)
MAX_TOKENS = 160
MOST_ASKED = 2_000
"""Characters of a question that are sent."""


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """Answers to questions, from the cache or from the model."""

    settings: Settings
    notes: Notes
    bound: Scope | None = None

    def __call__(self, question: str) -> str:
        """A hypothetical answer, or an error that says why there is none."""
        said, search = self.settings.llm, self.settings.search
        model = search.hyde_model or said.model
        key = _key(model or "", said.base_url or "", question, self.bound)
        kept = self.notes.get(key)
        if kept is not None:
            return kept
        llm = open_llm(
            base_url=said.base_url,
            model=model,
            api_key=os.environ.get(said.api_key_env),
            timeout=search.hyde_timeout,
            retries=0,
            max_tokens=MAX_TOKENS,
            temperature=said.temperature,
        )
        answer = llm.chat(
            [{"role": "system", "content": PROMPT}, {"role": "user", "content": question[:MOST_ASKED]}]
        ).strip()
        if not answer:
            raise LlmError("the language model wrote nothing", hint="try another model: `hyde_model` under [search]")
        self.notes.put(key, answer)
        return answer


def _key(model: str, base_url: str, question: str, bound: Scope | None) -> str:
    asked = f"{'' if bound is None else bound.key}{PROMPT}\0{model}\0{base_url}\0{question}"
    return "hyde:" + hashlib.blake2b(asked.encode(), digest_size=16).hexdigest()
