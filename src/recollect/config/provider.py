"""Which model OpenClaw embeds with, as our `embedder`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from recollect.config.imported import Notes, Part

OPENAI_MODEL = "text-embedding-3-small"
"""What OpenClaw asks at OpenAI where no model is named."""

LEFT: Mapping[str, str] = MappingProxyType(
    {
        "apiKey": "keys are not copied; Recollect reads them from the environment, by default OPENAI_API_KEY",
        "headers": "headers are not copied; they may hold keys",
        "batch": "Recollect sends texts in batches of its own",
        "nonBatchConcurrency": "Recollect sends texts in batches of its own",
    }
)
"""Key of `remote` → why it sets nothing."""


def read_provider(search: Part, notes: Notes) -> None:
    """The same model where Recollect asks it in the same place; otherwise what to write."""
    provider, model, remote = search.text("provider"), search.text("model"), search.part("remote")
    spec = None if "baseUrl" in remote else _spec(provider, model)
    for key in ("provider", "model"):
        if key in search and spec is not None:
            notes.take(search.at(key), "embedder", spec, _same(spec))
        elif key in search:
            notes.leave(search.at(key), _instead(provider))
    if "baseUrl" in remote:
        why = 'where texts are sent is yours to say: `base_url` under [openai], and embedder = "openai:MODEL"'
        notes.leave(remote.at("baseUrl"), why)
    notes.leave_rest(remote, ("baseUrl",), LEFT, "Recollect has no such setting")


def _spec(provider: str | None, model: str | None) -> str | None:
    if any("${" in text for text in (provider, model) if text):
        return None  # OpenClaw puts a variable of its environment there
    match provider:
        case "none":
            return "none"
        case "openai":
            return f"openai:{(model or OPENAI_MODEL).removeprefix('openai/')}"
        case "ollama" if model:
            return f"ollama:{model.removeprefix('ollama/')}"
    return None


def _same(spec: str) -> str:
    return "search by words alone" if spec == "none" else "the same model; texts are sent to it when they are indexed"


def _instead(provider: str | None) -> str:
    if provider in ("openai", "openai-compatible", "ollama"):
        return 'not where Recollect would ask it; write embedder = "openai:MODEL" or "ollama:MODEL" yourself'
    return "Recollect asks openai:MODEL, ollama:MODEL or models of its own (`recollect model list`); set `embedder`"
