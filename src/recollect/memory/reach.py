"""Which other machines the present settings can contact, and when. Nothing is contacted to find out."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from recollect.config import Settings, SourceSettings
from recollect.models.catalogue import MODELS, is_here
from recollect.models.embedders import EMBEDDERS, SERVICES
from recollect.models.fetch import PUBLIC_HUB, hub_url
from recollect.models.openai import embedder_url, llm_url
from recollect.network.addresses import host_of, is_local
from recollect.network.wheels import INDEX
from recollect.stores import kind_of


class Reach(NamedTuple):
    """A host that can be contacted, for which purpose, and by what. `counted` is false for calls of other libraries."""

    host: str
    purpose: str
    when: str
    counted: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {**self._asdict(), "local": is_local(self.host)}


def reach(settings: Settings) -> list[Reach]:
    """Every host that these settings can contact; none for the defaults, once the model is on this machine."""
    return [*_store(settings), *_models(settings), *_language_model(settings), *_sources(settings)]


def _store(settings: Settings) -> Iterator[Reach]:
    for host in kind_of(settings.place).hosts(settings.place):
        yield Reach(host, "store", "every command that opens the store")


def _models(settings: Settings) -> Iterator[Reach]:
    search, spec = settings.search, settings.embedder
    name = spec.partition(":")[0]
    for model in (spec, search.rerank_model if search.rerank else ""):
        if model in MODELS and not is_here(MODELS[model]):
            when = f"the first command that needs {model}"
            yield Reach(INDEX, "model files", when)
            if MODELS[model].revision:
                yield Reach(host_of(hub_url()) or hub_url(), "model files", f"{when}, if that fails")
    if name in SERVICES:
        host = host_of(embedder_url(name, settings.openai))
        yield Reach(host, "embeddings", "add, index, embed and search by meaning")
    elif name not in ("none", *MODELS, "hashing"):
        known = name in EMBEDDERS.builtin
        host = host_of(PUBLIC_HUB) if known else "any host"
        yield Reach(host, "model files" if known else "embeddings", f"the package of {name}", counted=False)


def _language_model(settings: Settings) -> Iterator[Reach]:
    llm = settings.llm
    key = os.environ.get(llm.api_key_env)
    if llm.base_url or llm.model or settings.search.hyde or key or os.environ.get("OPENAI_BASE_URL"):
        when = "ingest-files, eval make-set" + (", every search (HyDE is on)" if settings.search.hyde else ", HyDE")
        yield Reach(host_of(llm_url(llm)), "language model", when)


def _sources(settings: Settings) -> Iterator[Reach]:
    for source in settings.sources:
        purpose, when = f"source {source.name}", "every search that asks it"
        for host, counted in _hosts(source):
            yield Reach(host, purpose, when, counted)


def _hosts(source: SourceSettings) -> Iterator[tuple[str, bool]]:
    options = source.options
    if "url" in options:
        yield host_of(options["url"]), True
    elif "store" in options:
        yield from ((host, True) for host in kind_of(options["store"]).hosts(options["store"]))
    elif "command" in options:
        yield f"whatever {options['command'][0]} contacts", False
    else:
        yield "any host", False
